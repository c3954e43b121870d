"""What the cost model says of a round's time, beside what the round took."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import (
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
    signed,
)


class RoundTime(NamedTuple):
    """A trial's mean round in milliseconds, predicted by a fit to other boots; ``running``: mean sequences.
    ``drafter`` is what shares a mark."""

    name: str
    drafter: str
    level: str
    boot: str
    running: float
    measured_ms: float
    predicted_ms: float

    @property
    def error(self) -> float:
        return self.predicted_ms / self.measured_ms - 1


def predicted_round_times(trials: Sequence[RoundTime], *, median: float | None) -> Chart:
    """``median``: of the absolute relative errors, a share of 1; None without a trial."""
    drafters = list(dict.fromkeys(trial.drafter for trial in trials))
    most = 1.1 * max([1.0, *(time for one in trials for time in (one.measured_ms, one.predicted_ms))])
    settings = layout(
        height=400,
        x=axis("measured round, ms", range=[0, most], nticks=6),
        y=axis("predicted, ms", range=[0, most], nticks=6),
        margin=UNDER_LEGEND,
        legend=LEGEND_ABOVE,
    )
    groups = [marks(who, place, [one for one in trials if one.drafter == who]) for place, who in enumerate(drafters)]
    return Chart(document([equal(most), *groups], settings), caption(trials, median), table(trials))


def equal(most: float) -> Any:
    return go.Scatter(
        x=[0, most],
        y=[0, most],
        mode="lines",
        showlegend=False,
        line={"color": LINE, "width": 1.5, "dash": "dot"},
        hoverinfo="skip",
    )


def marks(name: str, place: int, trials: Sequence[RoundTime]) -> Any:
    look = series_look(place)
    return go.Scatter(
        x=[round(one.measured_ms, 4) for one in trials],
        y=[round(one.predicted_ms, 4) for one in trials],
        name=name,
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 9},
        text=[
            f"{one.name} at {one.level}: measured {milli(one.measured_ms)}, predicted {milli(one.predicted_ms)}"
            for one in trials
        ],
        hovertemplate="%{text}<extra>" + name + "</extra>",
    )


def caption(trials: Sequence[RoundTime], median: float | None) -> str:
    if not trials or median is None:
        return "No trial tells its round times, so nothing was predicted."
    worst = max(trials, key=lambda one: abs(one.error))
    return (
        f"Round time predicted from other boots alone is off by {percent(median)} in the median of {len(trials)} "
        f"{'trial' if len(trials) == 1 else 'trials'}, at most by {error(worst)} ({worst.name} at {worst.level})."
    )


def table(trials: Sequence[RoundTime]) -> Table:
    headers = ("configuration", "level", "boot", "running, mean", "measured", "predicted", "error")
    return Table(headers, tuple(row(one) for one in trials))


def row(one: RoundTime) -> tuple[str, ...]:
    times = milli(one.measured_ms), milli(one.predicted_ms)
    return one.name, one.level, one.boot, f"{one.running:.1f}", *times, error(one)


def milli(value: float) -> str:
    return f"{value:.3g} ms" if value < 1_000 else f"{value:,.0f} ms"


def error(one: RoundTime) -> str:
    return f"{signed(100 * one.error)} %"
