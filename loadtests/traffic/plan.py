"""Which rows a level sends at which times, and which stretch of a part each pair and level gets."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

from loadtests.traffic.arrivals import arrival_times_ns, derived_seed, exact, give_up_times_ns
from loadtests.traffic.levels import Level
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row

# Unbroken times [start, end) that a part was cut from, in nanoseconds from the set's start.
Stretches = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Segment:
    """The rows of one pair and level: ``rows`` are indices in the part, ``seed`` draws the arrival times."""

    start: int
    rows: tuple[int, ...]
    seed: int


def level_times_ns(level: Level, *, seed: int, recorded_ns: Sequence[int]) -> list[int]:
    try:
        return arrival_times_ns(
            level.arrival,
            duration_s=level.duration_s,
            warm_up_s=level.warm_up_s,
            seed=seed,
            recorded_ns=recorded_ns,
        )
    except ValueError as error:
        raise ValueError(f"level {level.name}: {error}") from None


def busiest_second(times_ns: Sequence[int]) -> int:
    """Most requests that leave within one second."""
    ordered = sorted(times_ns)
    return max((bisect_left(ordered, one + NANOSECONDS) - at for at, one in enumerate(ordered)), default=0)


def plan_level(rows: Sequence[tuple[int, Row]], level: Level, *, seed: int, prefix: str) -> list[PlannedRequest]:
    """The level's requests: rows in file order meet the arrival times in order.

    ``rows`` are (index in the part, row). Raises ValueError when there are fewer rows than arrivals.
    """
    times = level_times_ns(level, seed=seed, recorded_ns=[row.arrival_ns for _, row in rows])
    if len(rows) < len(times):
        raise ValueError(
            f"level {level.name} needs {len(times)} requests and has {len(rows)}: "
            "a lower rate, a shorter window or more traffic"
        )
    give_ups = give_up_times_ns(level.patience, times, seed=seed)
    window_ns = math.ceil(exact(level.warm_up_s) * NANOSECONDS)
    return [
        PlannedRequest(f"{prefix}-{number:05d}", index, row, time, give_up, warm_up=time < window_ns)
        for number, ((index, row), time, give_up) in enumerate(zip(rows, times, give_ups, strict=False))
    ]


def segments(
    rows: Sequence[Row],
    levels: Sequence[Level],
    *,
    pairs: int,
    seed: int,
    wrap: bool,
    stretches: Stretches | None = None,
) -> dict[tuple[int, str], Segment]:
    """Every pair (counted from 0) and level gets consecutive rows of its own.

    Without ``wrap`` they are disjoint, so that pairs are independent: held-out traffic. With it (tuning only) the part
    is gone through again from its start as often as it takes, and no segment holds a row twice. A replay never crosses
    the border of one of the ``stretches`` [start, end), in ns from the set's start, that the part was cut from: beyond
    it lies a hole that was no silence. Without any, the part is one whole.
    """
    return segments_of_times(
        [row.arrival_ns for row in rows], levels, pairs=pairs, seed=seed, wrap=wrap, stretches=stretches
    )


def segments_of_times(
    recorded: Sequence[int],
    levels: Sequence[Level],
    *,
    pairs: int,
    seed: int,
    wrap: bool,
    stretches: Stretches | None = None,
) -> dict[tuple[int, str], Segment]:
    """As ``segments``, of rows of which only the times of arrival are known, in ns."""
    seeds = segment_seeds(levels, pairs=pairs, seed=seed)
    by_name = {level.name: level for level in levels}
    if any(level.arrival.process == "replay" for level in levels):
        return replay_segments(recorded, by_name, seeds, wrap=wrap, unbroken=unbroken_rows(recorded, stretches))
    counts = drawn_counts(levels, pairs=pairs, seed=seed)
    have = len(recorded)
    check_rows(have, levels, counts, pairs=pairs, wrap=wrap)
    starts = [0, *accumulate(counts)]
    return {
        key: Segment(start % have, tuple((start + step) % have for step in range(count)), one)
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


@dataclass(frozen=True)
class Unbroken:
    """Rows [first, beyond) that arrive in one stretch of time, which ends at ``end_ns``: None where that isn't known,
    and with it whether traffic was silent after the last row or no longer recorded."""

    first: int
    beyond: int
    end_ns: int | None


def unbroken_rows(recorded: Sequence[int], stretches: Stretches | None) -> list[Unbroken]:
    """The part's rows by stretch. Those outside of all (later turns of a conversation that began in time of this part
    and went on in another's) are in none."""
    if any(later < earlier for earlier, later in pairwise(recorded)):
        raise ValueError("recorded times go backwards: a replay needs its requests in order of arrival")
    if not stretches:
        return [Unbroken(0, len(recorded), None)]
    return [Unbroken(bisect_left(recorded, start), bisect_left(recorded, end), end) for start, end in stretches]


def replay_segments(
    recorded: Sequence[int],
    levels: Mapping[str, Level],
    seeds: Mapping[tuple[int, str], int],
    *,
    wrap: bool,
    unbroken: Sequence[Unbroken],
) -> dict[tuple[int, str], Segment]:
    """As ``segments`` where a replay takes part: its count depends on where it begins."""
    placed: dict[tuple[int, str], Segment] = {}
    cursor = 0
    for key, seed in seeds.items():
        level = levels[key[1]]
        taken = next_rows(recorded, level, unbroken, cursor, seed=seed)
        if taken is None and wrap:
            taken = next_rows(recorded, level, unbroken, 0, seed=seed)
        if taken is None:
            part = "part" if wrap else "held-out part"
            said = (
                f"the {part} has {len(recorded)} requests; {len(seeds)} segments need more: only {len(placed)} fit "
                f"before the recorded times end, and level {level.name} of pair {key[0] + 1} is left without"
            )
            raise ValueError(f"{said}; {advice(level, longest_ns(recorded, unbroken))}")
        placed[key] = Segment(taken.start, tuple(taken), seed)
        cursor = taken.stop
    return placed


def next_rows(
    recorded: Sequence[int], level: Level, unbroken: Sequence[Unbroken], cursor: int, *, seed: int
) -> range | None:
    """The next rows from ``cursor`` on that the level can take; None when there are none."""
    if level.arrival.process == "replay":
        places = (rows for one in unbroken for rows in replayed_rows(recorded, level, one, max(cursor, one.first)))
        return next(places, None)
    count = len(level_times_ns(level, seed=seed, recorded_ns=()))
    return range(cursor, cursor + count) if cursor + count <= len(recorded) else None


def replayed_rows(recorded: Sequence[int], level: Level, within: Unbroken, start: int) -> Iterator[range]:
    """The windows that fit into an unbroken stretch from row ``start`` on, one after the other."""
    while start < within.beyond and covers(recorded, level, within, start):
        end = math.ceil(recorded[start] + needed_ns(level))
        beyond = bisect_left(recorded, end, start, within.beyond)
        warm_ns = exact(level.warm_up_s) * NANOSECONDS / scale_of(level)
        # A window in which nothing arrives after its warm-up measures nothing.
        if recorded[beyond - 1] - recorded[start] >= warm_ns:
            yield range(start, beyond)
        start = beyond


def covers(recorded: Sequence[int], level: Level, within: Unbroken, start: int) -> bool:
    """Does the stretch last as long as the level, from row ``start`` on? Where its end isn't known, a tenth is left
    free, because traffic rarely has a request at the very end."""
    needed = needed_ns(level)
    if within.end_ns is not None:
        return within.end_ns - recorded[start] >= needed
    return recorded[within.beyond - 1] - recorded[start] >= needed * 9 / 10


def scale_of(level: Level) -> Fraction:
    return exact(level.arrival.time_scale or 1)


def needed_ns(level: Level) -> Fraction:
    """The recorded time that a replay squeezes or stretches into its warm-up and window, in nanoseconds."""
    return (exact(level.warm_up_s) + exact(level.duration_s)) * NANOSECONDS / scale_of(level)


def longest_ns(recorded: Sequence[int], unbroken: Sequence[Unbroken]) -> int:
    """From the first request of a stretch, where a replay begins, to its end."""
    ends = ((one, recorded[one.beyond - 1] if one.end_ns is None else one.end_ns) for one in unbroken)
    return max((end - recorded[one.first] for one, end in ends if one.first < one.beyond), default=0)


def advice(level: Level, longest: int) -> str:
    """What to do about a level that found no place; ``longest`` is the longest unbroken stretch in ns."""
    if level.arrival.process != "replay":
        return "add traffic, or plan fewer pairs or shorter windows"
    needed = needed_ns(level)
    warm = "warm-up and window" if level.warm_up_s else "a window"
    said = (
        f"it replays {float(needed) / NANOSECONDS:g} s of recorded time ({warm} of {level.span_s:g} s ÷ time scale "
        f"{float(scale_of(level)):g}), and the longest unbroken stretch lasts {longest / NANOSECONDS:g} s"
    )
    if longest < needed:
        return f"{said}: split the traffic into longer blocks, or plan a shorter window"
    return f"{said}: add traffic, or plan fewer pairs or shorter windows"
