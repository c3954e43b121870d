"""Log probabilities: their shape, and that they are those of the tokens that came."""

import math
from collections.abc import Iterator, Sequence

from loadtests.behaviour.case import (
    WITH_CACHE,
    Case,
    Heard,
    Seen,
    always,
    broken,
    cannot_tell,
    held,
    shown,
)
from loadtests.behaviour.cases.asking import TOP, chat, decoded, listed, together, token_bytes
from loadtests.behaviour.prompts import LISTS, PREAMBLE
from loadtests.behaviour.reply import Reply, Token
from loadtests.behaviour.result import Finding

# Above what a sum of chances may be by rounding.
ROUNDING = 1e-2
# In nats: K + 1 rows at once add in another order than one row. Between two boots of one model in bfloat16 the log
# probability of a likely token moves by up to a quarter of a nat.
NUMERICS = 0.5
LIKELY = -3.0
BEGINNING = 4
NOT_TOLD = "the server tells no log probabilities"
ASKS = tuple(listed(f"list-{index}", index) for index in range(3))


def shape_rule(seen: Seen) -> Finding:
    return together((shaped(label, reply) for label, reply in seen.items()), NOT_TOLD)


def shaped(label: str, reply: Reply) -> Finding:
    tokens = reply.choice.tokens
    if not tokens:
        return cannot_tell(NOT_TOLD)
    ids = reply.choice.token_ids
    if ids is not None and len(ids) != len(tokens):
        return broken(f"{len(tokens)} log probabilities came with {len(ids)} tokens", shown(label, reply.text))
    for place, token in enumerate(tokens):
        problem = wrong_with(token)
        if problem is not None:
            return broken(f"token {place + 1}, {token.text!r}: {problem}", shown(label, reply.text))
    return held("every token has its log probability, and a greedy one the highest")


def wrong_with(token: Token) -> str | None:
    if token.logprob is None or token.logprob > ROUNDING:
        return f"{token.logprob} is the logarithm of no chance"
    if len(token.top) < TOP:
        return f"{len(token.top)} likeliest tokens are told, and {TOP} were asked for"
    if sum(math.exp(value) for _, value in token.top) > 1 + ROUNDING:
        return "the chances of the likeliest tokens add up to more than 1"
    named = [value for text, value in token.top if text == token.text]
    if named and min(abs(value - token.logprob) for value in named) > ROUNDING:
        return f"its log probability is {token.logprob:.3f}, and among the likeliest {named[0]:.3f}"
    if token.logprob < token.top[0][1] - NUMERICS:
        return f"it was taken greedily with {token.logprob:.3f}, where {token.top[0][0]!r} has {token.top[0][1]:.3f}"
    return None


def values_judge(heard: Heard) -> Finding:
    found = [
        compared(label, heard.baseline[label], heard.candidate[label])
        for label in heard.candidate
        if label in heard.baseline
    ]
    return together(found, NOT_TOLD)


def of_the_text(reply: Reply) -> bool:
    """Whether the text begins with the tokens that the log probabilities name. Further on there may be tokens that are
    no text, such as the one that ends an answer."""
    return reply.text.startswith(decoded(token_bytes(reply.choice)[:BEGINNING]).rstrip("\ufffd"))


def compared(label: str, old: Reply, new: Reply) -> Finding:
    """Up to where the two go apart, each token has nearly the same log probability."""
    if of_the_text(old) and not of_the_text(new):
        return broken("the log probabilities are those of other tokens than the text's", shown(label, new.text))
    pairs = list(common(old.choice.tokens or (), new.choice.tokens or ()))
    if not pairs:
        return cannot_tell("the two answers have no token in common to compare")
    for place, (text, before, after) in enumerate(pairs):
        if before > LIKELY and abs(after - before) > NUMERICS:
            said = (
                f"token {place + 1}, {text!r}: its log probability is {after:.3f}, and {before:.3f} on the baseline "
                "after the same text"
            )
            return broken(said, shown(label, new.text))
    return held("the same tokens have the same log probabilities, but for rounding")


def common(old: Sequence[Token], new: Sequence[Token]) -> Iterator[tuple[str, float, float]]:
    """Each token that both begin with, and its log probability on either."""
    for one, other in zip(old, new, strict=False):
        if one.text != other.text or one.logprob is None or other.logprob is None:
            return
        yield one.text, one.logprob, other.logprob


# An engine that streams tells none.
PROMPTS = tuple(
    chat(f"prompt-{index}", text, stream=False, max_tokens=6, prompt_logprobs=1)
    for index, text in enumerate((PREAMBLE, LISTS[0]))
)


def prompt_judge(heard: Heard) -> Finding:
    found = (
        prompt_compared(label, heard.baseline[label], reply)
        for label, reply in heard.candidate.items()
        if label in heard.baseline
    )
    return together(found, NOT_TOLD)


def prompt_compared(label: str, old: Reply, new: Reply) -> Finding:
    if not old.prompt_logprobs:
        return cannot_tell("the baseline tells no log probabilities of the prompt")
    if not new.prompt_logprobs:
        return broken("no log probabilities of the prompt came, and the baseline tells them", shown(label, new.text))
    if len(old.prompt_logprobs) != len(new.prompt_logprobs):
        came, wanted = len(new.prompt_logprobs), len(old.prompt_logprobs)
        said = f"{came} of the prompt's tokens have log probabilities, {wanted} on the baseline"
        return broken(said, shown(label, new.text))
    for place, (before, after) in enumerate(zip(old.prompt_logprobs, new.prompt_logprobs, strict=True)):
        likely = {token: value for token, value in (before or {}).items() if value > LIKELY}
        wrong = [token for token, value in likely.items() if abs((after or {}).get(token, math.inf) - value) > NUMERICS]
        # A tie may leave another token as the likeliest one.
        if wrong and after is not None and all(token in after for token in wrong):
            said = f"token {place + 1} of the prompt: {after[wrong[0]]:.3f}, and {likely[wrong[0]]:.3f} on the baseline"
            return broken(said, shown(label, new.text))
        if (before is None) != (after is None):
            return broken(f"token {place + 1} of the prompt has no log probability", shown(label, new.text))
    return held("the prompt's log probabilities are the baseline's, but for rounding")


CASES = (
    Case(
        "logprobs-shape",
        "Every token has its log probability, and a greedy one the highest",
        "T2",
        (always(*ASKS),),
        rule=shape_rule,
        needs=("logprobs",),
        descends_from=(34497, 47616),
    ),
    Case(
        "logprobs-values",
        "The same tokens have the baseline's log probabilities",
        "T2",
        (always(*ASKS),),
        judge=values_judge,
        needs=("logprobs",),
        descends_from=(34497, 53912),
        manners=WITH_CACHE,
    ),
    Case(
        "prompt-logprobs",
        "The prompt has the baseline's log probabilities",
        "T2",
        (always(*PROMPTS),),
        judge=prompt_judge,
        needs=("prompt_logprobs",),
        descends_from=(53488,),
    ),
)
