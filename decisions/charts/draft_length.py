"""Draft length × load: where a candidate gains on the baseline, and where it loses."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from decisions.charts.figure import BETTER, EVEN, WORSE, Chart, Table, axis, document, layout, ratio

# Less than ten per cent never fills the scale: noise would look like a result.
NARROWEST = math.log(1.1)

Ratios = Mapping[tuple[str, str], float | None]


def draft_length_heat_map(
    *,
    labels: Sequence[str],
    levels: Sequence[str],
    ratios: Ratios,
    metric: str,
    higher_is_better: bool = True,
) -> Chart:
    """``ratios`` is candidate ÷ baseline by (label, level), for example ("ngram K=4", "peak"); None or missing is
    not measured and stays empty. ``metric`` says what the ratio is of ("attainment")."""
    cells = [[measured(ratios, label, level) for level in levels] for label in labels]
    settings = layout(
        height=96 + 52 * len(labels),
        x=axis(side="top", showgrid=False, tickfont={"size": 13}, type="category"),
        y=axis(autorange="reversed", showgrid=False, tickfont={"size": 13}, type="category"),
        margin={"l": 8, "r": 8, "t": 36, "b": 8},
        showlegend=False,
    )
    trace = heat_map(labels, levels, cells, metric=metric, higher_is_better=higher_is_better)
    words = caption(labels, levels, ratios, metric=metric, higher_is_better=higher_is_better)
    return Chart(document([trace], settings), words, table(labels, levels, cells))


def measured(ratios: Ratios, label: str, level: str) -> float | None:
    value = ratios.get((label, level))
    return value if value is not None and math.isfinite(value) and value > 0 else None


def heat_map(
    labels: Sequence[str],
    levels: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    metric: str,
    higher_is_better: bool,
) -> Any:
    """Coloured by the logarithm, so that half and double lie equally far from 1."""
    logs = [[None if cell is None else round(math.log(cell), 5) for cell in row] for row in cells]
    reach = max([NARROWEST, *(abs(log) for row in logs for log in row if log is not None)])
    ends = (WORSE, BETTER) if higher_is_better else (BETTER, WORSE)
    settings: dict[str, Any] = {
        "x": list(levels),
        "y": list(labels),
        "z": logs,
        "text": [["" if cell is None else ratio(cell) for cell in row] for row in cells],
        "texttemplate": "%{text}",
        "zmin": -reach,
        "zmax": reach,
        "colorscale": [[0, ends[0]], [0.5, EVEN], [1, ends[1]]],
        "showscale": False,
        "hoverongaps": False,
        "xgap": 3,
        "ygap": 3,
        "hovertemplate": "%{y}, %{x}: %{text} the baseline's " + metric + "<extra></extra>",
    }
    return go.Heatmap(**settings)


def caption(
    labels: Sequence[str], levels: Sequence[str], ratios: Ratios, *, metric: str, higher_is_better: bool
) -> str:
    found = {
        (label, level): value
        for label in labels
        for level in levels
        if (value := measured(ratios, label, level)) is not None
    }
    if not found:
        return "No draft length has been measured yet."
    best = (max if higher_is_better else min)(found, key=found.__getitem__)
    worst = (min if higher_is_better else max)(found, key=found.__getitem__)
    return (
        f"Ratio of {metric} to the baseline: best {ratio(found[best])} with {best[0]} at {best[1]}, "
        f"worst {ratio(found[worst])} with {worst[0]} at {worst[1]}; 1.00× is the baseline."
    )


def table(labels: Sequence[str], levels: Sequence[str], cells: Sequence[Sequence[float | None]]) -> Table:
    rows = tuple(
        (label, *("not measured" if cell is None else ratio(cell) for cell in row))
        for label, row in zip(labels, cells, strict=True)
    )
    return Table(("draft length", *levels), rows)
