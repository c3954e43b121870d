"""Which schedule to measure next: SmartSpec's rule for each running batch, made short enough for an engine.

Source: Liu et al., "Optimizing speculative decoding for serving large language models using goodput", 2024: the K
that maximises (1 + Σ accepted share of position i ≤ K) ÷ round time(batch, K).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtests.tuning.cost_model import CostModel
from loadtests.tuning.schedule import Schedule

Floats = NDArray[np.float64]
# Weight of all batches that no level reached, against 1 for each level: enough to choose the better K there.
UNSEEN = 0.001


@dataclass(frozen=True)
class Load:
    """A load level as the engine sees it: ``batches`` {running batch: share of time}, context of a running sequence in
    tokens, share of each class in the verified tokens (None: as in the trials)."""

    level: str
    batches: Mapping[int, float]
    context_tokens: float
    mix: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Choice:
    """At one running batch: the K whose predicted tokens/s are highest, and its speed-up over a server without
    speculation at the same batch (with K = 0, below 1)."""

    batch: int
    k: int
    speed_up: float


@dataclass(frozen=True)
class Proposal:
    """``schedule`` None: none is worth measuring, and ``reason`` says why. ``gain``: predicted tokens/s of the
    schedule ÷ those of ``best_single`` − 1 over the levels' batches (geometric mean); ``best_single`` is a K, 0 for a
    server without speculation. ``choices``: the best K at each batch, before neighbours were merged."""

    drafter: str
    schedule: Schedule | None
    reason: str
    best_single: int
    gain: float | None
    choices: tuple[Choice, ...]


def best_draft_lengths(
    model: CostModel,
    drafter: str,
    *,
    batches: Iterable[int],
    draft_lengths: Sequence[int],
    context_tokens: float,
    mix: Mapping[str, float] | None = None,
) -> tuple[Choice, ...]:
    """At each batch the K of ``draft_lengths`` (0 is always among them) with the highest predicted tokens/s, the
    smaller one of equals."""
    lengths, wanted = with_none(draft_lengths), list(batches)
    load = Load("", {}, context_tokens, mix)
    return tuple(choices(wanted, lengths, log_speed_ups(model, drafter, load, wanted, lengths)))


def propose_schedule(
    model: CostModel,
    drafter: str,
    loads: Sequence[Load],
    *,
    draft_lengths: Sequence[int],
    max_num_seqs: int,
    most_steps: int = 4,
    tolerance: float = 0.01,
    margin: float = 0.02,
) -> Proposal:
    """A schedule of at most ``most_steps`` steps, with no more of them than are worth ``tolerance`` together, where it
    is predicted to beat the best single K (0: no speculation at all) by more than ``margin`` over the levels' batches.

    Each level counts alike; what is compared is the geometric mean of tokens/s over the time at each batch, as
    measured: that a faster server has fewer sequences running is left out. Of all schedules of so many steps the best
    is found, by dynamic programming. ``tolerance`` and ``margin`` are shares of 1. Raises ValueError without a load or
    draft length.
    """
    if not loads or not any(draft_lengths):
        raise ValueError("a proposal needs a load level and a draft length above 0")
    lengths, batches = with_none(draft_lengths), list(range(1, max_num_seqs + 1))
    weights = weights_of(loads, max_num_seqs)
    # Shape (batches, draft lengths): what K is worth there, over all levels.
    each = [log_speed_ups(model, drafter, load, batches, lengths) for load in loads]
    weighed = np.stack(weights)[:, :, None]
    worth = np.mean(weighed * np.stack(each), axis=0)
    found = tuple(choices(batches, lengths, worth / weighed.mean(axis=0)))
    schedule, value = shortest(batches, lengths, worth, most_steps=most_steps, tolerance=tolerance)
    single, single_value = best_single(lengths, worth)
    gain = float(np.exp(value - single_value) - 1)
    reason = why_not(schedule, single, gain, margin)
    return Proposal(
        drafter,
        schedule if reason is None else None,
        reason or f"{schedule} is predicted {100 * gain:.1f} % above {named(single)}",
        single,
        gain,
        found,
    )


def with_none(draft_lengths: Sequence[int]) -> list[int]:
    return sorted({0, *draft_lengths})


def log_speed_ups(model: CostModel, drafter: str, load: Load, batches: Sequence[int], lengths: Sequence[int]) -> Floats:
    """Logarithms of the speed-up over no speculation, shape (batches, draft lengths)."""
    each = [
        model.speed_ups(batches, k, drafter=drafter, context_tokens=load.context_tokens, mix=load.mix) for k in lengths
    ]
    return np.log(np.stack(each, axis=1))


def choices(batches: Sequence[int], lengths: Sequence[int], logs: Floats) -> list[Choice]:
    best = logs.argmax(axis=1)
    return [
        Choice(batch, lengths[place], float(np.exp(row[place])))
        for batch, place, row in zip(batches, best, logs, strict=True)
    ]


def weights_of(loads: Sequence[Load], max_num_seqs: int) -> list[Floats]:
    """By level, the share of time at 1, 2, … sequences; the rest of UNSEEN on every batch alike."""
    found = []
    for load in loads:
        weight = np.full(max_num_seqs, UNSEEN / max_num_seqs)
        total = sum(share for batch, share in load.batches.items() if batch >= 1)
        for batch, share in load.batches.items():
            if batch >= 1:
                weight[min(batch, max_num_seqs) - 1] += share / total
        found.append(weight)
    return found


def best_single(lengths: Sequence[int], worth: Floats) -> tuple[int, float]:
    """The best K for all batches and what it is worth. A server without speculation is worth 0, a server that always
    drafts nothing less."""
    fixed = {k: float(value) for k, value in zip(lengths, worth.sum(axis=0), strict=True) if k} | {0: 0.0}
    best = max(sorted(fixed), key=fixed.__getitem__)
    return best, fixed[best]


def shortest(
    batches: Sequence[int], lengths: Sequence[int], worth: Floats, *, most_steps: int, tolerance: float
) -> tuple[Schedule, float]:
    """The schedule of the fewest steps that is less than ``tolerance`` below the best one of ``most_steps``, and what
    it is worth."""
    found = segmented(worth, most_steps)
    best = found[-1][0]
    value, places = next(one for one in found if best - one[0] < tolerance)
    return Schedule.of((batch, lengths[place]) for batch, place in zip(batches, places, strict=True)), value


def segmented(worth: Floats, most: int) -> list[tuple[float, list[int]]]:
    """For 1 … ``most`` stretches of batches with one column each, the largest sum of ``worth`` and the columns.

    Exact, by dynamic programming: the best over the first batches with the last in a given column is that of one batch
    less, with the same column, or with the best one of a stretch less.
    """
    rows, columns = worth.shape
    best = worth[0] + np.zeros(columns)
    reached = [np.zeros((most, columns))]
    came: list[NDArray[np.int64]] = [np.tile(np.arange(columns), (most, 1))]
    reached[0][:] = best
    for row in range(1, rows):
        before = reached[-1]
        stay = np.arange(columns)
        value, origin = before.copy(), np.tile(stay, (most, 1))
        for stretch in range(1, most):
            other = int(before[stretch - 1].argmax())
            better = before[stretch - 1, other] > before[stretch]
            value[stretch] = np.where(better, before[stretch - 1, other], before[stretch])
            # A new stretch is told by a column number beyond the last one.
            origin[stretch] = np.where(better, columns + other, stay)
        reached.append(value + worth[row])
        came.append(origin)
    return [walked_back(reached, came, stretch, columns) for stretch in range(most)]


def walked_back(
    reached: list[Floats], came: list[NDArray[np.int64]], stretch: int, columns: int
) -> tuple[float, list[int]]:
    column = int(reached[-1][stretch].argmax())
    total, places = float(reached[-1][stretch, column]), [column]
    for origin in reversed(came[1:]):
        from_ = int(origin[stretch, column])
        if from_ >= columns:
            stretch, column = stretch - 1, from_ - columns
        places.append(column)
    return total, places[::-1]


def named(k: int) -> str:
    return f"K = {k} at every load" if k else "no speculation"


def why_not(schedule: Schedule, single: int, gain: float, margin: float) -> str | None:
    if len(schedule.steps) == 1:
        return f"one K is as good at every load as any schedule: {named(single)}"
    if gain <= margin:
        said = f"{schedule} is predicted {100 * gain:.1f} % above {named(single)}"
        return f"{said}: not more than the margin of {100 * margin:.1f} %"
    return None
