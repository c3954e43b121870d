"""Who wins the race."""

import math
from dataclasses import replace

import pytest

from loadtests.tuning.nomination import Winner, nominate
from loadtests.tuning.race import NONE, Amount, Goal, Observation, Rules, Runner

RULES = Rules((Goal("quiet", "improve"), Goal("peak", "hold", limit=-0.05)), Amount(100, 100, 100), boot_minutes=2)
RUNNERS = [Runner(f"k{k}", "eagle3", k, float(k)) for k in (1, 3, 8)]


def seen(effects: dict[str, list[float]], peak: dict[str, float] | None = None) -> list[Observation]:
    """One round; four baseline boots that lie 1 % apart."""
    quiet = {NONE: [0.01, -0.01, 0.01, -0.01]} | effects
    held = {name: [(peak or {}).get(name, 0.0)] * len(several) for name, several in quiet.items()}
    return [
        Observation(1, f"{name}-{at}", name, goal, effect)
        for goal, told in (("quiet", quiet), ("peak", held))
        for name, several in told.items()
        for at, effect in enumerate(several)
    ]


def won(effects: dict[str, list[float]], peak: dict[str, float] | None = None, *, anyone: bool = False) -> Winner:
    return nominate(RULES, RUNNERS, seen(effects, peak), {}, anyone=anyone)


def test_the_best_wins() -> None:
    found = won({"k1": [0.1, 0.1], "k3": [0.3, 0.31], "k8": [0.2, 0.2]})

    assert found.runner == "k3"
    assert found.measured == pytest.approx(0.305)
    assert found.score == pytest.approx(0.3, abs=0.02)
    assert found.tied == ("k3",)
    assert found.reason.startswith("k3 did best: ×1.3")


def test_ties_within_the_noise_go_to_the_one_that_drafts_less() -> None:
    found = won({"k1": [0.1, 0.1], "k3": [0.300, 0.310], "k8": [0.310, 0.304]})

    assert found.runner == "k3"
    assert set(found.tied) == {"k3", "k8"}
    assert "is within the noise of the best, k8" in found.reason


def test_a_schedule_counts_by_what_it_drafts_on_average() -> None:
    schedule = Runner("s1x8-9x0", "eagle3", 8, 2.0, schedule=True)
    told = seen({"k3": [0.300, 0.310], "s1x8-9x0": [0.300, 0.310]})

    assert nominate(RULES, [RUNNERS[1], schedule], told, {}).runner == schedule.name


def test_no_speculation_wins_where_nobody_is_better() -> None:
    found = won({"k1": [-0.1, -0.1], "k3": [-0.2, -0.2], "k8": [-0.3, -0.3]})

    assert (found.runner, found.score, found.measured, found.optimism) == (None, None, None, None)
    assert found.reason.startswith("No speculation wins: nobody is better, k1 comes closest with ×0.9")


def test_the_brief_may_ask_for_the_best_one_all_the_same() -> None:
    assert won({"k1": [-0.1, -0.1], "k3": [-0.2, -0.2]}, anyone=True).runner == "k1"


def test_who_breaks_a_goal_does_not_win() -> None:
    assert won({"k1": [0.1, 0.1], "k8": [0.5, 0.5]}, {"k8": -0.4}).runner == "k1"


def test_who_may_well_break_a_goal_is_worth_less() -> None:
    """At the very limit half of a score is lost."""
    assert won({"k1": [0.35, 0.35], "k8": [0.5, 0.5]}, {"k8": -0.05, "k1": 0.1}).runner == "k1"


def test_who_never_got_there_does_not_win() -> None:
    assert won({"k1": [0.1, 0.1], "k8": [0.5, -math.inf]}).runner == "k1"


def test_who_was_only_predicted_does_not_win() -> None:
    told = seen({"k1": [0.1, 0.1]})
    predictions = {"k1": {"quiet": 0.1, "peak": 0.0}, "k3": {"quiet": 0.4, "peak": 0.0}}

    assert nominate(RULES, RUNNERS, told, predictions).runner == "k1"


def test_without_a_boot_nobody_wins() -> None:
    found = nominate(RULES, RUNNERS, [], {})

    assert found.runner is None
    said = "no candidate has boots of its own that tell of every goal to improve and break none."
    assert found.reason == f"No speculation wins: {said}"


def test_the_best_of_many_equal_ones_is_expected_to_look_better_than_it_is() -> None:
    """The expected largest of three normals is 0.846 standard deviations above their mean."""
    floor = replace(RULES, goals=(Goal("quiet", "improve", spread=0.06, degrees=10_000),))
    told = [one for one in seen({"k1": [0.3], "k3": [0.3], "k8": [0.3]}) if one.goal == "quiet"]

    found = nominate(floor, RUNNERS, told, {})

    assert found.optimism == pytest.approx(0.846 * 0.06, rel=0.15)


def test_more_boots_leave_less_to_be_too_good() -> None:
    few = won({"k1": [0.30], "k3": [0.30], "k8": [0.31]})
    many = won({"k1": [0.30] * 4, "k3": [0.30] * 4, "k8": [0.31] * 4})

    assert few.optimism is not None
    assert many.optimism is not None
    assert 0 < many.optimism < few.optimism


@pytest.mark.parametrize("effect", [math.nan, None])
@pytest.mark.parametrize("anyone", [False, True])
def test_who_was_never_measured_in_a_goal_to_improve_does_not_win(effect: float | None, anyone: bool) -> None:
    goals = (Goal("quiet", "improve", spread=0.05, degrees=7), Goal("peak", "improve", spread=0.05, degrees=7))
    rules = Rules(goals, Amount(1_000, 100, math.inf), 1.0)
    told = {NONE: {"quiet": 0.0, "peak": 0.0}, "k4": {"quiet": 0.5} | ({} if effect is None else {"peak": effect})}
    observations = [
        Observation(number, f"{name}-{number}", name, goal, value)
        for number in (1, 2, 3)
        for name, effects in told.items()
        for goal, value in effects.items()
    ]
    promised = {"k4": {"quiet": 0.5, "peak": 0.5}}
    found = nominate(rules, [Runner("k4", "ngram", 4, 4.0)], observations, promised, anyone=anyone)
    assert found.runner is None
    assert "tell of every goal to improve" in found.reason
