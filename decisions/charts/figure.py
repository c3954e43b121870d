"""What every chart shares: colours with a meaning, a plain layout, and the sentence and table beside the picture."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import plotly.graph_objects as go

# Colours by meaning. The hexadecimal values are right on a light page and on paper; ``layout.meta.colours`` names
# each one, so that charts.js puts the page's own custom property (--ink, --accent, --baseline …) in its place.
INK = "#1b1f24"
PAPER = "#ffffff"
SOFT = "#59616b"
LINE = "#d8dde3"
ACCENT = "#0b6bcb"
GREY = "#7b838d"
BAD = "#c2410c"
# The ends of the heat map: blue and orange, which every common colour vision tells apart.
WORSE = "#d97a29"
EVEN = "#f1f2f4"
BETTER = "#3f86d1"
# Configurations beside each other: apart for every common colour vision, and each with a dash and a symbol as well.
SERIES = (ACCENT, "#c85200", "#00805e", "#a8478a", "#2b8ab8")
DASHES = ("solid", "10px,3px", "2px,3px", "8px,3px,2px,3px", "5px,3px")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star")

COLOURS = {
    INK: "ink",
    PAPER: "paper",
    SOFT: "soft",
    LINE: "line",
    ACCENT: "accent",
    GREY: "baseline",
    BAD: "bad",
    WORSE: "worse",
    EVEN: "even",
    BETTER: "better",
    SERIES[1]: "series2",
    SERIES[2]: "series3",
    SERIES[3]: "series4",
    SERIES[4]: "series5",
}

BASELINE = "baseline"
CANDIDATE = "candidate"


class Table(NamedTuple):
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Chart:
    """A picture, the sentence that says the same, and the table that holds its numbers."""

    figure: dict[str, Any]
    caption: str
    table: Table


class Interval(NamedTuple):
    """An estimate and its two-sided interval; None where the evidence gives no bound."""

    value: float
    low: float | None = None
    high: float | None = None


# Of many or long names: the legend takes as many rows above the plot as it needs.
LEGEND_ABOVE = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12, "color": INK}}
UNDER_LEGEND = {"l": 8, "r": 16, "t": 24, "b": 44}


class SeriesLook(NamedTuple):
    """How one of several configurations is drawn, never told by its colour alone."""

    colour: str
    dash: str
    symbol: str


def series_look(place: int) -> SeriesLook:
    """From the sixth on colours come again, with another dash and symbol."""
    turn = (place + place // len(SERIES)) % len(SERIES)
    return SeriesLook(SERIES[place % len(SERIES)], DASHES[turn], SYMBOLS[turn])


def axis(title: str = "", **settings: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "title": {"text": title, "standoff": 8, "font": {"size": 12, "color": SOFT}},
        "gridcolor": LINE,
        "linecolor": LINE,
        "tickcolor": LINE,
        "tickfont": {"color": SOFT},
        "tickangle": 0,
        "automargin": True,
        "zeroline": False,
        "fixedrange": True,
    }
    return plain | settings


def layout(*, height: int, x: dict[str, Any], y: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """No title (the caption is HTML), no background, no dragging: a picture that lies in the page."""
    plain: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 52, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "inherit", "size": 13, "color": INK},
        "xaxis": x,
        "yaxis": y,
        "dragmode": False,
        "hoverlabel": {"font": {"family": "inherit", "size": 13}},
        "legend": legend(height),
        "meta": {"colours": COLOURS},
    }
    return plain | settings


def legend(height: int) -> dict[str, Any]:
    """A row of its own above the plot and above the labels of upright lines."""
    above = 26 / (height - 96)
    return {"orientation": "h", "x": 0, "y": 1 + above, "yanchor": "bottom", "font": {"color": INK}}


def upright(x: float, text: str, *, colour: str, anchor: str = "center", at: float | None = None) -> dict[str, Any]:
    """A dashed upright line at ``x`` with its words above the plot, where no curve can run into them.

    ``at`` is the words' own x where the axis is logarithmic (annotations there count in powers of ten).
    """
    line = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    words = {"text": text, "x": x if at is None else at, "y": 1, "yref": "paper", "yanchor": "bottom"}
    return {
        "shapes": [line | {"line": {"color": colour, "width": 1.5, "dash": "dash"}}],
        "annotations": [words | {"xanchor": anchor, "showarrow": False, "font": {"color": colour, "size": 12}}],
    }


def anchor_at(share: float) -> str:
    """Words near an edge grow inwards."""
    if share < 0.2:
        return "left"
    return "right" if share > 0.8 else "center"


def document(traces: Sequence[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The figure as plain JSON; plotly checks every name and value on the way."""
    figure: dict[str, Any] = json.loads(go.Figure(data=list(traces), layout=settings).to_json())
    return figure


def folded(name: str, width: int, lines: int) -> str:
    """A long name on several lines of an axis; the table has all of it."""
    return "<br>".join(textwrap.wrap(name, width, max_lines=lines, placeholder="…")) or name


def seconds(value: float) -> str:
    return f"{value:.3g} s"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def points(difference: float) -> str:
    return f"{signed(100 * difference)} points"


def signed(value: float) -> str:
    """A true minus sign, and no sign on what rounds to zero."""
    rounded = f"{abs(value):.1f}"
    if float(rounded) == 0:
        return "0.0"
    return f"{'−' if value < 0 else '+'}{rounded}"


def ratio(value: float) -> str:
    return f"{value:.2f}×"
