"""Proposals: the best schedule of few steps, worth measuring or not, by hand and on the simulator."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.simulator import preset
from loadtests.simulator.costs import Costs, DrafterCost, RoundCost
from loadtests.tuning.acceptance import ClassKept, Kept
from loadtests.tuning.cost_model import CostModel, fit_cost_model, observe
from loadtests.tuning.propose import Load, best_draft_lengths, propose_schedule, segmented
from loadtests.tuning.schedule import Schedule
from tests.support.tuning import CONTEXT, true_speed, tuned

LENGTHS = (1, 2, 4, 8)


def model_of(*, per_token_s: float, idle_s: float = 0.0, given: tuple[float, ...] = (0.7,)) -> CostModel:
    target = RoundCost(fixed_s=0.001, weights_s=0.010, per_token_s=per_token_s, per_prefill_token_s=0.001)
    return CostModel(
        costs=Costs(round=target, drafters={"d": DrafterCost(fixed_s=0.0005, per_position_s=0.0002, idle_s=idle_s)}),
        acceptance={"d": Kept(ClassKept(given=given, proposes=1.0))},
        measured={"d": LENGTHS},
        boots={},
        boot_sd=None,
        most_checked=1_000.0,
        assumptions=(),
    )


def evenly(most: int, level: str = "all") -> Load:
    return Load(level, dict.fromkeys(range(1, most + 1), 1 / most), 100)


CROSSING = model_of(per_token_s=0.0005)


def test_the_best_k_at_each_batch_is_smartspecs() -> None:
    for choice in best_draft_lengths(CROSSING, "d", batches=range(1, 65), draft_lengths=LENGTHS, context_tokens=100):
        speeds = {
            k: (1 + sum(CROSSING.kept("d", k)))
            / CROSSING.predict(choice.batch, k, drafter="d", context_tokens=100).round_s
            for k in (0, *LENGTHS)
        }
        assert choice.k == max(speeds, key=speeds.__getitem__)
        none = 1 / CROSSING.predict(choice.batch, 0, drafter=None, context_tokens=100).round_s
        assert choice.speed_up == pytest.approx(speeds[choice.k] / none)


def test_a_schedule_is_proposed_where_the_best_k_changes_with_the_batch() -> None:
    found = propose_schedule(CROSSING, "d", [evenly(64)], draft_lengths=LENGTHS, max_num_seqs=64)
    assert found.schedule is not None
    assert 2 <= len(found.schedule.steps) <= 4
    assert found.schedule.k_at(1) > found.schedule.k_at(64)
    assert found.gain is not None
    assert found.gain > 0.02
    assert found.reason == f"{found.schedule} is predicted {100 * found.gain:.1f} % above no speculation"
    assert found.best_single == 0


def test_none_is_proposed_where_one_k_is_best_everywhere() -> None:
    free = model_of(per_token_s=1e-6)
    found = propose_schedule(free, "d", [evenly(16)], draft_lengths=LENGTHS, max_num_seqs=16)
    assert found.schedule is None
    assert found.best_single == 8
    assert found.reason == "one K is as good at every load as any schedule: K = 8 at every load"


def test_none_is_proposed_below_the_margin() -> None:
    found = propose_schedule(CROSSING, "d", [evenly(64)], draft_lengths=LENGTHS, max_num_seqs=64, margin=0.9)
    assert found.schedule is None
    assert "not more than the margin of 90.0 %" in found.reason


def test_a_server_without_speculation_is_among_the_single_ks() -> None:
    hopeless = model_of(per_token_s=0.005, given=(0.01,), idle_s=0.0005)
    found = propose_schedule(hopeless, "d", [evenly(32)], draft_lengths=LENGTHS, max_num_seqs=32)
    assert (found.schedule, found.best_single) == (None, 0)
    assert "no speculation" in found.reason
    assert {choice.k for choice in found.choices} == {0}
    assert all(choice.speed_up < 1 for choice in found.choices)


def test_the_price_of_a_step_of_zero_can_make_a_schedule_not_worth_it() -> None:
    """Nearly all time is spent in a crowd in which no draft pays."""
    load = Load("crowd", {1: 0.05, 40: 0.95}, 100)
    crowded = {idle_s: model_of(per_token_s=0.002, idle_s=idle_s) for idle_s in (0.0, 0.02)}
    free = propose_schedule(crowded[0.0], "d", [load], draft_lengths=LENGTHS, max_num_seqs=64)
    dear = propose_schedule(crowded[0.02], "d", [load], draft_lengths=LENGTHS, max_num_seqs=64)
    assert free.schedule is not None
    assert free.schedule.k_at(40) == 0
    assert (dear.schedule, dear.best_single) == (None, 0)


def test_each_level_counts_alike() -> None:
    quiet, peak = Load("quiet", {1: 1.0}, 100), Load("peak", {60: 1.0}, 100)
    found = [
        propose_schedule(CROSSING, "d", loads, draft_lengths=LENGTHS, max_num_seqs=64)
        for loads in ([quiet, peak], [quiet, quiet, peak])
    ]
    assert found[0].schedule is not None
    assert found[1].best_single >= found[0].best_single


def test_a_proposal_needs_a_load_and_a_draft_length() -> None:
    for loads, lengths in (([], LENGTHS), ([evenly(4)], (0,))):
        with pytest.raises(ValueError, match="needs a load level and a draft length above 0"):
            propose_schedule(CROSSING, "d", loads, draft_lengths=lengths, max_num_seqs=4)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_no_other_schedule_of_so_many_steps_is_better(rows: list[list[int]], most: int) -> None:
    worth = np.array(rows, np.float64)
    found = segmented(worth, most)
    for stretches, (value, places) in enumerate(found, 1):
        each = {
            sum(worth[row, column] for row, column in enumerate(one))
            for one in itertools.product(range(3), repeat=len(rows))
            if 1 + sum(left != right for left, right in itertools.pairwise(one)) <= stretches
        }
        assert value == pytest.approx(max(each))
        assert value == pytest.approx(sum(worth[row, column] for row, column in enumerate(places)))
        assert 1 + sum(left != right for left, right in itertools.pairwise(places)) <= stretches


def test_nothing_is_assumed_monotone() -> None:
    """K may rise with the batch: nobody says that it falls."""
    worth = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]])
    assert [places for _, places in segmented(worth, 3)][-1] == [1, 0, 1]


# On the simulator.


@cache
def fitted(name: str, method: str) -> CostModel:
    return fit_cost_model([observe(one) for one in tuned(name, method, (1, 3, 8))])


@pytest.mark.parametrize(("name", "method"), [("gpu-8b", "eagle3"), ("gpu-8b", "dflash"), ("cpu-2core", "dflash")])
def test_the_proposed_k_is_the_best_of_the_engine_at_most_batches(name: str, method: str) -> None:
    truth, context = preset(name), CONTEXT[name]
    lengths, most = (0, *LENGTHS), 64 if name == "gpu-8b" else 16
    found = best_draft_lengths(
        fitted(name, method), method, batches=range(1, most + 1), draft_lengths=LENGTHS, context_tokens=context
    )
    same, lost = 0, []
    for choice in found:
        speeds = {k: true_speed(truth, method, choice.batch, k, context) for k in lengths}
        same += choice.k == max(speeds, key=speeds.__getitem__)
        lost.append(1 - speeds[choice.k] / max(speeds.values()))
    assert same > 0.6 * len(found)
    # Where it is another K, that one is hardly worse.
    assert np.mean(lost) < 0.02


def test_the_proposed_schedule_is_better_than_the_best_single_k_of_the_engine() -> None:
    truth, context = preset("gpu-8b"), CONTEXT["gpu-8b"]
    found = propose_schedule(
        fitted("gpu-8b", "eagle3"), "eagle3", [evenly(64)], draft_lengths=LENGTHS, max_num_seqs=256
    )
    assert found.schedule is not None

    def speed(schedule: Schedule) -> float:
        logs = [np.log(true_speed(truth, "eagle3", batch, schedule.k_at(batch), context)) for batch in range(1, 65)]
        return float(np.mean(logs))

    none = np.mean([np.log(true_speed(truth, None, batch, 0, context)) for batch in range(1, 65)])
    assert speed(found.schedule) > max(none, *(speed(Schedule.fixed(k)) for k in LENGTHS)) + 0.02
