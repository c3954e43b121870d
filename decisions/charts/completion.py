"""Completion times of both arms at one load level, as the share of planned requests that had completed by then."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import (
    ACCENT,
    BAD,
    BASELINE,
    CANDIDATE,
    GREY,
    Chart,
    Table,
    anchor_at,
    axis,
    document,
    layout,
    percent,
    seconds,
    upright,
)

MOST_POINTS = 1_000
# A request can't complete in less than the clock of a log axis can show.
SHORTEST_S = 0.001
SHARES = (0.5, 0.9, 0.99)
QUARTERS = [0, 0.25, 0.5, 0.75, 1]


class Arm(NamedTuple):
    """The ascending completion times in seconds from the planned arrival, and how many requests were planned."""

    times: list[float]
    planned: int

    def within(self, limit_s: float) -> int:
        return sum(time <= limit_s for time in self.times)

    def reached(self, share: float) -> float | None:
        """When this share of the *planned* requests had completed; None when it never did."""
        needed = math.ceil(share * self.planned - 1e-9)
        return self.times[needed - 1] if 0 < needed <= len(self.times) else None


def completion_ecdf(
    level: str,
    *,
    baseline_s: Sequence[float],
    candidate_s: Sequence[float],
    baseline_planned: int,
    candidate_planned: int,
    deadline_s: float | None,
    since: str = "planned arrival",
) -> Chart:
    """``*_s`` are the completed requests' times; a curve ends at completed ÷ planned, not at 100 %.

    ``since`` names the moment that they count from, where another one stands in for the planned arrival.
    """
    arms = {BASELINE: arm(baseline_s, baseline_planned), CANDIDATE: arm(candidate_s, candidate_planned)}
    low, high = time_range([*arms[BASELINE].times, *arms[CANDIDATE].times], deadline_s)
    settings = layout(
        height=360,
        x=axis(
            f"completion, from {since}",
            type="log",
            range=[math.log10(low), math.log10(high)],
            **ticks(low, high),
        ),
        y=axis(
            "of planned requests", range=[0, 1.02], tickvals=QUARTERS, ticktext=[percent(one, 0) for one in QUARTERS]
        ),
        **deadline(deadline_s, low, high),
    )
    traces = [curve(name, one, high) for name, one in arms.items()]
    return Chart(document(traces, settings), caption(level, arms, deadline_s, since), table(arms, deadline_s))


def arm(times: Sequence[float], planned: int) -> Arm:
    if len(times) > planned:
        raise ValueError(f"{len(times)} requests completed, but only {planned} were planned")
    return Arm(sorted(max(time, SHORTEST_S) for time in times), planned)


def time_range(times: Sequence[float], deadline_s: float | None) -> tuple[float, float]:
    """From a little before the first time to a little after the last, with the deadline in view."""
    shown = [*times, *([deadline_s] if deadline_s else [])] or [1.0]
    return min(shown) / 1.25, max(shown) * 1.35


def ticks(low: float, high: float) -> dict[str, Any]:
    """1, 2, 5, 10 … seconds, and fewer of them the more there are to show: a narrow page has room for six."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 40 else (1, 3) if high / low < 1_000 else (1,)
    values = [step * 10.0**decade for decade in decades for step in steps]
    shown = [value for value in values if low <= value <= high]
    return {"tickvals": shown, "ticktext": [seconds(value) for value in shown]}


def deadline(deadline_s: float | None, low: float, high: float) -> dict[str, Any]:
    if deadline_s is None:
        return {}
    place = math.log10(deadline_s)
    share = (place - math.log10(low)) / (math.log10(high) - math.log10(low))
    return upright(deadline_s, f"deadline {seconds(deadline_s)}", colour=BAD, anchor=anchor_at(share), at=place)


def curve(name: str, one: Arm, end: float) -> Any:
    x, y = steps(one, end)
    colour, dash = (GREY, "6px,2px") if name == BASELINE else (ACCENT, "solid")
    return go.Scatter(
        x=x,
        y=y,
        name=name,
        mode="lines",
        line={"shape": "hv", "color": colour, "width": 2.5, "dash": dash},
        hovertemplate="%{y:.1%} by %{x:.3g} s<extra>" + name + "</extra>",
    )


def steps(one: Arm, end: float) -> tuple[list[float], list[float]]:
    """The corners of the step line: from 0 at the first completion to the plateau at the plot's edge."""
    if not one.times:
        return [], []
    count = len(one.times)
    kept = min(count, MOST_POINTS - 2)
    places = [(step * (count - 1)) // max(1, kept - 1) for step in range(kept)]
    x = [one.times[0], *(one.times[place] for place in places), end]
    y = [0.0, *((place + 1) / one.planned for place in places), count / one.planned]
    return [float(f"{value:.5g}") for value in x], [round(value, 6) for value in y]


def caption(level: str, arms: dict[str, Arm], deadline_s: float | None, since: str) -> str:
    if deadline_s is None:
        counts = [f"{len(one.times)} of {one.planned} {name} requests" for name, one in arms.items()]
        return f"At {level}, {counts[0]} and {counts[1]} completed."
    counts = [f"{one.within(deadline_s)} of {one.planned} {name} requests" for name, one in arms.items()]
    return f"At {level}, {counts[0]} and {counts[1]} completed within {seconds(deadline_s)} of their {since}."


def table(arms: dict[str, Arm], deadline_s: float | None) -> Table:
    limits = [] if deadline_s is None else [deadline_s]
    headers = (
        "arm",
        "planned",
        "completed",
        *(f"within {seconds(limit)}" for limit in limits),
        *(f"{percent(share, 0)} of planned by" for share in SHARES),
    )
    rows = tuple((name, str(one.planned), *counted(one, limits), *reached(one)) for name, one in arms.items())
    return Table(headers, rows)


def counted(one: Arm, limits: Sequence[float]) -> list[str]:
    counts = [len(one.times), *(one.within(limit) for limit in limits)]
    return [f"{count} ({percent(count / one.planned)})" if one.planned else "0" for count in counts]


def reached(one: Arm) -> list[str]:
    times = [one.reached(share) for share in SHARES]
    return ["not reached" if time is None else seconds(time) for time in times]
