"""Levels that can't tell the arms apart: hardly a request is in time there, or hardly one is late, in either arm.

A candidate is shown to improve too little there, whatever it may do under another load (design §6: FAIL), and a verdict
that says no more would send its reader after the candidate instead of the load.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from decisions.rules.brief import Brief, Cell, Outcome
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import Measure, value
from decisions.rules.wording import at, capitalised, share

Saturated = Literal["floor", "ceiling"]
# Shares within this of 0 or of 1 are "about": less where the brief asks for less, since what is left then suffices.
NEAR = 0.05
ATTAINMENT = Measure("attainment")
OF_SHARES = ("attainment", "slo_goodput")
BETWEEN = "at which the baseline serves some requests in time and others late"
CHOOSE: dict[str, str] = {
    "floor": f"choose a lighter load or longer deadlines, {BETWEEN}",
    "ceiling": f"choose a heavier load or shorter deadlines, {BETWEEN}",
}
SAID: dict[str, str] = {
    "floor": "neither arm carries the load, so this level can't tell them apart",
    "ceiling": "both arms carry the load with hardly a request late, so this level can't tell them apart",
}
BASELINE_SAID: dict[str, str] = {
    "floor": "unless a candidate changes that, this level can't tell it from the baseline",
    "ceiling": "no candidate can be better there by as much as the brief asks",
}


def saturated(shares: Sequence[float | None], asked: float) -> Saturated | None:
    """Whether every one of these shares within deadline (of 1) is about 0 or about 1; None where one is missing."""
    near, known = min(asked, NEAR), [one for one in shares if one is not None]
    if not known or len(known) < len(shares):
        return None
    if max(known) < near:
        return "floor"
    return "ceiling" if min(known) > 1 - near else None


def attained(brief: Brief, trials: Sequence[TrialEvidence], cell: Cell) -> float | None:
    """The mean attainment of the trials that have one in the cell."""
    found = [value(ATTAINMENT, one, cell.class_, brief) for one in trials]
    known = [one for one in found if one is not None]
    return statistics.fmean(known) if known else None


def saturated_said(name: str, cell: Cell) -> str:
    return f"{capitalised(at(cell))} {SAID[name]}: {CHOOSE[name]}."


def saturated_cells(document: Mapping[str, Any]) -> list[str]:
    """One sentence per cell of a verdict that must improve and can't tell the arms apart."""
    rows = [row for row in document["outcome"] if row.get("saturated")]
    cells = [Cell.model_validate({"level": row["level"], "class": row["class"]}) for row in rows]
    return [saturated_said(row["saturated"], cell) for row, cell in zip(rows, cells, strict=True)]


def told_by(outcome: Outcome) -> list[Cell]:
    """The cells that must improve, where attainment is what tells."""
    return list(outcome.improve_in) if outcome.metric in OF_SHARES else []


def baseline_saturated(brief: Brief, trials: Sequence[TrialEvidence]) -> list[str]:
    """One sentence per cell that must improve in which these trials of the baseline are about all late or in time."""
    found = [
        (cell, attained(brief, [one for one in trials if one.level == cell.level], cell))
        for cell in told_by(brief.outcome)
    ]
    return [
        warning
        for cell, reached in found
        if (warning := baseline_warning(brief, cell, reached, "in the noise floor")) is not None
    ]


def baseline_warning(brief: Brief, cell: Cell, reached: float | None, where: str) -> str | None:
    name = saturated([reached], brief.outcome.minimum_improvement)
    if name is None or reached is None:
        return None
    said = f"The baseline served {share(reached)} of requests within their deadline {at(cell)} {where}"
    return f"{said}: {BASELINE_SAID[name]}. {capitalised(CHOOSE[name])}."


def saturated_before(brief: Brief, earlier: Brief, document: Mapping[str, Any]) -> list[str]:
    """The same for a draft, from an earlier verdict's own numbers, where load, deadlines and baseline are unchanged."""
    found = []
    for cell in told_by(brief.outcome):
        same = [one for one in earlier.levels if one == brief.level(cell.level)]
        if not same or earlier.deadlines != brief.deadlines or earlier.baseline != brief.baseline:
            continue
        rows = [row for row in document["levels"] if (row["level"], row["class"]) == (cell.level, cell.class_)]
        reached = next((row["attainment"] for row in rows if row["arm"] == "baseline"), None)
        warning = baseline_warning(brief, cell, reached, "when this brief was measured before")
        found += [warning] if warning else []
    return found
