"""A picture of a brief's load levels: when the first pair's requests are planned to arrive. Of traffic that a level
replays the times alone are read, from the tuning part's index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from django.core.cache import cache

from decisions.charts.figure import Chart
from decisions.charts.levels import LevelLine, levels_over_time, line_of
from decisions.rules.brief import Brief
from decisions.rules.wording import process_words
from loadtests.canonical import digest_of
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.models import TrafficPart
from loadtests.part_indexes import index_of
from loadtests.traffic.columns import read_columns
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import level_times_ns, next_rows, segment_seeds, unbroken_rows
from loadtests.traffic.rows import NANOSECONDS

# Of all levels of a page together: drawing them takes a third of a second. What was drawn once is kept.
MOST_DRAWN = 200_000
MOST_REPLAYED = 1_000_000
MOST_BYTES_READ = 64 << 20
KEPT_S = 24 * 3600


@dataclass(frozen=True)
class LevelsShown:
    chart: Chart | None
    levels: Sequence[Level]
    peak: str
    not_drawn: list[str]


def levels_shown(brief: Brief, tuning: TrafficPart | None) -> LevelsShown:
    """The first pair's planned arrivals at every level; a replay as it would begin in the tuning part."""
    seeds = segment_seeds(brief.levels, pairs=1, seed=brief.rule.seed)
    recorded, room = Recorded(tuning), MOST_DRAWN
    drawn: dict[str, LevelLine] = {}
    not_drawn: dict[str, str] = {}
    # The largest last: they are what doesn't fit.
    for level in sorted(brief.levels, key=lambda one: one.expected_requests or 0):
        try:
            count, drawn[level.name] = level_line(level, seeds[0, level.name], recorded, room)
            room -= count
        except ValueError as error:
            said = str(error).removeprefix(f"level {level.name}: ")
            not_drawn[level.name] = f"{level.name} is not drawn: {said}."
    lines = [drawn[level.name] for level in brief.levels if level.name in drawn]
    sentences = [not_drawn[level.name] for level in brief.levels if level.name in not_drawn]
    return LevelsShown(levels_over_time(lines) if lines else None, brief.levels, brief.peak, sentences)


def level_line(level: Level, seed: int, recorded: Recorded, room: int) -> tuple[int, LevelLine]:
    """With how many requests it has. Raises ValueError with the reason where there is nothing to draw."""
    expected = level.expected_requests
    check_room(expected or 0, room)
    source = recorded.digest if expected is None else ""
    key = f"level-line-{digest_of([level.model_dump(mode='json'), seed, source])}"
    found: tuple[int, LevelLine] | None = cache.get(key)
    if found is None:
        found = drawn_line(level, seed, recorded, room)
        cache.set(key, found, KEPT_S)
    # A replay's number is known now; that it fits mustn't hang on whether it was kept.
    check_room(found[0] if expected is None else 0, room)
    return found


def check_room(requests: float, room: int) -> None:
    if requests > room:
        raise ValueError(
            f"it plans about {requests:,.0f} requests, and a page draws at most {MOST_DRAWN:,} of all its levels"
        )


def drawn_line(level: Level, seed: int, recorded: Recorded, room: int) -> tuple[int, LevelLine]:
    times: Sequence[int] = ()
    if level.arrival.process == "replay":
        times = recorded.window(level, seed)
        check_room(len(times), room)
    planned = level_times_ns(level, seed=seed, recorded_ns=times)
    line = line_of(
        level.name,
        process_words(level.arrival),
        [time / NANOSECONDS - level.warm_up_s for time in planned],
        warm_up_s=level.warm_up_s,
        duration_s=level.duration_s,
    )
    return len(planned), line


class Recorded:
    """When the requests of a tuning part arrived; read once, and only where it is asked for."""

    def __init__(self, part: TrafficPart | None) -> None:
        self._part = part

    @property
    def digest(self) -> str:
        """Of the rows and of the time that they were cut from: a replay stays within a stretch."""
        return digest_of([self._part.digest, self._part.stretches]) if self._part else ""

    @cached_property
    def _times_ns(self) -> list[int]:
        if self._part is None:
            raise ValueError("the traffic set that it replays is not here")
        if self._part.rows > MOST_REPLAYED:
            raise ValueError(f"it replays a part of {self._part.rows:,} requests, more than a page can read")
        try:
            return times_of(self._part)
        except EvidenceUnreachable as error:
            raise ValueError(f"the rows that it replays can't be read: {error}") from None
        except (EvidenceMissing, EvidenceDamaged):
            raise ValueError("the rows that it replays are not here any more") from None

    def window(self, level: Level, seed: int) -> Sequence[int]:
        """The first window of the part that the level can take, as the plan would choose it."""
        times, part = self._times_ns, self._part
        unbroken = unbroken_rows(times, part.stretches if part else None)
        taken = next_rows(times, level, unbroken, 0, seed=seed)
        if taken is None:
            raise ValueError("no unbroken stretch of the tuning part is as long as its window")
        return times[taken.start : taken.stop]


def times_of(part: TrafficPart) -> list[int]:
    index = index_of(part)
    times: list[int] = (index or read_columns(small_file(part))).arrivals_ns.tolist()
    return times


def small_file(part: TrafficPart) -> Path:
    """The rows of a part that was stored before there were indexes."""
    store = evidence_store()
    if store.size(part.digest) > MOST_BYTES_READ:
        raise ValueError(f"it replays a part of {part.rows:,} requests, more than a page can read")
    return store.file(part.digest)
