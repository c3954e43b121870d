"""Attainment of both arms at every load level, with intervals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

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
    points,
)

APART = 0.14


class LevelAttainment(NamedTuple):
    """Both arms at one level, in shares of 1; ``level`` may also name a cell ("peak, chat")."""

    level: str
    baseline: Interval
    candidate: Interval


def attainment_by_level(rows: Sequence[LevelAttainment]) -> Chart:
    """A dot and its interval per level and arm; the levels in the order given."""
    settings = layout(
        height=120 + 56 * len(rows),
        x=axis("within deadline, % of planned", range=shown_range(rows), nticks=6),
        y=axis(
            tickvals=list(range(len(rows))),
            ticktext=[row.level for row in rows],
            range=[len(rows) - 0.5, -0.5],
            showgrid=False,
            tickfont={"size": 13},
        ),
    )
    traces = [
        dots([row.baseline for row in rows], BASELINE, GREY, "diamond", -APART),
        dots([row.candidate for row in rows], CANDIDATE, ACCENT, "circle", APART),
    ]
    return Chart(document(traces, settings), caption(rows), table(rows))


def shown_range(rows: Sequence[LevelAttainment]) -> list[float]:
    return shown_range_of([arm for row in rows for arm in (row.baseline, row.candidate)])


def shown_range_of(arms: Sequence[Interval]) -> list[float]:
    """From the lowest bound to just over 100 %: a dot on the edge must stay whole."""
    lowest = 100 * min((bound for arm in arms for bound in arm if bound is not None), default=0)
    return [max(-2.0, lowest - max(2.0, (100 - lowest) * 0.06)), 102]


def dots(arms: Sequence[Interval], name: str, colour: str, symbol: str, offset: float) -> Any:
    return go.Scatter(
        x=[100 * arm.value for arm in arms],
        y=[place + offset for place in range(len(arms))],
        name=name,
        mode="markers",
        marker={"color": colour, "size": 10, "symbol": symbol},
        error_x=bars(arms, colour),
        text=[described(arm) for arm in arms],
        hovertemplate="%{text}<extra>" + name + "</extra>",
    )


def bars(arms: Sequence[Interval], colour: str, scale: float = 100) -> dict[str, Any]:
    """Error bars reach from the value to its bounds; a missing bound draws nothing."""
    up = [0.0 if arm.high is None else scale * (arm.high - arm.value) for arm in arms]
    down = [0.0 if arm.low is None else scale * (arm.value - arm.low) for arm in arms]
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "color": colour,
        "thickness": 2,
        "width": 5,
    }


def described(arm: Interval) -> str:
    if arm.low is None and arm.high is None:
        return percent(arm.value)
    low = "…" if arm.low is None else percent(arm.low)
    high = "…" if arm.high is None else percent(arm.high)
    return f"{percent(arm.value)} ({low} to {high})"


def caption(rows: Sequence[LevelAttainment]) -> str:
    if not rows:
        return "No load level has been measured yet."
    each = [f"{row.level} {percent(row.baseline.value)} → {percent(row.candidate.value)}" for row in rows]
    return f"Requests within deadline, baseline → candidate: {'; '.join(each)}."


def table(rows: Sequence[LevelAttainment]) -> Table:
    headers = ("level", BASELINE, CANDIDATE, "difference")
    return Table(
        headers,
        tuple(
            (
                row.level,
                described(row.baseline),
                described(row.candidate),
                points(row.candidate.value - row.baseline.value),
            )
            for row in rows
        ),
    )
