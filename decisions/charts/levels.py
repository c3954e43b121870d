"""The load levels of a brief over each other: when each one's requests are planned to arrive."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, GREY, INK, LINE, PAPER, SOFT, Chart, Table, axis, document, layout

# The busiest level is drawn first and in the page's own colour.
COLOURS = (ACCENT, INK, GREY, SOFT)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MOST_STEPS = 60
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800)
# Names at the ends of lines stay this share of the picture apart.
APART = 0.09


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
    """In requests a second; the warm-up, shaded, lies before 0."""
    ordered = sorted(lines, key=lambda line: -line.mean)
    start = min((line.edges_s[0] for line in lines), default=0.0)
    end = max((line.edges_s[-1] for line in lines), default=1.0)
    top = 1.08 * max((rate for line in lines for rate in line.rates), default=1.0) or 1.0
    settings = layout(
        height=320,
        # The names at the ends of the lines need room.
        x=axis("seconds of the measured window", range=[start, end + 0.16 * (end - start)], showgrid=False),
        y=axis("requests/s", range=[0, top], nticks=5),
        margin={"l": 8, "r": 8, "t": 28, "b": 44},
        showlegend=False,
        annotations=[*names_at_ends(ordered, top), *warm_up_words(start)],
        shapes=warm_up_shade(start),
    )
    traces = [drawn(line, place) for place, line in enumerate(ordered)]
    return Chart(document(traces, settings), caption(lines), table(lines))


def drawn(line: LevelLine, place: int) -> Any:
    colour, dash = pen(place)
    rates = [round(rate, 5) for rate in [*line.rates, *line.rates[-1:]]]
    return go.Scatter(
        x=[round(edge, 4) for edge in line.edges_s],
        y=rates,
        name=line.name,
        mode="lines",
        line={"shape": "hv", "color": colour, "width": 2.5, "dash": dash},
        hovertemplate="%{y:.3g} requests/s at %{x:.4g} s<extra>" + line.name + "</extra>",
    )


def pen(place: int) -> tuple[str, str]:
    return COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]


def names_at_ends(ordered: Sequence[LevelLine], top: float) -> list[dict[str, Any]]:
    """Each line's name beside its end, moved up or down where two would cover each other."""
    places = apart([line.rates[-1] / top if line.rates else 0.0 for line in ordered])
    return [
        {
            "text": line.name,
            "x": line.edges_s[-1],
            "y": place * top,
            "xanchor": "left",
            "xshift": 4,
            "showarrow": False,
            # Other lines may run on behind it.
            "bgcolor": PAPER,
            "borderpad": 1,
            "font": {"color": pen(number)[0], "size": 13},
        }
        for number, (line, place) in enumerate(zip(ordered, places, strict=True))
    ]


def apart(places: Sequence[float]) -> list[float]:
    """The same places, from below upwards each at least ``APART`` above the one before."""
    moved = [0.0] * len(places)
    least = APART / 2
    for number in sorted(range(len(places)), key=lambda one: places[one]):
        moved[number] = max(places[number], least)
        least = moved[number] + APART
    return moved


def warm_up_shade(start: float) -> list[dict[str, Any]]:
    if start >= 0:
        return []
    shade = {"type": "rect", "x0": start, "x1": 0, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    return [shade | {"fillcolor": LINE, "line": {"width": 0}}]


def warm_up_words(start: float) -> list[dict[str, Any]]:
    if start >= 0:
        return []
    words = {"text": "warm-up, not counted", "x": start, "y": 1, "yref": "paper", "xanchor": "left"}
    return [words | {"yanchor": "bottom", "showarrow": False, "font": {"color": SOFT, "size": 12}}]


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
