"""What one tuning trial says, as a few numbers, so that its records are read once and many pages are made of them."""

from dataclasses import dataclass

from decisions.rules.brief import Brief
from decisions.rules.evidence import ALL, TrialEvidence, has_deadline, within
from decisions.rules.measures import Measure, trial_measure, value
from decisions.rules.race import aims
from loadtests.statistics.attainment import slo_goodput

# Beside an outcome that is no time of completion: what every user feels.
MEDIAN = Measure("completion_quantile", 0.5)


@dataclass(frozen=True)
class TrialFigures:
    """``outcome`` and ``median`` over all classes; ``goodput`` in requests/s and ``attainment`` over those that have a
    deadline, ``planned`` requests/s over all. ``aims``: of each aim of the race at this level, by name. None: nothing
    to measure it on."""

    outcome: float | None
    median: float | None
    planned_per_s: float
    goodput_per_s: float | None
    attainment: float | None
    aims: dict[str, float | None]


def figures_of(brief: Brief, trial: TrialEvidence) -> TrialFigures:
    judged = has_deadline(trial, brief)
    met = within(trial, brief)[judged]
    return TrialFigures(
        outcome=value(trial_measure(brief.outcome), trial, ALL, brief),
        median=value(MEDIAN, trial, ALL, brief),
        planned_per_s=trial.planned / trial.window_s,
        goodput_per_s=slo_goodput(met, trial.window_s) if judged.any() else None,
        attainment=float(met.mean()) if judged.any() else None,
        aims={
            aim.name: value(aim.measure, trial, aim.cell.class_, brief)
            for aim in aims(brief)
            if aim.cell.level == trial.level
        },
    )
