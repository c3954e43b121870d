"""What is true in the decision benchmark: each truth is calibrated by simulation until one requirement of the brief is
met exactly, and nothing else is near its limit."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import Measure, over_limit, value
from loadtests.statistics.effects import smallest_detectable_effect
from tests.benchmarks.decision_fleet import trials
from tests.benchmarks.decision_world import (
    COMPLETION,
    COMPLETION_S,
    FIRST_TOKEN,
    GRID,
    LATE,
    MINIMUM,
    NOMINEE,
    PAIRS,
    RAILS,
    Drafter,
    Place,
    brief,
)

Floats = npt.NDArray[np.float64]
OUTCOME, CLEAR = "outcome", "clear"
FIGURES = (OUTCOME, FIRST_TOKEN, LATE, COMPLETION)
# Expected effects at which a requirement is met exactly: points of attainment, log ratio, points, share over the limit.
RAIL = {str(rail["id"]): rail for rail in RAILS}
LIMITS = {
    OUTCOME: MINIMUM,
    FIRST_TOKEN: math.log1p(RAIL[FIRST_TOKEN]["limit"]),
    LATE: float(RAIL[LATE]["limit"]),
    COMPLETION: 1 - float(RAIL[COMPLETION]["quantile"]),
}
# Boots by which a truth is searched for, come nearer to, then settled, and known for the other draft lengths.
COARSE, MIDDLE, FINE, OTHERS = 100, 400, 1_000, 300
HALVINGS = 5
HERMITE = 3


@dataclass(frozen=True)
class Truth:
    """``knobs`` are the fields of the drafter that are turned together, between ``low`` and ``high``; ``figure`` is
    what they move to its limit, ``rises`` whether it rises with them."""

    name: str
    figure: str
    drafter: Drafter
    knobs: tuple[str, ...]
    low: float
    high: float
    rises: bool

    def at(self, knob: float) -> Drafter:
        return self.drafter.with_(**dict.fromkeys(self.knobs, knob))


GOOD = Drafter(chat=0.9, code=0.8, translate=0.8, step_s=0.001)
TRUTHS = {
    one.name: one
    for one in (
        Truth(OUTCOME, OUTCOME, GOOD, ("chat", "code"), 0.02, 0.9, rises=True),
        Truth(FIRST_TOKEN, FIRST_TOKEN, GOOD, ("step_s",), 0.001, 0.012, rises=True),
        Truth(LATE, LATE, GOOD, ("code",), 0.0, 0.6, rises=False),
        Truth(COMPLETION, COMPLETION, GOOD, ("translate",), 0.0, 0.6, rises=False),
        Truth(CLEAR, OUTCOME, GOOD, ("chat", "code"), 0.02, 0.9, rises=True),
    )
}
NULLS = tuple(name for name in TRUTHS if name != CLEAR)


@dataclass(frozen=True)
class Estimate:
    """Of an expected effect: with its standard error, and the standard deviation from pair to pair."""

    mean: float
    se: float
    sd: float


def figures(rule: Brief, one: TrialEvidence, luck: float) -> list[float]:
    """Of one trial, as the rules measure them: FIGURES, and the boot's luck last."""
    attainment = value(Measure("attainment"), one, "all", rule)
    first = value(Measure("first_token_quantile", RAIL[FIRST_TOKEN]["quantile"]), one, "all", rule)
    late = value(Measure("late_share"), one, "code", rule)
    over, of = over_limit(
        Measure("completion_quantile", RAIL[COMPLETION]["quantile"]), one, "translate", COMPLETION_S, rule
    )
    if attainment is None or first is None or late is None or not of:
        raise RuntimeError(f"a trial of the benchmark lacks a class: {one.trial}")
    return [attainment, math.log(first), late, over / of, luck]


def boots(spread: float, arm: Any, k: int | None, drafter: Drafter | None, numbers: Sequence[int]) -> Floats:
    """Figures of calibration boots, a row for each. The same number means the same texts and arrivals in every arm and
    for every drafter, and the same luck within an arm."""
    places = [Place("calibration", number, "tuning", 0, arm, k) for number in numbers]
    found = trials(spread, [(place, drafter) for place in places])
    return np.array([figures(brief(spread), *one) for one in found])


def estimate(effects: Floats, lucks: Floats) -> Estimate:
    """The mean, with what the boots' luck explains taken out: ``lucks``, shape (n, arms), is standard normal, so
    Hermite polynomials of it have mean zero and the regression's intercept is the mean at far fewer boots."""
    terms = [np.polynomial.hermite_e.hermevander(lucks[:, arm], HERMITE)[:, 1:] for arm in range(lucks.shape[1])]
    design = np.hstack([np.ones((len(effects), 1)), *terms])
    found, *_ = np.linalg.lstsq(design, effects, rcond=None)
    rest = effects - design @ found
    # The intercept's own variance, from the inverse of the normal matrix.
    unit = float(np.linalg.inv(design.T @ design)[0, 0])
    variance = float(rest @ rest) / max(1, len(effects) - design.shape[1])
    return Estimate(float(found[0]), math.sqrt(unit * variance), float(effects.std(ddof=1)))


def effects_of(before: Floats, after: Floats) -> dict[str, Estimate]:
    """The expected effect of each figure: candidate − baseline; for the absolute limit the candidate's own share."""
    both = np.column_stack([before[:, -1], after[:, -1]])
    found = {
        name: estimate(after[:, at] - before[:, at], both) for at, name in enumerate(FIGURES) if name != COMPLETION
    }
    return found | {COMPLETION: estimate(after[:, FIGURES.index(COMPLETION)], after[:, -1:])}


def ground(spread: float) -> dict[str, Any]:
    """What all truths of a spread have in common: the baseline's boots, and how far a pair of them lies apart."""
    before = boots(spread, "baseline", None, None, range(FINE))
    control = boots(spread, "control", None, None, range(FINE // 2))
    same = effects_of(before[: len(control)], control)
    return {"baseline": before.round(9).tolist(), "control_sd": {name: one.sd for name, one in same.items()}}


def detectable(spread: float, sd: float) -> float:
    return smallest_detectable_effect(sd, PAIRS[spread], alpha=brief(spread).rule.alpha)


def target(spread: float, truth: Truth, control_sd: Mapping[str, float]) -> float:
    """The requirement's own limit; for the clear truth the minimum plus twice what the plan can detect."""
    more = 2 * detectable(spread, control_sd[OUTCOME]) if truth.name == CLEAR else 0.0
    return LIMITS[truth.figure] + more


def halved(of: Callable[[float], float], low: float, high: float, *, rises: bool) -> tuple[float, float]:
    """The knob at which ``of`` crosses zero, and the slope around it. Raises ValueError where it doesn't cross."""
    ends = of(low), of(high)
    if (ends[0] < 0) == (ends[1] < 0) or (ends[0] < 0) != rises:
        raise ValueError(f"no crossing between {low:g} ({ends[0]:+.4f}) and {high:g} ({ends[1]:+.4f})")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        at = of(middle)
        low, high, ends = (middle, high, (at, ends[1])) if (at < 0) == rises else (low, middle, (ends[0], at))
    slope = (ends[1] - ends[0]) / (high - low)
    return low - ends[0] / slope, slope


def calibrate(spread: float, name: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The drafter for which the truth holds, and what else is true of it, for each draft length of the grid."""
    truth, before = TRUTHS[name], np.array(shared["baseline"])
    wanted = target(spread, truth, shared["control_sd"])

    def at(knob: float, count: int, k: int = NOMINEE) -> dict[str, Estimate]:
        after = boots(spread, "candidate", k, truth.at(knob), range(count))
        return effects_of(before[:count], after)

    def off(knob: float) -> float:
        return at(knob, COARSE)[truth.figure].mean - wanted

    first, slope = halved(off, truth.low, truth.high, rises=truth.rises)
    begun = at(first, MIDDLE)[truth.figure].mean - wanted
    second = min(truth.high, max(truth.low, first - begun / slope))
    found = at(second, FINE)
    ended = found[truth.figure].mean - wanted
    # One more step: what is left after it is of second order.
    knob = min(truth.high, max(truth.low, second - ended / slope))
    known = {NOMINEE: found} | {k: at(knob, OTHERS, k) for k in GRID if k != NOMINEE}
    return {
        "knob": knob,
        "drafter": asdict(truth.at(knob)),
        "target": wanted,
        "residual": ended,
        "se": found[truth.figure].se,
        "effects": {str(k): {figure: asdict(one) for figure, one in known[k].items()} for k in sorted(known)},
    }


def distance(figure: str, mean: float) -> float:
    """How far inside its requirement a figure is: positive is inside."""
    return mean - LIMITS[figure] if figure == OUTCOME else LIMITS[figure] - mean


def deserves(calibration: Mapping[str, Any], k: int, figures_: Sequence[str] = FIGURES) -> bool:
    """Every requirement truly met, by more than twice the standard error of what is known of it: at its limit is not
    met."""
    effects = calibration["effects"][str(k)]
    return all(distance(one, effects[one]["mean"]) > 2 * effects[one]["se"] for one in figures_)


def worth(calibration: Mapping[str, Any], k: int | None) -> float:
    """Of a release, in points of attainment beyond what the brief asks for; 0 is that of no release, and of one that
    has to be taken back because it breaks a guardrail."""
    if k is None or not deserves(calibration, k, FIGURES[1:]):
        return 0.0
    return float(calibration["effects"][str(k)][OUTCOME]["mean"]) - MINIMUM


def regret(calibration: Mapping[str, Any], k: int | None) -> float:
    best = max([0.0, *(worth(calibration, one) for one in GRID)])
    return best - worth(calibration, k)


def inside(calibration: Mapping[str, Any], spread: float) -> dict[str, float]:
    """How far inside each requirement the nominee's truth is, in units of what the plan can detect of it."""
    effects = calibration["effects"][str(NOMINEE)]
    return {name: distance(name, effects[name]["mean"]) / detectable(spread, effects[name]["sd"]) for name in FIGURES}
