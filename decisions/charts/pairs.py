"""Every pair's result beside the interval over pairs and the limit it is held against; and the same by class."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import plotly.graph_objects as go

from decisions.charts.attainment import bars
from decisions.charts.figure import (
    ACCENT,
    BAD,
    GREY,
    SOFT,
    Chart,
    Interval,
    Table,
    axis,
    document,
    layout,
    percent,
    points,
    ratio,
    seconds,
    upright,
)

Scale = Literal["points", "ratio", "seconds", "share"]
WORDS: dict[Scale, Callable[[float], str]] = {"points": points, "ratio": ratio, "seconds": seconds, "share": percent}
AXES: dict[Scale, str] = {
    "points": "candidate − baseline, points",
    "ratio": "candidate ÷ baseline",
    "seconds": "candidate, s",
    "share": "candidate, %",
}
FACTORS: dict[Scale, float] = {"points": 100.0, "ratio": 1.0, "seconds": 1.0, "share": 100.0}
# Where both arms are equal; an arm's own figure has no such place.
EQUAL: dict[Scale, float] = {"points": 0.0, "ratio": 1.0}
NO_NUMBER = "no number"
ROW, MOST_PLOT, MOST_LABELS = 26, 340, 13


def pairs_forest(
    *,
    cell: str,
    metric: str,
    values: Sequence[float | None],
    interval: Interval | None,
    required: float | None,
    required_is: str,
    scale: Scale,
    confidence: float | None,
    numbers: Sequence[int] = (),
    span: tuple[float, float] | None = None,
) -> Chart:
    """``values`` holds one number per pair, None where it has none: a difference of shares ("points"; 0.02 is 2
    points), a ratio candidate ÷ baseline, or the candidate's own figure ("seconds", "share"). ``required_is`` names the
    limit ("minimum improvement"), None where nothing is asked; ``confidence`` is the interval's own two-sided one.
    ``numbers`` are the pairs' own, ``span`` the range that cells beside each other share."""
    names = [f"pair {number}" for number in numbers or range(1, len(values) + 1)]
    factor = FACTORS[scale]
    low, high = span or shown_range(everything(values, interval, required, scale))
    ticks = labelled([*names, "all pairs"])
    settings = layout(
        height=108 + min(ROW * (len(values) + 1), MOST_PLOT),
        x=axis(AXES[scale], range=[factor * low, factor * high], nticks=5),
        y=axis(
            tickvals=[place for place, _ in ticks],
            ticktext=[name for _, name in ticks],
            range=[len(values) + 0.6, -0.6],
            showgrid=False,
        ),
        margin={"l": 8, "r": 16, "t": 28, "b": 44},
        showlegend=False,
        **lines(required, required_is, scale, (low, high)),
    )
    traces = [pair_dots(values, names, scale)]
    if interval is not None:
        traces.append(interval_dot(interval, len(values), scale, factor))
    words = caption(cell, metric, values, interval, confidence, scale) + held_against(required, required_is, scale)
    return Chart(
        document(traces, settings), words, table(values, names, interval, required, required_is, scale, confidence)
    )


class ClassPairs(NamedTuple):
    """One request class: its pairs by number, None where one has none, and the interval over them."""

    name: str
    pairs: Sequence[tuple[int, float | None]]
    interval: Interval | None


APART = 0.16


def classes_forest(
    level: str,
    metric: str,
    classes: Sequence[ClassPairs],
    *,
    scale: Scale,
    confidence: float | None,
    span: tuple[float, float],
) -> Chart:
    """A row per class: its pairs as dots, and under them their mean and its interval. Nothing is asked of a class that
    the brief doesn't name."""
    factor = FACTORS[scale]
    settings = layout(
        height=108 + 44 * len(classes),
        x=axis(AXES[scale], range=[factor * span[0], factor * span[1]], nticks=5),
        y=axis(
            tickvals=list(range(len(classes))),
            ticktext=[one.name for one in classes],
            range=[len(classes) - 0.5, -0.5],
            showgrid=False,
        ),
        margin={"l": 8, "r": 16, "t": 28, "b": 44},
        showlegend=False,
        **lines(None, "", scale, span),
    )
    traces = [trace for place, one in enumerate(classes) for trace in class_traces(one, place, scale)]
    each = "; ".join(class_words(one, scale) for one in classes)
    at = "" if confidence is None else f", with {percent(confidence, 0)} intervals"
    words = f"By class at {level}, {metric}{at}: {each}. Reported: they gate nothing."
    return Chart(document(traces, settings), words, classes_table(classes, scale))


def class_traces(one: ClassPairs, place: int, scale: Scale) -> list[Any]:
    names = [f"{one.name}, pair {number}" for number, _ in one.pairs]
    dots = pair_dots([value for _, value in one.pairs], names, scale)
    dots.y, dots.marker.size = [place - APART] * len(dots.x), 7
    if one.interval is None:
        return [dots]
    mean = interval_dot(one.interval, place, scale, FACTORS[scale])
    mean.y = [place + APART]
    return [dots, mean]


def class_words(one: ClassPairs, scale: Scale) -> str:
    if one.interval is not None:
        return f"{one.name} {described(one.interval, scale)}"
    known = sum(value is not None for _, value in one.pairs)
    return (
        f"{one.name} {NO_NUMBER}" if not known else f"{one.name} {known} pair{'' if known == 1 else 's'}, no interval"
    )


def classes_table(classes: Sequence[ClassPairs], scale: Scale) -> Table:
    rows = []
    for one in classes:
        rows += [(one.name, f"pair {number}", number_words(value, scale)) for number, value in one.pairs]
        if one.interval is not None:
            rows.append((one.name, "all pairs", described(one.interval, scale)))
    return Table(("class", "pair", AXES[scale]), tuple(rows))


def number_words(value: float | None, scale: Scale) -> str:
    return NO_NUMBER if value is None else WORDS[scale](value)


def everything(
    values: Sequence[float | None], interval: Interval | None, required: float | None, scale: Scale
) -> list[float]:
    found = [*values, *(interval or ()), required, EQUAL.get(scale)]
    return [one for one in found if one is not None]


def shown_range(shown: Sequence[float]) -> tuple[float, float]:
    low, high = min(shown), max(shown)
    room = max((high - low) * 0.1, 0.005)
    return low - room, high + room


def labelled(names: Sequence[str]) -> list[tuple[int, str]]:
    """As many of the names as stand below each other without touching, the last one always."""
    step = -(-len(names) // MOST_LABELS)
    last = len(names) - 1
    places = [*(place for place in range(0, last, step) if last - place >= step), last]
    return [(place, names[place]) for place in places]


def lines(required: float | None, required_is: str, scale: Scale, shown: tuple[float, float]) -> dict[str, Any]:
    """The limit, and a quiet line where both arms are equal."""
    low, high = shown
    factor = FACTORS[scale]
    marks: dict[str, Any] = {"shapes": [], "annotations": []}
    if required is not None:
        text = f"{required_is} {WORDS[scale](required)}"
        marks = upright(factor * required, text, colour=BAD, anchor=inwards((required - low) / (high - low)))
    if scale in EQUAL:
        even = {"type": "line", "x0": factor * EQUAL[scale], "x1": factor * EQUAL[scale], "y0": 0, "y1": 1}
        even |= {"yref": "paper", "layer": "below", "line": {"color": SOFT, "width": 1}}
        marks |= {"shapes": [even, *marks["shapes"]]}
    return marks


def inwards(share: float) -> str:
    """The limit's words are half as long as the plot on a phone: beyond its middle third they grow inwards."""
    return "left" if share < 1 / 3 else "right" if share > 2 / 3 else "center"


def pair_dots(values: Sequence[float | None], names: Sequence[str], scale: Scale) -> Any:
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    return go.Scatter(
        x=[FACTORS[scale] * value for _, value in known],
        y=[place for place, _ in known],
        mode="markers",
        marker={"color": GREY, "size": 9},
        text=[f"{names[place]}: {WORDS[scale](value)}" for place, value in known],
        hovertemplate="%{text}<extra></extra>",
    )


def interval_dot(interval: Interval, place: int, scale: Scale, factor: float) -> Any:
    return go.Scatter(
        x=[factor * interval.value],
        y=[place],
        mode="markers",
        marker={"color": ACCENT, "size": 12, "symbol": "diamond"},
        error_x=bars([interval], ACCENT, factor),
        text=[described(interval, scale)],
        hovertemplate="%{text}<extra></extra>",
    )


def described(interval: Interval, scale: Scale) -> str:
    word = WORDS[scale]
    low, high = (None if bound is None else word(bound) for bound in (interval.low, interval.high))
    if low is None and high is None:
        return f"{word(interval.value)}, no interval"
    return f"{word(interval.value)} ({low or '…'} to {high or '…'})"


def caption(
    cell: str,
    metric: str,
    values: Sequence[float | None],
    interval: Interval | None,
    confidence: float | None,
    scale: Scale,
) -> str:
    said = f"At {cell}, {metric} over {len(values)} pairs"
    if interval is not None:
        said += f": {described(interval, scale)}"
        said += f" at {percent(confidence, 0)} confidence" if confidence is not None else ""
    without = sum(value is None for value in values)
    return said + (f"; {without} of them without a number" if without else "")


def held_against(required: float | None, required_is: str, scale: Scale) -> str:
    return f"; {required_is}." if required is None else f"; {required_is} {WORDS[scale](required)}."


def table(
    values: Sequence[float | None],
    names: Sequence[str],
    interval: Interval | None,
    required: float | None,
    required_is: str,
    scale: Scale,
    confidence: float | None,
) -> Table:
    word = WORDS[scale]
    rows = [(name, number_words(value, scale)) for name, value in zip(names, values, strict=True)]
    if interval is not None:
        over = "all pairs" if confidence is None else f"all pairs ({percent(confidence, 0)} interval)"
        rows.append((over, described(interval, scale)))
    if required is not None:
        rows.append((required_is, word(required)))
    return Table(("pair", AXES[scale]), tuple(rows))
