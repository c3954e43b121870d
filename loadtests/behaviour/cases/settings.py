"""Sampling settings that act on every token: each has to reach drafted tokens too."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtests.behaviour.case import (
    DRAWN,
    SERIAL,
    Ask,
    Case,
    Heard,
    Seen,
    Settings,
    always,
    broken,
    cannot_tell,
    held,
    not_exercised,
    shown,
)
from loadtests.behaviour.cases.asking import PROBE, PROBED_TOKENS, chat, probe, together, words_of
from loadtests.behaviour.prompts import DAYS, LISTS
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Finding

LENGTH = 40
# Repeats that a penalty has to save on the baseline before anything can be asked of the candidate.
LEAST_EFFECT = 6
PENALTIES: dict[str, dict[str, Any]] = {
    "presence": {"presence_penalty": 2.0},
    "frequency": {"frequency_penalty": 2.0},
    "repetition": {"repetition_penalty": 1.5},
}
NO_IDS = "the server tells no token ids"


def penalty_asks() -> tuple[Ask, ...]:
    settings: dict[str, Any] = {"max_tokens": LENGTH, "ignore_eos": True, "top_logprobs": 0}
    free = chat(PROBE, LISTS[4], **settings)
    return free, *(chat(name, LISTS[4], **settings, **penalty) for name, penalty in PENALTIES.items())


def repeats(reply: Reply) -> int | None:
    """Returned tokens that had been returned before."""
    said: Sequence[object] | None = reply.choice.token_ids
    if said is None and reply.choice.tokens is not None:
        said = [one.text for one in reply.choice.tokens]
    return None if said is None else len(said) - len(set(said))


def penalty_judge(heard: Heard) -> Finding:
    return together((one_penalty(heard, name) for name in PENALTIES), "no penalty was asked for")


def one_penalty(heard: Heard, name: str) -> Finding:
    """A candidate that lets drafts pass unpenalised repeats itself nearly as much as without the penalty. Half of the
    baseline's effect is far from both."""
    counts = [repeats(seen[label]) for seen in (heard.baseline, heard.candidate) for label in (PROBE, name)]
    free, least, own_free, own = (-1 if one is None else one for one in counts)
    if None in counts:
        return cannot_tell(NO_IDS)
    effect = free - least
    if effect < LEAST_EFFECT:
        return not_exercised(f"{name}_penalty saves the baseline {effect} repeats only")
    if own > least + effect / 2 and own > own_free - effect / 2:
        others = f"{least} on the baseline, {own_free} without it"
        said = f"{name}_penalty has no effect: {own} of {LENGTH} tokens repeat, {others}"
        return broken(said, shown(name, heard.candidate[name].text))
    return held("penalties keep repeats away as on the baseline")


def banned_words(seen: Seen) -> list[str]:
    return words_of(seen[PROBE])[:3]


def banned_asks(seen: Seen, settings: Settings) -> Iterator[Ask]:
    if words := banned_words(seen):
        bad = [one.strip() for one in words]
        yield chat("banned", LISTS[3], max_tokens=PROBED_TOKENS, ignore_eos=True, top_logprobs=0, bad_words=bad)


def banned_rule(seen: Seen) -> Finding:
    words = banned_words(seen)
    if "banned" not in seen:
        return not_exercised("the answer has no word to ban")
    tokens = seen["banned"].choice.tokens
    if tokens is None:
        return cannot_tell("the server tells no log probabilities, so no token is known by its text")
    found = next((one.text for one in tokens if one.text in words), None)
    if found is not None:
        text = seen["banned"].text
        return broken(
            f"{found.strip()!r} came, which bad_words forbids", shown("banned", text, at=max(0, text.find(found)))
        )
    return held("no banned word came")


def allowed_asks(seen: Seen, settings: Settings) -> Iterator[Ask]:
    ids = seen[PROBE].choice.token_ids
    if ids:
        # Half of them, so that what the model would rather say is not among them.
        allowed = sorted(set(ids))[::2]
        yield chat("allowed", LISTS[3], max_tokens=PROBED_TOKENS, ignore_eos=True, allowed_token_ids=allowed)


def allowed_rule(seen: Seen) -> Finding:
    if "allowed" not in seen:
        return cannot_tell(NO_IDS)
    allowed = set(sorted(set(seen[PROBE].choice.token_ids or ()))[::2])
    ids = seen["allowed"].choice.token_ids
    if ids is None:
        return cannot_tell(NO_IDS)
    wrong = [one for one in ids if one not in allowed]
    if wrong:
        said = f"{len(wrong)} of {len(ids)} tokens are none of the allowed ones, the first is {wrong[0]}"
        return broken(said, shown("allowed", seen["allowed"].text))
    return held("every token is one of the allowed ones")


def bias_asks(seen: Seen, settings: Settings) -> Iterator[Ask]:
    ids = seen[PROBE].choice.token_ids
    if ids:
        yield chat("bias", LISTS[3], max_tokens=8, ignore_eos=True, logit_bias={str(ids[-1]): 100})


def bias_judge(heard: Heard) -> Finding:
    old, new = (honours_bias(seen) for seen in (heard.baseline, heard.candidate))
    if old is None or new is None:
        return cannot_tell(NO_IDS)
    if old and not new:
        said = "logit_bias has no effect, and has one on the baseline"
        return broken(said, shown("bias", heard.candidate["bias"].text))
    return held("logit_bias has its effect") if old else cannot_tell("logit_bias has no effect on the baseline either")


def honours_bias(seen: Seen) -> bool | None:
    if "bias" not in seen or seen["bias"].choice.token_ids is None:
        return None
    wanted = (seen[PROBE].choice.token_ids or (-1,))[-1]
    return all(one == wanted for one in seen["bias"].choice.token_ids)


NARROW: dict[str, dict[str, Any]] = {"top-k": {"top_k": 1}, "top-p": {"top_p": 0.001}}


def narrow_asks(name: str, fields: Mapping[str, Any]) -> list[Ask]:
    """Hot sampling from which the setting leaves one token."""
    fixed: dict[str, Any] = {"max_tokens": 8, "temperature": 1.5, "seed": DRAWN} | dict(fields)
    return [chat(f"{name}-{index}", LISTS[5], **fixed) for index in range(4)]


def narrow_judge(heard: Heard, name: str) -> Finding:
    """Where only the likeliest token is left, sampled texts are all one, but for ties."""
    old, new = (texts_named(seen, name) for seen in (heard.baseline, heard.candidate))
    if len(old) > 1:
        return cannot_tell(f"{len(old)} texts come on the baseline: {name} has no effect there, or tokens tie")
    if len(new) > 2:
        said = f"{len(new)} texts came with {name}, which leaves one token to choose from; one on the baseline"
        return broken(said, shown(f"{name}-0", heard.candidate[f"{name}-0"].text))
    return held("where one token is left to choose from, all texts are one")


def texts_named(seen: Seen, name: str) -> set[str]:
    return {reply.text for label, reply in seen.items() if label.startswith(f"{name}-")}


SEEDS = 6


def seed_asks() -> tuple[Ask, ...]:
    """Each seed twice; the two requests of a pair are alike to the byte."""
    fields: dict[str, Any] = {"max_tokens": 10, "temperature": 1.0, "ignore_eos": True}
    return tuple(
        chat(f"seed-{seed}-{time}", f"Tell me something about {DAYS.split(', ')[seed]}.", seed=1_000 + seed, **fields)
        for time in range(2)
        for seed in range(SEEDS)
    )


def repeated_seeds(seen: Seen) -> int:
    return sum(seen[f"seed-{seed}-0"].text == seen[f"seed-{seed}-1"].text for seed in range(SEEDS))


def seed_judge(heard: Heard) -> Finding:
    """No engine promises more than it does without speculation: the baseline says how often a seed repeats its text."""
    old, new = repeated_seeds(heard.baseline), repeated_seeds(heard.candidate)
    if old < SEEDS - 1:
        return cannot_tell(f"the baseline repeats {old} of {SEEDS} seeded texts only")
    if new <= SEEDS // 3:
        seed = next(one for one in range(SEEDS) if texts(heard.candidate, one)[0] != texts(heard.candidate, one)[1])
        first, second = texts(heard.candidate, seed)
        said = f"{new} of {SEEDS} seeded texts came again with their seed, {old} on the baseline"
        return broken(said, shown(f"seed-{seed}-1", second, expected=first))
    return held(f"{new} of {SEEDS} seeded texts came again with their seed, {old} on the baseline")


def texts(seen: Seen, seed: int) -> tuple[str, str]:
    return seen[f"seed-{seed}-0"].text, seen[f"seed-{seed}-1"].text


OPEN_LABEL = "four-open"


def several_rule(seen: Seen) -> Finding:
    return together((several(label, reply) for label, reply in seen.items()), "no answer came")


def several(label: str, reply: Reply) -> Finding:
    wanted = list(range(4))
    came = [one.index for one in reply.choices]
    if came != wanted:
        return broken(f"answers numbered {came} came, and n was 4", shown(label, reply.text))
    # Every one of them to the token; usage is of all together.
    lengths = [len(one.token_ids) for one in reply.choices if one.token_ids is not None]
    if lengths and (len(lengths) != 4 or set(lengths) != {12}):
        return broken(f"the answers have {lengths} tokens, and max_tokens was 12", shown(label, reply.text))
    if reply.output_tokens not in (None, 48):
        return broken(f"usage says {reply.output_tokens} tokens, and 4 answers of 12 came", shown(label, reply.text))
    # Of a list that everybody would go on with in one way, four equal answers are no wonder.
    if label == OPEN_LABEL and len({one.text for one in reply.choices}) == 1:
        return broken("the answers are all the same, at temperature 1.2", shown(label, reply.text))
    return held("as many answers came as were asked for")


CASES = (
    Case(
        "penalties",
        "Presence, frequency and repetition penalties have their effect",
        "T2",
        (always(*penalty_asks()),),
        judge=penalty_judge,
        descends_from=(18902,),
    ),
    Case(
        "bad-words",
        "A banned word doesn't come",
        "T2",
        (always(probe(LISTS[3])), lambda seen, settings: list(banned_asks(seen, settings))),
        rule=banned_rule,
        needs=("logprobs",),
        descends_from=(18902,),
    ),
    Case(
        "allowed-tokens",
        "No token comes but the allowed ones",
        "T2",
        (always(probe(LISTS[3])), lambda seen, settings: list(allowed_asks(seen, settings))),
        rule=allowed_rule,
        needs=("token_ids",),
        descends_from=(18902,),
    ),
    Case(
        "logit-bias",
        "logit_bias is honoured or refused as on the baseline",
        "T2",
        (always(probe(LISTS[3])), lambda seen, settings: list(bias_asks(seen, settings))),
        judge=bias_judge,
        needs=("token_ids",),
        descends_from=(18902,),
        manners=(SERIAL,),
        drafts=False,
        may_refuse=("logit_bias",),
    ),
    Case(
        "min-p",
        "min_p is honoured or refused as on the baseline",
        "T2",
        (always(*narrow_asks("min-p", {"min_p": 1.0})),),
        judge=lambda heard: narrow_judge(heard, "min-p"),
        descends_from=(18902,),
        manners=(SERIAL,),
        drafts=False,
        may_refuse=("min_p",),
    ),
    Case(
        "narrow-sampling",
        "top_k and top_p leave out what they are to leave out",
        "T2",
        (always(*(ask for name, fields in NARROW.items() for ask in narrow_asks(name, fields))),),
        judge=lambda heard: together((narrow_judge(heard, name) for name in NARROW), "nothing was asked"),
        descends_from=(54282,),
    ),
    Case(
        "seeds",
        "A seed repeats its text as far as on the baseline",
        "T2",
        (always(*seed_asks()),),
        judge=seed_judge,
        needs=("seed",),
        descends_from=(6038, 9441, 11123),
        manners=(SERIAL,),
        thorough=(SERIAL,),
        undisturbed=True,
    ),
    Case(
        "several-answers",
        "As many answers come as n asks for",
        "T2",
        (
            always(
                chat(OPEN_LABEL, LISTS[5], n=4, max_tokens=12, ignore_eos=True, temperature=1.2, seed=DRAWN),
                chat("four-closed", LISTS[2], n=4, max_tokens=12, ignore_eos=True, temperature=1.2, seed=DRAWN),
            ),
        ),
        rule=several_rule,
        needs=("n",),
        descends_from=(11312,),
    ),
)
