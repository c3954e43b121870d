"""The race: which boots come next, who falls, and when it is over."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from loadtests.tuning.nomination import nominate
from loadtests.tuning.posterior import LARGEST, Boot, bounded, posterior
from loadtests.tuning.race import (
    NONE,
    Amount,
    Ended,
    Goal,
    Observation,
    Round,
    Rules,
    Runner,
    level_orders,
    next_round,
    standings,
)

PLENTY = Amount(1_000, 100, 1_000)
NOTHING = Amount(0, 0, 0)
RULES = Rules((Goal("quiet", "improve"), Goal("peak", "hold", limit=-0.05)), PLENTY, boot_minutes=2)
KS = (1, 2, 3, 4, 8)
RUNNERS = [Runner(f"k{k}", "eagle3", k, float(k)) for k in KS]


def a_round(number: int, effects: dict[str, list[float]], *, goal: str = "quiet") -> list[Observation]:
    """Boots of one round: {runner: effects}; without boots of their own two of the baseline, 1 % apart."""
    told = {NONE: [0.005, -0.005]} | effects
    return [
        Observation(number, f"{number}-{name}-{at}", name, goal, effect)
        for name, several in told.items()
        for at, effect in enumerate(several)
    ]


def rounds(*several: dict[str, list[float]], peak: dict[str, float] | None = None) -> list[Observation]:
    """Rounds of the quiet goal; at peak everyone holds with 0.1, or as ``peak`` says."""
    found = []
    for number, effects in enumerate(several, 1):
        found += a_round(number, effects)
        at_peak = {name: [(peak or {}).get(name, 0.1)] * len(values) for name, values in effects.items()}
        found += a_round(number, at_peak, goal="peak")
    return found


def states(observations: list[Observation], **more: object) -> dict[str, str]:
    predictions = more.get("predictions", {})
    assert isinstance(predictions, dict)
    return {one.runner: one.state for one in standings(RULES, RUNNERS, observations, predictions)}


def test_the_first_round_spreads_over_the_draft_lengths_with_baseline_boots_between() -> None:
    first = next_round(RULES, RUNNERS, [], NOTHING, {})

    assert isinstance(first, Round)
    assert (first.number, first.boots) == (1, ("k1", NONE, "k3", "k8", NONE))
    assert first.reason == "Round 1 runs k1, k3, k8: the race begins with draft lengths far apart."
    assert {one.state for one in first.standings} == {"waits"}


def test_of_many_draft_lengths_the_middle_of_each_third_starts() -> None:
    many = [Runner(f"k{k}", "eagle3", k, float(k)) for k in range(1, 10)]

    first = next_round(RULES, many, [], NOTHING, {})

    assert isinstance(first, Round)
    assert first.boots == ("k2", NONE, "k5", "k8", NONE)


def test_every_family_starts() -> None:
    ngram = [Runner(f"n{k}", "ngram", k, float(k)) for k in (2, 4)]

    first = next_round(RULES, [*RUNNERS, *ngram], [], NOTHING, {})

    assert isinstance(first, Round)
    assert set(first.boots) == {"k1", "k3", "k8", "n2", "n4", NONE}


def test_a_schedule_that_the_brief_lists_starts_and_one_that_is_proposed_later_waits() -> None:
    listed, proposed = (Runner(f"s1x4-{end}x0", "eagle3", 4, 2.0, schedule=True) for end in (9, 17))

    first = next_round(RULES, [*RUNNERS, listed], [], NOTHING, {})
    seen = rounds({"k1": [0.2], "k3": [0.4], "k8": [0.1], listed.name: [0.3]})
    then = next_round(RULES, [*RUNNERS, listed, proposed], seen, NOTHING, {})

    assert isinstance(first, Round)
    assert isinstance(then, Round)
    assert set(first.boots) == {"k1", "k3", "k8", listed.name, NONE}
    assert proposed.name in {one.runner for one in then.standings if one.state == "waits"}


def test_of_many_listed_schedules_no_more_start_than_draft_lengths() -> None:
    listed = [Runner(f"s1x{k}-9x0", "eagle3", k, k / 2, schedule=True) for k in range(1, 10)]

    first = next_round(RULES, [*RUNNERS, *listed], [], NOTHING, {})

    assert isinstance(first, Round)
    assert set(first.boots) == {"k1", "k3", "k8", "s1x2-9x0", "s1x5-9x0", "s1x8-9x0", NONE}


def test_boots_of_a_round_rotate_the_levels() -> None:
    assert level_orders(["quiet", "ordinary", "peak"], 4) == [
        ("quiet", "ordinary", "peak"),
        ("ordinary", "peak", "quiet"),
        ("peak", "quiet", "ordinary"),
        ("quiet", "ordinary", "peak"),
    ]


def test_who_can_no_longer_win_falls_and_is_told_why() -> None:
    seen = rounds(
        {"k1": [0.20, 0.21], "k3": [0.40, 0.41], "k8": [0.10, 0.11]}, {"k2": [0.30, 0.31], "k4": [0.39, 0.40]}
    )

    found = {one.runner: one for one in standings(RULES, RUNNERS, seen, {})}

    assert found["k3"].state == "runs"
    assert found["k3"].reason.startswith("k3 leads, ×1.5")
    assert found["k8"].state == "fell"
    assert found["k8"].reason.startswith("k8 is out: ×1.1")
    assert found["k8"].reason.endswith("over 2 boots, better than k3 with a chance of 0.0 %, and 5 % keep it in.")
    assert found["k4"].state == "runs"


def test_who_breaks_a_goal_falls_however_good_its_score() -> None:
    seen = rounds({"k1": [0.1, 0.11], "k8": [0.5, 0.51]}, peak={"k8": -0.3})

    found = {one.runner: one for one in standings(RULES, RUNNERS, seen, {})}

    assert found["k8"].state == "fell"
    assert found["k8"].reason.startswith("k8 is out: it breaks peak: ×0.74 (at most ×0.7")
    assert found["k8"].reason.endswith("×0.95 is allowed.")
    assert found["k1"].state == "runs"


def test_who_never_got_there_falls() -> None:
    seen = rounds({"k1": [0.1, 0.11], "k8": [0.5, -math.inf]})

    found = {one.runner: one for one in standings(RULES, RUNNERS, seen, {})}

    assert found["k8"].reason == "k8 is out: its boot 1-k8-1 in round 1 never got there in quiet."


def test_who_can_not_beat_no_speculation_falls() -> None:
    seen = rounds({"k1": [-0.2, -0.21], "k3": [-0.3, -0.31], "k8": [-0.5, -0.51]}, {"k2": [-0.25], "k4": [-0.35]})

    over = next_round(RULES, RUNNERS, seen, NOTHING, {})

    assert isinstance(over, Ended)
    assert over.why == "none left"
    assert {one.state for one in over.standings} == {"fell"}
    assert over.reason == "Nobody can beat no speculation any more. No speculation leads."


def test_predictions_alone_do_not_decide_that_nobody_wins() -> None:
    """k1 and k2 are predicted to break the peak, and nothing else is left."""
    predictions = {f"k{k}": {"quiet": 0.3, "peak": -0.3 * k} for k in KS}
    seen = rounds({"k3": [0.3], "k4": [0.3], "k8": [0.3]}, peak={"k3": -0.9, "k4": -1.2, "k8": -2.4})

    then = next_round(RULES, RUNNERS, seen, NOTHING, predictions)
    more = rounds(
        {"k3": [0.3], "k4": [0.3], "k8": [0.3]},
        {"k1": [0.3], "k2": [0.3]},
        peak={"k1": -0.3, "k2": -0.6, "k3": -0.9, "k4": -1.2, "k8": -2.4},
    )
    over = next_round(RULES, RUNNERS, more, NOTHING, predictions)

    assert isinstance(then, Round)
    assert sorted(then.boots) == ["k1", "k2", NONE]
    assert "before nobody does the nearest run" in then.reason
    assert isinstance(over, Ended)
    assert over.why == "none left"


def test_an_absolute_goal_is_not_compared_with_the_baseline() -> None:
    """The baseline itself lies 20 points over the limit, and k1 within it."""
    absolute = Goal("late", "hold", relative=False, scale="difference")
    rules = replace(RULES, goals=(RULES.goals[0], absolute))
    seen = a_round(1, {"k1": [0.3, 0.31], "k3": [0.4, 0.41]})
    seen += a_round(1, {NONE: [-0.20, -0.21], "k1": [0.05, 0.051], "k3": [-0.10, -0.11]}, goal="late")

    found = {one.runner: one for one in standings(rules, RUNNERS, seen, {})}

    assert found["k1"].goals["late"].mean == pytest.approx(0.05, abs=0.005)
    assert found["k3"].reason.startswith("k3 is out: it breaks late: −10.")


def test_the_smallest_improvement_counts() -> None:
    rules = replace(RULES, goals=(Goal("quiet", "improve"), Goal("peak", "improve")))
    seen = rounds({"k1": [0.2] * 3, "k3": [0.5] * 3}, peak={"k1": 0.2, "k3": 0.05})

    best, *_ = standings(rules, RUNNERS[:1] + RUNNERS[2:3], seen, {})

    assert best.runner == "k1"
    assert best.score is not None
    assert best.score.mean == pytest.approx(0.2, abs=0.02)


def test_the_answer_does_not_depend_on_the_order_of_observations() -> None:
    seen = rounds({"k1": [0.2], "k3": [0.4], "k8": [0.1]}, {"k2": [0.3], "k3": [0.38]})
    shuffled = seen[:]
    random.Random(1).shuffle(shuffled)

    assert next_round(RULES, RUNNERS, shuffled, NOTHING, {}) == next_round(RULES, RUNNERS, seen, NOTHING, {})


def test_predictions_put_runners_in_order_and_let_hopeless_ones_fall_unrun() -> None:
    predictions = {
        name: {"quiet": effect, "peak": 0.1}
        for name, effect in {"k1": 0.2, "k2": 0.35, "k3": 0.40, "k4": 0.42, "k8": -0.3}.items()
    }
    seen = rounds({"k1": [0.21], "k3": [0.41], "k8": [-0.31]})

    then = next_round(RULES, RUNNERS, seen, NOTHING, predictions)
    far = [Runner("k16", "eagle3", 16, 16.0)]
    unrun = standings(RULES, [*RUNNERS, *far], seen, predictions | {"k16": {"quiet": -0.9, "peak": 0.1}})

    assert isinstance(then, Round)
    assert "k4" in then.boots
    assert "k8" not in then.boots
    assert next(one for one in unrun if one.runner == "k16").state == "fell"
    assert "as predicted, without a boot" in next(one for one in unrun if one.runner == "k16").reason


def test_predictions_that_boots_contradict_count_for_little() -> None:
    """Predicted to fall with K, measured to rise."""
    predictions = {f"k{k}": {"quiet": 0.5 - 0.1 * k, "peak": 0.1} for k in KS}
    seen = rounds(*[{"k1": [0.1, 0.11], "k3": [0.3, 0.31], "k8": [0.8, 0.81]}] * 2)

    best, *_ = standings(RULES, RUNNERS, seen, predictions)

    assert best.runner == "k8"
    assert best.score is not None
    assert best.score.mean == pytest.approx(0.8, abs=0.03)


def test_a_proposed_schedule_joins_and_runs() -> None:
    schedule = Runner("s1x4-9x0", "eagle3", 4, 2.0, schedule=True)
    predictions = {one.name: {"quiet": 0.1, "peak": 0.1} for one in RUNNERS} | {
        schedule.name: {"quiet": 0.4, "peak": 0.1}
    }

    then = next_round(
        RULES, [*RUNNERS, schedule], rounds({"k1": [0.1], "k3": [0.11], "k8": [0.09]}), NOTHING, predictions
    )

    assert isinstance(then, Round)
    assert schedule.name in then.boots
    assert then.number == 2


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Amount(11, 100, 100), "12 engine minutes, and the budget is 11"),
        (Amount(100, 5, 100), "6 boots, and the budget is 5"),
        (Amount(100, 100, 11.5), "12 minutes of wall time, and the budget is 11.5"),
    ],
)
def test_a_round_beyond_the_budget_is_not_started(budget: Amount, said: str) -> None:
    rules = replace(RULES, budget=budget)
    over = next_round(rules, RUNNERS, rounds({"k1": [0.2], "k3": [0.4]}), Amount(8, 4, 8), {})

    assert isinstance(over, Ended)
    assert over.why == "budget"
    assert over.reason.startswith(f"Another round would make it {said}. k")


def test_a_round_shrinks_to_what_the_budget_has_room_for() -> None:
    rules = replace(RULES, budget=Amount(100, 7, 100))
    then = next_round(rules, RUNNERS, rounds({"k1": [0.2], "k3": [0.4]}), Amount(8, 4, 8), {})

    assert isinstance(then, Round)
    assert len(then.boots) == 3
    assert NONE in then.boots


def test_a_baseline_boot_is_given_up_before_a_runner_is() -> None:
    rules = replace(RULES, budget=Amount(100, 8, 100))
    then = next_round(rules, RUNNERS, rounds({"k1": [0.2], "k3": [0.4]}), Amount(8, 4, 8), {})

    assert isinstance(then, Round)
    assert len(then.boots) == 4
    assert then.boots.count(NONE) == 1


def test_the_race_ends_when_nobody_else_can_win() -> None:
    seen = rounds(
        *[{"k1": [0.1, 0.11], "k2": [0.2, 0.21], "k3": [0.6, 0.61], "k4": [0.3, 0.31], "k8": [0.0, 0.01]}] * 2
    )

    over = next_round(RULES, RUNNERS, seen, NOTHING, {})

    assert isinstance(over, Ended)
    assert over.why == "one left"
    assert over.reason.startswith("Nobody else can still win. k3 leads, ×1.8")


def test_the_race_ends_when_more_boots_have_nothing_to_gain() -> None:
    same = {f"k{k}": [0.30, 0.301, 0.299] for k in KS}

    over = next_round(RULES, RUNNERS, rounds(same, same), NOTHING, {})

    assert isinstance(over, Ended)
    assert over.why == "tied"
    assert over.reason.startswith("More boots are expected to gain no more than ×1.0")


def test_the_leader_is_measured_twice() -> None:
    predictions = {f"k{k}": {"quiet": 0.9 if k == 3 else 0.0, "peak": 0.1} for k in KS}

    then = next_round(RULES, RUNNERS, rounds({"k1": [0.0], "k3": [0.9], "k8": [0.0]}), NOTHING, predictions)

    assert isinstance(then, Round)
    assert "k3" in then.boots


@pytest.mark.parametrize(
    ("runners", "seen", "said"),
    [
        ([RUNNERS[0], RUNNERS[0]], [], "the same name"),
        ([Runner(NONE, "eagle3", 1, 1.0)], [], "or one is called none"),
        (RUNNERS, [Observation(1, "b", "k9", "quiet", 0.1)], "no runner k9 or no goal quiet"),
        (RUNNERS, [Observation(1, "b", "k1", "noon", 0.1)], "no runner k1 or no goal noon"),
    ],
)
def test_what_can_not_be_is_refused(runners: list[Runner], seen: list[Observation], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        next_round(RULES, runners, seen, NOTHING, {})


def test_a_race_needs_something_to_improve() -> None:
    with pytest.raises(ValueError, match="needs a goal to improve"):
        next_round(replace(RULES, goals=RULES.goals[1:]), RUNNERS, [], NOTHING, {})


def test_who_is_predicted_never_to_get_there_falls_unrun() -> None:
    predictions = {f"k{k}": {"quiet": -math.inf if k == 8 else 0.1 * k, "peak": 0.1} for k in KS}
    seen = rounds({"k1": [0.1, 0.11], "k3": [0.3, 0.31]}, {"k1": [0.1], "k3": [0.3]})

    found = {one.runner: one.state for one in standings(RULES, RUNNERS, seen, predictions)}

    assert found["k8"] == "fell"
    assert found["k4"] == "waits"


def raced(seed: int, truth: dict[str, float], predicted: dict[str, float], luck: float) -> tuple[str | None, int]:
    """(whom a whole race nominates, its boots) where boots differ by ``luck`` and 12 of them are allowed."""
    rng = np.random.default_rng(seed)
    rules = replace(RULES, goals=RULES.goals[:1], budget=Amount(24, 100, 100))
    predictions = {name: {"quiet": effect} for name, effect in predicted.items()}
    seen: list[Observation] = []
    spent = NOTHING
    while isinstance(step := next_round(rules, RUNNERS, seen, spent, predictions if seen else {}), Round):
        found = [truth.get(name, 0.0) + float(rng.normal(0, luck)) for name in step.boots]
        middle = float(np.mean([one for one, name in zip(found, step.boots, strict=True) if name == NONE]))
        seen += [
            Observation(step.number, f"{step.number}-{at}", name, "quiet", effect - middle)
            for at, (name, effect) in enumerate(zip(step.boots, found, strict=True))
        ]
        spent = spent.plus_boots(len(step.boots), rules.boot_minutes)
    return nominate(rules, RUNNERS, seen, predictions).runner, spent.boots


def test_twelve_boots_find_what_is_nearly_the_best() -> None:
    """Boots differ by 6 %, predictions are wrong by 3 %, and draft lengths lie 2 to 20 % apart."""
    truth = {"k1": 0.25, "k2": 0.38, "k3": 0.42, "k4": 0.40, "k8": 0.20}
    regrets = []
    for seed in range(10):
        rng = np.random.default_rng(100 + seed)
        predicted = {name: effect + 0.05 + float(rng.normal(0, 0.03)) for name, effect in truth.items()}
        winner, boots = raced(seed, truth, predicted, luck=0.06)
        regrets.append(0.42 - truth[winner] if winner else 0.42)
        assert boots <= 12

    assert float(np.mean(regrets)) <= 0.02
    assert max(regrets) <= 0.05


def test_nobody_is_nominated_for_luck_alone() -> None:
    """Every draft length costs 10 %."""
    truth = {f"k{k}": -0.10 for k in KS}

    assert [raced(seed, truth, truth, luck=0.06)[0] for seed in range(5)] == [None] * 5


def test_many_boots_outweigh_everything_else() -> None:
    """The estimate is their mean, and its error the spread's."""
    rng = np.random.default_rng(1)
    luck = rng.normal(0, 0.06, 80)
    boots = [Boot(1, None if at % 2 else 0, float(one) + (0 if at % 2 else 0.3)) for at, one in enumerate(luck)]

    found = posterior(boots, [0.25], ["eagle3"], relative=True)

    mean = float(luck[0::2].mean() - luck[1::2].mean()) + 0.3
    assert found.mean[0] == pytest.approx(mean, abs=0.005)
    assert math.sqrt(found.covariance[0, 0]) == pytest.approx(0.06 * math.sqrt(2 / 40), rel=0.2)
    assert found.spread == pytest.approx(0.06, rel=0.25)


def test_a_noise_floor_tells_how_far_boots_lie_apart() -> None:
    """Two boots that happen to agree are no proof of a machine without noise."""
    boots = [Boot(1, None, 0.0), Boot(1, 0, 0.1), Boot(1, None, 0.0)]

    without = posterior(boots, [None], ["eagle3"], relative=True)
    with_floor = posterior(boots, [None], ["eagle3"], relative=True, floor=(0.10, 30))

    assert with_floor.spread == pytest.approx(0.10, rel=0.15)
    assert with_floor.covariance[0, 0] > without.covariance[0, 0]


def test_a_bad_round_of_the_baseline_moves_no_runner() -> None:
    """Both runners look 0.2 worse in round 2, where the baseline's boots were lucky."""
    boots = [Boot(1, 0, 0.3), Boot(1, None, 0.01), Boot(1, None, -0.01), Boot(1, 1, 0.2)]
    boots += [Boot(2, 0, 0.1), Boot(2, None, 0.01), Boot(2, None, -0.01), Boot(2, 1, 0.0)]

    found = posterior(boots, [None, None], ["eagle3", "eagle3"], relative=True)

    assert found.mean[0] - found.mean[1] == pytest.approx(0.1, abs=0.01)


def test_what_is_expected_never_to_get_there_is_known_as_very_bad() -> None:
    assert [bounded(one) for one in (-math.inf, -0.2, math.inf, math.nan, None)] == [
        -LARGEST,
        -0.2,
        LARGEST,
        None,
        None,
    ]
