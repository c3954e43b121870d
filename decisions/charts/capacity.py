"""The ladder of rates: what each arm is shown to carry, what it is shown not to carry, and what lies between."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, BAD, GREY, SOFT, Chart, Table, axis, document, layout, percent, upright

HOLDS, OPEN, BREAKS = "shown to hold", "open", "shown not to hold"
SYMBOLS = {HOLDS: "circle", OPEN: "circle-open", BREAKS: "x"}


class Rung(NamedTuple):
    level: str
    rate: float


class Climb(NamedTuple):
    """One arm on the ladder: ``shown`` the highest rate that it is shown to hold, ``above`` the lowest shown not to;
    its attainment per rung, in shares of 1, None where it has no trial."""

    arm: str
    shown: float | None
    above: float | None
    censored: bool
    attainment: Sequence[float | None]

    def state(self, rate: float) -> str:
        if self.shown is not None and rate <= self.shown:
            return HOLDS
        return BREAKS if self.above is not None and rate >= self.above else OPEN


def capacity_ladder(
    rungs: Sequence[Rung], climbs: Sequence[Climb], *, target: float, peak: float | None, sentences: Sequence[str]
) -> Chart:
    """A row per arm, a mark per rung; a bar as far as the arm is shown to carry."""
    most = max([*(rung.rate for rung in rungs), peak or 0.0])
    names = [climb.arm for climb in climbs]
    marks = {} if peak is None else upright(peak, f"peak {peak:.3g}/s", colour=BAD, anchor=edge(peak, most))
    settings = layout(
        height=116 + 48 * len(climbs),
        x=axis("requests/s", range=[0, 1.12 * most], nticks=6),
        y=axis(tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.4, -0.6], showgrid=False),
        margin={"l": 8, "r": 16, "t": 28, "b": 44},
        showlegend=False,
        **marks,
    )
    traces = [part for place, climb in enumerate(climbs) for part in drawn(climb, place, rungs)]
    legend = "A filled dot is a rate shown to hold, a ring one that is open, a cross one shown not to hold."
    words = f"{' '.join(sentences)} Attainment asked for: {percent(target, 0)}. {legend}"
    return Chart(document(traces, settings), words, table(rungs, climbs))


def edge(rate: float, most: float) -> str:
    return "right" if rate > 0.8 * most else "left" if rate < 0.2 * most else "center"


def drawn(climb: Climb, place: int, rungs: Sequence[Rung]) -> list[Any]:
    colour = GREY if climb.arm == "baseline" else ACCENT
    marks = go.Scatter(
        x=[rung.rate for rung in rungs],
        y=[place] * len(rungs),
        mode="markers",
        marker={"color": colour, "size": 13, "symbol": [SYMBOLS[climb.state(rung.rate)] for rung in rungs]},
        text=[f"{rung.level}, {rung.rate:.3g} requests/s: {climb.state(rung.rate)}" for rung in rungs],
        hovertemplate="%{text}<extra>" + climb.arm + "</extra>",
    )
    if climb.shown is None:
        return [marks]
    reach = go.Scatter(x=[0, climb.shown], y=[place] * 2, mode="lines", hoverinfo="skip")
    reach.line = {"color": colour, "width": 5}
    if not climb.censored:
        return [reach, marks]
    beyond = go.Scatter(x=[climb.shown, 1.08 * climb.shown], y=[place] * 2, mode="lines+markers", hoverinfo="skip")
    beyond.line = {"color": SOFT, "width": 2, "dash": "dot"}
    beyond.marker = {"color": SOFT, "size": [0, 9], "symbol": "triangle-right"}
    return [reach, beyond, marks]


def table(rungs: Sequence[Rung], climbs: Sequence[Climb]) -> Table:
    each = ("within deadline", "rate is")
    headers = ("level", "rate", *(f"{climb.arm}, {what}" for climb in climbs for what in each))
    rows = []
    for place, rung in enumerate(rungs):
        found = [f"{rung.level}", f"{rung.rate:.3g} requests/s"]
        for climb in climbs:
            attained = climb.attainment[place]
            found += ["–" if attained is None else percent(attained), climb.state(rung.rate)]
        rows.append(tuple(found))
    return Table(headers, tuple(rows))
