"""Which rows a level sends at which times, and which stretch of a part each pair and level gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from loadtests.traffic.arrivals import arrival_times_ns, derived_seed, exact
from loadtests.traffic.levels import Level
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row


@dataclass(frozen=True)
class Segment:
    """The rows of one pair and level: ``rows`` are indices in the part, ``seed`` draws the arrival times."""

    start: int
    rows: tuple[int, ...]
    seed: int


def level_times_ns(level: Level, *, seed: int, recorded_ns: Sequence[int]) -> list[int]:
    try:
        return arrival_times_ns(level.arrival, duration_s=level.duration_s, seed=seed, recorded_ns=recorded_ns)
    except ValueError as error:
        raise ValueError(f"level {level.name}: {error}") from None


def plan_level(rows: Sequence[tuple[int, Row]], level: Level, *, seed: int, prefix: str) -> list[PlannedRequest]:
    """The level's requests: rows in file order meet the arrival times in order.

    ``rows`` are (index in the part, row). Raises ValueError when there are fewer rows than arrivals.
    """
    times = level_times_ns(level, seed=seed, recorded_ns=[row.arrival_ns for _, row in rows])
    if len(rows) < len(times):
        raise ValueError(f"level {level.name} needs {len(times)} requests and has {len(rows)}")
    return [
        PlannedRequest(request_id=f"{prefix}-{number:05d}", row=index, traffic_row=row, planned_ns=time)
        for number, ((index, row), time) in enumerate(zip(rows, times, strict=False))
    ]


def segments(
    rows: Sequence[Row], levels: Sequence[Level], *, pairs: int, seed: int, wrap: bool
) -> dict[tuple[int, str], Segment]:
    """Every pair (counted from 0) and level gets a stretch of consecutive rows of its own.

    Without ``wrap`` the stretches are disjoint, so that pairs are independent: held-out traffic. With it (tuning
    only) the part is gone through again from its start as often as it takes, and no stretch holds a row twice.
    """
    recorded = [row.arrival_ns for row in rows]
    seeds = segment_seeds(levels, pairs=pairs, seed=seed)
    by_name = {level.name: level for level in levels}
    if any(level.arrival.process == "replay" for level in levels):
        return replay_segments(recorded, by_name, seeds, wrap=wrap)
    counts = drawn_counts(levels, pairs=pairs, seed=seed)
    check_rows(len(rows), levels, counts, pairs=pairs, wrap=wrap)
    starts = [0, *accumulate(counts)]
    return {
        key: Segment(start % len(rows), tuple((start + step) % len(rows) for step in range(count)), one)
        for (key, one), start, count in zip(seeds.items(), starts, counts, strict=False)
    }


def segment_seeds(levels: Sequence[Level], *, pairs: int, seed: int) -> dict[tuple[int, str], int]:
    return {
        (pair, level.name): derived_seed("segment", seed, pair, level.name) for pair in range(pairs) for level in levels
    }


def drawn_counts(levels: Sequence[Level], *, pairs: int, seed: int) -> list[int]:
    """How many requests each pair and level will send, which the seed alone tells where no level is a replay."""
    by_name = {level.name: level for level in levels}
    seeds = segment_seeds(levels, pairs=pairs, seed=seed)
    return [len(level_times_ns(by_name[name], seed=one, recorded_ns=())) for (_, name), one in seeds.items()]


def check_rows(have: int, levels: Sequence[Level], counts: Sequence[int], *, pairs: int, wrap: bool) -> None:
    if wrap and max(counts, default=0) > have:
        raise ValueError(f"the part has {have} requests; its longest level needs {max(counts)}")
    if not wrap and sum(counts) > have:
        names = ", ".join(level.name for level in levels)
        raise ValueError(
            f"the held-out part has {have} requests; {pairs} pairs of levels {names} need {sum(counts)}: "
            "add traffic, or plan fewer pairs, shorter windows or lower rates"
        )


def replay_segments(
    recorded: Sequence[int], levels: Mapping[str, Level], seeds: Mapping[tuple[int, str], int], *, wrap: bool
) -> dict[tuple[int, str], Segment]:
    """As ``segments`` where a replay takes part: its count depends on where its stretch begins.

    A stretch never runs over the part's end, since recorded times can't go backwards.
    """
    placed: dict[tuple[int, str], Segment] = {}
    cursor = 0
    for key, seed in seeds.items():
        level = levels[key[1]]
        count = fitting(recorded[cursor:], level, seed=seed)
        if count is None and wrap:
            cursor, count = 0, fitting(recorded, level, seed=seed)
        if count is None:
            raise ValueError(exhausted(len(recorded), len(placed), len(seeds), key, wrap=wrap))
        placed[key] = Segment(cursor, tuple(range(cursor, cursor + count)), seed)
        cursor += count
    return placed


def fitting(recorded: Sequence[int], level: Level, *, seed: int) -> int | None:
    """How many of the recorded rows the level takes; None when they end before its window does."""
    if not recorded or not covers(recorded, level):
        return None
    count = len(level_times_ns(level, seed=seed, recorded_ns=recorded))
    return count if count <= len(recorded) else None


def covers(recorded: Sequence[int], level: Level) -> bool:
    """A replay whose last recorded time lies inside the window would fall silent before the window ends; the last
    tenth is left free, because traffic rarely has a request at the very end."""
    if level.arrival.process != "replay":
        return True
    span = (recorded[-1] - recorded[0]) * exact(level.arrival.time_scale or 1)
    return span >= exact(level.duration_s) * NANOSECONDS * 9 / 10


def exhausted(have: int, placed: int, wanted: int, key: tuple[int, str], *, wrap: bool) -> str:
    part = "part" if wrap else "held-out part"
    return (
        f"the {part} has {have} requests; {wanted} segments need more: only {placed} fit before the recorded "
        f"times end, and level {key[1]} of pair {key[0]} is left without: add traffic, or plan fewer pairs or "
        "shorter windows"
    )
