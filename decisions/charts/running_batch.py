"""The engine's running batch, which a schedule goes by, against the rate and the concurrency that clients see."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import (
    GREY,
    LEGEND_ABOVE,
    UNDER_LEGEND,
    Chart,
    Table,
    axis,
    document,
    layout,
    percent,
    series_look,
)
from decisions.charts.rate_curves import MOST_CURVES


class Batch(NamedTuple):
    """Of one configuration at one level, over the seconds in which anything ran: sequences running on the mean and at
    the 95th percentile; requests open at the client on the mean, None where nobody counted; ``idle``: share of seconds
    with none running. The first's ``name`` is no speculation's."""

    name: str
    level: str
    rate: float
    mean: float
    p95: float
    in_flight: float | None
    idle: float


def running_batches(batches: Sequence[Batch]) -> Chart:
    """A line for each of the first configurations, from the lowest planned rate up; the bar reaches to the 95th
    percentile."""
    names = list(dict.fromkeys(one.name for one in batches))[: MOST_CURVES + 1]
    most = max((one.rate for one in batches), default=1.0)
    settings = layout(
        height=400,
        x=axis("planned requests/s", range=[0, 1.08 * most], nticks=6),
        y=axis("running sequences, mean", rangemode="tozero", nticks=6),
        margin=UNDER_LEGEND,
        legend=LEGEND_ABOVE,
    )
    traces = [line(place, sorted(of(batches, name), key=lambda one: one.rate)) for place, name in enumerate(names)]
    return Chart(document(traces, settings), caption(batches), table(batches))


def of(batches: Sequence[Batch], name: str) -> list[Batch]:
    return [one for one in batches if one.name == name]


def line(place: int, batches: Sequence[Batch]) -> Any:
    colour, dash, symbol = (GREY, "6px,2px", "circle-open") if place == 0 else series_look(place - 1)
    return go.Scatter(
        x=[one.rate for one in batches],
        y=[round(one.mean, 4) for one in batches],
        name=batches[0].name,
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": dash},
        marker={"color": colour, "size": 8, "symbol": symbol},
        error_y={
            "type": "data",
            "array": [round(max(0.0, one.p95 - one.mean), 4) for one in batches],
            "arrayminus": [0] * len(batches),
            "color": colour,
            "thickness": 1,
            "width": 3,
        },
        text=[f"{one.level}: {one.mean:.1f} running, {open_at_client(one)} open at the client" for one in batches],
        hovertemplate="%{text}<extra>" + batches[0].name + "</extra>",
    )


def caption(batches: Sequence[Batch]) -> str:
    if not batches:
        return "The engine did not tell how many sequences ran."
    few, many = (choose(batches, key=lambda one: one.mean) for choose in (min, max))
    return f"A schedule goes by the running batch, not by what clients have open: {said(few)}; {said(many)}."


def said(one: Batch) -> str:
    of = "" if one.in_flight is None else f" of {one.in_flight:.1f} open requests"
    return f"{one.mean:.1f}{of} run with {one.name} at {one.level} ({one.rate:.3g} requests/s)"


def open_at_client(one: Batch) -> str:
    return "–" if one.in_flight is None else f"{one.in_flight:.1f}"


def table(batches: Sequence[Batch]) -> Table:
    headers = ("configuration", "level", "planned", "running, mean", "running, p95", "open at the client, mean", "idle")
    rows = tuple(
        (
            one.name,
            one.level,
            f"{one.rate:.3g} requests/s",
            f"{one.mean:.1f}",
            f"{one.p95:.0f}",
            open_at_client(one),
            percent(one.idle),
        )
        for one in batches
    )
    return Table(headers, rows)
