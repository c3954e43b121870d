import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtests.statistics.pairs import (
    Bounds,
    log_ratio_bounds,
    log_ratios,
    matched_share_se,
    share_se,
    sign_flip_p_value,
    t_bounds,
)

differences = st.lists(st.floats(-1, 1).map(lambda one: round(one, 6)), min_size=2, max_size=10)


def test_t_bounds_by_hand() -> None:
    # mean 2.5, s = sqrt(5/3) = 1.290994, se = 0.645497, t(0.95; 3) = 2.353363
    found = t_bounds([1, 2, 3, 4], alpha=0.05)
    half = 2.353363 * 0.645497
    assert found.count == 4
    assert (found.mean, found.spread, found.se) == pytest.approx((2.5, 1.290994, 0.645497), rel=1e-5)
    assert (found.low, found.high) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-5)


def test_p_values_agree_with_scipy() -> None:
    values = [0.01, 0.03, 0.02, 0.05]
    found = t_bounds(values, alpha=0.05)
    for limit in (0.0, 0.0275, 0.04):
        expected = stats.ttest_1samp(values, limit, alternative="greater").pvalue
        assert found.p_above(limit) == pytest.approx(float(expected))
        assert found.p_below(limit) == pytest.approx(1 - float(expected))
    assert found.p_differs(0.0) == pytest.approx(float(stats.ttest_1samp(values, 0.0).pvalue))


@given(differences, st.floats(-0.5, 0.5), st.sampled_from([0.01, 0.05, 0.1]))
def test_a_bound_beyond_the_limit_is_a_p_value_below_alpha(values: list[float], limit: float, alpha: float) -> None:
    found = t_bounds(values, alpha=alpha, smallest_se=1e-9)
    if abs(found.low - limit) > 1e-9:
        assert (found.low > limit) == (found.p_above(limit) < alpha)


@given(differences)
def test_swapping_the_arms_flips_the_sign(values: list[float]) -> None:
    found, turned = t_bounds(values, alpha=0.05), t_bounds([-one for one in values], alpha=0.05)
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-found.mean, -found.high, -found.low))


def test_pairs_that_agree_never_give_a_zero_width() -> None:
    floor = matched_share_se(0, 0, 160)
    found = t_bounds([0.0, 0.0, 0.0, 0.0], alpha=0.05, smallest_se=floor)
    assert found.spread == 0
    assert found.high == pytest.approx(2.353363 * floor, rel=1e-5)
    assert t_bounds([0.0, 0.1], alpha=0.05, smallest_se=1e-3).se == pytest.approx(0.05)


def test_without_a_floor_a_zero_width_still_answers() -> None:
    found = t_bounds([0.1, 0.1], alpha=0.05)
    assert found == Bounds(2, 0.1, 0.0, 0.0, 0.1, 0.1)
    assert (found.p_above(0.0), found.p_above(0.1), found.p_below(0.0), found.p_below(0.2)) == (0.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("values", "alpha"), [([1.0], 0.05), ([1.0, math.inf], 0.05), ([1.0, 2.0], 0.0), ([1.0, 2.0], 0.6)]
)
def test_t_bounds_refuse(values: list[float], alpha: float) -> None:
    with pytest.raises(ValueError, match=r"pairs|finite|alpha"):
        t_bounds(values, alpha=alpha)


def test_log_ratios_by_hand() -> None:
    assert log_ratios([2.0, 1.0], [1.0, 2.0]).tolist() == pytest.approx([-math.log(2), math.log(2)])
    found = log_ratio_bounds([2.0, 2.0, 4.0], [1.0, 1.0, 2.0], alpha=0.05, smallest_se=0.01)
    assert math.exp(found.mean) == pytest.approx(0.5)
    assert found.low < found.mean < found.high


@pytest.mark.parametrize(("below", "above"), [([1.0], [0.0]), ([math.inf], [1.0]), ([1.0], [1.0, 2.0])])
def test_log_ratios_refuse(below: list[float], above: list[float]) -> None:
    with pytest.raises(ValueError, match=r"log ratio|shapes"):
        log_ratios(below, above)


def test_matched_share_se_by_hand() -> None:
    # (0 + 1)/164 each way: variance (2/164)/160
    assert matched_share_se(0, 0, 160) == pytest.approx(math.sqrt(2 / 164 / 160))
    # 9/104 and 3/104: difference 6/104
    assert matched_share_se(8, 2, 100) == pytest.approx(math.sqrt((12 / 104 - (6 / 104) ** 2) / 100))
    with pytest.raises(ValueError, match="can't be"):
        matched_share_se(80, 30, 100)


def test_share_se_by_hand() -> None:
    assert share_se(0, 98) == pytest.approx(math.sqrt(0.01 * 0.99 / 98))
    with pytest.raises(ValueError, match="can't be"):
        share_se(3, 2)


@pytest.mark.parametrize(
    ("values", "limit", "expected"),
    [([1, 2, 3], 0, 1 / 8), ([-1, 2, 3], 0, 2 / 8), ([0, 0], 0, 1.0), ([1, 2, 3], 3, 1.0), ([1] * 6, 0, 1 / 64)],
)
def test_sign_flips_by_hand(values: list[float], limit: float, expected: float) -> None:
    assert sign_flip_p_value(values, limit=limit) == pytest.approx(expected)


def test_many_pairs_are_sampled_the_same_way_every_time() -> None:
    values = np.linspace(-0.4, 1.0, 20)
    found = sign_flip_p_value(values)
    assert found == sign_flip_p_value(values[::-1].copy()[::-1])
    assert found == pytest.approx(float(stats.ttest_1samp(values, 0, alternative="greater").pvalue), abs=0.01)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_sign_flip_values_lie_between_their_ends(values: list[int]) -> None:
    p_value = sign_flip_p_value([float(one) for one in values])
    assert 2.0 ** -len(values) <= p_value <= 1


@pytest.mark.parametrize(
    ("pairs", "requests", "boot_spread", "truth"), [(4, 40, 0.0, 0.02), (4, 240, 0.01, 0.02), (8, 40, 0.0, -0.03)]
)
def test_a_true_difference_at_the_limit_is_shown_at_most_as_often_as_alpha(
    pairs: int, requests: int, boot_spread: float, truth: float
) -> None:
    draw = np.random.default_rng(20)
    base, campaigns, shown = min(0.9, 0.99 + truth), 600, 0
    for _ in range(campaigns):
        luck = draw.random((pairs, requests))  # one request is as hard in both arms
        boots = boot_spread * draw.normal(size=(2, pairs, 1))
        before, after = luck < base + boots[0], luck < base + truth + boots[1]
        floor = matched_share_se(int((after & ~before).sum()), int((before & ~after).sum()), pairs * requests)
        found = t_bounds(after.mean(axis=1) - before.mean(axis=1), alpha=0.05, smallest_se=floor)
        shown += found.low >= truth
    assert shown / campaigns <= 0.05
