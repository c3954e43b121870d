"""Pictures of a traffic set from what its import counted: no row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decisions.charts.arrivals import Busiest, Lane, arrivals_over_time
from decisions.charts.classes import classes_of_both_sides
from decisions.charts.figure import Chart
from decisions.charts.lengths import Histogram, Measure, Spread, both_sides, length_histogram
from loadtests.models import TrafficPart
from loadtests.statistics.resemblance import ALIKE, DIFFERS, MATERIAL, TOO_FEW
from loadtests.traffic.rows import NANOSECONDS

SMALLEST_P = 0.0001
VERDICTS = {ALIKE: "they are alike", DIFFERS: "they differ", TOO_FEW: "too few to tell whether they are alike"}


@dataclass(frozen=True)
class MeasureShown:
    name: str
    test: str
    distance: str
    p: str
    differs: bool
    found: str


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
        duration_s=statistics["duration_s"],
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
    return MeasureShown(one["name"], one["test"], f"{one['distance']:.3f}", p, one["differs"], found_of(one))


def found_of(one: Mapping[str, Any]) -> str:
    """An import from before blocks were compared didn't ask whether they were too few: a small distance is alike."""
    unsaid = DIFFERS if one["differs"] else ALIKE if one["distance"] <= MATERIAL else TOO_FEW
    return str(one.get("found", unsaid))


def verdict(one: MeasureShown) -> str:
    equals = "" if one.p.startswith("<") else "= "
    return f"{VERDICTS[one.found]} ({one.test}, distance {one.distance}, p {equals}{one.p})"


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
