"""Pictures of a traffic set and of the load levels of a brief, from what is stored. Of the rows, the times of the
tuning part alone are read, where a level replays them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.conf import settings

from decisions.charts.arrivals import Busiest, Lane, arrivals_over_time
from decisions.charts.classes import classes_of_both_sides
from decisions.charts.figure import Chart
from decisions.charts.lengths import Histogram, Measure, Spread, both_sides, length_histogram
from decisions.charts.levels import LevelLine, levels_over_time, line_of
from decisions.rules.brief import Brief
from decisions.rules.wording import process_words
from loadtests.evidence.store import EvidenceStore
from loadtests.models import TrafficPart
from loadtests.traffic.columns import read_columns
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import level_times_ns, next_rows, segment_seeds, unbroken_rows
from loadtests.traffic.rows import NANOSECONDS

# A page draws a level in a moment; beyond this many requests it says how many they are instead.
MOST_DRAWN = 200_000
MOST_BYTES_READ = 64 << 20
SMALLEST_P = 0.0001


@dataclass(frozen=True)
class MeasureShown:
    name: str
    test: str
    distance: str
    p: str
    differs: bool


@dataclass(frozen=True)
class NamedChart:
    heading: str
    chart: Chart


@dataclass(frozen=True)
class Sides:
    """Tuning and held-out beside each other: one picture and one test per measure."""

    measures: list[MeasureShown]
    charts: list[NamedChart]
    resembles: bool
    warning: str


@dataclass(frozen=True)
class LevelsShown:
    chart: Chart | None
    levels: Sequence[Level]
    peak: str
    not_drawn: list[str]


def arrivals_chart(statistics: Mapping[str, Any], parts: Sequence[TrafficPart] = ()) -> Chart | None:
    counts = statistics.get("arrivals")
    if not counts or not statistics.get("timed", True):
        return None
    busiest = statistics.get("busiest_second")
    return arrivals_over_time(
        counts,
        bucket_s=statistics["bucket_s"],
        lanes=[lane_of(part) for part in parts if part.stretches],
        busiest=Busiest(busiest["at_s"], busiest["count"]) if busiest else None,
    )


def lane_of(part: TrafficPart) -> Lane:
    return Lane(part.kind, [(start / NANOSECONDS, end / NANOSECONDS) for start, end in part.stretches])


def own_seconds(part: TrafficPart) -> float:
    return float(sum(end - start for start, end in part.stretches)) / NANOSECONDS


def length_charts(statistics: Mapping[str, Any]) -> list[NamedChart]:
    return [
        NamedChart(measure.name.capitalize(), length_histogram(measure, histogram_of(found), spread_of(found)))
        for measure, found in measured_lengths(statistics)
        if histogram_of(found).counts
    ]


def measured_lengths(statistics: Mapping[str, Any]) -> list[tuple[Measure, Mapping[str, Any]]]:
    prompt, limit = statistics.get("prompt"), statistics.get("max_tokens", {})
    found = [(Measure("prompt length", prompt["unit"]), prompt)] if prompt else []
    return [*found, (Measure("output limit", "tokens"), limit)] if "histogram" in limit else found


def histogram_of(found: Mapping[str, Any]) -> Histogram:
    return Histogram(found["histogram"]["edges"], found["histogram"]["counts"])


def spread_of(found: Mapping[str, Any]) -> Spread:
    return Spread(found["p50"], found["p90"], found["max"])


def sides(comparison: Mapping[str, Any], tuning: Mapping[str, Any], held_out: Mapping[str, Any]) -> Sides:
    """``tuning`` and ``held_out`` are the statistics of the two parts."""
    measures = [measure_shown(one) for one in comparison.get("measures", ())]
    return Sides(
        measures,
        side_charts(tuning, held_out, {one.name: verdict(one) for one in measures}),
        comparison.get("resembles", True),
        comparison.get("warning", ""),
    )


def measure_shown(one: Mapping[str, Any]) -> MeasureShown:
    p = "< 0.0001" if one["p"] < SMALLEST_P else f"{one['p']:.2g}"
    return MeasureShown(one["name"], one["test"], f"{one['distance']:.3f}", p, one["differs"])


def verdict(one: MeasureShown) -> str:
    equals = "" if one.p.startswith("<") else "= "
    found = "they differ" if one.differs else "they are alike"
    return f"{found} ({one.test}, distance {one.distance}, p {equals}{one.p})"


def side_charts(
    tuning: Mapping[str, Any], held_out: Mapping[str, Any], verdicts: Mapping[str, str]
) -> list[NamedChart]:
    charts = []
    for (measure, left), (_, right) in zip(compared(tuning), compared(held_out), strict=True):
        if left and right:
            words = verdicts.get(measure.name, "")
            pair = both_sides(measure, tuning=histogram_of(left), held_out=histogram_of(right), verdict=words)
            charts.append(NamedChart(measure.name.capitalize(), pair))
    if len({*tuning["classes"], *held_out["classes"]}) < 2:
        return charts
    words = verdicts.get("class", "")
    classes = classes_of_both_sides(tuning=tuning["classes"], held_out=held_out["classes"], verdict=words)
    return [*charts, NamedChart("Class", classes)]


def compared(statistics: Mapping[str, Any]) -> list[tuple[Measure, Mapping[str, Any] | None]]:
    prompt = statistics.get("prompt") or {}
    named = (
        (Measure("prompt length", prompt.get("unit", "")), prompt),
        (Measure("output limit", "tokens"), statistics.get("max_tokens") or {}),
        (Measure("inter-arrival time", "seconds"), statistics.get("gaps_s") or {}),
    )
    return [(measure, found if found.get("histogram", {}).get("counts") else None) for measure, found in named]


def levels_shown(brief: Brief, tuning: TrafficPart | None) -> LevelsShown:
    """The first pair's planned arrivals at every level; a replay as it would begin in the tuning part."""
    seeds = segment_seeds(brief.levels, pairs=1, seed=brief.rule.seed)
    recorded = Recorded(tuning)
    lines: list[LevelLine] = []
    not_drawn = []
    for level in brief.levels:
        try:
            lines.append(level_line(level, seeds[0, level.name], recorded))
        except ValueError as error:
            not_drawn.append(f"{level.name} is not drawn: {str(error).removeprefix(f'level {level.name}: ')}.")
    return LevelsShown(levels_over_time(lines) if lines else None, brief.levels, brief.peak, not_drawn)


def level_line(level: Level, seed: int, recorded: Recorded) -> LevelLine:
    """Raises ValueError with the reason where there is nothing to draw."""
    times: Sequence[int] = ()
    if level.arrival.process == "replay":
        times = recorded.window(level, seed)
    elif (level.expected_requests or 0) > MOST_DRAWN:
        raise ValueError(f"it plans about {level.expected_requests:,.0f} requests, more than a page can draw")
    planned = level_times_ns(level, seed=seed, recorded_ns=times)
    return line_of(
        level.name,
        process_words(level.arrival),
        [time / NANOSECONDS - level.warm_up_s for time in planned],
        warm_up_s=level.warm_up_s,
        duration_s=level.duration_s,
    )


class Recorded:
    """When the requests of a tuning part arrived; read once, and only where it is asked for."""

    def __init__(self, part: TrafficPart | None) -> None:
        self._part = part

    @cached_property
    def _times_ns(self) -> list[int]:
        part = self._part
        if part is None:
            raise ValueError("the traffic set that it replays is not here")
        path = EvidenceStore(settings.EVIDENCE_DIR).path(part.digest)
        if not path.is_file():
            raise ValueError("the rows that it replays are not here any more")
        if path.stat().st_size > MOST_BYTES_READ:
            raise ValueError(f"it replays a part of {part.rows:,} requests, more than a page can read")
        times: list[int] = read_columns(path).arrivals_ns.tolist()
        return times

    def window(self, level: Level, seed: int) -> Sequence[int]:
        """The first window of the part that the level can take, as the plan would choose it."""
        times, part = self._times_ns, self._part
        unbroken = unbroken_rows(times, part.stretches if part else None)
        taken = next_rows(times, level, unbroken, 0, seed=seed)
        if taken is None:
            raise ValueError("no unbroken stretch of the tuning part is as long as its window")
        return times[taken.start : taken.stop]
