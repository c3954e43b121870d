"""Arrivals over time: how bursty the traffic is, and which time belongs to which part."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, INK, Chart, Table, anchor_at, axis, document, layout, upright
from decisions.charts.parts import look_of

HEIGHT = 240
LANE = 22
# Stretches closer than this share of the picture are drawn as one: nobody could see the gap.
SHORTEST_SEEN = 1 / 1_000

Stretch = tuple[float, float]


class Lane(NamedTuple):
    """A part, and the stretches [start, end) of time that are its own, in seconds from the set's start."""

    part: str
    stretches: Sequence[Stretch]


class Busiest(NamedTuple):
    at_s: float
    requests: int


def arrivals_over_time(
    counts: Sequence[int],
    *,
    bucket_s: float,
    lanes: Sequence[Lane] = (),
    busiest: Busiest | None = None,
    duration_s: float | None = None,
) -> Chart:
    """``counts`` are the requests per bucket of ``bucket_s`` seconds, from the set's start on; bars show the rate.
    ``duration_s`` is how long the traffic lasts, where that is known: the last bar may reach beyond it."""
    span = len(counts) * bucket_s
    unit, scale = unit_for(span)
    settings = layout(
        height=HEIGHT + LANE * len(lanes),
        x=axis(f"{unit} from the start", showgrid=False, range=[0, span / scale or 1]),
        y=axis("requests/s", rangemode="tozero", nticks=5),
        margin={"l": 8, "r": 8, "t": 28 if busiest else 12, "b": 44},
        showlegend=False,
        barmode="overlay",
        **(marked(busiest, span, scale) if busiest else {}),
        **(under_the_bars(lanes) if lanes else {}),
    )
    traces = [bars(counts, bucket_s, unit, scale), *(band(lane, span, scale) for lane in lanes)]
    if lanes:
        settings["xaxis"] |= {"anchor": "y2"}
        settings["yaxis"] |= {"domain": [share_of_lanes(len(lanes)) + 0.04, 1]}
    return Chart(
        document(traces, settings),
        caption(counts, bucket_s, busiest, duration_s or span),
        table(counts, bucket_s, lanes),
    )


def bars(counts: Sequence[int], bucket_s: float, unit: str, scale: float) -> Any:
    return go.Bar(
        x=[round(place * bucket_s / scale, 6) for place in range(len(counts))],
        y=[float(f"{count / bucket_s:.4g}") for count in counts],
        # A bar stands on the stretch of time that it counts.
        offset=0,
        width=bucket_s / scale,
        marker={"color": ACCENT, "line": {"width": 0}},
        hovertemplate="%{y:.3g} requests/s from %{x:.4g} " + unit + "<extra></extra>",
    )


def band(lane: Lane, span: float, scale: float) -> Any:
    look = look_of(lane.part)
    drawn = list(merged(lane.stretches, gap=span * SHORTEST_SEEN))
    return go.Bar(
        orientation="h",
        yaxis="y2",
        y=[lane.part] * len(drawn),
        base=[round(start / scale, 4) for start, _ in drawn],
        x=[round((end - start) / scale, 4) for start, end in drawn],
        marker={"color": look.colour, "line": {"width": 0}, "pattern": {"shape": look.pattern, "size": 6}},
        hovertemplate=lane.part + "<extra></extra>",
    )


def merged(stretches: Sequence[Stretch], *, gap: float) -> Iterator[Stretch]:
    """Ascending stretches, those with less than ``gap`` between them as one."""
    open_: Stretch | None = None
    for start, end in sorted(stretches):
        if open_ is not None and start - open_[1] <= gap:
            open_ = (open_[0], max(open_[1], end))
            continue
        if open_ is not None:
            yield open_
        open_ = (start, end)
    if open_ is not None:
        yield open_


def share_of_lanes(lanes: int) -> float:
    return LANE * lanes / (HEIGHT - 72 + LANE * lanes)


def under_the_bars(lanes: Sequence[Lane]) -> dict[str, Any]:
    below = axis(
        domain=[0, share_of_lanes(len(lanes))],
        categoryorder="array",
        categoryarray=[lane.part for lane in reversed(lanes)],
        showgrid=False,
        ticklen=0,
    )
    return {"yaxis2": below, "bargap": 0.35}


def marked(busiest: Busiest, span: float, scale: float) -> dict[str, Any]:
    text = f"busiest second: {busiest.requests:,}"
    return upright(busiest.at_s / scale, text, colour=INK, anchor=anchor_at(busiest.at_s / span if span else 0))


def unit_for(span_s: float) -> tuple[str, float]:
    if span_s < 600:
        return "seconds", 1
    return ("minutes", 60) if span_s < 6 * 3_600 else ("hours", 3_600)


def lasting(seconds: float) -> str:
    """45 s, 12 min 31 s, 1 h 2 min 3 s: every second counts where a moment is named."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def caption(counts: Sequence[int], bucket_s: float, busiest: Busiest | None, duration_s: float) -> str:
    if not sum(counts):
        return "No request has arrived."
    silent, most = sum(not count for count in counts), max(counts)
    sentence = (
        f"{sum(counts):,} requests over {lasting(duration_s)}, {sum(counts) / duration_s:.3g} a second on average; "
        f"the busiest {bucket_s:g} s had {most:,}"
    )
    if busiest:
        sentence += f", the busiest second {busiest.requests:,}, {lasting(busiest.at_s)} from the start"
    return f"{sentence}; in {silent:,} of {len(counts):,} bars nothing arrived."


def table(counts: Sequence[int], bucket_s: float, lanes: Sequence[Lane]) -> Table:
    headers = ("from", f"requests in {bucket_s:g} s", "requests/s", *(("time of",) if lanes else ()))
    return Table(
        headers,
        tuple(
            (
                lasting(place * bucket_s),
                f"{count:,}",
                f"{count / bucket_s:.3g}",
                *((owners(lanes, place * bucket_s, (place + 1) * bucket_s),) if lanes else ()),
            )
            for place, count in enumerate(counts)
        ),
    )


def owners(lanes: Sequence[Lane], start: float, end: float) -> str:
    found = [lane.part for lane in lanes if any(first < end and last > start for first, last in lane.stretches)]
    return ", ".join(found) or "no part"
