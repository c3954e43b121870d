import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.statistics.attainment import attainment, seconds_since_planned, within_deadline
from loadtests.statistics.quantiles import ecdf_points, quantile, quantile_log_se

latencies = st.lists(st.floats(0.001, 1e4), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([4, 1, 3, 2], 0.5, 2.5),
        ([4, 1, 3, 2], 0.9, 3.7),
        ([7], 0.99, 7.0),
        ([1, 2, math.inf], 0.5, 2.0),
        ([1, 2, math.inf], 0.6, math.inf),
        ([1, math.inf, math.inf], 0.75, math.inf),
    ],
)
def test_quantile_is_type_7_and_keeps_what_never_finished(values: list[float], share: float, expected: float) -> None:
    assert quantile(values, share) == pytest.approx(expected)


@given(latencies, st.floats(0, 1))
def test_quantile_agrees_with_numpys_linear_method(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share, method="linear")))


@given(st.permutations([0.5, 1.0, 1.5, 2.0, math.inf]), st.sampled_from([0.0, 0.5, 0.75, 0.9, 1.0]))
def test_the_order_of_requests_changes_nothing(values: list[float], share: float) -> None:
    assert quantile(values, share) == quantile([0.5, 1.0, 1.5, 2.0, math.inf], share)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0, math.nan], 0.5), ([1.0], 1.5)])
def test_quantile_refuses(values: list[float], share: float) -> None:
    with pytest.raises(ValueError, match=r"values|NaN|quantile"):
        quantile(values, share)


def test_woodruff_by_hand() -> None:
    # 101 values e^0 … e^1: the quantile at share s is e^s up to interpolation, and one binomial step at the median
    # is sqrt(0.25 / 101) = 0.04975, so the log quantile's standard error is that too.
    values = np.exp(np.linspace(0, 1, 101))
    assert quantile_log_se(values, 0.5) == pytest.approx(0.04975, abs=1e-4)


def test_woodruff_uses_the_lower_side_where_the_upper_never_came() -> None:
    values = [*np.exp(np.linspace(0, 1, 99)), math.inf, math.inf]
    assert 0 < quantile_log_se(values, 0.97) < 0.1
    with pytest.raises(ValueError, match="finite"):
        quantile_log_se(values, 0.999)


def test_ecdf_counts_what_never_finished_in_the_denominator() -> None:
    assert ecdf_points([2.0, 1.0, 2.0, math.inf], 10) == ([1.0, 2.0, 2.0], [0.25, 0.75, 0.75])
    assert ecdf_points([math.inf], 10) == ([], [])


@given(latencies, st.integers(2, 20))
def test_ecdf_is_thinned_rising_and_keeps_its_ends(values: list[float], most: int) -> None:
    places, shares = ecdf_points(values, most)
    assert len(places) == len(shares) <= most
    assert (places[0], places[-1], shares[-1]) == (min(values), max(values), 1.0)
    assert places == sorted(places)
    assert shares == sorted(shares)


def test_attainment_by_hand() -> None:
    planned = np.array([0, 0, 10**9, 10**9])
    completed = np.array([True, True, True, False])
    first = seconds_since_planned(np.array([10**9, 2 * 10**9, -1, 2 * 10**9]), planned, completed)
    last = seconds_since_planned(np.array([5 * 10**9, 3 * 10**9, 3 * 10**9, 2 * 10**9]), planned, completed)
    assert first.tolist() == [1.0, 2.0, math.inf, math.inf]
    assert last.tolist() == [5.0, 3.0, 2.0, math.inf]
    within = within_deadline(first, last, np.full(4, 1.0), np.full(4, 5.0))
    assert within.tolist() == [True, False, False, False]
    assert attainment(within) == 0.25


def test_attainment_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was planned"):
        attainment(np.array([], dtype=bool))
    with pytest.raises(ValueError, match="shapes"):
        seconds_since_planned(np.array([1]), np.array([1, 2]), np.array([True]))


@given(st.lists(st.booleans(), min_size=1, max_size=50), st.integers(0, 49))
def test_one_more_late_request_never_raises_attainment(flags: list[bool], place: int) -> None:
    within = np.array(flags)
    worse = within.copy()
    worse[place % len(flags)] = False
    assert attainment(worse) <= attainment(within)
