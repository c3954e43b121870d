"""What numbers of pairs can show: the smallest effect against the number of pairs."""

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, BAD, INK, Chart, Table, anchor_at, axis, document, layout

# Above this the curve's first points would press everything else against the floor.
MOST_TIMES_ASKED = 6


def effect_words(scale: str) -> Callable[[float], str]:
    unit = "points" if scale == "difference" else "%"
    return lambda effect: f"{100 * effect:.3g} {unit}"


def smallest_effects(
    *,
    cell: str,
    curve: Sequence[tuple[int, float]],
    planned: tuple[int, float],
    asked: float,
    needed: int | None,
    scale: str,
) -> Chart:
    """``curve`` holds (pairs, smallest effect) in shares of 1, ``planned`` the brief's own place on it; ``asked`` is
    what must be shown, ``needed`` the pairs that it takes."""
    word = effect_words(scale)
    top = max(asked, min(max(effect for _, effect in curve), MOST_TIMES_ASKED * max(asked, planned[1])))
    end = curve[-1][0]
    level = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": 100 * asked, "y1": 100 * asked}
    words = {"text": f"asked for: {word(asked)}", "x": 1, "xref": "paper", "y": 100 * asked, "xanchor": "right"}
    settings = layout(
        height=260,
        x=axis("pairs", range=[2, end + max(1, end * 0.04)], nticks=8),
        y=axis("points" if scale == "difference" else "%", range=[0, 112 * top], nticks=6),
        margin={"l": 8, "r": 16, "t": 16, "b": 44},
        showlegend=False,
        shapes=[level | {"line": {"color": BAD, "width": 1.5, "dash": "dash"}}],
        annotations=[
            words | {"yanchor": "bottom", "showarrow": False, "font": {"color": BAD, "size": 12}},
            here(planned, f"planned: {planned[0]} pairs", end),
        ],
    )
    places = [planned] if needed is None or needed > end else [planned, (needed, effect_at(curve, needed))]
    traces = [drawn(curve, word), dot(places, word)]
    said = caption(cell, curve, planned, asked, needed, word)
    return Chart(document(traces, settings), said, table(curve, planned, asked, needed, word))


def effect_at(curve: Sequence[tuple[int, float]], pairs: int) -> float:
    return dict(curve)[pairs]


def caption(
    cell: str,
    curve: Sequence[tuple[int, float]],
    planned: tuple[int, float],
    asked: float,
    needed: int | None,
    word: Callable[[float], str],
) -> str:
    ends = [f"{word(effect)} by {pairs}" for pairs, effect in (curve[0], curve[-1]) if pairs != planned[0]]
    each = ", ".join([f"{word(planned[1])} by the {planned[0]} pairs planned", *ends])
    takes = "more than 10,000 pairs" if needed is None else f"{needed:,} pairs"
    return f"The smallest improvement that can be shown at {cell}: {each}; {word(asked)} takes {takes}."


def here(place: tuple[int, float], text: str, end: int) -> dict[str, Any]:
    pairs, effect = place
    words = {"text": text, "x": pairs, "y": 100 * effect, "yshift": 10, "yanchor": "bottom", "showarrow": False}
    return words | {"xanchor": anchor_at(pairs / end), "font": {"color": INK, "size": 12}}


def drawn(curve: Sequence[tuple[int, float]], word: Callable[[float], str]) -> Any:
    return go.Scatter(
        x=[pairs for pairs, _ in curve],
        y=[round(100 * effect, 5) for _, effect in curve],
        mode="lines",
        line={"color": ACCENT, "width": 2},
        text=[f"{pairs} pairs: {word(effect)}" for pairs, effect in curve],
        hovertemplate="%{text}<extra></extra>",
    )


def dot(places: Sequence[tuple[int, float]], word: Callable[[float], str]) -> Any:
    return go.Scatter(
        x=[pairs for pairs, _ in places],
        y=[100 * effect for _, effect in places],
        mode="markers",
        marker={"color": ACCENT, "size": 11, "symbol": "diamond"},
        text=[f"{pairs} pairs: {word(effect)}" for pairs, effect in places],
        hovertemplate="%{text}<extra></extra>",
    )


def table(
    curve: Sequence[tuple[int, float]],
    planned: tuple[int, float],
    asked: float,
    needed: int | None,
    word: Callable[[float], str],
) -> Table:
    rows = [(f"{pairs:,}", word(effect), "as planned" if pairs == planned[0] else "") for pairs, effect in curve]
    takes = "more than 10,000" if needed is None else f"{needed:,}"
    return Table(("pairs", "smallest effect", ""), (*rows, (takes, word(asked), "asked for")))
