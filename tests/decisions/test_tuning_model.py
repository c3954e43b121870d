"""The cost model is held against boots that it didn't see."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest

from decisions.selectors import tuning_model
from decisions.selectors.tuning_model import FOLDS, folds, predictions, round_times
from loadtests.simulator.fitting import Fitted, Observed, fit
from loadtests.tuning.cost_model import ObservedTrial, observe
from tests.support.tuning import tuned


@pytest.fixture(scope="module")
def trials() -> tuple[ObservedTrial, ...]:
    return tuple(observe(one) for one in tuned("cpu-2core", "ngram", (1, 4)))


def test_every_boot_is_in_one_fold_and_those_of_a_setting_in_different_ones(trials: tuple[ObservedTrial, ...]) -> None:
    found = folds(trials)
    assert len(found) == FOLDS
    assert Counter(boot for fold in found for boot in fold) == Counter({one.boot for one in trials})
    baseline = {one.boot for one in trials if one.speculative is None}
    assert all(len(fold & baseline) <= 1 for fold in found)


def test_no_boot_has_a_part_in_its_own_prediction(trials: tuple[ObservedTrial, ...], monkeypatch: Any) -> None:
    fitted: list[set[str]] = []

    def noted(observed: Sequence[Observed]) -> Fitted:
        fitted.append({one.boot for one in observed})
        return fit(observed)

    monkeypatch.setattr(tuning_model, "fit", noted)
    round_times.cache_clear()
    found = round_times(trials)
    assert {one.boot for one in found} == {one.boot for one in trials}
    everybody = {one.boot for one in trials}
    assert [everybody - rest for rest in fitted] == folds(trials)


def test_the_predictions_come_close_on_a_simulated_engine(trials: tuple[ObservedTrial, ...]) -> None:
    labels = {one.speculative: one.speculative.label if one.speculative else "no speculation" for one in trials}
    chart = predictions(labels, trials)
    assert chart is not None
    assert len(chart.table.rows) == len(trials)
    assert {row[0] for row in chart.table.rows} == set(labels.values())
    # Boots of this engine differ by 8 %, which no fit to others can know.
    assert median(abs(one.relative_error) for one in round_times(trials)) < 0.15


def test_a_single_boot_predicts_nothing(trials: tuple[ObservedTrial, ...]) -> None:
    assert predictions({None: "no speculation"}, [one for one in trials if one.boot == trials[0].boot]) is None
    assert predictions({}, []) is None
