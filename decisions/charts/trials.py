"""Each trial by itself: its own figure with an interval within it, for display alone."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import plotly.graph_objects as go

from decisions.charts.attainment import bars, shown_range_of
from decisions.charts.figure import (
    ACCENT,
    BASELINE,
    CANDIDATE,
    GREY,
    Chart,
    Interval,
    Table,
    axis,
    document,
    layout,
    percent,
    seconds,
)
from decisions.charts.pairs import MOST_PLOT, labelled, shown_range

OwnMeasure = Literal["attainment", "completion_p50", "completion_p99"]
TITLES: dict[OwnMeasure, str] = {
    "attainment": "within deadline, % of planned",
    "completion_p50": "completion p50, s",
    "completion_p99": "completion p99, s",
}
APART = 0.16
ROW = 34
COLOURS = {BASELINE: (GREY, "diamond", -APART), CANDIDATE: (ACCENT, "circle", APART)}


def trials_by_themselves(level: str, rows: Sequence[Mapping[str, Any]], measure: OwnMeasure) -> Chart:
    """``rows`` are a verdict's own rows of the level's trials, each with its interval within the trial."""
    pairs = sorted({row["pair"] for row in rows})
    ticks = labelled([f"pair {pair + 1}" for pair in pairs])
    found = {arm: measured(rows, arm, measure) for arm in COLOURS}
    settings = layout(
        height=130 + min(ROW * len(pairs), MOST_PLOT),
        x=axis(TITLES[measure], range=span_of([one for arm in found.values() for _, one in arm], measure), nticks=5),
        y=axis(
            tickvals=[place for place, _ in ticks],
            ticktext=[name for _, name in ticks],
            range=[len(pairs) - 0.5, -0.5],
            showgrid=False,
        ),
    )
    traces = [dots(arm_rows, pairs, arm, measure) for arm, arm_rows in found.items()]
    return Chart(document(traces, settings), caption(level, rows), table(rows))


def measured(
    rows: Sequence[Mapping[str, Any]], arm: str, measure: OwnMeasure
) -> list[tuple[Mapping[str, Any], Interval]]:
    found = [(row, interval_of(row, measure)) for row in rows if row["arm"] == arm]
    return [(row, one) for row, one in found if one is not None]


def interval_of(row: Mapping[str, Any], measure: OwnMeasure) -> Interval | None:
    """None where the trial has no such figure: nothing with a deadline, or requests that never completed."""
    unit = "" if measure == "attainment" else "_s"
    value, bounds = row[measure + unit], row[f"{measure}_interval{unit}"]
    return None if value is None else Interval(value, *(bounds or (None, None)))


def span_of(found: Sequence[Interval], measure: OwnMeasure) -> list[float]:
    if measure == "attainment":
        return shown_range_of(found)
    return list(shown_range([bound for one in found for bound in one if bound is not None] or [0.0]))


def dots(
    found: Sequence[tuple[Mapping[str, Any], Interval]], pairs: Sequence[int], arm: str, measure: OwnMeasure
) -> Any:
    colour, symbol, offset = COLOURS[arm]
    factor, word = (100.0, percent) if measure == "attainment" else (1.0, seconds)
    return go.Scatter(
        x=[factor * one.value for _, one in found],
        y=[pairs.index(row["pair"]) + offset for row, _ in found],
        name=arm,
        mode="markers",
        marker={"color": colour, "size": 9, "symbol": symbol},
        error_x=bars([one for _, one in found], colour, factor),
        text=[with_interval(one.value, (one.low, one.high), word) for _, one in found],
        hovertemplate="%{text}<extra>" + arm + "</extra>",
    )


def caption(level: str, rows: Sequence[Mapping[str, Any]]) -> str:
    words = next((row["intervals_are"] for row in rows), "")
    return f"Each trial at {level} by itself. For display, never judged. The intervals: {words}."


def with_interval(value: float | None, interval: Sequence[float | None] | None, word: Any) -> str:
    if value is None:
        return "never" if word is seconds else "–"
    if interval is None or all(bound is None for bound in interval):
        return str(word(value))
    low, high = ("…" if bound is None else word(bound) for bound in interval)
    return f"{word(value)} ({low} to {high})"


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    headers = ("pair", "arm", "within deadline", "completion p50", "completion p99", "SLO goodput", "preemptions")
    ordered = sorted(rows, key=lambda row: (row["pair"], row["arm"]))
    return Table(headers, tuple(table_row(row) for row in ordered))


def table_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    goodput, preemptions = row["slo_goodput_per_s"], row["preemptions"]
    return (
        f"pair {row['pair'] + 1}",
        str(row["arm"]),
        with_interval(row["attainment"], row["attainment_interval"], percent),
        with_interval(row["completion_p50_s"], row["completion_p50_interval_s"], seconds),
        with_interval(row["completion_p99_s"], row["completion_p99_interval_s"], seconds),
        "–" if goodput is None else f"{goodput:.3g} requests/s",
        "–" if preemptions is None else f"{preemptions:,}",
    )
