"""How much of a level is rehearsed: long windows in part, none where too little would be left."""

from dataclasses import replace

import pytest

from decisions.rules.foresight import MOST_REHEARSED_S, within_reach
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row
from loadtests.tuning.rehearsal import Course

ROW = Row.model_validate(
    {
        "id": "r",
        "conversation": "c",
        "arrival_s": 0,
        "class": "chat",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 8,
    }
)


def a_course(window_s: float, drain_s: float = 30.0) -> Course:
    """A request each second."""
    planned = [PlannedRequest(f"r{second}", second, ROW, second * NANOSECONDS) for second in range(int(window_s))]
    return Course("peak", planned, {}, window_s, drain_s)


def test_what_fits_is_rehearsed_whole() -> None:
    courses = [a_course(60), a_course(120)]
    assert within_reach(courses, arms=5) == courses


def test_longer_windows_are_rehearsed_in_part_and_with_all_of_their_drain() -> None:
    courses = [a_course(600), a_course(1_200)]
    kept = within_reach(courses, arms=20)
    assert sum(one.span_s for one in kept) * 20 == pytest.approx(MOST_REHEARSED_S)
    assert [one.drain_s for one in kept] == [30.0, 30.0]
    assert kept[1].window_s == pytest.approx(2 * kept[0].window_s)
    for one in kept:
        assert {request.planned_ns < one.window_s * NANOSECONDS for request in one.planned} == {True}
        assert len(one.planned) == int(one.window_s) + 1


def test_a_warm_up_stays_whole() -> None:
    (kept,) = within_reach([replace(a_course(5_000), warm_up_s=100.0)], arms=10)
    assert kept.warm_up_s == 100.0
    assert kept.planned[-1].planned_ns < (100.0 + kept.window_s) * NANOSECONDS


@pytest.mark.parametrize("courses", [[], [a_course(600, drain_s=2_000.0)], [a_course(50_000)]])
def test_where_too_little_would_be_left_nothing_is_rehearsed(courses: list[Course]) -> None:
    assert within_reach(courses, arms=20) == []
