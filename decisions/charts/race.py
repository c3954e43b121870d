"""The race as a timeline: which boots ran in which round, on how many engine minutes, and who fell when."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import (
    ACCENT,
    BAD,
    GREY,
    INK,
    LINE,
    PAPER,
    SOFT,
    Chart,
    Table,
    anchor_at,
    axis,
    document,
    folded,
    layout,
)

# Characters of a line at the axis.
NAME_LINE = 16
ROW, ABOVE, BELOW = 46, 48, 44
# Of the width, for a round's number and for the word before the first.
ROOM, ROOM_FOR_WORDS = 0.07, 0.25
UNROUNDED = "–"

# What is told beside a runner's name and where it left the race.
MARKED = ("out", "nominated")

BootState = Literal["finished", "running", "engine died", "lost", "void", "cancelled"]
# What adds nothing to the figures: an attempt that was cut off, or whose pair was run again.
WASTED: tuple[BootState, ...] = ("lost", "void", "cancelled")


class RaceBoot(NamedTuple):
    """``at``: engine minutes that the race had spent when it began; ``minutes``: its own. ``began`` is the clock."""

    boot: str
    runner: str
    round: int | None
    state: BootState
    at: float
    minutes: float
    began: str

    @property
    def until(self) -> float:
        return self.at + self.minutes


class Lane(NamedTuple):
    """A runner and how it fares: ``out`` after a round, where the race has any."""

    name: str
    fate: Literal["reference", "runs", "out", "nominated"]
    out_after: int | None = None


def race_timeline(lanes: Sequence[Lane], boots: Sequence[RaceBoot], *, budget: float, ended: str = "") -> Chart:
    """A row for each runner, the reference first; along it engine minutes. ``budget`` in the same minutes; ``ended``
    says how the race ended, and is empty while it runs."""
    spent = max((one.until for one in boots), default=0.0)
    # A budget far away would press every boot into a corner: then it is told in words alone.
    near = budget <= 2 * spent or not boots
    reach = 1.06 * max(spent, budget if near else 0.0, 1.0)
    settings = layout(
        height=ABOVE + BELOW + ROW * max(1, len(lanes)),
        x=axis("engine minutes spent on tuning", range=[0, reach], nticks=6, showgrid=False),
        y=axis(
            tickvals=list(range(len(lanes))),
            ticktext=[name_and_fate(lane) for lane in lanes],
            tickfont={"size": 12},
            range=[max(1, len(lanes)) - 0.5, -0.5],
            showgrid=False,
        ),
        margin={"l": 8, "r": 16, "t": ABOVE, "b": BELOW},
        barmode="overlay",
        showlegend=False,
        shapes=[*round_lines(boots), *(limit(budget) if near else [])],
        annotations=[*round_names(boots, reach), *(limit_name(budget, reach) if near else [])],
    )
    rows = {lane.name: place for place, lane in enumerate(lanes)}
    traces = [bars(group, rows) for group in groups(boots)] + ends(lanes, boots, rows)
    return Chart(document(traces, settings), caption(lanes, boots, budget, ended), table(boots))


def name_and_fate(lane: Lane) -> str:
    name = folded(lane.name, NAME_LINE, 2)
    return f"{name}<br>{fate_words(lane)}" if lane.fate in MARKED else name


def groups(boots: Sequence[RaceBoot]) -> list[list[RaceBoot]]:
    """Boots that look alike, since a trace has one pattern for all of its bars."""
    found: dict[bool | str, list[RaceBoot]] = {}
    for one in boots:
        found.setdefault("wasted" if one.state in WASTED else one.state, []).append(one)
    return list(found.values())


def bars(boots: Sequence[RaceBoot], rows: dict[str, int]) -> Any:
    wasted, running = boots[0].state in WASTED, boots[0].state == "running"
    colours = [GREY if rows[one.runner] == 0 else ACCENT for one in boots]
    # An edge of the page's own colour keeps two boots in a row apart.
    marker: dict[str, Any] = {"color": colours, "line": {"color": PAPER, "width": 1.5}}
    if wasted or running:
        shape = "x" if wasted else "/"
        marker = {
            "color": "rgba(0,0,0,0)",
            "line": {"color": [BAD] * len(boots) if wasted else colours, "width": 1},
            "pattern": {"shape": shape, "fgcolor": BAD if wasted else colours, "size": 6, "solidity": 0.3},
        }
    return go.Bar(
        orientation="h",
        base=[round(one.at, 4) for one in boots],
        x=[round(one.minutes, 4) for one in boots],
        y=[rows[one.runner] for one in boots],
        width=0.56,
        marker=marker,
        text=[f"boot {one.boot}: {one.minutes:.1f} min, {one.state}" for one in boots],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def ends(lanes: Sequence[Lane], boots: Sequence[RaceBoot], rows: dict[str, int]) -> list[Any]:
    """A cross where a runner fell, a star where one was nominated, behind its last boot."""
    marked = [lane for lane in lanes if lane.fate in MARKED]
    if not marked:
        return []
    last = {one.runner: one.until for one in boots}
    return [
        go.Scatter(
            x=[last.get(lane.name, 0.0) for lane in marked],
            y=[rows[lane.name] for lane in marked],
            mode="markers",
            cliponaxis=False,
            marker={
                "color": [BAD if lane.fate == "out" else INK for lane in marked],
                "symbol": ["x" if lane.fate == "out" else "star" for lane in marked],
                "size": 11,
            },
            text=[fate_words(lane) for lane in marked],
            hovertemplate="%{text}<extra></extra>",
        )
    ]


def fate_words(lane: Lane) -> str:
    if lane.fate == "nominated":
        return "nominated"
    return "out" if lane.out_after is None else f"out after round {lane.out_after}"


def round_starts(boots: Sequence[RaceBoot]) -> dict[int, float]:
    starts: dict[int, float] = {}
    for one in boots:
        if one.round is not None:
            starts[one.round] = min(one.at, starts.get(one.round, one.at))
    return starts


def round_lines(boots: Sequence[RaceBoot]) -> list[dict[str, Any]]:
    line = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "layer": "below", "line": {"color": LINE, "width": 1}}
    return [{**line, "x0": at, "x1": at} for at in round_starts(boots).values()]


def round_names(boots: Sequence[RaceBoot], reach: float) -> list[dict[str, Any]]:
    """The first in words, the others by number where no other name would be covered."""
    named: list[tuple[float, str]] = []
    free = 0.0
    for number, at in sorted(round_starts(boots).items()):
        if at >= free:
            named.append((at, str(number) if named else f"round {number}"))
            free = at + (ROOM if len(named) > 1 else ROOM_FOR_WORDS) * reach
    words = {"y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False}
    return [words | {"x": at, "text": text, "font": {"color": SOFT, "size": 12}} for at, text in named]


def limit(budget: float) -> list[dict[str, Any]]:
    line = {"type": "line", "x0": budget, "x1": budget, "y0": 0, "y1": 1, "yref": "paper"}
    return [line | {"line": {"color": BAD, "width": 1.5, "dash": "dash"}}]


def limit_name(budget: float, reach: float) -> list[dict[str, Any]]:
    words = {"x": budget, "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": 16, "showarrow": False}
    font = {"color": BAD, "size": 12}
    return [words | {"text": f"budget {budget:.0f} min", "xanchor": anchor_at(budget / reach), "font": font}]


def caption(lanes: Sequence[Lane], boots: Sequence[RaceBoot], budget: float, ended: str) -> str:
    spent = sum(one.minutes for one in boots)
    rounds = len(round_starts(boots))
    said = f"{counted(len(boots), 'boot')}"
    said += f" in {counted(rounds, 'round')}" if rounds else ""
    said += f", {spent:.1f} of {budget:.0f} engine minutes spent"
    fallen = [f"{lane.name} {fate_words(lane)}" for lane in lanes if lane.fate == "out"]
    said += f"; {', '.join(fallen)}." if fallen else "."
    return f"{said} {ended}" if ended else f"{said} The race is on."


def counted(number: int, one: str) -> str:
    return f"{number} {one if number == 1 else one + 's'}"


def table(boots: Sequence[RaceBoot]) -> Table:
    headers = ("boot", "round", "configuration", "began", "at engine minute", "engine minutes", "state")
    return Table(headers, tuple(row(one) for one in boots))


def row(one: RaceBoot) -> tuple[str, ...]:
    turn = UNROUNDED if one.round is None else str(one.round)
    return one.boot, turn, one.runner, one.began, f"{one.at:.1f}", f"{one.minutes:.1f} min", one.state
