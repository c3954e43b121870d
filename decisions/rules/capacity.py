"""What rate each arm is shown to carry on the brief's ladder, and how many replicas the peak takes without speculation.

Capacity isn't compared pair by pair: each arm's ladder is climbed on its own, and the two bounds are set against each
other, each at half of alpha, so that both are right together at the brief's confidence.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from decisions.rules.brief import Brief, Ladder
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import Measure, over_limit
from decisions.rules.wording import counted, quantity
from loadtests.statistics.capacity import Capacity, Rung, capacity, replicas_needed
from loadtests.statistics.order import ARMS

LATE = Measure("late_share")
UNIT = "requests/s"


def rungs_of(brief: Brief, ladder: Ladder, trials: Sequence[TrialEvidence], arm: str) -> list[Rung]:
    """The rungs that the arm has trials at, from the lowest up to the first without any."""
    found = []
    for name in sorted(ladder.levels, key=lambda one: rate_of(brief, one)):
        here = [one for one in trials if (one.arm, one.level) == (arm, name)]
        counts = [over_limit(LATE, one, ladder.class_, 0.0, brief) for one in here]
        counts = [(late, judged) for late, judged in counts if judged]
        if not counts:
            break
        found.append(Rung(rate_of(brief, name), [late for late, _ in counts], [judged for _, judged in counts]))
    return found


def rate_of(brief: Brief, level: str) -> float:
    rate = brief.level(level).arrival.mean_rate
    assert rate is not None  # the brief sees to it
    return rate


def capacity_of(brief: Brief, trials: Sequence[TrialEvidence], arm: str, *, alpha: float) -> Capacity | None:
    """None where the brief has no ladder, or the arm no trial at its lowest rung."""
    if brief.capacity is None:
        return None
    rungs = rungs_of(brief, brief.capacity, trials, arm)
    if not rungs:
        return None
    return capacity(rungs, target=brief.capacity.target, alpha=alpha)


def capacity_rows(brief: Brief, trials: Sequence[TrialEvidence]) -> list[dict[str, Any]]:
    """Per arm what is shown at the brief's confidence, and the replicas that its peak takes."""
    if brief.capacity is None:
        return []
    rows = []
    for arm in ARMS:
        found = capacity_of(brief, trials, arm, alpha=brief.rule.alpha)
        if found is not None:
            rows.append(capacity_row(brief, trials, arm, found))
    return rows


def capacity_row(brief: Brief, trials: Sequence[TrialEvidence], arm: str, found: Capacity) -> dict[str, Any]:
    peak = peak_rate(brief, trials)
    replicas = replicas_needed(peak, found.shown) if peak and found.shown else None
    return {
        "arm": arm,
        "unit": UNIT,
        "target": brief.capacity.target if brief.capacity else None,
        "class": brief.capacity.class_ if brief.capacity else None,
        "shown": found.shown,
        "censored": found.censored,
        "stopped_at": found.stopped_at,
        "above": found.above,
        "confidence": brief.rule.confidence,
        "peak_rate": peak,
        "replicas_at_peak": replicas,
        "sentence": capacity_sentence(brief, arm, found, replicas),
    }


def peak_rate(brief: Brief, trials: Sequence[TrialEvidence]) -> float | None:
    """Requests per second at peak: as planned, or of a replay as it was."""
    planned = brief.level(brief.peak).arrival.mean_rate
    if planned is not None:
        return planned
    rates = [one.planned / one.window_s for one in trials if one.level == brief.peak]
    return statistics.fmean(rates) if rates else None


def capacity_sentence(brief: Brief, arm: str, found: Capacity, replicas: int | None) -> str:
    who = "The baseline" if arm == ARMS[0] else "The candidate"
    if found.shown is None:
        return f"{who} is shown to carry no rate of the ladder, not even {quantity(found.stopped_at, UNIT)}."
    said = f"{who} is shown to carry {quantity(found.shown, UNIT)}"
    if found.censored:
        said += ", the ladder's top: what it carries beyond isn't known"
    elif found.stopped_at is not None:
        said += f", and {quantity(found.stopped_at, UNIT)} isn't shown"
    if replicas is None:
        return f"{said}."
    return f"{said}; the peak takes {counted(replicas, 'replica')} of it."
