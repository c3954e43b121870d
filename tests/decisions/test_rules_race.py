"""What the race makes of a brief and its boots: goals with their limits, an effect for each boot, and steps that can be
stored and computed again."""

import json
import math
from dataclasses import replace

import pytest

from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import margin_threshold, measure_of, trial_measure, value
from decisions.rules.noise_floor import noise_floor
from decisions.rules.nomination import middle
from decisions.rules.race import (
    State,
    aims,
    computed_again,
    goals,
    newly_fallen,
    next_step,
    nominate,
    observations,
    rules_of,
    runner,
    step_document,
)
from loadtests.canonical import canonical
from loadtests.statistics.order import A_A_ARMS
from loadtests.tuning.race import NONE, Amount, Ended, Round
from tests.support.judged import GUARDRAILS, RATES, S, a_brief, a_trial, failing, pairs_of

SPEEDS = {"ngram-2": 0.8, "ngram-4": 0.6, "ngram-8": 0.9}
BUDGET = Amount(600, 60, math.inf)
MINUTES = 2.0
BRIEF = a_brief(tuning={"boots": 60})
SPENT = Amount(0, 0, 0)


def floor(brief: Brief = BRIEF) -> list[TrialEvidence]:
    return pairs_of(brief, "noise-floor", A_A_ARMS, 1.0, brief.rule.noise_floor_pairs)


def round_of(number: int, brief: Brief = BRIEF, speeds: dict[str, float] | None = None) -> list[TrialEvidence]:
    """Two baseline boots around one of each candidate."""
    boots: list[tuple[str | None, float]] = [(None, 0.99), *(speeds or SPEEDS).items(), (None, 1.01)]
    trials = []
    for place, (candidate, speed) in enumerate(boots):
        arm = "candidate" if candidate else "baseline"
        for level in RATES:
            start = (number * 100 + place) * 400 * S
            one = a_trial(brief, "tuning", number, arm, level, speed, start, candidate=candidate)
            trials.append(replace(one, boot=f"{number}-{place}", trial=f"{number}-{place}-{level}"))
    return trials


def state(brief: Brief = BRIEF, trials: list[TrialEvidence] | None = None, spent: Amount = SPENT) -> State:
    runners = tuple(runner(one, {}) for one in brief.all_candidates)
    return State(rules_of(brief, trials or floor(brief), BUDGET, MINUTES), runners, spent, {})


def test_the_goals_are_the_improve_cells_the_margins_and_the_guardrails() -> None:
    found = {one.name: (one.kind, one.limit, one.relative, one.scale) for one in goals(BRIEF, floor())}
    measure = trial_measure(BRIEF.outcome)
    rails = {rail.id: rail for rail in BRIEF.guardrails}
    assert found == {
        "attainment:peak:all": ("improve", 0.0, True, "difference"),
        "attainment:quiet:all": ("hold", margin_threshold(measure, 0.02), True, "difference"),
        "failed": ("hold", 0.0, False, "difference"),
        "first-token": ("hold", margin_threshold(measure_of(rails["first-token"]), 0.2), True, "ratio"),
        "completion-p90": ("hold", 0.0, False, "ratio"),
        "kv": ("hold", margin_threshold(measure_of(rails["kv"]), 0.1), True, "ratio"),
    }


def test_behaviour_is_no_goal_and_capacity_races_on_attainment() -> None:
    behaviour = {"id": "text", "metric": "behaviour", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0}
    assert "text" not in {one.name for one in aims(a_brief(guardrails=[*GUARDRAILS, behaviour]))}
    ladder = {
        "levels": [
            {"name": name, "arrival": {"process": "poisson", "rate": rate}, "duration_s": 120}
            for name, rate in (("quiet", 1.0), ("peak", 2.0))
        ],
        "capacity": {"levels": ["quiet", "peak"], "target": 0.9},
        "outcome": {
            "metric": "capacity",
            "improve_in": [{"level": "peak"}],
            "minimum_improvement": 0.2,
            "non_inferiority_margin": 0.02,
        },
    }
    assert next(iter(aims(a_brief(**ladder)))).name == "attainment:peak:all"


def test_a_boots_spread_is_that_of_pairs_over_the_root_of_two() -> None:
    improve = next(one for one in goals(BRIEF, floor()) if one.kind == "improve")
    (row,) = noise_floor(BRIEF, floor())["cells"]
    assert improve.spread == pytest.approx(row["spread"] / math.sqrt(2))
    assert improve.degrees == BRIEF.rule.noise_floor_pairs - 1
    assert all(one.spread is None for one in goals(BRIEF, []))


def test_each_boot_is_held_against_the_baseline_of_its_own_round() -> None:
    trials = round_of(1) + round_of(2)
    found = {(one.round, one.boot, one.goal): one for one in observations(BRIEF, trials)}
    assert len(found) == 2 * 5 * len(aims(BRIEF))
    measure = trial_measure(BRIEF.outcome)
    for number in (1, 2):
        here = [one for one in trials if one.pair == number and one.level == "peak"]
        ours = [value(measure, one, "all", BRIEF) or 0.0 for one in here if one.candidate is None]
        baseline = middle(measure, ours)
        for one in here:
            seen = found[number, one.boot, "attainment:peak:all"]
            assert seen.runner == (one.candidate or NONE)
            assert seen.effect == pytest.approx((value(measure, one, "all", BRIEF) or 0.0) - baseline)


def test_an_absolute_limit_is_a_distance_and_a_server_that_never_answers_is_without_end() -> None:
    dead = [
        failing(one, slice(None)) if one.candidate == "ngram-4" and one.level == "quiet" else one for one in round_of(1)
    ]
    found = {(one.runner, one.goal): one.effect for one in observations(BRIEF, dead)}
    alive = next(one for one in dead if one.candidate == "ngram-2" and one.level == "quiet")
    own = value(measure_of(BRIEF.guardrails[2]), alive, "all", BRIEF)
    assert found["ngram-2", "completion-p90"] == pytest.approx(math.log(6 / (own or 0)))
    assert found["ngram-4", "completion-p90"] == -math.inf
    assert found["ngram-2", "failed"] == pytest.approx(0.01)


def test_runners_of_one_method_and_options_are_a_family() -> None:
    family = {"method": "ngram", "prompt_lookup_min": 2}
    search = [
        {
            "name": "short",
            "speculative": family,
            "draft_lengths": [1, 4],
            "schedules": {"fixed": ["1x4-3x0"]},
        },
        {"name": "long", "speculative": {"method": "ngram", "prompt_lookup_min": 4}, "draft_lengths": [4]},
    ]
    found = [runner(one, {}) for one in a_brief(candidates=[], search=search).all_candidates]
    assert [(one.name, one.most, one.mean_k, one.schedule) for one in found] == [
        ("short-k1", 1, 1.0, False),
        ("short-k4", 4, 4.0, False),
        ("short-s1x4-3x0", 4, 2.0, True),
        ("long-k4", 4, 4.0, False),
    ]
    assert len({one.family for one in found[:3]}) == 1
    assert found[3].family != found[0].family
    schedule = a_brief(candidates=[], search=search).candidate("short-s1x4-3x0")
    # Three quarters of the time one sequence ran, in the rest five.
    assert runner(schedule, {1: 0.75, 5: 0.25}).mean_k == 3.0


def test_a_race_is_run_stored_and_computed_again() -> None:
    """Three rounds of a race whose best candidate is plain to see."""
    trials, told = floor(), []
    for number in range(1, 7):
        now = state(trials=trials, spent=Amount(MINUTES * 5 * (number - 1), 5 * (number - 1), 10.0 * number))
        step = next_step(BRIEF, now, trials)
        told.append(step_document(now, step))
        if isinstance(step, Ended):
            break
        assert step.number == number
        chosen = {name: SPEEDS[name] for name in step.boots if name != NONE}
        trials = trials + round_of(number, speeds=chosen)
    assert isinstance(step, Ended)
    assert told == json.loads(canonical(told))
    for one in told:
        assert computed_again(BRIEF, one, trials) == one
    found = nominate(BRIEF, now, step, trials)
    assert found.candidate == "ngram-4"
    race = found.document["race"]
    assert (race["why"], race["reason"]) == (step.why, step.reason)
    assert race["expected_change"] == pytest.approx(race["measured_change"] - race["optimism"])
    assert race["scale"] == "difference"
    assert found.reason.endswith("only held-out traffic decides.")


def test_who_fell_by_a_step_is_told_once() -> None:
    trials = floor() + round_of(1, speeds={"ngram-2": 0.6, "ngram-4": 1.0, "ngram-8": 3.0})
    now = state(trials=trials, spent=Amount(10, 5, 10))
    step = next_step(BRIEF, now, trials)
    fell = dict(newly_fallen(step, None))
    assert "ngram-8" in fell
    assert "ngram-8 is out" in fell["ngram-8"]
    assert newly_fallen(step, step_document(now, step)) == []


def test_a_budget_without_an_end_has_none_in_what_is_stored() -> None:
    now = state()
    step = next_step(BRIEF, now, floor())
    assert isinstance(step, Round)
    document = step_document(now, step)
    assert document["state"]["budget"] == {"engine_minutes": 600, "boots": 60, "wall_minutes": None}
    assert computed_again(BRIEF, document, floor()) == document
