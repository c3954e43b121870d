"""The requirements of a verdict as an owner reads them: texts with units, and where the interval's picture lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decisions.rules.wording import change, interval, quantity, share, signed

WIDTH, LEFT, RIGHT = 150.0, 22.0, 128.0
LABELS_APART = 34.0

ROLES = {"improve": "must improve", "non-inferior": "must not be worse", "guardrail": "guardrail", "reported": ""}


@dataclass(frozen=True)
class Picture:
    """Places on a line of 150; a side without a bound runs to the edge."""

    zero: float
    zero_text: str
    limit: float | None
    limit_text: str
    low: float
    high: float
    point: float
    open_left: bool
    open_right: bool


@dataclass(frozen=True)
class RequirementRow:
    label: str
    role: str
    required: bool
    baseline: str
    candidate: str
    difference: str
    interval: str
    limit: str
    shown: str
    picture: Picture | None
    # Rests on the preserved-behaviour suite; and of its cases those that broke.
    suite: bool = False
    broken: tuple[str, ...] = ()


def requirement_row(fields: Mapping[str, Any]) -> RequirementRow:
    unit = fields["unit"]
    return RequirementRow(
        label=fields["label"],
        role=ROLES[fields["role"]],
        required=fields["role"] != "reported",
        baseline=quantity(fields["baseline"], unit),
        candidate=quantity(fields["candidate"], unit),
        difference=difference_text(fields),
        interval=interval_text(fields),
        limit=fields["required_text"],
        shown=shown_word(fields),
        picture=None if is_suite(fields) else picture(fields),
        suite=is_suite(fields),
        broken=tuple(fields.get("cases", ())),
    )


def is_suite(fields: Mapping[str, Any]) -> bool:
    return fields.get("metric") == "behaviour"


def shown_word(fields: Mapping[str, Any]) -> str:
    if fields["shown"] == "shown":
        return "holds" if fields["role"] == "guardrail" else "shown"
    return fields["shown"] or ""


def difference_text(fields: Mapping[str, Any]) -> str:
    if fields["scale"] != "absolute":
        return change(fields["difference"], fields["scale"])
    return f"{fields['over']:,} of {fields['requests']:,}" if "over" in fields else "–"


def interval_text(fields: Mapping[str, Any]) -> str:
    low, high = fields["low"], fields["high"]
    if low is None and high is None:
        return "–"
    if fields["scale"] != "absolute":
        return interval(low, high, fields["scale"])
    return f"{'0 %' if low is None else share(low)} to {'no bound' if high is None else share(high)}"


def picture(fields: Mapping[str, Any]) -> Picture | None:
    low, high, point, limit = numbers(fields)
    if point is None:
        return None
    shown = [0.0, point, *(one for one in (low, high, limit) if one is not None)]
    least, most = min(shown), max(shown)
    if most == least:
        return None

    def place(number: float) -> float:
        return round(LEFT + (number - least) / (most - least) * (RIGHT - LEFT), 1)

    zero, limited = place(0.0), None if limit is None else place(limit)
    crowded = limited is not None and abs(limited - zero) < LABELS_APART
    return Picture(
        zero=zero,
        zero_text="" if crowded else "0",
        limit=limited,
        limit_text="" if limit is None else tick(limit, fields["scale"]),
        low=0.0 if low is None else place(low),
        high=WIDTH if high is None else place(high),
        point=place(point),
        open_left=low is None,
        open_right=high is None,
    )


def numbers(fields: Mapping[str, Any]) -> tuple[float | None, float | None, float | None, float | None]:
    """(low, high, point, limit), on one scale: a change, or for absolute limits the share over the limit."""
    if fields["scale"] != "absolute":
        return fields["low"], fields["high"], fields["difference"], fields["required"]
    if not fields.get("requests"):
        return None, None, None, None
    return fields["low"], fields["high"], fields["over"] / fields["requests"], fields["share_limit"]


def tick(number: float, scale: str) -> str:
    if scale == "absolute":
        return f"{100 * number:.3g} %"
    return signed(100 * number) + ("" if scale == "difference" else " %")


@dataclass(frozen=True)
class TuningRow:
    candidate: str
    label: str
    draft_length: int
    cell: str
    improves: bool
    baseline: str
    value: str
    change: str
    boots: int
    chosen: bool
    improvement: float


def tuning_rows(rows: list[dict[str, Any]], nominee: str) -> list[TuningRow]:
    """The race, the best first within each cell; cells that must improve come first."""
    found = [
        TuningRow(
            candidate=row["candidate"],
            label=row["label"],
            draft_length=row["draft_length"],
            cell=row["level"] if row["class"] == "all" else f"{row['level']}, {row['class']}",
            improves=row["improves"],
            baseline=quantity(row["baseline"], row["unit"]),
            value=quantity(row["value"], row["unit"]),
            change=change(row["difference"], row["scale"]),
            boots=row["boots"],
            chosen=bool(nominee) and row["candidate"] == nominee,
            improvement=float("-inf") if row["improvement"] is None else row["improvement"],
        )
        for row in rows
    ]
    order = list(dict.fromkeys(row.cell for row in sorted(found, key=lambda one: not one.improves)))
    return sorted(found, key=lambda one: (order.index(one.cell), -one.improvement))
