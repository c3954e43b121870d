"""Which kinds of request the parts hold, side by side."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from decisions.charts.figure import Chart, Table, axis, document, layout, percent
from decisions.charts.parts import HELD_OUT, TUNING, look_of

MOST_CLASSES = 12
OTHERS = "all others"

Counts = Mapping[str, int]


def classes_of_both_sides(*, tuning: Counts, held_out: Counts, verdict: str = "") -> Chart:
    """Requests per class of either part, shown as shares of the part; rare classes beyond twelve are one bar."""
    names = most_frequent(tuning, held_out)
    shares = {TUNING: shares_of(tuning, names), HELD_OUT: shares_of(held_out, names)}
    settings = layout(
        height=130 + 42 * len(names),
        x=axis("of the part's requests", rangemode="tozero", tickformat=".0%", nticks=5),
        y=axis(type="category", autorange="reversed", showgrid=False, tickfont={"size": 13}),
        barmode="group",
        bargap=0.3,
    )
    traces = [bars(part, names, share) for part, share in shares.items()]
    words = f"Classes of tuning and held-out requests{f': {verdict}' if verdict else ''}."
    return Chart(document(traces, settings), words, table(names, shares))


def most_frequent(tuning: Counts, held_out: Counts) -> list[str]:
    """By their share over both parts, so that the larger part doesn't decide alone."""
    totals = [(part, total(part)) for part in (tuning, held_out)]
    every = {name: sum(part.get(name, 0) / of for part, of in totals) for name in {*tuning, *held_out}}
    ordered = sorted(every, key=lambda name: (-every[name], name))
    return ordered if len(ordered) <= MOST_CLASSES else [*ordered[: MOST_CLASSES - 1], OTHERS]


def total(counts: Counts) -> int:
    return max(1, sum(counts.values()))


def shares_of(counts: Counts, names: list[str]) -> list[float]:
    of = total(counts)
    shares = [counts.get(name, 0) / of for name in names]
    if names[-1:] == [OTHERS] and OTHERS not in counts:
        shares[-1] = max(0.0, 1 - sum(shares)) if counts else 0.0
    return shares


def bars(part: str, names: list[str], shares: list[float]) -> Any:
    look = look_of(part)
    return go.Bar(
        orientation="h",
        y=names,
        x=[round(share, 6) for share in shares],
        name=part,
        marker={"color": look.colour, "line": {"width": 0}, "pattern": {"shape": look.pattern, "size": 6}},
        hovertemplate="%{x:.1%} of %{y}<extra>" + part + "</extra>",
    )


def table(names: list[str], shares: dict[str, list[float]]) -> Table:
    rows = zip(names, *shares.values(), strict=True)
    return Table(("class", *shares), tuple((name, *map(percent, both)) for name, *both in rows))
