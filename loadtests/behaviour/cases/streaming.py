"""One answer in one piece and in many: the same text, whole characters, and the text of the tokens that came."""

from collections.abc import Iterator
from typing import Any

from loadtests.behaviour.case import (
    CONCURRENT,
    SERIAL,
    WITH_CACHE,
    Ask,
    Case,
    Heard,
    Seen,
    Settings,
    always,
    broken,
    cannot_tell,
    first_difference,
    held,
    not_exercised,
    shown,
)
from loadtests.behaviour.cases.asking import chat, listed, together
from loadtests.behaviour.prompts import LISTS
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Finding

REPLACEMENT = "\ufffd"
# In nats. Logits of bfloat16 from 16 to 32 lie 0.125 apart, and either of two may move by one step from batch to batch.
TIE_NATS = 0.3
WORDS = "Grüße, naïve 你好 世界 🌍🎉 Ελλάδα, Grüße, naïve 你好 世界 🌍🎉 Ελλάδα"


def both_ways(index: int) -> tuple[Ask, Ask]:
    return (
        listed(f"list-{index}-whole", index, stream=False),
        listed(f"list-{index}-streamed", index, stream=True),
    )


def unicode_asks() -> tuple[Ask, Ask]:
    prompt = f"Copy this line, and nothing else, three times:\n{WORDS}"
    fields: dict[str, Any] = {"max_tokens": 40, "top_logprobs": 2}
    return chat("words-whole", prompt, stream=False, **fields), chat("words-streamed", prompt, stream=True, **fields)


def pairs(seen: Seen) -> Iterator[tuple[str, Reply, Reply]]:
    for label, whole in seen.items():
        streamed = label.removesuffix("whole") + "streamed"
        if label.endswith("whole") and streamed in seen:
            yield streamed, whole, seen[streamed]


def same_rule(seen: Seen) -> Finding:
    return together((same(*one) for one in pairs(seen)), "no answer came")


def same(label: str, whole: Reply, streamed: Reply) -> Finding:
    if whole.text == streamed.text:
        if whole.choice.finish_reason != streamed.choice.finish_reason:
            why = f"{streamed.choice.finish_reason}, and {whole.choice.finish_reason} in one piece"
            return broken(f"the streamed answer's finish reason is {why}", shown(label, streamed.text))
        return held("streamed and whole answers are the same")
    if tied(whole, streamed):
        return cannot_tell("the two answers part at a tie between the likeliest tokens, which either may win")
    at = first_difference(whole.text, streamed.text)
    said = f"the streamed text differs from the whole one from character {at} on"
    return broken(said, shown(label, streamed.text, at=at, expected=whole.text))


def tied(one: Reply, other: Reply) -> bool:
    """Whether the tokens part, and where they do the other token is as good as equally likely."""
    for left, right in zip(one.choice.tokens or (), other.choice.tokens or (), strict=False):
        if left.text != right.text and left.top:
            # Three may tie where two are listed: what isn't lies below the last that is, nobody knows how far.
            least = dict(left.top).get(right.text, left.top[-1][1])
            return left.top[0][1] - least <= TIE_NATS
    return False


def unicode_rule(seen: Seen) -> Finding:
    return together((characters(*one) for one in pairs(seen)), "no answer came")


def characters(label: str, whole: Reply, streamed: Reply) -> Finding:
    if REPLACEMENT in streamed.text and REPLACEMENT not in whole.text:
        at = streamed.text.find(REPLACEMENT)
        said = f"character {at} of the streamed text is half a character, and whole in one piece"
        return broken(said, shown(label, streamed.text, at=at, expected=whole.text))
    finding = same(label, whole, streamed)
    if finding.state == "held" and streamed.text.isascii():
        return not_exercised("no character beyond ASCII came")
    return finding


def decoding_asks() -> tuple[Ask, ...]:
    return tuple(listed(f"list-{index}", index) for index in range(4))


def detokenize_asks(seen: Seen, settings: Settings) -> Iterator[Ask]:
    for label, reply in seen.items():
        ids = reply.choice.token_ids
        if ids:
            ended = reply.choice.finish_reason == "stop"
            yield Ask(f"{label}-decoded", {"tokens": list(ids[:-1] if ended else ids)}, "detokenize")


def decoded_rule(seen: Seen) -> Finding:
    found = ((label, reply, seen.get(f"{label}-decoded")) for label, reply in seen.items() if "decoded" not in label)
    return together((decoded(*one) for one in found), "no answer came")


def decoded(label: str, reply: Reply, words: Reply | None) -> Finding:
    if words is None:
        return cannot_tell("the server tells no token ids")
    text = words.document.get("prompt")
    if not isinstance(text, str):
        return cannot_tell("the server's tokenizer gave no text")
    # A tokenizer may put a space before the first word, or leave one out.
    if text.strip() != reply.text.strip():
        at = first_difference(text.strip(), reply.text.strip())
        said = f"the text is not that of its tokens, from character {at} on"
        return broken(said, shown(label, reply.text, at=at, expected=text))
    return held("the text is that of the tokens that came")


BAD: dict[str, Any] = {"temperature": -1}


def error_judge(heard: Heard) -> Finding:
    for label, reply in heard.candidate.items():
        old = heard.baseline.get(label)
        if old is not None and old.status != reply.status:
            said = f"a request that can't be served is {reply.status}, and {old.status} on the baseline"
            return broken(said, shown(label, reply.text))
        if reply.error is not None and reply.choices:
            return broken("an error came with a text", shown(label, reply.text))
    return held("what can't be served is refused as on the baseline, and what can be is answered")


CASES = (
    Case(
        "streaming",
        "A streamed answer has the text of a whole one",
        "T2",
        (always(*(ask for index in range(3) for ask in both_ways(index))),),
        rule=same_rule,
        descends_from=(41967, 47616),
        manners=(SERIAL, CONCURRENT),
        thorough=(SERIAL, CONCURRENT),
    ),
    Case(
        "unicode-streamed",
        "No character is torn where a streamed answer is cut into pieces",
        "T2",
        (always(*unicode_asks()),),
        rule=unicode_rule,
        descends_from=(41967,),
        manners=(SERIAL, CONCURRENT),
        thorough=(SERIAL, CONCURRENT),
    ),
    Case(
        "text-is-of-its-tokens",
        "The text is that of the token ids that came",
        "T2",
        (always(*decoding_asks()), lambda seen, settings: list(detokenize_asks(seen, settings))),
        rule=decoded_rule,
        needs=("token_ids", "detokenize"),
        descends_from=(47616, 46088),
        manners=WITH_CACHE,
    ),
    Case(
        "refusals",
        "What can't be served is refused as on the baseline",
        "T2",
        (
            always(
                chat("bad-whole", stream=False, **BAD),
                chat("bad-streamed", stream=True, **BAD),
                chat("good", LISTS[0], max_tokens=8),
            ),
        ),
        judge=error_judge,
        descends_from=(44993,),
        manners=(SERIAL,),
        drafts=False,
        refusals=True,
    ),
)
