import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtests.statistics.multiplicity import holm
from loadtests.statistics.shares import binomial_bounds, requests_needed, share_limit


def test_clopper_pearson_published_values() -> None:
    # rule of three in its exact form: 1 − 0.05^(1/n); and the one-sided 95 % limit of 1 in 10
    assert binomial_bounds(0, 4212, alpha=0.05) == pytest.approx((0.0, 1 - 0.05 ** (1 / 4212)))
    assert binomial_bounds(1, 10, alpha=0.05) == pytest.approx((0.0051, 0.3942), abs=1e-4)
    assert binomial_bounds(10, 10, alpha=0.05) == pytest.approx((0.05**0.1, 1.0))
    with pytest.raises(ValueError, match="can't be"):
        binomial_bounds(1, 0, alpha=0.05)


@pytest.mark.parametrize(
    ("quantile", "confidence", "late", "expected"),
    [(0.99, 0.99, 0, 459), (0.99, 0.99, 1, 662), (0.99, 0.99, 2, 838), (0.95, 0.95, 0, 59), (0.9, 0.95, 0, 29)],
)
def test_published_table_of_minimum_counts(quantile: float, confidence: float, late: int, expected: int) -> None:
    assert requests_needed(quantile, confidence=confidence, late=late) == expected


def test_requests_needed_refuses() -> None:
    with pytest.raises(ValueError, match="no such rule"):
        requests_needed(1.0, confidence=0.95, late=0)
    with pytest.raises(ValueError, match="more than"):
        requests_needed(1 - 1e-9, confidence=0.99, late=0)


@given(st.integers(0, 6), st.sampled_from([0.9, 0.95, 0.99]), st.sampled_from([0.9, 0.95]))
def test_one_request_fewer_is_not_enough(late: int, quantile: float, confidence: float) -> None:
    needed = requests_needed(quantile, confidence=confidence, late=late)
    assert stats.binom.cdf(late, needed, 1 - quantile) <= 1 - confidence
    assert stats.binom.cdf(late, needed - 1, 1 - quantile) > 1 - confidence


def test_requests_alone_are_not_enough() -> None:
    even = share_limit([2, 2, 2, 2], [500] * 4, limit=0.01, alpha=0.05)
    assert (even.counted, even.requests) == (8, 2000)
    assert even.p_holds <= 0.05
    # as many over the limit, all of them in one boot: the binomial test still holds, the boots don't
    lumped = share_limit([8, 0, 0, 0], [500] * 4, limit=0.01, alpha=0.05)
    assert lumped.high == even.high <= 0.01
    assert lumped.p_holds > 0.05


def test_one_boot_shows_nothing() -> None:
    found = share_limit([0], [1000], limit=0.01, alpha=0.05)
    assert (found.boots, found.p_holds, found.p_broken) == (None, 1.0, 1.0)
    with pytest.raises(ValueError, match="at least one boot"):
        share_limit([], [], limit=0.1, alpha=0.05)


def test_every_boot_over_the_limit_is_broken() -> None:
    found = share_limit([40, 45, 50, 42], [500] * 4, limit=0.01, alpha=0.05)
    assert found.p_broken < 0.001
    assert found.p_holds > 0.99


@given(st.lists(st.integers(0, 40), min_size=2, max_size=6), st.integers(0, 5))
def test_more_over_the_limit_never_helps_the_binomial_bound(counts: list[int], place: int) -> None:
    worse = list(counts)
    worse[place % len(counts)] += 1
    before = share_limit(counts, [50] * len(counts), limit=0.1, alpha=0.05)
    after = share_limit(worse, [50] * len(counts), limit=0.1, alpha=0.05)
    assert after.high > before.high
    assert after.low >= before.low


@pytest.mark.parametrize(("differ", "least", "most"), [(0.24, 0.02, 0.17), (0.5, 0.07, 0.27)])
def test_how_often_boots_that_differ_have_a_share_at_its_limit_taken_for_shown(
    differ: float, least: float, most: float
) -> None:
    """The row of p95 and 8 boots in docs/verdict.md: 8.5 and 15.9 %. Boots differ by a normal of the probit."""
    rng, limit = np.random.default_rng(1), 0.05
    middle = stats.norm.ppf(limit) * np.sqrt(1 + differ**2)
    counts = rng.binomial(1_000, stats.norm.cdf(middle + differ * rng.standard_normal((120, 8))))
    held = [
        share_limit(one, [1_000] * 8, limit=limit, alpha=0.05, with_fewer=True).p_holds <= 0.05
        for one in counts.tolist()
    ]
    assert least <= np.mean(held) <= most


def test_holm_by_hand() -> None:
    # ordered 0.005·4, 0.01·3, 0.03·2, max(0.06, 0.04·1)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    with pytest.raises(ValueError, match="p-value"):
        holm([1.5])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_raw_value_and_bonferroni(p_values: list[float]) -> None:
    for raw, adjusted in zip(p_values, holm(p_values), strict=True):
        assert raw <= adjusted <= min(1.0, raw * len(p_values))
