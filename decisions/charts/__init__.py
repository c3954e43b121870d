"""Charts: numbers in, a plotly figure with its sentence and its table out. Pure."""

from decisions.charts.arrivals import arrivals_over_time
from decisions.charts.attainment import LevelAttainment, attainment_by_level
from decisions.charts.completion import completion_ecdf
from decisions.charts.figure import Chart, Interval, Table
from decisions.charts.pairs import pairs_forest

__all__ = [
    "Chart",
    "Interval",
    "LevelAttainment",
    "Table",
    "arrivals_over_time",
    "attainment_by_level",
    "completion_ecdf",
    "pairs_forest",
]
