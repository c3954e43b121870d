"""How long an answer is: to the token, whatever a round brings, and told as it is."""

from collections.abc import Iterator
from typing import Any

from loadtests.behaviour.case import (
    EVERY_MANNER,
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
    LISTED_TOKENS,
    PROBE,
    PROBED_TOKENS,
    but,
    chat,
    listed,
    probe,
    together,
)
from loadtests.behaviour.prompts import LISTS
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Finding

# Round lengths of every draft length up to 8 end before, at and behind one of them.
LIMITS = (1, 2, 3, 5, 8, 13)
COUNTED = "the server tells neither usage nor token ids"


def returned(reply: Reply) -> int | None:
    """Tokens of the first choice: by their ids, or by usage where there is one choice."""
    ids = reply.choice.token_ids
    if ids is not None:
        return len(ids)
    return reply.output_tokens if len(reply.choices) == 1 else None


def limit_asks() -> tuple[Ask, ...]:
    return tuple(chat(f"most-{most}", LISTS[0], max_tokens=most, ignore_eos=True) for most in LIMITS)


def limit_rule(seen: Seen) -> Finding:
    wanted = {f"most-{most}": most for most in LIMITS}
    return together((exactly(label, reply, wanted[label]) for label, reply in seen.items()), COUNTED)


def exactly(label: str, reply: Reply, most: int) -> Finding:
    count = returned(reply)
    if count is None:
        return cannot_tell(COUNTED)
    if count != most:
        return broken(f"{count} tokens came, and max_tokens was {most}", shown(label, reply.text))
    if reply.output_tokens not in (None, most):
        return broken(f"usage says {reply.output_tokens} tokens, and {most} came", shown(label, reply.text))
    if reply.choice.finish_reason != "length":
        why = reply.choice.finish_reason
        return broken(f"max_tokens ended the answer, and the finish reason is {why}", shown(label, reply.text))
    return held("each answer is as long as max_tokens, to the token")


MORE = 6
PLACES = 3
LONG = 24


def places(seen: Seen) -> list[int]:
    """Where in the answer a token comes for the first time, early and late: counted from 0."""
    ids = seen[PROBE].choice.token_ids or ()
    new = [place for place in range(3, len(ids)) if ids.index(ids[place]) == place]
    return new[:: max(1, len(new) // PLACES)][:PLACES]


def least_asks(seen: Seen, settings: Settings) -> Iterator[Ask]:
    """A token would end the answer just where it is still forbidden; one answer would end early by itself."""
    ids = seen[PROBE].choice.token_ids or ()
    for place in places(seen):
        fields: dict[str, Any] = {"stop_token_ids": [ids[place]], "min_tokens": place + 1, "max_tokens": PROBED_TOKENS}
        yield chat(f"least-{place + 1}", LISTS[0], ignore_eos=True, **fields)
    yield chat(f"long-{LONG}", SHORT[0], min_tokens=LONG, max_tokens=LONG + MORE)


def least_rule(seen: Seen) -> Finding:
    ids = seen[PROBE].choice.token_ids
    if ids is None:
        return cannot_tell("the server tells no token ids")
    found = []
    for label, reply in but(seen, PROBE):
        least = int(label.rpartition("-")[2])
        found.append(at_least(label, reply, least, ids[least - 1] if label.startswith("least") else None))
    return together(found, COUNTED)


def at_least(label: str, reply: Reply, least: int, token: int | None) -> Finding:
    ids = reply.choice.token_ids
    if ids is None:
        return cannot_tell("the server tells no token ids")
    if len(ids) < least:
        return broken(f"{len(ids)} tokens came, and min_tokens was {least}", shown(label, reply.text))
    if token is not None and token in ids[:least]:
        place = ids.index(token) + 1
        said = f"token {place} is the stop token {token}, which min_tokens {least} forbids until then"
        return broken(said, shown(label, reply.text))
    if token is not None and token in ids[:-1]:
        past = len(ids) - 1 - ids.index(token)
        return broken(f"{past} tokens came past the stop token {token}", shown(label, reply.text))
    return held("no answer is shorter than min_tokens, and none holds the stop token before")


SHORT = ("Say no.", "How much is one and one? Answer with one word.")
# A model that hasn't ended by itself until then won't be asked on.
ENDED_BY = 80


def ending_asks() -> tuple[Ask, ...]:
    return tuple(chat(f"short-{index}", text, max_tokens=ENDED_BY) for index, text in enumerate(SHORT))


def ended(seen: Seen) -> dict[str, int]:
    """Answers that ended by themselves, by how long they are to be when that is ignored."""
    found = {}
    for label, reply in seen.items():
        count = returned(reply)
        if label.startswith("short") and reply.choice.finish_reason == "stop" and count is not None:
            found[label.replace("short", "endless")] = count + MORE
    return found


def endless_asks(seen: Seen, settings: Settings) -> Iterator[Ask]:
    for label, most in ended(seen).items():
        text = SHORT[int(label.rpartition("-")[2])]
        yield chat(label, text, max_tokens=most, ignore_eos=True)


def endless_rule(seen: Seen) -> Finding:
    wanted = ended(seen)
    if not wanted:
        return not_exercised(f"no answer ended by itself within {ENDED_BY} tokens, so there was no end to ignore")
    return together((exactly(label, seen[label], most) for label, most in wanted.items() if label in seen), COUNTED)


def usage_rule(seen: Seen) -> Finding:
    found = [counted(label, reply) for label, reply in seen.items()]
    found += [exactly(label, reply, LISTED_TOKENS) for label, reply in seen.items() if label.startswith("whole")]
    return together(found, COUNTED)


def counted(label: str, reply: Reply) -> Finding:
    """Usage, token ids and log probabilities tell one number, and the finish reason fits it."""
    told = {"usage": reply.output_tokens}
    if all(one.token_ids is not None for one in reply.choices):
        told["token ids"] = sum(len(one.token_ids or ()) for one in reply.choices)
    if all(one.tokens is not None for one in reply.choices):
        told["log probabilities"] = sum(len(one.tokens or ()) for one in reply.choices)
    numbers = {what: count for what, count in told.items() if count is not None}
    if len(set(numbers.values())) > 1:
        said = ", ".join(f"{what} {count}" for what, count in numbers.items())
        return broken(f"the numbers of tokens differ: {said}", shown(label, reply.text))
    prompt = (reply.usage or {}).get("prompt_tokens")
    if reply.prompt_token_ids is not None and prompt not in (None, len(reply.prompt_token_ids)):
        said = f"usage says {prompt} prompt tokens, and {len(reply.prompt_token_ids)} ids came"
        return broken(said, shown(label, reply.text))
    if len(numbers) < 2:
        return cannot_tell(COUNTED)
    return finished_rightly(label, reply, next(iter(numbers.values())))


def finished_rightly(label: str, reply: Reply, count: int) -> Finding:
    reason = reply.choice.finish_reason
    if reason not in ("stop", "length"):
        return broken(f"the finish reason is {reason}, neither stop nor length", shown(label, reply.text))
    if count > LISTED_TOKENS or (reason == "length") != (count == LISTED_TOKENS):
        # An answer may end by itself with the very last token.
        if count == LISTED_TOKENS and reason == "stop":
            return held("usage, ids and finish reason agree")
        said = f"{count} tokens came of at most {LISTED_TOKENS}, and the finish reason is {reason}"
        return broken(said, shown(label, reply.text))
    return held("usage, ids and finish reason agree")


def usage_asks() -> tuple[Ask, ...]:
    """Three may end by themselves, one may not."""
    whole = chat("whole", LISTS[1], max_tokens=LISTED_TOKENS, top_logprobs=0, ignore_eos=True)
    return *(listed(f"free-{index}", index) for index in range(3)), whole


CASES = (
    Case(
        "max-tokens",
        "An answer is as long as max_tokens, to the token",
        "T2",
        (always(*limit_asks()),),
        rule=limit_rule,
        descends_from=(32642,),
    ),
    Case(
        "min-tokens",
        "No answer is shorter than min_tokens, whatever would end it",
        "T2",
        (always(probe(LISTS[0])), lambda seen, settings: list(least_asks(seen, settings))),
        rule=least_rule,
        needs=("token_ids",),
        descends_from=(41768, 32642),
    ),
    Case(
        "ignore-eos",
        "With ignore_eos only max_tokens ends the answer",
        "T2",
        (always(*ending_asks()), lambda seen, settings: list(endless_asks(seen, settings))),
        rule=endless_rule,
        descends_from=(41768,),
    ),
    Case(
        "usage-and-finish-reason",
        "Usage is the number of tokens returned, and the finish reason fits it",
        "T2",
        (always(*usage_asks()),),
        rule=usage_rule,
        manners=WITH_CACHE,
        thorough=EVERY_MANNER,
        descends_from=(55634, 31503),
    ),
)
