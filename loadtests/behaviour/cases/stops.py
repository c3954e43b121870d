"""Stop strings and stop tokens: the earliest wins, and nothing past it comes, wherever a round ends.

A stop string has to be one that comes, so every server is first asked without one, and its own answer is cut up. The
token that would end the answer by itself is ignored throughout.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from loadtests.behaviour.case import (
    WITH_CACHE,
    Ask,
    Case,
    Seen,
    Settings,
    always,
    broken,
    cannot_tell,
    held,
    not_exercised,
    shown,
)
from loadtests.behaviour.cases.asking import (
    PROBE,
    PROBED_TOKENS,
    but,
    chat,
    decoded,
    probe,
    together,
    token_bytes,
)
from loadtests.behaviour.prompts import STORY
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Finding

SETTINGS: dict[str, Any] = {"max_tokens": PROBED_TOKENS + 10, "ignore_eos": True, "top_logprobs": 1}
TOO_SHORT = "the answer was too short, or too uniform, to cut a stop string out of"
NEVER_CAME = "the stop never came"
PLACES = (0.15, 0.3, 0.45, 0.6, 0.75)


def fresh(text: str, start: int, length: int) -> str | None:
    """The first piece of so many characters from ``start`` on that the text holds nowhere before, and that neither
    begins nor ends with a space."""
    for at in range(start, len(text) - length + 1):
        piece = text[at : at + length]
        if piece == piece.strip() and piece.isprintable() and text.find(piece) == at:
            return piece
    return None


def scattered(text: str) -> dict[str, tuple[str, ...]]:
    """Stop strings of several lengths at several places, so that some lie across the end of a round."""
    found: dict[str, tuple[str, ...]] = {}
    for index, place in enumerate(PLACES):
        stop = fresh(text, int(place * len(text)), 3 + 2 * index)
        if stop is not None:
            found[f"stop-{index}"] = ("~never said~", stop)
    return found


def neighbours(text: str) -> dict[str, tuple[str, ...]]:
    """Two stop strings close together, the later one named first: they may come in one round."""
    found: dict[str, tuple[str, ...]] = {}
    for index, place in enumerate(PLACES):
        earlier = fresh(text, int(place * len(text)), 2)
        if earlier is None:
            continue
        later = fresh(text, text.find(earlier) + len(earlier), 3)
        if later is not None:
            found[f"stop-{index}"] = (later, earlier)
    return found


def winner(text: str, stops: Sequence[str]) -> tuple[str, int] | None:
    """The stop string that is complete first, and where it begins; of two that end together the one named first."""
    ends = [(text.find(stop) + len(stop), order, stop) for order, stop in enumerate(stops) if stop in text]
    if not ends:
        return None
    end, _, stop = min(ends)
    return stop, end - len(stop)


def completed_at(tokens: Sequence[bytes], stops: Sequence[str]) -> int | None:
    """How many tokens it takes until a stop string is complete."""
    return next((many for many in range(1, len(tokens) + 1) if winner(decoded(tokens[:many]), stops) is not None), None)


def tokens_tell(reply: Reply) -> bool:
    """Whether the tokens' texts, one behind the other, are the text: some tokenizers lose spaces between them."""
    return bool(reply.choice.tokens) and decoded(token_bytes(reply.choice)) == reply.text


def judged(seen: Seen, label: str, reply: Reply, stops: Sequence[str], *, included: bool) -> Finding:
    told = tokens_tell(seen[PROBE]) and reply.choice.tokens is not None
    whole = decoded(token_bytes(reply.choice)) if told else seen[PROBE].text
    if not told and not whole.startswith(reply.text[: max(0, len(reply.text) - max(map(len, stops)))]):
        return without_reference(label, reply, stops, included=included)
    won = winner(whole, stops)
    if won is None:
        return cut_for_nothing(label, reply, whole)
    stop, begins = won
    expected = whole[: begins + (len(stop) if included else 0)]
    if reply.text != expected:
        said = f"the text doesn't end at the first stop string {stop!r}"
        return broken(said, shown(label, reply.text, at=min(len(expected), len(reply.text)), expected=expected))
    if reply.choice.finish_reason != "stop" or reply.choice.stop_reason not in (None, stop):
        why = f"{reply.choice.finish_reason}, {reply.choice.stop_reason!r}"
        return broken(f"{stop!r} ended the text, and the answer names {why}", shown(label, reply.text))
    return nothing_past(label, reply, stops) if told else held("the first stop string ended the text")


def without_reference(label: str, reply: Reply, stops: Sequence[str], *, included: bool) -> Finding:
    """Another text than before, and no tokens to tell what was cut: no stop string may be in it all the same."""
    inside = reply.text[: -max(map(len, stops))] if included else reply.text
    if (won := winner(inside, stops)) is not None:
        return broken(f"the text goes on past the stop string {won[0]!r}", shown(label, reply.text, at=won[1]))
    return cannot_tell("the answer was another one this time, and its tokens were not told")


def cut_for_nothing(label: str, reply: Reply, whole: str) -> Finding:
    if isinstance(reply.choice.stop_reason, str):
        said = f"the answer names the stop string {reply.choice.stop_reason!r}, which isn't in it"
        return broken(said, shown(label, reply.text, at=len(reply.text), expected=whole))
    return not_exercised(NEVER_CAME)


def nothing_past(label: str, reply: Reply, stops: Sequence[str]) -> Finding:
    """Neither tokens nor log probabilities behind the token that completed the stop string."""
    choice = reply.choice
    tokens = token_bytes(choice)
    needed = completed_at(tokens, stops)
    counts = {"log probabilities": len(tokens), "usage": reply.output_tokens}
    counts["token ids"] = None if choice.token_ids is None else len(choice.token_ids)
    for what, count in counts.items():
        if count is not None and count != needed:
            said = f"{what}: {count} tokens came, and the stop string was complete with {needed}"
            return broken(said, shown(label, reply.text, at=len(reply.text)))
    return held("the first stop string ended the text, and no token came past it")


def stop_asks(seen: Seen, *, close: bool, **fields: Any) -> list[Ask]:
    stops = (neighbours if close else scattered)(seen[PROBE].text)
    asks = [chat(label, STORY, stop=list(both), **(SETTINGS | fields)) for label, both in stops.items()]
    return [replace(ask, spared=place % 2 == 1) for place, ask in enumerate(asks)]


def stop_rule(seen: Seen, *, close: bool, included: bool = False) -> Finding:
    stops = (neighbours if close else scattered)(seen[PROBE].text)
    asked = [(label, reply) for label, reply in but(seen, PROBE) if label in stops]
    return together((judged(seen, label, reply, stops[label], included=included) for label, reply in asked), TOO_SHORT)


def token_at(seen: Seen, place: float) -> int | None:
    """The id of a token that comes there for the first time."""
    ids = seen[PROBE].choice.token_ids or ()
    late = range(int(place * len(ids)), len(ids))
    return next((ids[index] for index in late if ids.index(ids[index]) == index), None)


def token_asks(seen: Seen, settings: Settings) -> Iterator[Ask]:
    for index, place in enumerate(PLACES):
        token = token_at(seen, place)
        if token is not None:
            fields = SETTINGS | {"stop_token_ids": [token]}
            yield replace(chat(f"stop-{index}", STORY, **fields), spared=index % 2 == 1)


def token_rule(seen: Seen) -> Finding:
    if seen[PROBE].choice.token_ids is None:
        return cannot_tell("the server tells no token ids")
    asked = [(label, reply) for label, reply in but(seen, PROBE)]
    return together((token_judged(seen, label, reply) for label, reply in asked), TOO_SHORT)


def token_judged(seen: Seen, label: str, reply: Reply) -> Finding:
    token = token_at(seen, PLACES[int(label.removeprefix("stop-"))])
    ids = reply.choice.token_ids
    if ids is None or token is None:
        return cannot_tell("the server told no token ids")
    if token not in ids:
        return not_exercised(NEVER_CAME)
    if ids.index(token) != len(ids) - 1:
        past = len(ids) - 1 - ids.index(token)
        return broken(f"{past} tokens came past the stop token {token}", shown(label, reply.text))
    if reply.choice.finish_reason != "stop" or reply.choice.stop_reason not in (None, token):
        why = f"{reply.choice.finish_reason}, {reply.choice.stop_reason!r}"
        return broken(f"the stop token {token} ended the answer, which names {why}", shown(label, reply.text))
    return held("the stop token was the last one")


CASES = (
    Case(
        "stop-strings",
        "A stop string ends the text before it, and no token comes past it",
        "T2",
        (always(probe()), lambda seen, settings: stop_asks(seen, close=False)),
        rule=lambda seen: stop_rule(seen, close=False),
        needs=("logprobs",),
        descends_from=(47616, 49391),
        manners=WITH_CACHE,
    ),
    Case(
        "stop-string-that-wins",
        "Of two stop strings in one round the earlier one wins",
        "T2",
        (always(probe()), lambda seen, settings: stop_asks(seen, close=True)),
        rule=lambda seen: stop_rule(seen, close=True),
        needs=("logprobs",),
        descends_from=(49391,),
    ),
    Case(
        "stop-string-included",
        "The stop string ends the text where it is asked to stay in it",
        "T2",
        (always(probe()), lambda seen, settings: stop_asks(seen, close=False, include_stop_str_in_output=True)),
        rule=lambda seen: stop_rule(seen, close=False, included=True),
        needs=("logprobs",),
        descends_from=(47616,),
    ),
    Case(
        "stop-tokens",
        "A stop token is the last one",
        "T2",
        (always(probe()), lambda seen, settings: list(token_asks(seen, settings))),
        rule=token_rule,
        needs=("token_ids",),
        descends_from=(47616,),
    ),
)
