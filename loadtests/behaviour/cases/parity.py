"""T1 and T3: does the candidate continue as the baseline does, greedily and when it samples?

Both take continuations of texts, not chats: the first tokens of a chat are hardly ever open.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from loadtests.behaviour.case import (
    CONCURRENT,
    DRAWN,
    WITH_CACHE,
    Ask,
    Case,
    Heard,
    Seen,
    Settings,
    apart,
    cannot_tell,
)
from loadtests.behaviour.greedy import Continuation, GreedyParity, greedy_parity
from loadtests.behaviour.prompts import OPEN, SENTENCES, free_prefix, repeating_prefix
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import Difference, Finding, State
from loadtests.behaviour.sampled import PromptSamples, SampledParity, Shift, as_samples, sampled_parity

# Tokens of a continuation: more where drafts are likelier, for only those with drafts tell anything.
CONTINUED, REPEATED = 10, 40
# More than two may tie, in bfloat16 often; a token that isn't listed can't be judged.
LISTED = 5
# Tokens 2 to 6 are compared: the first is the prefill's own.
SAMPLED = 6
PANEL = 4
SAMPLES, THOROUGH_SAMPLES = 352, 3_712
# Samples of one request: an engine's batch is filled by few requests. Of several answers no engine tells the drafts,
# so so many samples of a prompt are asked for alone, and tell it for all.
TOGETHER, ALONE = 16, 32
# The shift of mass that a run has to be able to notice: what so many samples can.
NOTICED, THOROUGHLY_NOTICED = 0.2, 0.05
MOST_DIFFERENCES = 5
STATE: Mapping[str, State] = {
    "shown": "held",
    "broken": "broken",
    "cannot tell": "cannot_tell",
    "not exercised": "not_exercised",
}
TOKEN_ID = "token_id:"  # noqa: S105 - a prefix of the engine's
NO_CONTROL = "the baseline was not asked a second time, or gave no answer then, so there is no control"


class Names:
    """A number for every token, the same for all answers: its id where the server tells ids, else one of ours for its
    text."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> int:
        digits = text.removeprefix(TOKEN_ID)
        if digits != text and digits.isascii() and digits.isdigit():
            return int(digits)
        # Below every id there is, and below the mark of an answer that is over.
        return self._numbers.setdefault(text, -2 - len(self._numbers))

    def tokens(self, choice: Choice) -> list[int] | None:
        """What the choice consists of, None where the server tells no tokens."""
        if choice.tokens is not None:
            return [self.of(one.text) for one in choice.tokens]
        return None if choice.token_ids is None else list(choice.token_ids)

    def top(self, choice: Choice) -> list[dict[int, float]] | None:
        if choice.tokens is None:
            return None
        return [{self.of(text): value for text, value in one.top} for one in choice.tokens]


def answered(seen: Seen | None) -> TypeGuard[Seen]:
    return bool(seen) and all(reply.status == "answered" for reply in (seen or {}).values())


def continued(label: str, prompt: str, **fields: Any) -> Ask:
    return Ask(label, {"prompt": prompt} | fields, "text")


def greedy_asks(seen: Seen, settings: Settings) -> list[Ask]:
    fields = {"temperature": 0, "top_logprobs": LISTED, "return_tokens_as_token_ids": True}
    return [
        replace(
            continued(label_of(prompt, prefix), text, max_tokens=REPEATED if prefix % 2 else CONTINUED, **fields),
            # Of those that leave open what comes fewer have drafts.
            spared=prefix % 2 == 0,
        )
        for prompt, prefix, text in prefixes(settings)
    ]


def prefixes(settings: Settings) -> Iterator[tuple[int, int, str]]:
    """(prompt, prefix, text): one that leaves open what comes, one that has said it; more of them when thorough."""
    for number, sentence in enumerate(SENTENCES):
        yield number, 0, free_prefix(sentence)
        yield number, 1, repeating_prefix(sentence)
        if settings.thorough:
            other = SENTENCES[(number + 1) % len(SENTENCES)]
            yield number, 2, f"{sentence}. {free_prefix(other)}"
            yield number, 3, f"{sentence}. {other}.\n{repeating_prefix(sentence)}"


def label_of(prompt: int, prefix: int) -> str:
    return f"{prompt:02d}-{prefix}"


def greedy_judge(heard: Heard) -> Finding:
    if not answered(heard.control):
        return cannot_tell(NO_CONTROL)
    names = Names()
    lines = list(continuations(heard, names))
    if not lines:
        return cannot_tell("the server tells neither log probabilities nor token ids, so tokens can't be compared")
    found = greedy_parity(lines, tie_nats=heard.settings.tie_nats, alpha=heard.alpha)
    return Finding(
        state=STATE[found.found],
        said=found.reason,
        differences=tuple(greedy_differences(heard, found)),
        numbers=greedy_numbers(found),
    )


def continuations(heard: Heard, names: Names) -> Iterator[Continuation]:
    assert heard.control is not None
    for label, reply in heard.baseline.items():
        others = heard.candidate.get(label), heard.control.get(label)
        if None in others:
            continue
        arms = [names.tokens(one.choice) for one in (reply, *others) if one is not None]
        baseline, candidate, repeat = (None if one is None else tuple(one) for one in arms)
        if baseline is None or candidate is None or repeat is None:
            continue
        prompt, _, prefix = label.partition("-")
        yield Continuation(
            prompt_id=prompt,
            prefix=int(prefix),
            baseline=baseline,
            candidate=candidate,
            repeat=repeat,
            top=names.top(reply.choice),
            drafted=drafted(heard.candidate[label], heard),
        )


def drafted(reply: Reply, heard: Heard) -> bool:
    """By the answer's own metrics; where the server tells none, by its counters of the whole case."""
    if reply.draft_tokens is not None:
        return reply.draft_tokens > 0
    return bool(heard.drafts.proposed) and heard.drafts.told_by == "counters"


def greedy_differences(heard: Heard, found: GreedyParity) -> Iterator[Difference]:
    for one in found.unexcused[:MOST_DIFFERENCES]:
        label = label_of(int(one.prompt_id), one.prefix)
        yield apart(label, heard.baseline[label].text, heard.candidate[label].text)


def greedy_numbers(found: GreedyParity) -> dict[str, Any]:
    return {
        "prompts": found.prompts,
        "continuations": found.continuations,
        "drafted": found.drafted,
        "candidate": vars(found.candidate),
        "control": vars(found.control),
        "p": found.p,
        "p_at_worst": found.p_at_worst,
        "power": found.power,
        "alpha": found.alpha,
        "flip_rate": found.flip_rate,
        "tie_nats": found.tie_nats,
    }


def panel(settings: Settings) -> tuple[str, ...]:
    return OPEN if settings.thorough else OPEN[:PANEL]


def sampled_asks(seen: Seen, settings: Settings, *, penalties: Mapping[str, Any]) -> list[Ask]:
    fields = {
        "max_tokens": SAMPLED,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
        "seed": DRAWN,
    } | dict(penalties)
    if settings.top_k > 0:
        fields["top_k"] = settings.top_k
    several = ((THOROUGH_SAMPLES if settings.thorough else SAMPLES) - ALONE) // TOGETHER
    return [
        continued(f"{number}-{place:04d}", prompt, **(fields if place < ALONE else fields | {"n": TOGETHER}))
        for place in range(ALONE + several)
        for number, prompt in enumerate(panel(settings))
    ]


def sampled_judge(heard: Heard) -> Finding:
    if not answered(heard.control):
        return cannot_tell(NO_CONTROL)
    names = Names()
    arms = [samples_of(seen, names) for seen in (heard.candidate, heard.baseline, heard.control)]
    if any(one is None for one in arms):
        return cannot_tell("the server tells neither log probabilities nor token ids, so tokens can't be compared")
    candidate, baseline, repeat = (one or {} for one in arms)
    prompts = [
        PromptSamples(
            prompt_id=number,
            candidate=as_samples(candidate[number]),
            baseline=as_samples(baseline[number]),
            repeat=as_samples(repeat[number]),
            drafted=sum(told),
            told=len(told),
        )
        for number in candidate
        if number in baseline and number in repeat
        for told in [drafts_told(heard, f"{number}-")]
    ]
    noticed = THOROUGHLY_NOTICED if heard.settings.thorough else NOTICED
    found = sampled_parity(prompts, alpha=heard.alpha, noticed=noticed)
    return Finding(state=STATE[found.found], said=found.reason, numbers=sampled_numbers(found))


def drafts_told(heard: Heard, prompt: str) -> list[bool]:
    """Of each of the candidate's samples of a prompt that tells it, whether drafts were proposed; where none does, what
    the counters say of all."""
    own = [reply for label, reply in heard.candidate.items() if label.startswith(prompt)]
    told = [reply.draft_tokens > 0 for reply in own if len(reply.choices) == 1 and reply.draft_tokens is not None]
    return told or [drafted(own[0], heard)]


def samples_of(seen: Seen, names: Names) -> dict[str, list[Sequence[int]]] | None:
    """The samples of each prompt; None where an answer's tokens were not told."""
    found: dict[str, list[Sequence[int]]] = {}
    for label, reply in seen.items():
        for choice in reply.choices:
            tokens = names.tokens(choice)
            if tokens is None:
                return None
            found.setdefault(label.partition("-")[0], []).append(tokens)
    return found


def sampled_numbers(found: SampledParity) -> dict[str, Any]:
    return {
        "p": None if found.candidate is None else found.candidate.p,
        "p_control": None if found.control is None else found.control.p,
        "prompts": []
        if found.candidate is None
        else [
            {"prompt": one.prompt_id, "samples": list(one.samples), "p": one.p, "p_adjusted": one.p_adjusted}
            for one in found.candidate.prompts
        ],
        "largest": None if found.largest is None else shift_numbers(found.largest),
        "noticed": found.noticed,
        "smallest_shift": found.smallest_shift,
        "smallest_shift_alone": found.smallest_shift_alone,
        "not_exercised": list(found.not_exercised),
        "alpha": found.alpha,
        "chance": found.chance,
        "permutations": found.permutations,
    }


def shift_numbers(shift: Shift) -> dict[str, Any]:
    return {"prompt": shift.prompt_id, "position": shift.position, "token": shift.token, "shift": shift.shift}


CASES = (
    Case(
        "greedy-parity",
        "Greedy text is the baseline's, but where its two likeliest tokens tie",
        "T1",
        (greedy_asks,),
        judge=greedy_judge,
        needs=("logprobs",),
        descends_from=(54506, 41758, 22987, 46088, 53912),
        manners=WITH_CACHE,
        thorough=WITH_CACHE,
        tests=1,
        control=True,
    ),
    Case(
        "sampled-parity",
        "Sampled text is distributed as the baseline's",
        "T3",
        (lambda seen, settings: sampled_asks(seen, settings, penalties={}),),
        judge=sampled_judge,
        needs=("token_ids", "seed", "n"),
        descends_from=(54282,),
        manners=(CONCURRENT,),
        thorough=(CONCURRENT,),
        tests=1,
        control=True,
        alone=True,
    ),
    Case(
        "sampled-parity-penalised",
        "Sampled text with penalties is distributed as the baseline's",
        "T3",
        (
            lambda seen, settings: sampled_asks(
                seen, settings, penalties={"frequency_penalty": 1.0, "presence_penalty": 0.5}
            ),
        ),
        judge=sampled_judge,
        needs=("token_ids", "seed", "n"),
        descends_from=(18902, 54282),
        # Twice as much to ask: the effect of penalties is a case of its own.
        manners=(),
        thorough=(CONCURRENT,),
        tests=1,
        control=True,
        alone=True,
    ),
)
