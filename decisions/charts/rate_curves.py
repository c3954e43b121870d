"""SLO goodput against the rate that was asked for, a curve for each configuration, and the rate at which they cross."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import (
    GREY,
    LEGEND_ABOVE,
    LINE,
    UNDER_LEGEND,
    Chart,
    Table,
    axis,
    document,
    layout,
    percent,
    series_look,
)

# More curves than that can't be told apart; the table has all of them.
MOST_CURVES = 5


class Point(NamedTuple):
    """At a load level of ``rate`` planned requests per second: how many per second were within deadline, over ``boots``
    boots; ``low`` and ``high`` are the lowest and highest boot's. ``one``: what a single request in a trial's window
    comes to, in requests per second."""

    level: str
    rate: float
    goodput: float
    low: float
    high: float
    boots: int
    one: float


class Curve(NamedTuple):
    """``points`` from the lowest rate up."""

    name: str
    points: Sequence[Point]


class Crossover(NamedTuple):
    """Above ``rate`` the ``above`` carries more; it was found between two tested rates."""

    rate: float
    between: tuple[float, float]
    above: str


def goodput_over_rate(reference: Curve, curves: Sequence[Curve]) -> Chart:
    """``reference`` is no speculation; ``curves`` come in the order in which they matter, the first of them drawn."""
    drawn = [reference, *curves[:MOST_CURVES]]
    most = max((point.rate for curve in drawn for point in curve.points), default=1.0)
    settings = layout(
        height=400,
        x=axis("planned requests/s", range=[0, 1.08 * most], nticks=6),
        y=axis("within deadline, requests/s", rangemode="tozero", nticks=6),
        margin=UNDER_LEGEND,
        legend=LEGEND_ABOVE,
    )
    traces = [everything(most), *(line(curve, place) for place, curve in enumerate(drawn))]
    return Chart(document(traces, settings), caption(reference, curves), table([reference, *curves]))


def everything(most: float) -> Any:
    return go.Scatter(
        x=[0, most],
        y=[0, most],
        mode="lines",
        showlegend=False,
        line={"color": LINE, "width": 1.5, "dash": "dot"},
        hoverinfo="skip",
    )


def line(curve: Curve, place: int) -> Any:
    """The reference is grey; bars at a point reach from its lowest boot to its highest."""
    colour, dash, symbol = (GREY, "6px,2px", "circle-open") if place == 0 else series_look(place - 1)
    points = curve.points
    return go.Scatter(
        x=[point.rate for point in points],
        y=[point.goodput for point in points],
        name=curve.name,
        mode="lines+markers",
        line={"color": colour, "width": 2.5, "dash": dash},
        marker={"color": colour, "size": 9, "symbol": symbol},
        error_y={
            "type": "data",
            "array": [round(point.high - point.goodput, 6) for point in points],
            "arrayminus": [round(point.goodput - point.low, 6) for point in points],
            "color": colour,
            "thickness": 1,
            "width": 3,
        },
        text=[f"{point.level}: {point.goodput:.3g} of {point.rate:.3g} requests/s" for point in points],
        hovertemplate="%{text}<extra>" + curve.name + "</extra>",
    )


def crossovers(reference: Curve, curve: Curve) -> list[Crossover]:
    """Where the sign of curve − reference turns, over the levels at which both were measured, by a straight line
    between the two tested rates around it. Less than one request apart is the same, and turns nothing."""
    told = [(rate, gap) for rate, gap, same in gaps(reference, curve) if not same]
    found = []
    for (low, before), (high, after) in pairwise(told):
        if before * after < 0:
            rate = low + (high - low) * before / (before - after)
            found.append(Crossover(rate, (low, high), curve.name if after > 0 else reference.name))
    return found


def gaps(reference: Curve, curve: Curve) -> list[tuple[float, float, bool]]:
    """(rate, curve − reference, whether that is less than one request) by rising rate."""
    theirs = {point.level: point for point in reference.points}
    shared = [(point, theirs[point.level]) for point in curve.points if point.level in theirs]
    found = [(one.rate, one.goodput - other.goodput, max(one.one, other.one)) for one, other in shared]
    return sorted((rate, gap, abs(gap) < 0.999 * single) for rate, gap, single in found)


def caption(reference: Curve, curves: Sequence[Curve]) -> str:
    measured = [curve for curve in curves if curve.points]
    if not reference.points:
        return "No boot without speculation has been measured, so nothing can cross it."
    if not measured:
        return "No candidate has been measured yet."
    said: dict[str, list[str]] = {}
    for curve in measured:
        said.setdefault(crossing(reference, curve), []).append(curve.name)
    return " ".join(f"{names(of)}: {words}." for words, of in said.items())


def names(of: Sequence[str]) -> str:
    return of[0] if len(of) == 1 else f"{', '.join(of[:-1])} and {of[-1]}"


def crossing(reference: Curve, curve: Curve) -> str:
    """What is to be said of a curve, the same words for curves of which the same holds."""
    found = gaps(reference, curve)
    if len(found) < 2:
        return "only one rate was measured beside no speculation, so no crossover can be seen"
    turns = crossovers(reference, curve)
    if turns:
        return ", ".join(turn(one, reference) for one in turns)
    tested = f"no crossover in the tested range ({found[0][0]:.3g} to {found[-1][0]:.3g} requests/s)"
    told = [gap for _, gap, same in found if not same]
    if not told:
        return f"{tested}, the same as no speculation but for less than a request a trial"
    return f"{tested}, never {'less' if told[0] > 0 else 'more'} than no speculation"


def turn(one: Crossover, reference: Curve) -> str:
    who = "no speculation" if one.above == reference.name else "it"
    return f"above {one.rate:.2g} requests/s {who} carries more (tested: {one.between[0]:.3g} and {one.between[1]:.3g})"


def table(curves: Sequence[Curve]) -> Table:
    rows = tuple(row(curve, point) for curve in curves for point in curve.points)
    headers = ("configuration", "level", "planned", "within deadline", "of planned", "boots", "lowest to highest boot")
    return Table(headers, rows)


def row(curve: Curve, point: Point) -> tuple[str, ...]:
    return (
        curve.name,
        point.level,
        f"{point.rate:.3g} requests/s",
        f"{point.goodput:.3g} requests/s",
        percent(point.goodput / point.rate),
        str(point.boots),
        f"{point.low:.3g} to {point.high:.3g} requests/s" if point.boots > 1 else "–",
    )
