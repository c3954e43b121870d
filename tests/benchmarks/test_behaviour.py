"""The behaviour benchmark's own arithmetic, and a few of its runs: a suite that finds nothing where nothing differs,
and its samples, which are those of the simulated server."""

from typing import Any

import numpy as np
import pytest

from loadtests.behaviour.case import Settings
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.sampled import PromptSamples, as_samples, sampled_parity
from loadtests.simulator.language import Sampling, speak
from loadtests.traffic.arrivals import generator_for
from tests.benchmarks.behaviour import PLANTED, Planted, holds, line_of, page, plan_of, powers, summary
from tests.benchmarks.behaviour_world import WORLDS, biased, one_run, sampled

MACHINE = {"processor": "a processor", "cores": 2, "python": "3.11", "processor_minutes": 20.0}
PROMPT = "The old lighthouse keeper wrote the height of the tide in a green book"


def a_line(number: int, *broken: str, p: float = 0.5, outcome: str = "held") -> dict[str, Any]:
    return {
        "kind": "run",
        "world": "exact",
        "number": number,
        "outcome": "broken" if broken else outcome,
        "broken": list(broken),
        "cases": {"max-tokens": "held", "greedy-parity": "broken" if broken else outcome},
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


@pytest.mark.parametrize(("unsettled", "good"), [(10, True), (11, False)])
def test_a_run_that_settles_nothing_is_no_run_without_an_alarm(unsettled: int, good: bool) -> None:
    rows = [a_line(number, outcome="cannot_tell" if number < unsettled else "held") for number in range(100)]
    found = summary(rows)
    assert holds(found) == good
    assert found["exact"]["highest"] == pytest.approx(1 - 0.05 ** (1 / (100 - unsettled)))
    assert not holds(summary([]))


def test_the_page_says_what_holds_which_cases_were_broken_and_what_is_noticed() -> None:
    rows = [a_line(0, "greedy-parity", p=0.001), *(a_line(number) for number in range(1, 100))]
    planted = [{"planted": "flips", "state": "broken" if number else "held"} for number in range(10)]
    told = page(summary(rows), powers(planted), MACHINE)
    assert "| exact | 100 | 1 | 1.00% | 4.66% | 1% | 0 | holds |" in told
    assert "| greedy-parity | exact | 99 | 1 | 0 | 0 | 0 | 0 |" in told
    assert "| max-tokens |" not in told
    assert "| exact | greedy-parity/serial | 100 | 1.0% | 1.0% | 100.0% |" in told
    assert (
        "| 2 % of the greedy tokens are the next best | `greedy-parity` | standard | 10 | 90% | 55% to 100% | 0 |"
        in told
    )


def test_every_run_draws_other_samples() -> None:
    assert plan_of(1).digest != plan_of(2).digest


def test_the_samples_of_a_whole_prompt_are_distributed_as_those_one_by_one() -> None:
    """The same test as the suite's own: no difference, where one of a fifth of the mass would be seen."""
    draw = generator_for("one by one")
    settings = Sampling(temperature=0.8, max_tokens=6)
    lengths = np.maximum(1, np.round(4 * np.exp(0.5 * draw.standard_normal(600)))).astype(int)
    single = [speak(PROMPT, settings, length=int(one), draw=draw).tokens for one in lengths]
    first, again = (sampled(PROMPT, 600, generator_for("at once", one), 0.8, (4, 0.5)) for one in range(2))
    compared = PromptSamples("0", as_samples(single), as_samples(first), as_samples(again), drafted=600)
    found = sampled_parity([compared], noticed=0.2)
    assert found.found == "shown", found.reason
    moved = biased([list(one) for one in first], PROMPT, 0.3, generator_for("moved"))
    compared = PromptSamples("0", as_samples(moved), as_samples(single), as_samples(again), drafted=600)
    assert sampled_parity([compared], noticed=0.2).found == "broken"


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_finds_nothing_where_nothing_differs(world: str) -> None:
    result = one_run(suite_plan(only=["greedy-parity", "stop-strings", "seeds", "streaming", "penalties"]), world, 1)
    line = line_of(result)
    assert (line["outcome"], line["broken"]) == ("held", []), result.sentence
    assert line["cases"]["penalties"] == "held"
    assert result.drafts.proposed


def test_planted_faults_are_those_of_a_case_of_the_suite() -> None:
    assert one_run(PLANTED["flips"].plan(0), "rounding", 0, flips=0.1).broken == ("greedy-parity",)
    many = Planted("sampled-parity", "half", 1, bias=0.5)
    assert one_run(many.plan(0), "rounding", 0, bias=many.bias).broken == ("sampled-parity",)
    assert PLANTED["mass-thorough"].plan(0).settings == Settings(thorough=True)
