import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.statistics.order import A_A_ARMS, arm_orders, level_order

B_C, C_B = ("baseline", "candidate"), ("candidate", "baseline")


def test_golden_orders() -> None:
    assert arm_orders(4, 7) == [B_C, C_B, B_C, C_B]
    assert arm_orders(4, 6)[0] == C_B
    assert level_order(["quiet", "ordinary", "peak"], 7, 0) == ["ordinary", "peak", "quiet"]


@given(st.integers(0, 10).map(lambda one: 2 * one), st.integers(0, 2**80))
def test_every_block_of_two_pairs_is_abba(pairs: int, seed: int) -> None:
    orders = arm_orders(pairs, seed)
    assert len(orders) == pairs
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert {first, second} == {B_C, C_B}


def test_the_first_arm_is_drawn_per_block() -> None:
    firsts = [arm_orders(2, seed)[0] for seed in range(400)]
    assert 160 <= firsts.count(B_C) <= 240
    assert len({tuple(arm_orders(6, seed)) for seed in range(100)}) == 8


def test_more_pairs_leave_the_earlier_order_as_it_was() -> None:
    assert arm_orders(8, 3)[:4] == arm_orders(4, 3)


def test_baseline_against_baseline_has_a_control_arm() -> None:
    assert {arm for order in arm_orders(4, 1, arms=A_A_ARMS) for arm in order} == {"baseline", "control"}


def test_orders_refuse() -> None:
    with pytest.raises(ValueError, match="block of two"):
        arm_orders(3, 1)
    with pytest.raises(ValueError, match="same name"):
        level_order(["peak", "peak"], 1, 0)


@given(st.permutations(["quiet", "ordinary", "peak"]), st.integers(0, 99), st.integers(0, 9))
def test_the_drawn_level_order_does_not_depend_on_how_they_were_listed(levels: list[str], seed: int, pair: int) -> None:
    drawn = level_order(levels, seed, pair)
    assert sorted(drawn) == ["ordinary", "peak", "quiet"]
    assert drawn == level_order(sorted(levels), seed, pair)


def test_every_level_order_comes_up() -> None:
    drawn = {tuple(level_order(["quiet", "ordinary", "peak"], 1, pair)) for pair in range(100)}
    assert len(drawn) == 6
