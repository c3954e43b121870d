"""A trial in every second: how many requests the engine ran and kept waiting, and how full its KV cache was."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, BAD, GREY, Chart, Table, axis, document, layout, percent

MOST_POINTS, MOST_ROWS = 1_200, 60
# Whole seconds, minutes and hours that a point or a row may stand for.
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400)
NONE = "–"

Value = float | None


@dataclass(frozen=True)
class Second:
    """None where the engine did not tell. ``generated`` counts output tokens from the engine's start."""

    running: Value
    waiting: Value
    kv_cache_use: Value
    in_flight: int
    generated: Value


@dataclass(frozen=True)
class Step:
    """The most of everything over some seconds, since a short crowd is what one looks for."""

    at_s: int
    running: Value
    waiting: Value
    kv_cache_use: Value
    in_flight: int
    tokens_per_s: Value


def engine_over_time(seconds: Sequence[Second]) -> Chart:
    """``seconds`` are those of the trial's clock, from 0 on, one after the other."""
    points = steps(seconds, MOST_POINTS)
    settings = layout(
        height=340,
        x=axis("seconds of the trial", showgrid=False, range=[0, max(1, len(seconds) - 1)], anchor="y2"),
        y=axis("requests", rangemode="tozero", nticks=5, domain=[0.42, 1]),
        yaxis2=axis("KV cache", rangemode="tozero", nticks=4, domain=[0, 0.28], tickformat=".0%"),
    )
    at = [one.at_s for one in points]
    traces = [
        line(at, [one.running for one in points], "running", ACCENT, "solid"),
        line(at, [one.waiting for one in points], "waiting", BAD, "dash"),
        line(at, [float(one.in_flight) for one in points], "open at the client", GREY, "dot"),
        line(at, [one.kv_cache_use for one in points], "KV cache in use", ACCENT, "solid", below=True),
    ]
    return Chart(document(traces, settings), caption(seconds), table(steps(seconds, MOST_ROWS)))


def line(at: Sequence[int], values: Sequence[Value], name: str, colour: str, dash: str, *, below: bool = False) -> Any:
    """A gap where a value is missing."""
    unit = "%{y:.1%} of the KV cache" if below else "%{y:.0f} " + name
    return go.Scatter(
        x=list(at),
        y=[None if value is None else round(value, 5) for value in values],
        name=name,
        yaxis="y2" if below else "y",
        showlegend=not below,
        mode="lines",
        connectgaps=False,
        line={"color": colour, "width": 2, "dash": dash, "shape": "hv"},
        hovertemplate=unit + " at %{x} s<extra></extra>",
    )


def steps(seconds: Sequence[Second], most: int) -> list[Step]:
    """At most about ``most`` of them, each over the same whole number of seconds."""
    width = next((one for one in STEPS_S if len(seconds) / one <= most), STEPS_S[-1])
    starts = range(0, len(seconds), width)
    return [step(start, seconds[start : start + width], seconds[start + width :][:1]) for start in starts]


def step(start: int, part: Sequence[Second], following: Sequence[Second]) -> Step:
    counts = [one.generated for one in [*part, *following]]
    tokens = None
    if len(counts) > 1 and counts[0] is not None and counts[-1] is not None:
        tokens = (counts[-1] - counts[0]) / (len(counts) - 1)
    return Step(
        start,
        largest([one.running for one in part]),
        largest([one.waiting for one in part]),
        largest([one.kv_cache_use for one in part]),
        max(one.in_flight for one in part),
        tokens,
    )


def largest(values: Sequence[Value]) -> Value:
    return max((value for value in values if value is not None), default=None)


def caption(seconds: Sequence[Second]) -> str:
    told = [one for one in seconds if one.running is not None]
    if not told:
        return "The engine told nothing of its state while this trial ran."
    busiest, queue = largest([one.running for one in seconds]), largest([one.waiting for one in seconds])
    fullest = largest([one.kv_cache_use for one in seconds])
    waited = sum((one.waiting or 0) > 0 for one in seconds)
    said = f"At most {busiest:.0f} requests ran at once"
    if queue is not None:
        said += f" and at most {queue:.0f} waited (in {waited:,} of {len(seconds):,} seconds anybody did)"
    if fullest is not None:
        said += f"; the KV cache was at most {percent(fullest)} full"
    missing = len(seconds) - len(told)
    return f"{said}." + (f" In {missing:,} seconds the engine did not tell." if missing else "")


def table(rows: Sequence[Step]) -> Table:
    width = rows[1].at_s - rows[0].at_s if len(rows) > 1 else 1
    headers = ("from", "running, at most", "waiting, at most", "open at the client", "KV cache", "output tokens/s")
    return Table(headers if width > 1 else ("at", *headers[1:]), tuple(row_of(one) for one in rows))


def row_of(one: Step) -> tuple[str, ...]:
    return (
        f"{one.at_s:,} s",
        shown(one.running),
        shown(one.waiting),
        f"{one.in_flight:,}",
        NONE if one.kv_cache_use is None else percent(one.kv_cache_use),
        shown(one.tokens_per_s),
    )


def shown(value: Value) -> str:
    return NONE if value is None else f"{value:,.0f}"
