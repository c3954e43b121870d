import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.statistics.effects import (
    pairs_needed,
    pairs_to_bound,
    power_of,
    smallest_detectable_effect,
    spread_upper,
)


def test_spread_upper_by_hand() -> None:
    # χ²(0.2; 3) = 1.005174
    assert spread_upper(2.0, 4) == pytest.approx(2 * math.sqrt(3 / 1.005174), rel=1e-5)
    assert spread_upper(0.0, 4) == 0.0
    with pytest.raises(ValueError, match="pairs"):
        spread_upper(1.0, 1)


@pytest.mark.parametrize(("size", "expected"), [(0.5, 28), (0.8, 12), (0.2, 156), (10.0, 4)])
def test_pairs_needed_of_the_textbook(size: float, expected: int) -> None:
    # Cohen's one-sided paired t test at 5 % and 80 %: 27, 12 and 156 pairs for d = 0.5, 0.8, 0.2; ours are even
    assert pairs_needed(1.0, size, alpha=0.05) == expected


def test_what_no_affordable_number_of_pairs_shows() -> None:
    assert pairs_needed(1.0, 1e-4, alpha=0.05) is None
    assert pairs_needed(0.0, 0.1, alpha=0.05) == 4
    with pytest.raises(ValueError, match="no number"):
        pairs_needed(1.0, 0.0, alpha=0.05)


def test_power_is_one_far_out() -> None:
    assert power_of(1.0, 1e-9, 4, alpha=0.05) == 1.0


@given(st.sampled_from([2, 4, 6, 12, 40]), st.sampled_from([0.01, 0.05, 0.1]), st.floats(1e-4, 10))
def test_the_smallest_effect_has_the_power_it_promises(pairs: int, alpha: float, spread: float) -> None:
    effect = smallest_detectable_effect(spread, pairs, alpha=alpha)
    assert power_of(effect, spread, pairs, alpha=alpha) == pytest.approx(0.8, abs=1e-5)


def test_smallest_effect_grows_with_the_spread_and_shrinks_with_pairs() -> None:
    assert smallest_detectable_effect(0.0, 4, alpha=0.05) == 0.0
    four, eight = (smallest_detectable_effect(1.0, pairs, alpha=0.05) for pairs in (4, 8))
    assert four > eight
    assert smallest_detectable_effect(3.0, 4, alpha=0.05) == pytest.approx(3 * four)
    with pytest.raises(ValueError, match="no effect"):
        smallest_detectable_effect(-1.0, 4, alpha=0.05)


def test_pairs_to_bound() -> None:
    # t(0.95; 3)/2 = 1.1767 and t(0.95; 5)/√6 = 0.8226
    assert pairs_to_bound(1.2, 1.0, alpha=0.05) == 4
    assert pairs_to_bound(1.0, 1.0, alpha=0.05) == 6
    assert pairs_to_bound(0.0, 1.0, alpha=0.05) is None
    assert pairs_to_bound(1e-4, 1.0, alpha=0.05) is None
