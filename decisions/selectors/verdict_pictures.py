"""The pictures of a verdict that its own document holds the numbers of: no evidence is read for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decisions.charts.capacity import Climb, Rung, capacity_ladder
from decisions.charts.figure import Chart, Interval
from decisions.charts.pairs import EQUAL, ClassPairs, Scale, classes_forest, everything, pairs_forest, shown_range
from decisions.charts.power import smallest_effects
from decisions.charts.trials import OwnMeasure, trials_by_themselves
from decisions.rules.brief import Brief
from decisions.rules.capacity import rate_of
from decisions.rules.evidence import ALL
from decisions.rules.power import Power

Row = Mapping[str, Any]
SCALES: dict[str, Scale] = {"difference": "points", "ratio": "ratio"}
ASKED = {"improve": "minimum improvement", "non-inferior": "margin", "guardrail": "limit"}
REPORTED = "reported, it gates nothing"
# From here on a quantile is one of the slowest requests.
HIGH = 0.8


@dataclass(frozen=True)
class LevelForests:
    level: str
    charts: list[Chart]
    # cells none of whose pairs has a number
    without: list[str]


def forests(document: Mapping[str, Any], levels: Sequence[str]) -> list[LevelForests]:
    """Per level the cells of the outcome that gate, pair by pair, and then its classes, all on one scale."""
    found = []
    for level in levels:
        rows = [row for row in document["outcome"] if row["level"] == level and row["scale"] in SCALES and row["pairs"]]
        rows.sort(key=lambda row: row["class"] != ALL)
        drawn = [row for row in rows if has_numbers(row)]
        span = shared_span(drawn)
        charts = [forest(row, span=span) for row in drawn if row["role"] != "reported"]
        charts += by_class([row for row in drawn if row["role"] == "reported"], span)
        if rows:
            found.append(LevelForests(level, charts, [cell_of(row) for row in rows if row not in drawn]))
    return found


def by_class(rows: Sequence[Row], span: tuple[float, float] | None) -> list[Chart]:
    if not rows or span is None:
        return []
    first = rows[0]
    classes = [
        ClassPairs(
            row["class"],
            [(pair["pair"] + 1, number) for pair, number in zip(row["pairs"], pair_numbers(row), strict=True)],
            interval_of(row),
        )
        for row in rows
    ]
    confidence = first["interval_confidence"]
    return [
        classes_forest(
            first["level"], metric_of(first), classes, scale=scale_of(first), confidence=confidence, span=span
        )
    ]


def metric_of(row: Row) -> str:
    return str(row["label"].split(",")[0].lower())


def has_numbers(row: Row) -> bool:
    return any(number is not None for number in pair_numbers(row))


def pair_numbers(row: Row) -> list[float | None]:
    """As they are drawn: a ratio around one, or for an absolute limit the candidate's own figure."""
    if row["scale"] == "absolute":
        return [pair["candidate"] for pair in row["pairs"]]
    return [onto_scale(row, pair["difference"]) for pair in row["pairs"]]


def onto_scale(row: Row, change: float | None) -> float | None:
    return None if change is None else EQUAL[SCALES[row["scale"]]] + change


def scale_of(row: Row) -> Scale:
    if row["scale"] != "absolute":
        return SCALES[row["scale"]]
    return "seconds" if row["unit"] == "s" else "share"


def interval_of(row: Row) -> Interval | None:
    if row["scale"] == "absolute" or row["difference"] is None:
        return None
    middle = onto_scale(row, row["difference"])
    assert middle is not None
    return Interval(middle, onto_scale(row, row["low"]), onto_scale(row, row["high"]))


def required_of(row: Row) -> float | None:
    return row["required"] if row["scale"] == "absolute" else onto_scale(row, row["required"])


def shared_span(rows: Sequence[Row]) -> tuple[float, float] | None:
    if not rows:
        return None
    return shown_range(
        [
            one
            for row in rows
            for one in everything(pair_numbers(row), interval_of(row), required_of(row), scale_of(row))
        ]
    )


def cell_of(row: Row) -> str:
    return str(row["level"] if row["class"] == ALL else f"{row['level']}, {row['class']}")


def forest(row: Row, *, span: tuple[float, float] | None = None) -> Chart:
    return pairs_forest(
        cell=cell_of(row),
        metric=metric_of(row),
        values=pair_numbers(row),
        interval=interval_of(row),
        required=required_of(row),
        required_is=ASKED.get(row["role"], REPORTED),
        scale=scale_of(row),
        confidence=row["interval_confidence"],
        numbers=[pair["pair"] + 1 for pair in row["pairs"]],
        span=span,
    )


@dataclass(frozen=True)
class Proof:
    """The one picture that the verdict's sentence rests on."""

    heading: str
    chart: Chart


def proof(brief: Brief, document: Mapping[str, Any]) -> Proof | None:
    """None where no picture of pairs could show it: INVALID, nobody nominated, or no pair with a number."""
    if document["verdict"] == "INVALID":
        return None
    row = deciding(document)
    if row is not None and row["metric"] == "capacity":
        chart = ladder(brief, document)
        return Proof("What each arm carries", chart) if chart else None
    if row is None or not has_numbers(row):
        return None
    return Proof(f"Every pair: {row['label'][:1].lower()}{row['label'][1:]}", forest(row))


def deciding(document: Mapping[str, Any]) -> Row | None:
    """What the sentence is about: the first requirement that is broken, or else the least clear improvement."""
    rows = [*document["outcome"], *document["guardrails"]]
    broken: list[Row] = [row for name in document["broken"] for row in rows if row["id"] == name]
    improving: list[Row] = [row for row in document["outcome"] if row["role"] == "improve"]
    if broken and document["verdict"] == "FAIL":
        return broken[0]
    return max(improving, key=lambda row: (row["p_holds"] or 0.0, row["label"]), default=None)


def ladder(brief: Brief, document: Mapping[str, Any]) -> Chart | None:
    """What a verdict from the second version on says of the brief's ladder."""
    rows = document.get("capacity") or []
    if brief.capacity is None or not rows:
        return None
    rungs = ladder_rungs(brief)
    climbs = [climb(document, row, rungs) for row in rows]
    sentences = [row["sentence"] for row in rows]
    return capacity_ladder(rungs, climbs, target=brief.capacity.target, peak=rows[0]["peak_rate"], sentences=sentences)


def ladder_rungs(brief: Brief) -> list[Rung]:
    """From the lowest rate up."""
    names = brief.capacity.levels if brief.capacity else ()
    return sorted((Rung(name, rate_of(brief, name)) for name in names), key=lambda rung: rung.rate)


def climb(document: Mapping[str, Any], row: Row, rungs: Sequence[Rung]) -> Climb:
    attained = {one["level"]: one["attainment"] for one in document["levels"] if same_requests(one, row)}
    return Climb(row["arm"], row["shown"], row["above"], row["censored"], [attained.get(rung.level) for rung in rungs])


def same_requests(level: Row, row: Row) -> bool:
    return bool((level["arm"], level["class"]) == (row["arm"], row["class"]))


@dataclass(frozen=True)
class LevelTrials:
    level: str
    chart: Chart


def trials(brief: Brief, document: Mapping[str, Any]) -> list[LevelTrials]:
    """In the outcome's measure. Empty for a verdict of the first version, which says nothing of a trial by itself."""
    levels = [level.name for level in brief.levels]
    measure = own_measure(brief)
    rows = [row for row in document.get("trials", []) if row["pair"] is not None]
    at = {level: [row for row in rows if row["level"] == level] for level in levels}
    return [LevelTrials(level, trials_by_themselves(level, found, measure)) for level, found in at.items() if found]


def own_measure(brief: Brief) -> OwnMeasure:
    """Of the three that a verdict has intervals within a trial of, the one nearest to what the brief asks about."""
    if brief.outcome.quantile is None:
        return "attainment"
    return "completion_p50" if brief.outcome.quantile < HIGH else "completion_p99"


def power_chart(power: Power) -> Chart:
    return smallest_effects(
        cell=power.where,
        curve=power.curve,
        planned=(power.planned, power.smallest),
        asked=power.asked,
        needed=power.needed,
        scale=power.scale,
    )
