"""Acceptance by position and class, by hand: what is counted, and how it is carried over to other draft lengths."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.evidence.records import RequestRecord, records_table
from loadtests.tuning.acceptance import (
    STRENGTH,
    ClassKept,
    Kept,
    Tallies,
    TrialTallies,
    acceptance_of,
    conditional,
    tallies_of,
    together,
)


def record(number: int, **fields: Any) -> RequestRecord:
    values: dict[str, Any] = dict.fromkeys(RequestRecord.__dataclass_fields__)
    values |= {"request_id": f"r{number}", "row": number, "class_": "chat", "level": "quiet", "planned_ns": 0}
    values |= {"status": "completed", "chunks": 1, "warm_up": False}
    return RequestRecord(**(values | fields))


# 10 rounds that all drafted 2: 5 kept none, 3 kept 1, 2 kept 2; 17 tokens.
HARD = {
    "output_tokens": 18,
    "rounds": 10,
    "draft_tokens": 20,
    "accepted_tokens": 7,
    "accepted_histogram": [5, 3, 2],
}
# 4 rounds that kept all; 12 tokens.
EASY = {
    "output_tokens": 13,
    "rounds": 4,
    "draft_tokens": 8,
    "accepted_tokens": 8,
    "accepted_histogram": [0, 0, 4],
}


def test_tallies_by_hand() -> None:
    table = records_table([record(0, **HARD), record(1, **EASY), record(2, class_="code", **EASY)])
    assert tallies_of(table) == {
        "chat": Tallies(rounds=14, drafting=14, drafts=28, accepted=15, tokens=29, kept=(9, 6)),
        "code": Tallies(rounds=4, drafting=4, drafts=8, accepted=8, tokens=12, kept=(4, 4)),
    }
    # Each round of the first counts 1.7 times, each of the second 3 times: as many as they have tokens.
    even = tallies_of(table, even=True)["chat"]
    assert even.kept == pytest.approx((5 * 1.7 + 4 * 3, 2 * 1.7 + 4 * 3))
    assert (even.rounds, even.tokens) == (14, 29)
    assert even.drafting == pytest.approx(29)


def test_only_positions_that_every_drafting_round_had_are_kept() -> None:
    table = records_table([record(0, **HARD)])
    assert tallies_of(table, 1)["chat"].kept == (5,)
    # Positions that no round reached may be missing from the engine's histogram.
    assert tallies_of(table, 4)["chat"].kept == (5, 2, 0, 0)


def test_rounds_that_were_not_told_are_in_no_tally() -> None:
    assert tallies_of(records_table([record(0, output_tokens=300)])) == {}
    with pytest.raises(ValueError, match="no completed request told its rounds"):
        acceptance_of([TrialTallies({}, k=2, always=True)])


def test_chances_are_drawn_towards_the_position_before_and_those_of_a_class_towards_all() -> None:
    some = Tallies(rounds=1_000, drafting=1_000, tokens=1_000, kept=(800, 200, 0))
    first, second, third = conditional([some])
    assert first == pytest.approx(0.8)
    assert second == pytest.approx((200 + STRENGTH * 0.8) / (800 + STRENGTH))
    assert third == pytest.approx(STRENGTH * second / (200 + STRENGTH))
    few = Tallies(rounds=10, drafting=10, tokens=10, kept=(10, 10, 10))
    assert conditional([few], (0.5, 0.4, 0.3)) == pytest.approx(
        [(10 + STRENGTH * prior) / (10 + STRENGTH) for prior in (0.5, 0.4, 0.3)]
    )


def test_a_shorter_draft_length_tells_nothing_of_positions_that_it_hadnt() -> None:
    short = Tallies(rounds=10_000, drafting=10_000, tokens=10_000, kept=(9_000,))
    long = Tallies(rounds=10_000, drafting=10_000, tokens=10_000, kept=(9_000, 4_500))
    assert conditional([short, long]) == pytest.approx((0.9, 0.5), rel=0.02)
    assert together([short, long]).kept == (18_000, 4_500)


def test_kept_of_a_drafter_that_often_has_nothing_to_propose() -> None:
    lookup = ClassKept(given=(0.5, 0.4), proposes=0.2)
    assert lookup.kept(3) == pytest.approx((0.1, 0.04, 0.016))
    assert Kept(lookup, filled=0.5).drafted(4) == pytest.approx(0.2 * 0.5 * 4)
    assert ClassKept(given=(), proposes=0.0).kept(2) == pytest.approx((0, 0))


def test_uneven_requests_bring_less_over_all_rounds() -> None:
    """Half the tokens come 1 a round and half 3 a round: 2 tokens take 4/3 rounds, 1.5 a round and not 2."""
    table = records_table(
        [
            record(0, output_tokens=1_201, rounds=400, accepted_tokens=800, accepted_histogram=[0, 0, 400]),
            record(1, output_tokens=1_201, rounds=1_200, accepted_tokens=0, accepted_histogram=[1_200, 0, 0]),
        ]
    )
    found = acceptance_of([TrialTallies(tallies_of(table, 2, even=True), k=2, always=True)])
    ((extra, variation),) = found.everything.uneven
    assert extra == pytest.approx(1.0)
    assert variation == pytest.approx((2 - 1.5) * 2 / 1)
    # The second position is drawn towards the first, so that a little less is kept than was.
    assert 1 + sum(found.kept(2)) == pytest.approx(1.5, rel=0.05)


def test_a_mix_of_classes_is_one_of_tokens() -> None:
    """Of 30 tokens 20 take 20 rounds and 10 take 5: 1.2 tokens a round."""
    found = Kept(
        ClassKept((0.5,), 1.0),
        classes={"hard": ClassKept((0.0,), 1.0), "easy": ClassKept((1.0,), 1.0)},
        shares={"hard": 1.0},
    )
    assert found.kept(1, {"hard": 20 / 30, "easy": 10 / 30}) == pytest.approx((0.2,))
    assert found.kept(1) == (0.0,)
    # A class that nobody measured is as all together.
    assert found.kept(1, {"new": 1.0}) == (0.5,)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(0.1, 8), st.floats(0, 2)), max_size=3, unique_by=lambda one: one[0]),
    st.integers(1, 16),
)
def test_what_is_kept_never_rises_with_the_position(
    chances: list[float], proposes: float, uneven: list[tuple[float, float]], k: int
) -> None:
    kept = list(ClassKept(tuple(chances), proposes, tuple(sorted(uneven))).kept(k))
    assert len(kept) == k
    assert all(0 <= later <= before <= 1 for before, later in zip([1.0, *kept], kept, strict=False))
