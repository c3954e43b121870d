"""Every pair's result beside the interval over pairs and the limit it is held against."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import plotly.graph_objects as go

from decisions.charts.attainment import bars
from decisions.charts.figure import (
    ACCENT,
    BAD,
    GREY,
    SOFT,
    Chart,
    Interval,
    Table,
    anchor_at,
    axis,
    document,
    layout,
    percent,
    points,
    ratio,
    upright,
)

Scale = Literal["points", "ratio"]
WORDS: dict[Scale, Callable[[float], str]] = {"points": points, "ratio": ratio}
AXES: dict[Scale, str] = {"points": "candidate − baseline, points", "ratio": "candidate ÷ baseline"}


def pairs_forest(
    *,
    cell: str,
    metric: str,
    values: Sequence[float],
    interval: Interval,
    required: float,
    required_is: str,
    scale: Scale,
    confidence: float,
) -> Chart:
    """``values`` holds one number per pair: a difference of shares ("points"; 0.02 is 2 points) or a ratio
    candidate ÷ baseline. ``required_is`` names the limit ("minimum improvement"); ``confidence`` is the interval's
    own two-sided one."""
    factor = 100.0 if scale == "points" else 1.0
    neutral = 0.0 if scale == "points" else 1.0
    low, high = shown_range([*values, *(bound for bound in interval if bound is not None), required, neutral])
    share = (required - low) / (high - low)
    settings = layout(
        height=108 + 26 * (len(values) + 1),
        x=axis(AXES[scale], range=[factor * low, factor * high], nticks=6),
        y=axis(
            tickvals=list(range(len(values) + 1)),
            ticktext=[*(f"pair {number}" for number in range(1, len(values) + 1)), "all pairs"],
            range=[len(values) + 0.6, -0.6],
            showgrid=False,
        ),
        margin={"l": 8, "r": 16, "t": 28, "b": 44},
        showlegend=False,
        **lines(factor * required, f"{required_is} {WORDS[scale](required)}", factor * neutral, share),
    )
    traces = [pair_dots(values, scale, factor), interval_dot(interval, len(values), scale, factor)]
    words = caption(cell, metric, len(values), interval, required_is, required, scale, confidence)
    return Chart(document(traces, settings), words, table(values, interval, required, required_is, scale, confidence))


def shown_range(shown: Sequence[float]) -> tuple[float, float]:
    low, high = min(shown), max(shown)
    room = max((high - low) * 0.1, 0.005)
    return low - room, high + room


def lines(required: float, text: str, neutral: float, share: float) -> dict[str, Any]:
    """The limit, and a quiet line where both arms are equal."""
    marks = upright(required, text, colour=BAD, anchor=anchor_at(share))
    even = {"type": "line", "x0": neutral, "x1": neutral, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    return marks | {"shapes": [even | {"line": {"color": SOFT, "width": 1}}, *marks["shapes"]]}


def pair_dots(values: Sequence[float], scale: Scale, factor: float) -> Any:
    return go.Scatter(
        x=[factor * value for value in values],
        y=list(range(len(values))),
        mode="markers",
        marker={"color": GREY, "size": 9},
        text=[WORDS[scale](value) for value in values],
        hovertemplate="%{text}<extra></extra>",
    )


def interval_dot(interval: Interval, place: int, scale: Scale, factor: float) -> Any:
    return go.Scatter(
        x=[factor * interval.value],
        y=[place],
        mode="markers",
        marker={"color": ACCENT, "size": 12, "symbol": "diamond"},
        error_x=bars([interval], ACCENT, factor),
        text=[described(interval, scale)],
        hovertemplate="%{text}<extra></extra>",
    )


def described(interval: Interval, scale: Scale) -> str:
    word = WORDS[scale]
    low, high = (None if bound is None else word(bound) for bound in (interval.low, interval.high))
    if low is None and high is None:
        return f"{word(interval.value)}, no interval"
    return f"{word(interval.value)} ({low or '…'} to {high or '…'})"


def caption(
    cell: str,
    metric: str,
    pairs: int,
    interval: Interval,
    required_is: str,
    required: float,
    scale: Scale,
    confidence: float,
) -> str:
    return (
        f"At {cell}, {metric} over {pairs} pairs: {described(interval, scale)} at {percent(confidence, 0)} confidence; "
        f"{required_is} {WORDS[scale](required)}."
    )


def table(
    values: Sequence[float], interval: Interval, required: float, required_is: str, scale: Scale, confidence: float
) -> Table:
    word = WORDS[scale]
    pairs = [(f"pair {number}", word(value)) for number, value in enumerate(values, start=1)]
    over_all = (f"all pairs ({percent(confidence, 0)} interval)", described(interval, scale))
    return Table(("pair", AXES[scale]), (*pairs, over_all, (required_is, word(required))))
