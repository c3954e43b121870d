import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.traffic.levels import Arrival, Level
from loadtests.traffic.plan import Segment, plan_level, segments
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import Row

NS = 1_000_000_000


def row(number: int, arrival_s: float) -> Row:
    return Row.model_validate(
        {
            "id": f"r{number}",
            "conversation": f"c{number}",
            "arrival_s": arrival_s,
            "class": "chat",
            "messages": [{"role": "user", "content": f"question {number}"}],
            "max_tokens": 8,
        }
    )


def part(count: int, every_s: float = 1.0) -> list[Row]:
    return [row(number, 100 + number * every_s) for number in range(count)]


def level(name: str = "quiet", *, duration_s: float = 10, **arrival: object) -> Level:
    chosen = arrival or {"process": "constant", "rate": 1}
    return Level(name=name, arrival=Arrival.model_validate(chosen), duration_s=duration_s)


def test_rows_meet_the_times_in_file_order() -> None:
    rows = part(6)
    planned = plan_level(
        list(enumerate(rows))[2:], level(duration_s=1, process="constant", rate=3), seed=1, prefix="t7"
    )
    assert planned == [
        PlannedRequest("t7-00000", 2, rows[2], 0),
        PlannedRequest("t7-00001", 3, rows[3], 333_333_333),
        PlannedRequest("t7-00002", 4, rows[4], 666_666_666),
    ]


def test_a_replay_keeps_the_recorded_gaps() -> None:
    rows = [row(0, 5), row(1, 5.25), row(2, 9), row(3, 30)]
    planned = plan_level(list(enumerate(rows)), level(process="replay"), seed=1, prefix="t")
    assert [one.planned_ns for one in planned] == [0, 250_000_000, 4 * NS]


def test_too_few_rows_says_how_many_are_needed_and_there() -> None:
    with pytest.raises(ValueError, match="level quiet needs 10 requests and has 4"):
        plan_level(list(enumerate(part(4))), level(), seed=1, prefix="t")


def test_a_level_without_requests_is_named() -> None:
    with pytest.raises(ValueError, match="level peak: no request falls into the window"):
        plan_level([], level("peak", process="replay"), seed=1, prefix="t")


def test_each_pair_and_level_has_the_next_rows() -> None:
    levels = [level("quiet", duration_s=2), level("peak", duration_s=3)]
    placed = segments(part(10), levels, pairs=2, seed=9, wrap=False)
    assert {key: (one.start, one.rows) for key, one in placed.items()} == {
        (0, "quiet"): (0, (0, 1)),
        (0, "peak"): (2, (2, 3, 4)),
        (1, "quiet"): (5, (5, 6)),
        (1, "peak"): (7, (7, 8, 9)),
    }


def test_too_few_held_out_requests_say_how_many_are_needed() -> None:
    levels = [level("quiet", duration_s=2), level("peak", duration_s=3)]
    with pytest.raises(ValueError, match="the held-out part has 9 requests; 2 pairs of levels quiet, peak need 10"):
        segments(part(9), levels, pairs=2, seed=9, wrap=False)


def test_wrapping_rotates_the_starts() -> None:
    placed = segments(part(5), [level(duration_s=3)], pairs=3, seed=9, wrap=True)
    assert [one.rows for one in placed.values()] == [(0, 1, 2), (3, 4, 0), (1, 2, 3)]


def test_wrapping_never_puts_a_row_twice_into_a_segment() -> None:
    with pytest.raises(ValueError, match="the part has 5 requests; its longest level needs 6"):
        segments(part(5), [level(duration_s=6)], pairs=1, seed=9, wrap=True)


def test_a_replay_takes_the_rows_that_its_window_covers() -> None:
    levels = [level("quiet", duration_s=4), level("replayed", duration_s=3, process="replay", time_scale=0.5)]
    placed = segments(part(21), levels, pairs=2, seed=9, wrap=False)
    assert {key: (one.start, len(one.rows)) for key, one in placed.items()} == {
        (0, "quiet"): (0, 4),
        (0, "replayed"): (4, 6),
        (1, "quiet"): (10, 4),
        (1, "replayed"): (14, 6),
    }


def test_a_replay_that_would_fall_silent_early_is_refused() -> None:
    with pytest.raises(ValueError, match="the held-out part has 20 requests; 3 segments need more: only 2 fit"):
        segments(part(20), [level(duration_s=8, process="replay")], pairs=3, seed=9, wrap=False)


def test_a_wrapping_replay_starts_again_at_the_part_s_start() -> None:
    placed = segments(part(20), [level(duration_s=8, process="replay")], pairs=3, seed=9, wrap=True)
    assert [one.start for one in placed.values()] == [0, 8, 0]


# 6 pairs of 3 levels of 10 s at 6 requests/s plan 1,080 on average.
LONG_PART = part(1_600)


@given(
    pairs=st.integers(1, 6),
    seed=st.integers(0, 2**40),
    rates=st.lists(st.floats(2, 6), min_size=1, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_held_out_segments_are_disjoint_and_planned_in_full(pairs: int, seed: int, rates: list[float]) -> None:
    rows = LONG_PART
    levels = [level(f"l{number}", process="poisson", rate=rate) for number, rate in enumerate(rates)]
    placed = segments(rows, levels, pairs=pairs, seed=seed, wrap=False)
    used = [index for one in placed.values() for index in one.rows]
    assert used == list(range(len(used)))
    assert list(placed) == [(pair, one.name) for pair in range(pairs) for one in levels]
    for (_, name), one in placed.items():
        assert planned_rows(rows, one, next(each for each in levels if each.name == name)) == list(one.rows)
    assert placed == segments(rows, levels, pairs=pairs, seed=seed, wrap=False)


def planned_rows(rows: list[Row], segment: Segment, chosen: Level) -> list[int]:
    """The whole segment is sent: the plan of its rows by its seed uses each of them once."""
    indexed = [(index, rows[index]) for index in segment.rows]
    return [one.row for one in plan_level(indexed, chosen, seed=segment.seed, prefix="t")]


def test_the_seed_draws_other_times_per_pair() -> None:
    placed = segments(part(200), [level(process="poisson", rate=2)], pairs=3, seed=4, wrap=False)
    assert len({one.seed for one in placed.values()}) == 3
