"""Does a candidate give the baseline's greedy tokens? (design §7, T1)

Equality is no test: one row against K + 1 rows adds in another order, so answers differ where the target's best tokens
tie. What is judged are the divergences that no tie excuses, against those of the baseline with itself (the control).

A continuation counts up to its first divergence; what follows isn't comparable. So: many short continuations from many
prefixes of the baseline's answers, and one tie ends one of them alone. Continuations of one prompt share its
weaknesses, hence the prompt is the unit: were the candidate one more repeat of the baseline, then within each prompt
the counts of candidate and repeat could as well be exchanged. The sum of their differences is held against all such
exchanges, exactly. With one continuation a prompt this is McNemar's exact test.

Why not Fisher's test, or the conditional binomial with the positions at risk as exposure: both take continuations for
independent; Fisher's takes the same continuation in two arms for two continuations; and the binomial, whose unit is the
right one, takes exposures as given, which the divergences themselves cut short. Positions at risk are shown and count
in the power. Where ties cut the candidate short, it has fewer chances to diverge without excuse: that makes false
alarms rarer, and what it costs is in the power.

Sources: Fisher, The Design of Experiments (1935), section 21 (exchange within pairs); Good, Permutation, Parametric and
Bootstrap Tests of Hypotheses, 3rd ed. 2005, ch. 3 (of whole groups); McNemar, Psychometrika 12 (1947) 153-157.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

# One step of bfloat16 between 16 and 32, where logits mostly are, is 0.125: of 37 divergences of a baseline from itself
# one was known to be beyond it, and a threshold below it leaves a control too noisy to hold anything against. In
# float32, with and without speculation, they were within 0.1.
TIE_NATS = 0.13
ALPHA = 0.01
FLIP_RATE = 0.02
CHANCE = 0.9
# Divergences that are named one by one.
NAMED = 20
ENDED = -1
# Of differences between logarithms.
ROUNDING = 1e-9
MOST_PROMPTS = 100_000

Found = Literal["shown", "broken", "cannot tell", "not exercised"]
Judged = Literal["excused", "unexcused", "unjudged"]


@dataclass(frozen=True)
class Continuation:
    """What three servers said after one prefix, in token ids, with the end-of-sequence token as one of them.

    ``prefix`` names the continuation within its prompt, for example by the number of tokens of the answer that it goes
    on from. ``repeat``: the baseline again. ``top``: at each token of ``baseline``, the log-probabilities (nats) of the
    baseline's best tokens, two at least, by token id; an empty mapping where a position has none, None where the engine
    tells none. ``drafted``: the candidate proposed drafts here.
    """

    prompt_id: str
    prefix: int
    baseline: Sequence[int]
    candidate: Sequence[int]
    repeat: Sequence[int]
    top: Sequence[Mapping[int, float]] | None
    drafted: bool


@dataclass(frozen=True)
class Divergence:
    """``position`` counts from 1 within the continuation. A token is ENDED where that side had stopped. ``gap_nats``:
    how far below its best token the baseline put the other; where that wasn't listed (``gap_is_least``), how far at
    least; None where nothing was."""

    prompt_id: str
    prefix: int
    position: int
    baseline_token: int
    other_token: int
    gap_nats: float | None
    gap_is_least: bool
    judged: Judged


@dataclass(frozen=True)
class Counts:
    """One arm against the baseline. ``positions``: those at risk, up to and with the first divergence. ``unjudged``:
    divergences that the baseline's log-probabilities neither excuse nor forbid to excuse."""

    positions: int
    divergences: int
    excused: int
    unexcused: int
    unjudged: int


@dataclass(frozen=True)
class GreedyParity:
    """``p``: of the exchange test, one-sided, with whatever is unjudged taken in the candidate's favour;
    ``p_at_worst``: against it. ``power``: the chance that this run had to notice flips at ``flip_rate`` of the
    positions. ``drafted``: continuations with drafts. ``unexcused``: the candidate's first ones, at most NAMED, in the
    order given. ``prompts`` and ``continuations`` are those compared."""

    found: Found
    reason: str
    prompts: int
    continuations: int
    drafted: int
    candidate: Counts
    control: Counts
    p: float
    p_at_worst: float
    power: float
    alpha: float
    flip_rate: float
    tie_nats: float
    unexcused: tuple[Divergence, ...]


class Compared(NamedTuple):
    """``at_risk``: positions compared, up to and with the first divergence."""

    prompt_id: str
    at_risk: int
    divergence: Divergence | None


def greedy_parity(
    continuations: Sequence[Continuation],
    *,
    tie_nats: float = TIE_NATS,
    alpha: float = ALPHA,
    flip_rate: float = FLIP_RATE,
    chance: float = CHANCE,
) -> GreedyParity:
    """Judge one run (one concurrency, one setting of the prefix cache) with a chance ≤ ``alpha`` of a false alarm.

    ``tie_nats``: the largest gap, in nats, that is a tie. Parity is shown only if the run had the ``chance``
    to notice flips at ``flip_rate`` of the drafted positions. Every continuation is compared, with drafts or without:
    to choose by what the candidate did would favour one arm. But only those with drafts count in the power.
    Raises ValueError, naming prompt and prefix, where a continuation comes twice, where ``top`` doesn't fit
    ``baseline``, and where it holds what is no number.
    """
    check(continuations)
    candidate = [compared(one, one.candidate, tie_nats) for one in continuations]
    control = [compared(one, one.repeat, tie_nats) for one in continuations]
    p = exchange_p(differences(of(candidate, "unexcused"), of(control, "unexcused", "unjudged")))
    p_at_worst = exchange_p(differences(of(candidate, "unexcused", "unjudged"), of(control, "unexcused")))
    drafted = [one.drafted for one in continuations]
    power = run_power(at_risk(candidate, drafted), len(set(of(control, "unexcused"))), flip_rate=flip_rate, alpha=alpha)
    found, reason = settled(any(drafted), p, p_at_worst, power, alpha, flip_rate, chance)
    unexcused = [one.divergence for one in candidate if one.divergence and one.divergence.judged == "unexcused"]
    return GreedyParity(
        found=found,
        reason=reason,
        prompts=len({one.prompt_id for one in continuations}),
        continuations=len(continuations),
        drafted=sum(drafted),
        candidate=counts(candidate),
        control=counts(control),
        p=p,
        p_at_worst=p_at_worst,
        power=power,
        alpha=alpha,
        flip_rate=flip_rate,
        tie_nats=tie_nats,
        unexcused=tuple(unexcused[:NAMED]),
    )


def check(continuations: Sequence[Continuation]) -> None:
    seen: set[tuple[str, int]] = set()
    for one in continuations:
        where = f"prompt {one.prompt_id}, prefix {one.prefix}"
        if (one.prompt_id, one.prefix) in seen:
            raise ValueError(f"{where}: given twice; give each continuation a prefix of its own")
        seen.add((one.prompt_id, one.prefix))
        top = one.top or []
        if one.top is not None and len(top) != len(one.baseline):
            raise ValueError(
                f"{where}: log-probabilities at {len(top)} positions for {len(one.baseline)} tokens; give one "
                "mapping for each token of the baseline, or none at all"
            )
        for place, listed in enumerate(top):
            if any(math.isnan(value) for value in listed.values()):
                raise ValueError(f"{where}: a log-probability at position {place + 1} is no number")


def compared(continuation: Continuation, other: Sequence[int], tie_nats: float) -> Compared:
    place = first_difference(continuation.baseline, other)
    if place is None:
        return Compared(continuation.prompt_id, len(continuation.baseline), None)
    top = continuation.top[place] if continuation.top and place < len(continuation.top) else {}
    token = token_at(other, place)
    judged, gap, least = judge_gap(top, token, tie_nats)
    found = Divergence(
        prompt_id=continuation.prompt_id,
        prefix=continuation.prefix,
        position=place + 1,
        baseline_token=token_at(continuation.baseline, place),
        other_token=token,
        gap_nats=gap,
        gap_is_least=least,
        judged=judged,
    )
    return Compared(continuation.prompt_id, place + 1, found)


def first_difference(baseline: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place (from 0) where the two differ; one that stops early differs where it stops."""
    for place, (own, its) in enumerate(zip(baseline, other, strict=False)):
        if own != its:
            return place
    return None if len(baseline) == len(other) else min(len(baseline), len(other))


def token_at(tokens: Sequence[int], place: int) -> int:
    return int(tokens[place]) if place < len(tokens) else ENDED


def judge_gap(top: Mapping[int, float], token: int, tie_nats: float) -> tuple[Judged, float | None, bool]:
    """Does a tie excuse ``token``? With the gap in nats, and whether it is only the least that it can be.

    The gap is that between the baseline's best token and this one, not between its best two: among three tokens that
    tie, any may come; and where two tie, a third is no tie. A token that isn't listed lies below the last that is.
    """
    if not top:
        return "unjudged", None, False
    best = max(top.values())
    if token in top:
        gap = best - top[token]
        return ("excused" if gap <= tie_nats + ROUNDING else "unexcused"), gap, False
    gap = best - min(top.values())
    return ("unexcused" if gap > tie_nats + ROUNDING else "unjudged"), gap, True


def of(arm: Iterable[Compared], *judged: Judged) -> dict[str, int]:
    """For each prompt with any, the number of its continuations that diverged as ``judged``."""
    found: dict[str, int] = defaultdict(int)
    for one in arm:
        if one.divergence and one.divergence.judged in judged:
            found[one.prompt_id] += 1
    return dict(found)


def differences(candidate: Mapping[str, int], control: Mapping[str, int]) -> list[int]:
    return [candidate.get(one, 0) - control.get(one, 0) for one in sorted({*candidate, *control})]


def at_risk(arm: Sequence[Compared], drafted: Sequence[bool]) -> list[int]:
    """For each prompt, the positions at risk where drafts were proposed; the first of each continuation never is
    one."""
    found: dict[str, int] = defaultdict(int)
    for one, counts_here in zip(arm, drafted, strict=True):
        found[one.prompt_id] += max(0, one.at_risk - 1) if counts_here else 0
    return list(found.values())


def counts(arm: Sequence[Compared]) -> Counts:
    judged = [one.divergence.judged for one in arm if one.divergence]
    return Counts(
        positions=sum(one.at_risk for one in arm),
        divergences=len(judged),
        excused=judged.count("excused"),
        unexcused=judged.count("unexcused"),
        unjudged=judged.count("unjudged"),
    )


def exchange_p(differences: Sequence[int]) -> float:
    """The share of all exchanges within prompts whose sum of differences is at least the one seen.

    ``differences``: for each prompt, divergences of the candidate less those of the repeat. One-sided, exact: the
    chances of each sum are built up prompt by prompt. 1 where no prompt has a difference.
    Source: Fisher (1935) and Good (2005) as above; the convolution is that of Pagano & Tritchler, J. Am. Stat. Assoc.
    78 (1983) 435-440, done directly.
    """
    sizes = [abs(one) for one in differences if one]
    chances = np.ones(1)
    for size in sizes:
        added = np.zeros(len(chances) + 2 * size)
        added[: len(chances)] += chances / 2
        added[2 * size :] += chances / 2
        chances = added
    return min(1.0, float(chances[sum(differences) + sum(sizes) :].sum()))


def diverging_needed(control: int, alpha: float) -> int:
    """The fewest prompts with unexcused divergences of the candidate that are noticed at ``alpha``, where the control
    has them in ``control`` other prompts, one each: the exchange test solved for the number."""
    needed = 1
    while stats.binom.sf(needed - 1, needed + control, 0.5) > alpha:
        needed += 1
    return needed


def run_power(positions: Sequence[int], control: int, *, flip_rate: float = FLIP_RATE, alpha: float = ALPHA) -> float:
    """The chance to notice flips that strike each position alike, with the chance ``flip_rate``, in [0, 1].

    ``positions``: for each prompt the positions at risk. A prompt counts once, whatever the number of its divergences.
    ``control``: the prompts in which the baseline diverges from itself.
    Source: the number of prompts with a flip is Poisson-binomial (sum of unlike Bernoulli variables), taken exactly.
    """
    chances = np.ones(1)
    for many in positions:
        struck = 1 - (1 - flip_rate) ** many
        chances = np.convolve(chances, [1 - struck, struck])
    return min(1.0, float(chances[diverging_needed(control, alpha) :].sum()))


def prompts_needed(
    positions: int, *, flip_rate: float = FLIP_RATE, alpha: float = ALPHA, chance: float = CHANCE, control: int = 0
) -> int:
    """The fewest prompts, each with ``positions`` (≥ 1) drafted positions in all its continuations together, that have
    the ``chance`` to notice flips at ``flip_rate`` of the positions. With one continuation a prompt: continuations.

    For 15 positions, 2 %, alpha 1 % and 90 %: 38. Raises ValueError where a parameter is out of range, or beyond 10^5.
    Source: ``run_power`` solved for the number.
    """
    if positions < 1 or not (0 < flip_rate < 1 and 0 < alpha < 1 and 0 < chance < 1):
        raise ValueError(f"no such plan: {positions} positions, flips {flip_rate}, alpha {alpha}, chance {chance}")
    needed, struck = diverging_needed(control, alpha), 1 - (1 - flip_rate) ** positions

    def enough(prompts: int) -> bool:
        return bool(stats.binom.sf(needed - 1, prompts, struck) >= chance)

    low, high = needed - 1, MOST_PROMPTS
    if not enough(high):
        raise ValueError(f"more than {MOST_PROMPTS} prompts")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def settled(
    drafted: bool, p: float, p_at_worst: float, power: float, alpha: float, flip_rate: float, chance: float
) -> tuple[Found, str]:
    if not drafted:
        return "not exercised", "No drafts were proposed."
    if p <= alpha:
        return "broken", f"The candidate diverges without a tie oftener than the baseline from itself (p {p:.2g})."
    if p_at_worst <= alpha:
        return "cannot tell", (
            "Too many divergences can't be judged: the baseline's log-probabilities are missing or list too few tokens "
            "there. Use an engine that tells them."
        )
    if power < chance:
        return "cannot tell", (
            f"The chance to notice flips at {flip_rate:.2g} of the positions was {power:.2f}, not {chance:.2g}: "
            "use more prompts, or longer or more continuations."
        )
    return "shown", (
        f"No more divergences without a tie than the baseline has with itself (p {p:.2g}); flips at {flip_rate:.2g} of "
        f"the positions would have been noticed with a chance of {power:.2f}."
    )
