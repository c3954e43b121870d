"""One requirement as an owner reads it: a number beside its limit, shown, broken or open."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from decisions.rules.brief import Brief, Cell
from decisions.rules.comparison import Comparison, Pair
from decisions.rules.measures import Measure, shown_change
from decisions.rules.wording import at, change
from loadtests.statistics.effects import pairs_to_bound
from loadtests.statistics.multiplicity import holm

Role = Literal["improve", "non-inferior", "reported", "guardrail"]
PairsAt = Mapping[str, Sequence[Pair]]


@dataclass(frozen=True)
class Row:
    """One requirement (or, with ``shown`` None, one number that gates nothing) as it stands.

    ``p_broken`` is against "the requirement holds"; ``settles`` says what would settle it while it is open.
    """

    fields: Mapping[str, Any]
    role: Role
    shown: str | None
    p_broken: float
    settles: str = ""

    @property
    def label(self) -> str:
        return str(self.fields["label"])

    @property
    def document(self) -> dict[str, Any]:
        return {**self.fields, "role": self.role, "shown": self.shown, "p_broken": self.p_broken}


def no_requirement() -> dict[str, Any]:
    return {"required": None, "required_is": None, "required_text": "", "p_holds": None, "p_sign_flip": None}


def judged(fields: dict[str, Any], comparison: Comparison, threshold: float, alpha: float, role: Role) -> Row:
    measure = comparison.measure
    p_holds, p_broken = comparison.p_above(threshold), comparison.p_below(threshold)
    required = shown_change(measure, threshold)
    fields |= {
        "required": required,
        "required_is": "at least" if measure.better > 0 else "at most",
        "required_text": f"{'≥' if measure.better > 0 else '≤'} {change(required, measure.scale)}",
        "p_holds": p_holds,
        "p_sign_flip": comparison.flipped(threshold, 1) if comparison.bounds else None,
    }
    return Row(fields, role, state(p_holds, p_broken, alpha), p_broken, what_settles(comparison, threshold, alpha))


def state(p_holds: float, p_broken: float, alpha: float) -> str:
    return "shown" if p_holds <= alpha else "broken" if p_broken <= alpha else "open"


def what_settles(comparison: Comparison, threshold: float, alpha: float) -> str:
    name = f"{comparison.measure.said} {at(comparison.cell)}"
    bounds = comparison.bounds
    if bounds is None and len(comparison.values) < 2:
        return f"At least two pairs with requests to measure {name} on."
    if bounds is None:
        return f"Pairs in which {name} has a number in both arms: it never came in some."
    needed = pairs_to_bound(bounds.mean - threshold, bounds.se * math.sqrt(bounds.count), alpha=alpha)
    if needed is None:
        return f"More pairs for {name}, whose estimate itself misses what was asked: a FAIL is likelier than a PASS."
    pairs = max(needed, bounds.count + 2)
    return f"About {pairs} pairs in all for {name}, if the estimate and its spread stay as they are."


def cell_fields(brief: Brief, measure: Measure, cell: Cell) -> dict[str, Any]:
    return {
        "label": f"{measure.label}, {cell.label}",
        "metric": measure.metric,
        "quantile": measure.quantile,
        "level": cell.level,
        "class": cell.class_,
        "unit": measure.unit,
        "interval_confidence": 1 - 2 * brief.rule.alpha,
    }


def compared(comparison: Comparison, brief: Brief) -> dict[str, Any]:
    measure, values = comparison.measure, comparison.values
    ends = [shown_change(measure, one) for one in (comparison.low, comparison.high)]
    return cell_fields(brief, measure, comparison.cell) | {
        "scale": measure.scale,
        "baseline": over_pairs([one.baseline for one in values], measure),
        "candidate": over_pairs([one.candidate for one in values], measure),
        "values_are": values_are(measure),
        "difference": shown_change(measure, comparison.mean),
        "low": min(ends),
        "high": max(ends),
        "interval_of": measure.scale,
        "pairs": pair_values(comparison),
    }


def over_pairs(values: Sequence[float], measure: Measure) -> float | None:
    """Shares: the mean over pairs. The rest: the median over pairs, since percentiles of different traffic are
    never averaged."""
    if not values:
        return None
    return statistics.fmean(values) if measure.scale == "difference" else statistics.median(values)


def values_are(measure: Measure) -> str:
    return "means over pairs" if measure.scale == "difference" else "medians of the trials' values"


def pair_values(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "pair": one.pair,
            "baseline": one.baseline,
            "candidate": one.candidate,
            "difference": shown_change(comparison.measure, one.effect),
        }
        for one in comparison.values
    ]


def broken_rows(rows: Sequence[Row], alpha: float) -> list[Row]:
    """The requirements "must not get worse" that are shown broken after Holm's correction over all of them."""
    family = [row for row in rows if row.role in ("guardrail", "non-inferior")]
    adjusted = holm([row.p_broken for row in family])
    return [row for row, p_value in zip(family, adjusted, strict=True) if p_value <= alpha]


def after_holm(rows: Sequence[Row], broken: Sequence[Row]) -> list[Row]:
    """A requirement broken by its own test alone is open: among so many, one may look broken by chance."""
    named = {id(row) for row in broken}
    return [
        Row(row.fields, row.role, "open", row.p_broken, row.settles)
        if row.role in ("guardrail", "non-inferior") and row.shown == "broken" and id(row) not in named
        else row
        for row in rows
    ]
