"""How much faster than no speculation: each boot against the baseline boots of its own round. Exploratory, as tuning
is: means without a bound, since nothing is decided on them."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from decisions.rules.measures import Measure, effect
from decisions.rules.nomination import middle
from decisions.rules.race import Aim

# The baseline, among the runners.
NONE = ""


@dataclass(frozen=True)
class Reading:
    """One trial's number: ``runner`` is the candidate's name, or NONE."""

    round: int
    runner: str
    value: float


@dataclass(frozen=True)
class SpeedUp:
    """``mean``: no speculation is 1, more is better; 0 where it never got there in some boot, infinite where no
    speculation alone never did, None where neither did or its round has no baseline boot. ``boots``: behind it;
    ``low`` and ``high`` of theirs."""

    mean: float | None
    boots: int
    low: float | None
    high: float | None


def speed_ups(measure: Measure, readings: Iterable[Reading]) -> dict[str, SpeedUp]:
    """By runner, at one level. Of the baseline: each of its boots against all of its round."""
    readings = list(readings)
    theirs: dict[str, list[float | None]] = {}
    for one in readings:
        beside = baseline_beside(readings, one)
        theirs.setdefault(one.runner, []).append(times_better(measure, beside, one.value) if beside else None)
    return {runner: over_boots(found) for runner, found in theirs.items()}


def baseline_beside(readings: Sequence[Reading], one: Reading) -> list[float]:
    return [other.value for other in readings if other.round == one.round and other.runner == NONE]


def times_better(measure: Measure, beside: Sequence[float], value: float) -> float | None:
    """Than the middle of the baseline boots beside it: a ratio of shares, or of the arms in the direction that is
    better."""
    baseline = middle(measure, beside)
    if measure.scale == "difference":
        return ratio(value, baseline) if measure.better > 0 else ratio(baseline, value)
    found = effect(measure, baseline, value)
    return None if math.isnan(found) else math.exp(found)


def ratio(above: float, below: float) -> float | None:
    if below > 0:
        return above / below
    return math.inf if above > 0 else None


def over_boots(found: Sequence[float | None]) -> SpeedUp:
    known = [one for one in found if one is not None]
    if not known:
        return SpeedUp(None, len(found), None, None)
    return SpeedUp(geometric_mean(known), len(known), min(known), max(known))


def geometric_mean(values: Sequence[float]) -> float:
    if any(one <= 0 for one in values):
        return 0.0
    return math.inf if any(math.isinf(one) for one in values) else statistics.geometric_mean(values)


def over_its_limit(aim: Aim, readings: Iterable[Reading], runner: str) -> bool:
    """Whether a runner's boots are on the mean worse than an aim allows, beside the baseline boots of their rounds."""
    readings = list(readings)
    effects = [
        aim.effect(middle(aim.measure, beside) if beside else None, one.value)
        for one in readings
        if one.runner == runner
        for beside in [baseline_beside(readings, one)]
    ]
    known = [one for one in effects if not math.isnan(one)]
    return bool(known) and statistics.fmean(known) < aim.limit
