"""How long prompts, answers and pauses are: one histogram, or that of tuning over that of held-out."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, Chart, Table, axis, document, layout, legend, percent
from decisions.charts.parts import HELD_OUT, TUNING, look_of

HEIGHT = 230
MOST_TICKS = 6


class Histogram(NamedTuple):
    """``counts[n]`` values lie in [edges[n], edges[n + 1])."""

    edges: Sequence[float]
    counts: Sequence[int]

    @property
    def total(self) -> int:
        return sum(self.counts)


class Spread(NamedTuple):
    p50: float
    p90: float
    max: float


class Measure(NamedTuple):
    """``name`` as in "prompt length"; ``unit`` as in "tokens"."""

    name: str
    unit: str


def length_histogram(measure: Measure, histogram: Histogram, spread: Spread) -> Chart:
    """Bins of growing width, drawn equally wide: the axis is logarithmic."""
    settings = layout(
        height=HEIGHT,
        x=bin_axis(measure, histogram.edges),
        y=axis("requests", rangemode="tozero", nticks=4, tickformat="~s"),
        margin={"l": 8, "r": 8, "t": 12, "b": 44},
        showlegend=False,
    )
    trace = go.Bar(
        x=list(range(len(histogram.counts))),
        y=list(histogram.counts),
        offset=0.03,
        width=0.94,
        marker={"color": ACCENT, "line": {"width": 0}},
        text=spans(histogram.edges),
        textposition="none",
        hovertemplate="%{y:,} requests of %{text} " + measure.unit + "<extra></extra>",
    )
    return Chart(document([trace], settings), spread_words(measure, spread), counts_table(measure, histogram))


def both_sides(measure: Measure, *, tuning: Histogram, held_out: Histogram, verdict: str = "") -> Chart:
    """The shares of both parts as steps over the same bins; ``verdict`` ends the sentence."""
    edges = common_edges(tuning.edges, held_out.edges)
    shares = {TUNING: shares_on(edges, tuning), HELD_OUT: shares_on(edges, held_out)}
    settings = layout(
        height=HEIGHT + 40,
        x=bin_axis(measure, edges),
        y=axis("of the part's requests", rangemode="tozero", nticks=4, tickformat=".0%"),
        legend=legend(HEIGHT + 40) | {"traceorder": "reversed"},
    )
    # Tuning is drawn last: its dashes still show where both run on one line.
    traces = [steps(part, shares[part], spans(edges)) for part in (HELD_OUT, TUNING)]
    words = f"{measure.name.capitalize()} of tuning and held-out requests{f': {verdict}' if verdict else ''}."
    return Chart(document(traces, settings), words, shares_table(measure, edges, shares))


def bin_axis(measure: Measure, edges: Sequence[float]) -> dict[str, Any]:
    ticks = list(range(0, len(edges), -(-len(edges) // MOST_TICKS)))
    named = {"tickvals": ticks, "ticktext": [short(edges[place]) for place in ticks]}
    # plotly stumbles over a lone bin that is named at both of its edges.
    lone = {"tickvals": [0.5], "ticktext": spans(edges)}
    return axis(
        measure.unit,
        range=[0, max(1, len(edges) - 1)],
        **(named if len(edges) > 2 else lone),
        showgrid=False,
        ticks="outside",
    )


def short(value: float) -> str:
    """1,200 or 0.05; from ten thousand on in thousands, so that six of them fit on a phone."""
    return f"{value / 1_000:.3g}k" if value >= 10_000 else f"{value:,.4g}"


def spans(edges: Sequence[float]) -> list[str]:
    return [span(low, high) for low, high in pairwise(edges)]


def span(low: float, high: float) -> str:
    """Whole numbers count up to the one before the next bin; others lie below it."""
    if isinstance(low, int) and isinstance(high, int):
        return f"{low:,}" if high - low <= 1 else f"{low:,} to {high - 1:,}"
    return f"{low:,.3g} to {high:,.3g}"


def common_edges(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return sorted({*left, *right})


def shares_on(edges: Sequence[float], histogram: Histogram) -> list[float]:
    """A bin that the other part has finer is spread evenly over its pieces."""
    shares = [0.0] * max(0, len(edges) - 1)
    for (low, high), count in zip(pairwise(histogram.edges), histogram.counts, strict=True):
        pieces = [place for place, edge in enumerate(edges[:-1]) if low <= edge < high]
        for place in pieces:
            shares[place] += count / max(1, histogram.total) / len(pieces)
    return shares


def steps(part: str, shares: Sequence[float], names: Sequence[str]) -> Any:
    look = look_of(part)
    return go.Scatter(
        x=list(range(len(shares) + 1)),
        y=[round(share, 6) for share in [*shares, *shares[-1:]]],
        name=part,
        mode="lines",
        line={"shape": "hv", "color": look.colour, "width": 2.5, "dash": look.dash},
        text=[*names, ""],
        hovertemplate="%{y:.1%} at %{text}<extra>" + part + "</extra>",
    )


def spread_words(measure: Measure, spread: Spread) -> str:
    return (
        f"{measure.name.capitalize()}: half of the requests at most {spread.p50:,.6g} {measure.unit}, "
        f"nine in ten at most {spread.p90:,.6g}, the longest {spread.max:,.6g}."
    )


def counts_table(measure: Measure, histogram: Histogram) -> Table:
    total = max(1, histogram.total)
    rows = zip(spans(histogram.edges), histogram.counts, strict=True)
    return Table(
        (measure.unit, "requests", "share"), tuple((name, f"{count:,}", percent(count / total)) for name, count in rows)
    )


def shares_table(measure: Measure, edges: Sequence[float], shares: dict[str, list[float]]) -> Table:
    rows = zip(spans(edges), *shares.values(), strict=True)
    return Table((measure.unit, *shares), tuple((name, *map(percent, both)) for name, *both in rows))
