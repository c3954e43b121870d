"""The tuning benchmark's own arithmetic, and that a race comes out the same twice."""

import math
from typing import Any

import pytest

from loadtests.tuning.race import NONE
from tests.benchmarks.tuning_oracle import averaged, true_model
from tests.benchmarks.tuning_race import Race, document, picked, setting_named, worth_of
from tests.benchmarks.tuning_table import page, regret, schedules, summary, targets
from tests.benchmarks.tuning_world import LEVELS, TRUTHS

MACHINE = {"processor": "a processor", "cores": 2, "python": "3.11", "processor_minutes": 20.0}


def effects(quiet: float, ordinary: float, peak: float) -> dict[str, float]:
    return {"quiet": quiet, "ordinary": ordinary, "peak": peak}


def a_row(truth: str, nominee: str, grid: str) -> dict[str, Any]:
    race = {"nominee": nominee, "boots": 13, "engine_minutes": 50.0, "ended": "budget", "schedules": ["s1x4-9x1"]}
    return {
        "truth": truth,
        "races": dict.fromkeys(("race", "fixed", "uninformed", "farther"), race),
        "sweep": {"nominee": grid, "engine_minutes": 160.0, "boots": 72},
        "effects": {
            "k1": effects(0.3, 0.2, 0.1),
            "k4": effects(0.6, 0.5, -0.4),
            "s1x4-9x1": effects(0.6, 0.4, 0.1),
        },
    }


def test_sixty_truths_of_all_kinds() -> None:
    assert len(TRUTHS) == 60
    assert {one.engine for one in TRUTHS.values()} == {"gpu", "cpu"}


def test_a_configuration_is_worth_its_smallest_improvement_and_nothing_where_peak_suffers() -> None:
    assert worth_of(effects(0.6, 0.4, -0.04)) == 0.4
    assert worth_of(effects(0.6, 0.4, -0.06)) == 0.0


def test_regret_is_how_much_longer_completion_takes() -> None:
    worths = {NONE: 0.0, "k1": 0.2, "s1x4-9x1": 0.4}

    assert regret(worths, "k1") == pytest.approx(math.expm1(0.2))
    assert regret(worths, "s1x4-9x1", fixed=True) == pytest.approx(math.expm1(-0.2))
    assert regret(worths, NONE) == pytest.approx(math.expm1(0.4))


def test_the_grid_picks_the_best_mean_that_holds_at_peak() -> None:
    found = {
        NONE: {level: [1.0, 1.0, 1.0] for level in LEVELS},
        "k1": {level: [0.8, 0.9, 0.7] for level in LEVELS},
        "k4": {"quiet": [0.5] * 3, "ordinary": [0.5] * 3, "peak": [1.2] * 3},
    }

    assert picked(found) == "k1"
    assert picked({name: one for name, one in found.items() if name != "k1"}) == NONE


def test_schedules_count_where_one_is_clearly_better() -> None:
    rows = [a_row("gpu-short-low-0", "s1x4-9x1", "k1"), a_row("gpu-short-low-1", "k1", "k1")]

    assert schedules(rows) == {"clear": 2, "nominee_better": 1, "proposed_better": 2}


def test_the_page_says_what_holds_and_what_does_not() -> None:
    rows = [a_row("gpu-short-low-0", "s1x4-9x1", "k1"), a_row("gpu-short-low-1", "k1", "k1")]
    found = summary(rows)

    told = page(rows, found, MACHINE)

    assert [good for _, _, good in targets(found)] == [False, False, True, True, True, False]
    assert "Unfinished: 2 of 60 truths." in told
    assert "| gpu-short-low-1 | s1x4-9x1 ×1.49 | k1 ×1.22 | 22.1% | 13 | 50 | budget | k1 ×1.22 | 22.1% |" in told


def test_texts_that_differ_keep_less_than_their_average_says() -> None:
    """The first draft's share is that of all texts; later ones come from texts that keep more."""
    acceptance = TRUTHS["gpu-short-middle-0"].model(0.0).drafters["eagle3"].acceptance.default
    given = averaged(acceptance)

    assert given[0] < acceptance.positions[0]
    assert given[7] > given[4]


def test_the_true_model_predicts_what_the_document_says() -> None:
    model = true_model(TRUTHS["gpu-short-middle-0"])

    told = model.predict(1, 0, drafter=None, context_tokens=0)

    assert told.round_s == pytest.approx(0.001 + 5e-6 + 0.009)


def test_a_runner_s_name_is_its_setting() -> None:
    truth = TRUTHS["cpu-short-low-0"]

    assert setting_named(truth, 0.0, NONE) is None
    assert setting_named(truth, 0.0, "k3") == truth.fixed(3)
    schedule = setting_named(truth, 0.0, "s1x4-9x1")
    assert schedule is not None
    assert schedule.num_speculative_tokens_per_batch_size == ((1, 8, 4), (9, 16, 1))


def test_a_race_comes_out_the_same_twice_within_its_budget() -> None:
    truth = TRUTHS["cpu-long-low-2"]
    first = Race(truth, 0.06)

    found = document(first)

    assert found == document(Race(truth, 0.06))
    assert found["engine_minutes"] <= first.rules.budget.engine_minutes * 1.02
    assert found["boots"] == len({one.boot for one in first.observations})
