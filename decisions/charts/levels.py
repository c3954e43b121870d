"""The load levels of a brief under each other: when each one's requests are planned to arrive."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, INK, LINE, SOFT, Chart, Table, axis, document, layout

# Pixels: above the first row and below the last, a row with its name, and the name's part of it.
ABOVE, BELOW, ROW, NAME = 34, 44, 84, 26
LONGEST_NAME = 20
MOST_STEPS = 60
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800)


class LevelLine(NamedTuple):
    """``rates[n]`` requests a second in [edges_s[n], edges_s[n + 1]), counted from the start of the measured window:
    what lies before 0 is warm-up. ``words`` say what draws the arrivals."""

    name: str
    words: str
    edges_s: Sequence[float]
    rates: Sequence[float]

    @property
    def measured(self) -> list[tuple[float, float]]:
        """(rate, seconds) of the measured window."""
        spans = zip(pairwise(self.edges_s), self.rates, strict=True)
        return [(rate, end - max(0.0, start)) for (start, end), rate in spans if end > 0]

    @property
    def mean(self) -> float:
        """Requests a second in the measured window."""
        over = sum(seconds for _, seconds in self.measured)
        return sum(rate * seconds for rate, seconds in self.measured) / over if over else 0.0

    @property
    def most(self) -> float:
        return max((rate for rate, _ in self.measured), default=0.0)


def step_s(span_s: float) -> float:
    """The finest step that keeps a line at or below 60 of them; a day has 48 of half an hour."""
    return next((step for step in STEPS_S if span_s / step <= MOST_STEPS), STEPS_S[-1])


def line_of(name: str, words: str, times_s: Sequence[float], *, warm_up_s: float, duration_s: float) -> LevelLine:
    """Planned times, counted from the start of the measured window, as rates per step."""
    step = step_s(warm_up_s + duration_s)
    edges = edges_of(warm_up_s, duration_s, step)
    counts = [0] * (len(edges) - 1)
    before = sum(edge < 0 for edge in edges)
    for time in times_s:
        place = before + int(time // step)
        counts[min(max(place, 0), len(counts) - 1)] += 1
    spans = [end - start for start, end in pairwise(edges)]
    return LevelLine(name, words, edges, [count / span for count, span in zip(counts, spans, strict=True)])


def edges_of(warm_up_s: float, duration_s: float, step: float) -> list[float]:
    """Steps that meet at 0; the outermost are cut where the level begins and ends."""
    before = [-step * number for number in range(1, int(warm_up_s // step) + 1)]
    after = [step * number for number in range(int(duration_s // step) + 1)]
    return sorted({*after, *before, -float(warm_up_s), float(duration_s)})


def levels_over_time(lines: Sequence[LevelLine]) -> Chart:
    """A row for each level, all on the same two scales, so that heights and lengths compare: lines over each other
    can't be told apart from four on. In requests a second; each level's warm-up, shaded, lies before 0."""
    start = min((line.edges_s[0] for line in lines), default=0.0)
    end = max((line.edges_s[-1] for line in lines), default=1.0)
    top = max((rate for line in lines for rate in line.rates), default=0.0) or 1.0
    height = ABOVE + BELOW + ROW * max(1, len(lines))
    rows = [row_axis(place, height, top) for place, _ in enumerate(lines)]
    settings = layout(
        height=height,
        x=axis(
            "seconds of the measured window", range=[start, end], showgrid=False, anchor=axis_of(max(0, len(lines) - 1))
        ),
        y=axis(),
        margin={"l": 8, "r": 8, "t": ABOVE, "b": BELOW},
        showlegend=False,
        annotations=[*named_rows(lines, rows), *warm_up_words(start)],
        shapes=[shape for place, line in enumerate(lines) for shape in warm_up_shade(line, place)],
    )
    settings |= {axis_of(place).replace("y", "yaxis"): row for place, row in enumerate(rows)}
    return Chart(
        document([drawn(line, place) for place, line in enumerate(lines)], settings), caption(lines), table(lines)
    )


def axis_of(place: int) -> str:
    """y, y2, y3 …"""
    return f"y{place + 1}" if place else "y"


def row_axis(place: int, height: int, top: float) -> dict[str, Any]:
    """The scale of one row: the same for all, with the highest rate's unit written out."""
    plot = height - ABOVE - BELOW
    upper = 1 - (place * ROW + NAME) / plot
    ticks: dict[str, Any] = {
        "tickvals": [0, top],
        "ticktext": ["0", f"{top:.3g}/s"],
        "tickfont": {"color": SOFT, "size": 12},
    }
    return axis(domain=[max(0.0, upper - (ROW - NAME) / plot), upper], range=[0, 1.04 * top], **ticks)


def drawn(line: LevelLine, place: int) -> Any:
    return go.Scatter(
        x=[round(edge, 4) for edge in line.edges_s],
        y=[round(rate, 5) for rate in [*line.rates, *line.rates[-1:]]],
        yaxis=axis_of(place),
        name=line.name,
        mode="lines",
        line={"shape": "hv", "color": ACCENT, "width": 2},
        hovertemplate="%{y:.3g} requests/s at %{x:.4g} s<extra>" + line.name + "</extra>",
    )


def named_rows(lines: Sequence[LevelLine], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Above each row its level's name, and its mean at the far end."""
    found = []
    for line, row in zip(lines, rows, strict=True):
        words = {"xref": "paper", "yref": "paper", "y": row["domain"][1], "yanchor": "bottom", "showarrow": False}
        found.append(words | {"text": cut(line.name), "x": 0, "xanchor": "left", "font": {"color": INK, "size": 13}})
        mean = f"mean {line.mean:.3g}/s"
        found.append(words | {"text": mean, "x": 1, "xanchor": "right", "font": {"color": SOFT, "size": 12}})
    return found


def cut(name: str) -> str:
    """As much as stands beside the mean on a phone; the sentence and the table have all of it."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def warm_up_shade(line: LevelLine, place: int) -> list[dict[str, Any]]:
    start = line.edges_s[0]
    if start >= 0:
        return []
    shade = {
        "type": "rect",
        "x0": start,
        "x1": 0,
        "y0": 0,
        "y1": 1,
        "yref": f"{axis_of(place)} domain",
        "layer": "below",
    }
    return [shade | {"fillcolor": LINE, "line": {"width": 0}}]


def warm_up_words(start: float) -> list[dict[str, Any]]:
    if start >= 0:
        return []
    words = {"text": "shaded: warm-up, not counted", "xref": "paper", "x": 0, "y": 1, "yref": "paper", "yshift": 6}
    return [words | {"xanchor": "left", "yanchor": "bottom", "showarrow": False, "font": {"color": SOFT, "size": 12}}]


def caption(lines: Sequence[LevelLine]) -> str:
    if not lines:
        return "No load level can be drawn."
    each = [f"{line.name} {line.mean:.3g} requests/s ({line.words}; at most {line.most:.3g})" for line in lines]
    return f"Planned arrivals of the first pair, on average: {'; '.join(each)}."


def table(lines: Sequence[LevelLine]) -> Table:
    """One row a step, from the first that any line has: each level's rate there."""
    starts = sorted({edge for line in lines for edge in line.edges_s[:-1]})
    rows = tuple((f"{start:g} s", *(rate_at(line, start) for line in lines)) for start in starts)
    return Table(("from", *(f"{line.name}, requests/s" for line in lines)), rows)


def rate_at(line: LevelLine, at: float) -> str:
    for (start, end), rate in zip(pairwise(line.edges_s), line.rates, strict=True):
        if start <= at < end:
            return f"{rate:.3g}"
    return "–"
