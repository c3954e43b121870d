"""What the cases share: how a request is written down, and how what several answers come to is put together. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from loadtests.behaviour.case import Ask, Seen, cannot_tell
from loadtests.behaviour.prompts import LISTS, STORY
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import Finding

PROBE = "probe"
# Three rounds of the longest drafts that are usual, and text enough to cut several stop strings out of.
PROBED_TOKENS = 28
LISTED_TOKENS = 24
TOP = 4


def chat(label: str, prompt: str = STORY, *, stream: bool | None = None, common: bool = False, **fields: Any) -> Ask:
    """A greedy chat of one message, unless the fields say otherwise."""
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0} | fields
    return Ask(label, body, stream=stream, common=common)


def probe(prompt: str = STORY) -> Ask:
    """What the server says when it is left alone: later requests rest on it. It can't end by itself."""
    return chat(PROBE, prompt, common=True, max_tokens=PROBED_TOKENS, ignore_eos=True, top_logprobs=1)


def listed(label: str, index: int, *, stream: bool | None = None) -> Ask:
    """A list that any drafter can go on with: whatever is looked at in it, it is asked for once."""
    return chat(label, LISTS[index], stream=stream, common=True, max_tokens=LISTED_TOKENS, top_logprobs=TOP)


def together(findings: Iterable[Finding], otherwise: str) -> Finding:
    """Of several answers: the first that broke, else the first that held, else the first at all."""
    found = list(findings)
    by_state = {one.state: one for one in reversed(found)}
    for state in ("broken", "held"):
        if state in by_state:
            return by_state[state]
    return found[0] if found else cannot_tell(otherwise)


def but(seen: Seen, *labels: str) -> list[tuple[str, Reply]]:
    """The answers with their labels, without these."""
    return [(label, reply) for label, reply in seen.items() if label not in labels]


def token_bytes(choice: Choice) -> list[bytes]:
    """The bytes of each returned token that the log probabilities name; one may be a piece of a character."""
    return [bytes(one.bytes) if fits(one.bytes) else one.text.encode() for one in choice.tokens or ()]


def fits(bytes_: tuple[int, ...] | None) -> TypeGuard[tuple[int, ...]]:
    return bytes_ is not None and all(one < 256 for one in bytes_)


def decoded(tokens: Sequence[bytes]) -> str:
    return b"".join(tokens).decode("utf-8", "replace")


def words_of(reply: Reply) -> list[str]:
    """Texts of the tokens that are words of their own: a space and at least three letters."""
    texts = [one.text for one in reply.choice.tokens or ()]
    return [one for one in dict.fromkeys(texts) if one.startswith(" ") and len(one) > 3 and one[1:].isalpha()]
