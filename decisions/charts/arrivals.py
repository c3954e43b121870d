"""Arrivals over time: how bursty a part is, at a glance."""

from collections.abc import Sequence

import plotly.graph_objects as go

from decisions.charts.figure import ACCENT, Chart, Table, axis, document, layout


def arrivals_over_time(counts: Sequence[int], *, bucket_s: float) -> Chart:
    """``counts`` are the requests per bucket of ``bucket_s`` seconds, from the first arrival on."""
    unit, seconds_per_unit = unit_for(len(counts) * bucket_s)
    bars = go.Bar(
        x=[place * bucket_s / seconds_per_unit for place in range(len(counts))],
        y=list(counts),
        # A bar stands on the stretch of time that it counts.
        offset=0,
        width=bucket_s / seconds_per_unit,
        marker={"color": ACCENT, "line": {"width": 0}},
        hovertemplate="%{y} requests from %{x:.4g} " + unit + "<extra></extra>",
    )
    settings = layout(
        height=240,
        x=axis(f"{unit} from the first arrival", showgrid=False),
        y=axis(f"requests per {bucket_s:g} s", rangemode="tozero", tickformat="d", nticks=5),
        margin={"l": 8, "r": 8, "t": 12, "b": 44},
        showlegend=False,
    )
    return Chart(document([bars], settings), caption(counts, bucket_s), table(counts, bucket_s))


def unit_for(span_s: float) -> tuple[str, float]:
    if span_s < 600:
        return "seconds", 1
    return ("minutes", 60) if span_s < 6 * 3_600 else ("hours", 3_600)


def caption(counts: Sequence[int], bucket_s: float) -> str:
    if not counts:
        return "No request has arrived."
    return (
        f"{sum(counts)} requests over {len(counts) * bucket_s:g} s; the busiest {bucket_s:g} s had {max(counts)}, "
        f"the average {sum(counts) / len(counts):.1f}."
    )


def table(counts: Sequence[int], bucket_s: float) -> Table:
    rows = tuple((f"{place * bucket_s:g} s", str(count)) for place, count in enumerate(counts))
    return Table(("from", f"requests in {bucket_s:g} s"), rows)
