"""Text for traces of lengths: each row gets the text of a donor of about its prompt length."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.importers.entries import COUNTED, ESTIMATE, Entry, check_context
from loadtests.traffic.importers.problems import BadField, ImportRefused, Reason

RULE = (
    "A trace row takes the text and sampling settings of a donor row whose prompt is in the same bin of tokens "
    "(powers of two) and, where the donor set has the trace row's class, of that class. The donors of a bin are "
    "shuffled by the seed and taken in turn. The output limit is the trace's output length, as a limit: the answer "
    "may end earlier. A row whose bin has no donor is left out. Prefixes that rows of the trace share are not kept."
)
DIVIDED = (
    "The trace was split first, and the donors were divided among its parts, with whole conversations and equal or "
    "nearly equal texts together: the rows of a part draw from its own donors alone."
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
        self._members = self._by_key(range(len(tokens)))
        self._decks: dict[Key, list[int]] = {}
        self._drawn: Counter[Key] = Counter()
        self.rows: Counter[Key] = Counter()
        self.used: Counter[int] = Counter()
        self._texts: set[int] = set()

    def __len__(self) -> int:
        return len(self._tokens)

    def _by_key(self, indices: Iterable[int]) -> dict[Key, list[int]]:
        members: dict[Key, list[int]] = {}
        for index in indices:
            bits = bin_of(self._tokens[index])
            for key in ((self._classes[index], bits), (None, bits)):
                members.setdefault(key, []).append(index)
        return members

    def members(self, key: Key) -> Sequence[int]:
        """The donors that a row of this key may take, as indices; none where no donor has the key."""
        return self._members.get(key, [])

    def among(self, indices: Iterable[int]) -> "Donors":
        """These alone, in decks of their own. What they give is counted here too."""
        some = copy(self)
        some._members, some._decks, some._drawn = self._by_key(indices), {}, Counter()
        return some

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
        return self.with_text(entry, self.chosen(entry, max_context))

    def chosen(self, entry: Entry, max_context: int | None) -> int:
        """The index of the row's donor; raises BadField where there is none, or its text doesn't fit."""
        key = self.key(entry.class_, entry.tokens)
        index = self.draw(key)
        tokens, estimated = self._tokens[index], self.estimated
        # The text that is sent must fit too, and within a bin it may be almost twice as long.
        check_context(tokens, entry.max_tokens, max_context, estimated=estimated, prompt="the donor's prompt")
        self.rows[key] += 1
        self.used[index] += 1
        return index

    def with_text(self, entry: Entry, index: int) -> Entry:
        payload = self._payload(index)
        # A donor file may hold a text several times, with other sampling settings too.
        self._texts.add(hash(payload.rpartition(b',"sampling":')[0]))
        return entry._replace(
            class_=entry.class_ or self._classes[index], payload=payload, has_text=True, tokens=self._tokens[index]
        )

    @property
    def texts(self) -> int:
        """How many different ones were given out."""
        return len(self._texts)

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
            "rows": self.rows.total(),
            "texts": self.texts,
            "donors_used": len(self.used),
            "most_uses_of_one": max(self.used.values(), default=0),
        }


@dataclass(frozen=True)
class SplitRows:
    """The usable rows of a trace in the order of the file: where each stands, and the part that it goes to as a
    place in ``kinds``, −1 for one without a time."""

    lines: "array[int]"
    part_of: NDArray[np.int8]
    kinds: tuple[str, ...]


class DividedDonors(Donors):
    """Donors of which each part of a split trace has its own. ``part_of`` is the part of each donor, −1 for one that
    no row asks for; the rows come in the order of the file. ``given`` is each row's donor, −1 for none."""

    def __init__(self, whole: Donors, part_of: NDArray[np.int8], rows: SplitRows) -> None:
        super().__init__(
            whole._classes, whole._tokens, estimated=whole.estimated, seed=whole._seed, payload=whole._payload
        )
        own = [np.flatnonzero(part_of == place).tolist() for place in range(len(rows.kinds))]
        self._by_part = [self.among(indices) for indices in own]
        self._split, self._row = rows, 0
        self._divided = {kind: len(indices) for kind, indices in zip(rows.kinds, own, strict=True)}
        self._without: Counter[str] = Counter()
        self.given = np.full(len(rows.lines), -1, dtype=np.int32)

    def joined(self, entry: Entry, max_context: int | None) -> Entry:
        row = self._row
        self._row += 1
        if self._split.lines[row : row + 1] != array("q", [entry.line]):
            raise ImportRefused("the trace changed while it was read: import it again")
        part = int(self._split.part_of[row])
        if part < 0:
            raise BadField("arrival_s", Reason.NO_TIME)
        index = self._chosen_for(part, entry, max_context)
        self.given[row] = index
        return self.with_text(entry, index)

    def _chosen_for(self, part: int, entry: Entry, max_context: int | None) -> int:
        try:
            return self._by_part[part].chosen(entry, max_context)
        except BadField as bad:
            if bad.reason is not Reason.NO_DONOR:
                raise
            kind = self._split.kinds[part]
            self._without[kind] += 1
            raise BadField(bad.field, bad.reason, f"{bad.detail} in the {kind} part") from None

    def document(self) -> dict[str, Any]:
        """``divided`` counts each part's donors, ``left_out`` its rows for which it has none of their length."""
        left_out = {kind: self._without[kind] for kind in self._split.kinds}
        return {**super().document(), "rule": f"{RULE} {DIVIDED}", "divided": self._divided, "left_out": left_out}


def spoken(key: Key) -> str:
    class_, bits = key
    return f"{2 ** (bits - 1)} to {2**bits - 1}" + (f" and class {class_}" if class_ else "")
