"""The cost model held against boots that it was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import median

from decisions.charts.figure import Chart
from decisions.charts.prediction import RoundTime, predicted_round_times
from loadtests.configurations import Speculative
from loadtests.simulator.fitting import fit
from loadtests.tuning.cost_model import ObservedTrial, round_time
from loadtests.tuning.cost_model import RoundTime as Measured

# Each takes a fit of about a second: enough for every boot to be predicted by others alone.
FOLDS = 3


def predictions(labels: Mapping[Speculative | None, str], trials: Sequence[ObservedTrial]) -> Chart | None:
    """None where too few trials tell the engine's own times. ``labels``: what each setting is called."""
    found = [
        RoundTime(
            labels[one.speculative],
            one.speculative.method if one.speculative else labels[None],
            one.level,
            one.boot,
            one.running,
            1_000 * one.measured_s,
            1_000 * one.predicted_s,
        )
        for one in round_times(tuple(trials))
    ]
    errors = [abs(one.error) for one in found]
    return predicted_round_times(found, median=median(errors)) if errors else None


# A page asks for the same trials until another boot has finished.
@lru_cache(maxsize=16)
def round_times(trials: tuple[ObservedTrial, ...]) -> tuple[Measured, ...]:
    """Each trial's round time by a fit to boots of other folds; without those whose drafter, or the baseline, is in no
    other fold."""
    found: list[Measured] = []
    for fold in folds(trials):
        rest = [one for one in trials if one.boot not in fold]
        known = {one.drafter for one in rest}
        judged = [one for one in trials if one.boot in fold and one.drafter in known]
        if None in known and judged:
            fitted = fit([one.observed for one in rest])
            found += [round_time(one, fitted) for one in judged]
    return tuple(found)


def folds(trials: Sequence[ObservedTrial]) -> list[set[str]]:
    """The boots, dealt so that those of one setting lie in different folds."""
    setting = {one.boot: repr(one.speculative) for one in trials}
    dealt = sorted(setting, key=lambda boot: (setting[boot], boot))
    return [set(dealt[place::FOLDS]) for place in range(min(FOLDS, len(dealt)))]
