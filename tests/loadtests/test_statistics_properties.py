"""What must hold whatever the numbers are."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.statistics.attainment import attainment, slo_goodput
from loadtests.statistics.bootstrap import (
    block_bootstrap_means,
    block_length,
    quantile_interval,
    share_interval,
)
from loadtests.statistics.capacity import Rung, capacity, replicas_needed
from loadtests.statistics.effects import pairs_to_bound
from loadtests.statistics.looks import look_after, planned_looks
from loadtests.statistics.pairs import count_rate_se, log_ratio_bounds, t_bounds
from loadtests.statistics.quantiles import quantile
from loadtests.statistics.shares import Needed, bounds_with_fewer, requests_needed, share_limit, still_needed

boots = st.lists(st.tuples(st.integers(0, 60), st.integers(60, 200)), min_size=2, max_size=8)
more_late = st.lists(st.integers(0, 60), min_size=8, max_size=8)
limits = st.sampled_from([0.01, 0.05, 0.1, 0.3])
latencies = st.lists(st.floats(0.01, 100) | st.just(math.inf), min_size=1, max_size=80)


@given(boots, more_late, limits)
def test_more_late_requests_never_show_a_limit_to_hold(
    counts: list[tuple[int, int]], more: list[int], limit: float
) -> None:
    requests = [of for _, of in counts]
    late = [one for one, _ in counts]
    worse = [min(one + extra, of) for one, extra, of in zip(late, more, requests, strict=False)]
    before, after = (share_limit(one, requests, limit=limit, alpha=0.05, with_fewer=True) for one in (late, worse))
    assert after.counted >= before.counted
    assert (after.low, after.high) >= (before.low, before.high)
    if before.p_holds > 0.05:
        assert after.p_holds > 0.05


def test_late_requests_that_make_boots_alike_do_not_help() -> None:
    """By Student alone they do: two boots with 10 of 100 are more alike than with none and 10."""
    uneven, even = (share_limit(one, [100, 100], limit=0.2, alpha=0.15) for one in ([0, 10], [10, 10]))
    assert even.p_holds < uneven.p_holds
    uneven, even = (share_limit(one, [100, 100], limit=0.2, alpha=0.15, with_fewer=True) for one in ([0, 10], [10, 10]))
    assert even.p_holds >= uneven.p_holds
    assert even.boots_high is not None
    assert uneven.boots_high is not None
    assert even.boots_high >= uneven.boots_high


@given(st.lists(st.floats(0, 0.5), min_size=2, max_size=6))
def test_the_largest_bound_with_fewer_is_the_largest_of_all(shares: list[float]) -> None:
    found = max(one.high for one in bounds_with_fewer(shares, alpha=0.05))
    kept = itertools.product((0.0, 1.0), repeat=len(shares))
    every = [t_bounds([one * keep for one, keep in zip(shares, which, strict=True)], alpha=0.05).high for which in kept]
    assert max(found, t_bounds(shares, alpha=0.05).high) == pytest.approx(max(every))


@given(boots, limits)
def test_no_limit_is_shown_both_ways(counts: list[tuple[int, int]], limit: float) -> None:
    found = share_limit([one for one, _ in counts], [of for _, of in counts], limit=limit, alpha=0.05)
    assert found.p_holds > 0.05 or found.p_broken > 0.05


@given(boots, limits, st.randoms(use_true_random=False))
def test_the_order_of_the_boots_changes_nothing(counts: list[tuple[int, int]], limit: float, draw: object) -> None:
    straight = share_limit([one for one, _ in counts], [of for _, of in counts], limit=limit, alpha=0.05)
    turned = counts[::-1]
    found = share_limit([one for one, _ in turned], [of for _, of in turned], limit=limit, alpha=0.05)
    assert (found.counted, found.low, found.high) == (straight.counted, straight.low, straight.high)
    assert found.p_holds == pytest.approx(straight.p_holds, abs=1e-9)


@given(boots, limits)
def test_what_is_needed_is_enough(counts: list[tuple[int, int]], limit: float) -> None:
    found = share_limit([one for one, _ in counts], [of for _, of in counts], limit=limit, alpha=0.05)
    needed = still_needed(found, alpha=0.05)
    if needed.requests is None:
        assert found.counted >= limit * found.requests
        return
    in_all = found.requests + needed.requests
    assert in_all >= requests_needed(1 - limit, confidence=0.95, late=found.counted)
    assert (needed.requests == 0) == (found.high <= limit or in_all == found.requests)
    if needed.requests == 0 and needed.boots == 0:
        assert found.p_holds <= 0.05 + 1e-12


def test_one_boot_needs_another() -> None:
    found = share_limit([0], [1000], limit=0.01, alpha=0.05)
    assert still_needed(found, alpha=0.05) == Needed(0, 1)


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=8), st.floats(0.1, 10))
def test_swapping_the_arms_of_a_ratio_flips_the_sign(values: list[float], factor: float) -> None:
    other = [one * factor * (1 + 0.01 * place) for place, one in enumerate(values)]
    straight, turned = (log_ratio_bounds(*arms, alpha=0.05) for arms in ((values, other), (other, values)))
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-straight.mean, -straight.high, -straight.low))


@given(st.lists(st.booleans(), min_size=4, max_size=40), st.integers(0, 39))
def test_a_candidate_request_more_that_is_late_never_raises_the_mean_difference(flags: list[bool], place: int) -> None:
    pairs = np.array(flags[: len(flags) // 2 * 2]).reshape(2, -1)
    worse = pairs.copy()
    worse.flat[place % worse.size] = False
    calm, late = (t_bounds(one.mean(axis=1) - 0.5, alpha=0.05, smallest_se=0.1) for one in (pairs, worse))
    assert late.mean <= calm.mean
    assert attainment(worse.ravel()) <= attainment(pairs.ravel())
    assert slo_goodput(worse.ravel(), 10) <= slo_goodput(pairs.ravel(), 10)


def test_a_goodput_needs_a_window() -> None:
    with pytest.raises(ValueError, match="window"):
        slo_goodput(np.array([True]), 0)


rates = st.lists(st.floats(0.1, 100).map(lambda one: round(one, 3)), min_size=1, max_size=6, unique=True)


@given(rates, st.data())
def test_a_ladder_never_shows_what_breaks(found: list[float], data: st.DataObject) -> None:
    rungs = [Rung(rate, [data.draw(st.integers(0, 100)) for _ in range(3)], [100, 100, 100]) for rate in found]
    climbed = capacity(rungs, target=0.9, alpha=0.05)
    assert climbed.shown in (None, *found)
    if climbed.shown is not None:
        assert climbed.stopped_at is None or climbed.shown < climbed.stopped_at
        assert climbed.censored == (climbed.shown == max(found))
    assert climbed == capacity(rungs[::-1], target=0.9, alpha=0.05)


def test_a_rung_that_is_not_shown_ends_the_climb_even_where_a_higher_one_would_hold() -> None:
    held, open_ = [0, 0, 0, 0], [20, 20, 20, 20]
    rungs = [Rung(1.0, held, [200] * 4), Rung(2.0, open_, [200] * 4), Rung(3.0, held, [200] * 4)]
    found = capacity(rungs, target=0.9, alpha=0.05)
    assert (found.shown, found.stopped_at, found.censored) == (1.0, 2.0, False)


@pytest.mark.parametrize(
    ("rungs", "target", "said"),
    [
        ([], 0.9, "rates above zero"),
        ([Rung(1.0, [0], [1]), Rung(1.0, [0], [1])], 0.9, "same rate"),
        ([Rung(1.0, [0], [1])], 1.0, "target"),
    ],
)
def test_ladders_refuse(rungs: list[Rung], target: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        capacity(rungs, target=target, alpha=0.05)


def test_a_ladder_at_its_limit_is_shown_at_most_as_often_as_alpha() -> None:
    """Both rungs lie exactly at the target, so whatever is shown is wrong."""
    draw, campaigns, wrong = np.random.default_rng(4), 800, 0
    for _ in range(campaigns):
        late = draw.binomial(200, 0.1, (2, 4))
        rungs = [Rung(rate, one.tolist(), [200] * 4) for rate, one in zip((1.0, 2.0), late, strict=True)]
        wrong += capacity(rungs, target=0.9, alpha=0.05).shown is not None
    assert wrong / campaigns <= 0.05


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_replicas_carry_the_rate(rate: float, carried: float) -> None:
    needed = replicas_needed(rate, carried)
    assert needed * carried >= rate * (1 - 1e-6)
    assert (needed - 1) * carried < rate


def test_replicas_refuse() -> None:
    with pytest.raises(ValueError, match="no replicas"):
        replicas_needed(1.0, 0.0)


@given(st.integers(2, 20).map(lambda one: 2 * one), st.floats(0.01, 0.2))
def test_the_looks_spend_alpha_and_no_more(pairs: int, alpha: float) -> None:
    interim = [(4, alpha / 4)] if pairs > 4 else []
    looks = planned_looks(pairs, alpha, interim)
    assert math.fsum(one.alpha for one in looks) == pytest.approx(alpha)
    assert [one.number for one in looks] == list(range(1, len(looks) + 1))
    assert look_after(looks, 0) == looks[0]
    assert look_after(looks, pairs) == look_after(looks, pairs + 2) == looks[-1]


@pytest.mark.parametrize(
    ("pairs", "interim", "said"),
    [
        (8, [(4, 0.01), (5, 0.01)], "even"),
        (8, [(4, 0.01), (6, 0.01), (6, 0.01)], "at most 3"),
        (8, [(6, 0.01), (4, 0.01)], "more pairs"),
        (8, [(4, 0.05)], "spend"),
        (8, [(4, 0.0)], "spend"),
        (2, [], "even"),
    ],
)
def test_looks_refuse(pairs: int, interim: list[tuple[int, float]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        planned_looks(pairs, 0.05, interim)


@pytest.mark.parametrize(
    ("confidence", "interim"),
    [
        (0.95, [(4, 0.05)]),
        (0.99, [(4, 0.01)]),
        (0.975, [(4, 0.025)]),
        (0.95, [(4, 0.02), (6, 0.03)]),
        (0.95, [(4, 0.0499999)]),
        (0.95, [(4, 1e-17)]),
    ],
)
def test_a_look_without_alpha_is_refused_though_doubles_leave_some(
    confidence: float, interim: list[tuple[int, float]]
) -> None:
    with pytest.raises(ValueError, match=r"each needs some, the last too, 0\.000001 at least"):
        planned_looks(8, 1 - confidence, interim)


def test_a_little_alpha_is_enough() -> None:
    assert planned_looks(8, 0.05, [(4, 0.04999)])[-1].alpha == pytest.approx(0.00001)


def test_looking_three_times_at_no_difference_errs_at_most_as_often_as_alpha() -> None:
    draw, campaigns, wrong = np.random.default_rng(9), 1500, 0
    looks = planned_looks(8, 0.05, [(4, 0.015), (6, 0.015)])
    for _ in range(campaigns):
        differences = draw.normal(size=8)
        wrong += any(t_bounds(differences[: one.pairs], alpha=one.alpha).low > 0 for one in looks)
    assert wrong / campaigns <= 0.05


@given(latencies, st.sampled_from([0.5, 0.9, 0.99]))
def test_a_trial_s_intervals_hold_its_own_figure(values: list[float], share: float) -> None:
    found = np.array(values)
    low, high = quantile_interval(found, share)
    assert low <= quantile(found, share) <= high
    within = found < 10
    low, high = share_interval(within)
    assert 0 <= low <= high <= 1


def test_blocks_that_move_together_widen_the_interval() -> None:
    """Every block of a hundred is late or isn't: as if there were ten requests, not a thousand."""
    together = np.repeat([True, False] * 5, 100)
    apart = np.tile([True, False], 500)
    wide, narrow = (np.ptp(share_interval(one)) for one in (together, apart))
    assert wide > 3 * narrow


def test_the_bootstrap_is_the_same_every_time_and_means_its_sample() -> None:
    values = np.random.default_rng(1).normal(size=1_000)
    means = block_bootstrap_means(values, draws=2_000)
    assert (means == block_bootstrap_means(values, draws=2_000)).all()
    assert means.mean() == pytest.approx(values.mean(), abs=0.01)
    # independent values: the spread is about that of the mean
    assert means.std() == pytest.approx(values.std() / math.sqrt(1_000), rel=0.15)


@pytest.mark.parametrize(("values", "block"), [([], None), ([1.0, math.nan], None), ([1.0], 2), ([1.0], 0)])
def test_the_bootstrap_refuses(values: list[float], block: int | None) -> None:
    with pytest.raises(ValueError, match=r"finite|blocks"):
        block_bootstrap_means(values, block=block)


def test_more_refusals() -> None:
    with pytest.raises(ValueError, match="no values"):
        block_length(0)
    with pytest.raises(ValueError, match="confidence"):
        share_interval(np.array([True]), confidence=1.0)
    with pytest.raises(ValueError, match="can't be"):
        count_rate_se(-1, 0, 10)
    assert pairs_to_bound(1.0, 0.0, alpha=0.05) == 4
