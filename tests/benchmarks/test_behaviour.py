"""The behaviour benchmark's own arithmetic, and a few of its runs: a suite that finds nothing where nothing differs."""

from typing import Any

import pytest

from loadtests.behaviour.registry import suite_plan
from tests.benchmarks.behaviour import holds, line_of, page, plan_of, summary
from tests.benchmarks.behaviour_world import WORLDS, one_run

pytestmark = pytest.mark.alone

MACHINE = {"processor": "a processor", "cores": 2, "python": "3.11", "processor_minutes": 20.0}


def a_line(number: int, *broken: str, p: float = 0.5, outcome: str = "held") -> dict[str, Any]:
    return {
        "kind": "run",
        "world": "exact",
        "number": number,
        "outcome": "broken" if broken else outcome,
        "broken": list(broken),
        "requests": 2_000,
        "alpha": 0.01,
        "tests": 5,
        "p": {"greedy-parity/serial": p},
    }


@pytest.mark.parametrize(("alarms", "good"), [(0, True), (9, True), (10, False)])
def test_ten_alarms_in_four_hundred_are_more_than_one_in_a_hundred(alarms: int, good: bool) -> None:
    rows = [a_line(number, *(["greedy-parity"] if number < alarms else [])) for number in range(400)]
    found = summary(rows)
    assert found["exact"]["share"] == alarms / 400
    assert holds(found) == good


def test_a_run_that_settles_nothing_is_no_run_without_an_alarm() -> None:
    assert not holds(summary([a_line(0), a_line(1, outcome="cannot_tell")]))
    assert not holds(summary([]))


def test_the_page_says_what_holds_and_which_cases_were_broken() -> None:
    rows = [a_line(0, "greedy-parity", p=0.001), *(a_line(number) for number in range(1, 100))]
    told = page(summary(rows), MACHINE)
    assert "| exact | 100 | 1 | 1.00% | 4.66% | 1% | holds |" in told
    assert "- exact: greedy-parity, 1 times" in told
    assert "| exact | greedy-parity/serial | 100 | 1.0% | 1.0% | 100.0% |" in told


def test_every_run_draws_other_samples() -> None:
    assert plan_of(1).digest != plan_of(2).digest
    assert plan_of(1).digest == plan_of(1).digest


@pytest.mark.parametrize("world", sorted(WORLDS))
@pytest.mark.parametrize("number", [1, 2])
def test_a_candidate_that_behaves_as_its_baseline_raises_no_alarm(world: str, number: int) -> None:
    plan = suite_plan(only=["greedy-parity", "sampled-parity", "stop-strings", "logprobs-shape"], seed=number)
    result = one_run(plan, world, number)
    assert result.broken == (), result.sentence
    found = line_of(result)
    assert found["outcome"] == "held", result.sentence
    assert all(0 < p <= 1 for p in found["p"].values())
    assert len(found["p"]) == 4
