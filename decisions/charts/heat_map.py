"""Draft length × load level: how much faster than no speculation, what nobody measured, and whose limits break."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import (
    BAD,
    BETTER,
    EVEN,
    LINE,
    SOFT,
    WORSE,
    Chart,
    Table,
    axis,
    document,
    folded,
    layout,
    ratio,
)

# Less than ten per cent never fills the scale: noise would look like a result.
NARROWEST = math.log(1.1)
# Of a cell's width and height, left free around a hatch or a broken edge.
GAP_X, GAP_Y = 0.008, 0.04
# As many broken limits as a sentence can hold; the table has all of them.
MOST_BROKEN = 4
BROKEN = "✕"
NOT_MEASURED, NO_NUMBER, NEVER, ALONE = "not measured", "no number", "never", "only this"
# Levels from which on a phone's cells have no room for words, and from which on for one decimal alone.
CROWDED, PACKED = 5, 8
# Characters that stand in a line at the axes of a phone's chart.
ROW_LINE, LEVEL_LINE, UPRIGHT_LINE = 14, 11, 18
ROW, ABOVE, ABOVE_UPRIGHT, BELOW = 46, 36, 100, 8

Kind = Literal["none", "length", "schedule"]


class HeatCell(NamedTuple):
    """``speed_up``: no speculation is 1, more is better; 0 where the configuration alone never got there, infinite
    where no speculation alone never did, None where neither did. ``boots`` 0: not measured. ``breaks``: guardrails by
    id. ``spread``: the lowest and the highest of several boots, on the same scale."""

    speed_up: float | None
    boots: int
    breaks: tuple[str, ...] = ()
    spread: tuple[float, float] | None = None


class HeatRow(NamedTuple):
    """A configuration; ``cells`` by level, a missing one is not measured. ``setting``: what its name doesn't tell."""

    name: str
    kind: Kind
    cells: Mapping[str, HeatCell]
    setting: str = ""

    @property
    def in_full(self) -> str:
        return f"{self.name} ({self.setting})" if self.setting else self.name

    def cell(self, level: str) -> HeatCell:
        return self.cells.get(level, HeatCell(None, 0))


class Place(NamedTuple):
    x: int
    y: int
    row: HeatRow
    level: str
    cell: HeatCell


def speed_up_heat_map(rows: Sequence[HeatRow], levels: Sequence[str], *, measure: str) -> Chart:
    """``rows`` from the reference down, in the order in which they are drawn; ``measure`` says of what the speed-up is
    ("completion p50")."""
    places = [Place(x, y, row, level, row.cell(level)) for y, row in enumerate(rows) for x, level in enumerate(levels)]
    above = ABOVE_UPRIGHT if len(levels) >= CROWDED else ABOVE
    settings = layout(
        height=above + BELOW + ROW * max(1, len(rows)),
        x=levels_axis(levels),
        y=names_axis([folded(row.name, ROW_LINE, 3) for row in rows], reverse=True),
        margin={"l": 8, "r": 8, "t": above, "b": BELOW},
        showlegend=False,
        shapes=[*borders(rows, len(levels)), *(outline(place) for place in places if place.cell.breaks)],
    )
    traces = [coloured(places, len(levels), len(rows), measure), *unmeasured(places, len(levels))]
    return Chart(document(traces, settings), caption(rows, levels, measure), table(rows, levels))


def levels_axis(levels: Sequence[str]) -> dict[str, Any]:
    """Many names stand upright."""
    if len(levels) < CROWDED:
        return names_axis([folded(level, LEVEL_LINE, 2) for level in levels], side="top")
    return names_axis([folded(level, UPRIGHT_LINE, 1) for level in levels], side="top", tickangle=-90)


def names_axis(names: Sequence[str], *, reverse: bool = False, **settings: Any) -> dict[str, Any]:
    """A place for each name; counted, since a bar can't begin between two categories."""
    ends = [-0.5, max(1, len(names)) - 0.5]
    ticks: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": list(names), "tickfont": {"size": 12.5}}
    return axis(range=ends[::-1] if reverse else ends, showgrid=False, ticks="", **(ticks | settings))


def coloured(places: Sequence[Place], columns: int, count: int, measure: str) -> Any:
    """Coloured by the logarithm, so that half and double lie equally far from 1. Cells without a number are left to
    ``unmeasured``."""
    logs = {(place.x, place.y): shade(place.cell) for place in places}
    farthest = max([NARROWEST, *(abs(log) for log in logs.values() if log is not None and math.isfinite(log))])
    reach = round(farthest, 5)
    crowded = columns >= CROWDED
    settings: dict[str, Any] = {
        "x": list(range(columns)),
        "y": list(range(count)),
        "z": grid(count, columns, {at: clipped(log, reach) for at, log in logs.items()}),
        "text": grid(
            count,
            columns,
            {(one.x, one.y): words_in(one.cell, reference=one.row.kind == "none", columns=columns) for one in places},
        ),
        "texttemplate": "%{text}",
        "textfont": {"size": 11 if crowded else 12.5},
        "customdata": grid(count, columns, {(one.x, one.y): f"{one.row.in_full} at {one.level}" for one in places}),
        "zmin": -reach,
        "zmax": reach,
        "colorscale": [[0, WORSE], [0.5, EVEN], [1, BETTER]],
        "showscale": False,
        "hoverongaps": False,
        "xgap": 3,
        "ygap": 3,
        "hovertemplate": "%{customdata}: %{text} in " + measure + "<extra></extra>",
    }
    return go.Heatmap(**settings)


def shade(cell: HeatCell) -> float | None:
    if not cell.boots or cell.speed_up is None:
        return None
    return -math.inf if cell.speed_up <= 0 else math.log(cell.speed_up)


def clipped(log: float | None, reach: float) -> float | None:
    return None if log is None else round(min(reach, max(-reach, log)), 5)


def grid(count: int, columns: int, found: Mapping[tuple[int, int], Any]) -> list[list[Any]]:
    return [[found[x, y] for x in range(columns)] for y in range(count)]


def words_in(cell: HeatCell, *, reference: bool, columns: int) -> str:
    """Of the reference also how far its own boots lie apart: what lies within that is no result."""
    if shade(cell) is None:
        return ""
    said = number(cell) if columns < PACKED else packed(cell)
    if cell.breaks:
        return f"{said}<br>{BROKEN}" if columns >= CROWDED else f"{said}<br>{BROKEN} limit"
    return f"{said}<br>{narrow(cell.spread)}" if cell.spread and reference and columns < CROWDED else said


def packed(cell: HeatCell) -> str:
    return f"{cell.speed_up:.1f}" if cell.speed_up and math.isfinite(cell.speed_up) else number(cell)


def apart(spread: tuple[float, float]) -> str:
    return f"{ratio(spread[0])} to {ratio(spread[1])}"


def narrow(spread: tuple[float, float]) -> str:
    """As wide as a phone's cell."""
    return f"{spread[0]:.2f}–{spread[1]:.2f}"


def number(cell: HeatCell) -> str:
    if not cell.boots:
        return NOT_MEASURED
    if cell.speed_up is None:
        return NO_NUMBER
    if cell.speed_up <= 0:
        return NEVER
    return ratio(cell.speed_up) if math.isfinite(cell.speed_up) else ALONE


def unmeasured(places: Sequence[Place], columns: int) -> list[Any]:
    """Hatched, and in words where there is room: an empty cell could be read as 1."""
    gone = [place for place in places if shade(place.cell) is None]
    if not gone:
        return []
    bars = go.Bar(
        orientation="h",
        base=[place.x - 0.5 + GAP_X for place in gone],
        x=[1 - 2 * GAP_X] * len(gone),
        y=[place.y for place in gone],
        width=1 - 2 * GAP_Y,
        marker={"color": "rgba(0,0,0,0)", "pattern": {"shape": "/", "fgcolor": LINE, "size": 8, "solidity": 0.2}},
        text=[f"{place.row.name} at {place.level}: {number(place.cell)}" for place in gone],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )
    if columns >= CROWDED:
        return [bars]
    words = go.Scatter(
        x=[place.x for place in gone],
        y=[place.y for place in gone],
        text=[number(place.cell).replace(" ", "<br>") for place in gone],
        mode="text",
        textfont={"color": SOFT, "size": 11},
        hoverinfo="skip",
    )
    return [bars, words]


def outline(place: Place) -> dict[str, Any]:
    across = {"x0": place.x - 0.5 + GAP_X, "x1": place.x + 0.5 - GAP_X}
    down = {"y0": place.y - 0.5 + GAP_Y, "y1": place.y + 0.5 - GAP_Y}
    return {"type": "rect", **across, **down, "line": {"color": BAD, "width": 2, "dash": "4px,2px"}}


def borders(rows: Sequence[HeatRow], columns: int) -> Iterator[dict[str, Any]]:
    """Between the reference, the draft lengths and the schedules."""
    for y, (above, below) in enumerate(pairwise(rows)):
        if above.kind != below.kind:
            line = {"x0": -0.5, "x1": columns - 0.5, "y0": y + 0.5, "y1": y + 0.5}
            yield {"type": "line", **line, "line": {"color": SOFT, "width": 1}}


def caption(rows: Sequence[HeatRow], levels: Sequence[str], measure: str) -> str:
    found = [
        (cell.speed_up, row.name, level)
        for row in rows
        for level in levels
        if row.kind != "none" and (cell := row.cell(level)).boots and cell.speed_up is not None
    ]
    if not found:
        return "Nothing has been measured beside no speculation yet."
    said = f"Speed-up over no speculation in {measure}, each boot against the baseline boots of its own round: "
    (best, *at_best), (worst, *at_worst) = max(found), min(found)
    said += f"best {written(best)} with {at_best[0]} at {at_best[1]}"
    if at_best != at_worst:
        said += f", worst {written(worst)} with {at_worst[0]} at {at_worst[1]}"
    return " ".join([f"{said}; above 1.00× is better.", *notes(rows, levels)])


def written(speed_up: float) -> str:
    return number(HeatCell(speed_up, 1))


def notes(rows: Sequence[HeatRow], levels: Sequence[str]) -> Iterator[str]:
    spreads = [cell.spread for row in rows if row.kind == "none" for cell in row.cells.values() if cell.spread]
    if spreads:
        low, high = min(one for one, _ in spreads), max(one for _, one in spreads)
        yield f"Boots of no speculation alone lie between {ratio(low)} and {ratio(high)} of their mean."
    cells = [(row, level, row.cell(level)) for row in rows for level in levels]
    if any(not cell.boots for _, _, cell in cells):
        yield "Hatched cells are not measured."
    broken = [f"{row.name} at {level} ({', '.join(cell.breaks)})" for row, level, cell in cells if cell.breaks]
    if broken:
        more = f"; and {len(broken) - MOST_BROKEN} more in the table" if len(broken) > MOST_BROKEN else ""
        yield f"A broken edge and {BROKEN} mark what is over a limit: {'; '.join(broken[:MOST_BROKEN])}{more}."


def table(rows: Sequence[HeatRow], levels: Sequence[str]) -> Table:
    return Table(
        ("configuration", *levels),
        tuple((row.in_full, *(in_full(row.cell(level)) for level in levels)) for row in rows),
    )


def in_full(cell: HeatCell) -> str:
    if not cell.boots:
        return NOT_MEASURED
    said = f"{number(cell)} ({cell.boots} {'boot' if cell.boots == 1 else 'boots'}"
    said += f", {apart(cell.spread)})" if cell.spread else ")"
    return f"{said}, breaks {', '.join(cell.breaks)}" if cell.breaks else said
