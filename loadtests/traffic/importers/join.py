"""Text for traces of lengths: each row gets the text of a donor of about its prompt length."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.importers.entries import COUNTED, ESTIMATE, Entry, check_context
from loadtests.traffic.importers.problems import BadField, Reason

RULE = (
    "A trace row takes the text and sampling settings of a donor row whose prompt is in the same bin of tokens "
    "(powers of two) and, where the donor set has the trace row's class, of that class. The donors of a bin are "
    "shuffled by the seed and taken in turn. The output limit is the trace's output length, as a limit: the answer "
    "may end earlier. A row whose bin has no donor is left out. Prefixes that rows of the trace share are not kept."
)

Key = tuple[str | None, int]


def bin_of(tokens: int) -> int:
    """The bin [2ⁿ⁻¹, 2ⁿ) that holds the count."""
    return tokens.bit_length()


class Donors:
    """The donor set as decks of rows, drawn from in turn. ``payload`` reads one row's text by its index."""

    def __init__(
        self,
        classes: Sequence[str],
        tokens: Sequence[int],
        *,
        estimated: bool,
        seed: int,
        payload: Callable[[int], bytes],
    ) -> None:
        self._classes, self._tokens, self._payload, self._seed = classes, tokens, payload, seed
        self.estimated = estimated
        self._known = set(classes)
        self._members: dict[Key, list[int]] = {}
        for index, (class_, count) in enumerate(zip(classes, tokens, strict=True)):
            for key in ((class_, bin_of(count)), (None, bin_of(count))):
                self._members.setdefault(key, []).append(index)
        self._decks: dict[Key, list[int]] = {}
        self._drawn: Counter[Key] = Counter()
        self.rows: Counter[Key] = Counter()
        self.used: Counter[int] = Counter()

    def key(self, class_: str | None, tokens: int) -> Key:
        return (class_ if class_ in self._known else None, bin_of(tokens))

    def draw(self, key: Key) -> int:
        """The index of the deck's next donor; raises BadField where there is none."""
        deck = self.deck(key)
        self._drawn[key] += 1
        return deck[(self._drawn[key] - 1) % len(deck)]

    def deck(self, key: Key) -> list[int]:
        if key not in self._decks:
            if key not in self._members:
                raise BadField("prompt_tokens", Reason.NO_DONOR, f"{spoken(key)} tokens")
            drawn = generator_for("donor", self._seed, key[0] or "", key[1]).permutation(self._members[key])
            self._decks[key] = drawn.tolist()
        return self._decks[key]

    def joined(self, entry: Entry, max_context: int | None) -> Entry:
        """The trace row with a donor's text: time, conversation and output limit stay the trace's."""
        key = self.key(entry.class_, entry.tokens)
        index = self.draw(key)
        # The text that is sent must fit too, and within a bin it may be almost twice as long.
        check_context(self._tokens[index], entry.max_tokens, max_context, estimated=self.estimated)
        self.rows[key] += 1
        self.used[index] += 1
        class_ = entry.class_ or self._classes[index]
        return entry._replace(class_=class_, payload=self._payload(index), has_text=True)

    def document(self) -> dict[str, Any]:
        """How often what was drawn. The reuse of a deck follows from its size: it is taken in turn."""
        bins = [
            {
                "class": class_,
                "from_tokens": 2 ** (bits - 1),
                "to_tokens": 2**bits - 1,
                "donors": len(self._members[class_, bits]),
                "rows": rows,
            }
            for (class_, bits), rows in sorted(self.rows.items(), key=lambda item: (item[0][0] or "", item[0][1]))
        ]
        return {
            "rule": RULE,
            "seed": self._seed,
            "donor_lengths": ESTIMATE if self.estimated else COUNTED,
            "bins": bins,
            "donors_used": len(self.used),
            "most_uses_of_one": max(self.used.values(), default=0),
        }


def spoken(key: Key) -> str:
    class_, bits = key
    return f"{2 ** (bits - 1)} to {2**bits - 1}" + (f" and class {class_}" if class_ else "")
