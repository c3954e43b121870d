"""How many drafts survive, position by position: a line for each class of request."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import (
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

ALL = "all requests"
MOST_CLASSES = 5
QUARTERS = [0, 0.25, 0.5, 0.75, 1]


class Kept(NamedTuple):
    """``shares[i]``: of ``rounds`` drafting rounds those that kept at least i + 1 drafts."""

    shares: Sequence[float]
    rounds: int


def acceptance_by_position(name: str, whole: Kept, classes: Mapping[str, Kept]) -> Chart:
    """Of one configuration, over all its trials; ``classes`` where there are several. Empty ``shares``: not told."""
    several = dict(sorted(classes.items(), key=lambda one: -one[1].rounds)) if len(classes) > 1 else {}
    lines = {ALL: whole, **several}
    drawn = dict(list(lines.items())[: MOST_CLASSES + 1])
    longest = max((len(one.shares) for one in lines.values()), default=0)
    settings = layout(
        height=340,
        x=axis("drafted position", range=[0.7, max(1, longest) + 0.3], tickvals=positions(longest), showgrid=False),
        y=axis("kept, of drafting rounds", range=[0, 1.02], tickvals=QUARTERS, tickformat=".0%"),
        showlegend=len(lines) > 1,
        margin=UNDER_LEGEND,
        legend=LEGEND_ABOVE,
    )
    traces = [line(one, kept, place) for place, (one, kept) in enumerate(drawn.items()) if kept.shares]
    return Chart(document(traces, settings), caption(name, whole, several), table(lines, longest))


def positions(longest: int) -> list[int]:
    """Every one of few, and of many about eight."""
    step = max(1, -(-longest // 8))
    return list(range(1, longest + 1, step))


def line(name: str, kept: Kept, place: int) -> Any:
    look = series_look(place)
    return go.Scatter(
        x=list(range(1, len(kept.shares) + 1)),
        y=[round(share, 5) for share in kept.shares],
        name=name,
        mode="lines+markers",
        line={"color": look.colour, "width": 3 if place == 0 else 1.5, "dash": look.dash},
        marker={"color": look.colour, "symbol": look.symbol, "size": 7},
        hovertemplate="position %{x}: kept in %{y:.1%} of " + f"{kept.rounds:,} rounds<extra>{name}</extra>",
    )


def caption(name: str, whole: Kept, classes: Mapping[str, Kept]) -> str:
    if not whole.shares:
        return f"{name}: the engine did not tell what became of its drafts."
    first, last = percent(whole.shares[0], 0), percent(whole.shares[-1], 0)
    said = f"{name} keeps its first draft in {first} of drafting rounds"
    if len(whole.shares) > 1:
        said += f" and all {len(whole.shares)} in {last}"
    told = {one: kept.shares[0] for one, kept in classes.items() if kept.shares}
    if len(told) > 1:
        best, worst = max(told, key=told.__getitem__), min(told, key=told.__getitem__)
        said += f"; the first most often for {best} ({percent(told[best], 0)})"
        said += f", least for {worst} ({percent(told[worst], 0)})"
    return f"{said}."


def table(lines: Mapping[str, Kept], longest: int) -> Table:
    headers = ("class", "drafting rounds", *(f"position {place}" for place in range(1, longest + 1)))
    rows = tuple(
        (
            name,
            f"{kept.rounds:,}",
            *(percent(share) for share in kept.shares),
            *("–" for _ in range(longest - len(kept.shares))),
        )
        for name, kept in lines.items()
    )
    return Table(headers, rows)
