"""Baseline against baseline: is there a difference where there can be none, and what can the planned pairs show?"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from decisions.rules.brief import Brief, Cell
from decisions.rules.comparison import Comparison, Pair, compare, pairs_at
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import Measure, improvement_threshold, trial_measure
from decisions.rules.wording import at, signed
from loadtests.statistics.effects import (
    POWER,
    SPREAD_CONFIDENCE,
    pairs_needed,
    smallest_detectable_effect,
    spread_upper,
)
from loadtests.statistics.multiplicity import holm

FEWEST_PAIRS = 4
FAMILY_WISE = 0.01


def control_pairs(brief: Brief, trials: Iterable[TrialEvidence]) -> dict[str, list[Pair]]:
    chosen = [one for one in trials if one.purpose == "noise-floor"]
    return {level.name: pairs_at(chosen, level.name, other="control") for level in brief.levels}


def control_comparisons(brief: Brief, pairs: dict[str, list[Pair]], cells: Sequence[Cell]) -> list[Comparison]:
    measure = trial_measure(brief.outcome)
    return [compare(brief, pairs[cell.level], measure, cell, alpha=brief.rule.alpha) for cell in cells]


def gating_cells(brief: Brief) -> list[Cell]:
    """The improve cells, then every level over all classes."""
    cells = list(brief.outcome.improve_in)
    for level in brief.levels:
        cell = Cell.model_validate({"level": level.name})
        if cell not in cells:
            cells.append(cell)
    return cells


def noise_floor(brief: Brief, trials: Iterable[TrialEvidence]) -> dict[str, Any]:
    """Per improve cell the spread and what the planned pairs can show; ``ok`` is None where A/A is missing."""
    pairs = control_pairs(brief, trials)
    rows = [floor_row(brief, one) for one in control_comparisons(brief, pairs, list(brief.outcome.improve_in))]
    known = [row["ok"] for row in rows]
    return {
        "cells": rows,
        "ok": None if None in known else all(known),
        "pairs_planned": brief.rule.pairs,
        "power": POWER,
        "spread_confidence": SPREAD_CONFIDENCE,
    }


def floor_row(brief: Brief, comparison: Comparison) -> dict[str, Any]:
    measure, cell, bounds = comparison.measure, comparison.cell, comparison.bounds
    minimum = improvement_threshold(measure, smallest_wanted(brief))
    row: dict[str, Any] = {
        "label": f"{measure.label}, {cell.label}",
        "level": cell.level,
        "class": cell.class_,
        "scale": measure.scale,
        "control_pairs": len(comparison.values),
        "minimum_improvement": smallest_wanted(brief),
        "values": [one.effect for one in comparison.values],
    }
    if bounds is None or bounds.count < FEWEST_PAIRS:
        missing = dict.fromkeys(("mean", "spread", "spread_upper", "smallest_effect", "pairs_needed"))
        return (
            row | missing | {"ok": None, "sentence": f"The noise floor {at(cell)} is not known: it takes 4 A/A pairs."}
        )
    spread = bounds.se * math.sqrt(bounds.count)
    upper = spread_upper(spread, bounds.count)
    smallest = smallest_detectable_effect(upper, brief.rule.pairs, alpha=brief.rule.alpha)
    needed = pairs_needed(upper, minimum, alpha=brief.rule.alpha)
    return row | {
        "mean": bounds.mean,
        "spread": spread,
        "spread_upper": upper,
        "smallest_effect": improvement_of(measure, smallest),
        "pairs_needed": needed,
        "ok": smallest < minimum,
        "sentence": floor_sentence(brief, measure, cell, smallest, needed),
    }


def smallest_wanted(brief: Brief) -> float:
    """What a trial must be able to show: the minimum improvement; of capacity, whose trials show attainment, the margin
    by which that may be worse."""
    outcome = brief.outcome
    return outcome.non_inferiority_margin if outcome.metric == "capacity" else outcome.minimum_improvement


def improvement_of(measure: Measure, effect: float) -> float:
    """An effect as an improvement: in shares of 1, or as a share of the baseline."""
    return effect if measure.scale == "difference" else measure.better * math.expm1(measure.better * effect)


def floor_sentence(brief: Brief, measure: Measure, cell: Cell, smallest: float, needed: int | None) -> str:
    unit = "points" if measure.scale == "difference" else "%"
    found = signed(100 * improvement_of(measure, smallest)).lstrip("+")
    asked = signed(100 * smallest_wanted(brief)).lstrip("+")
    said = f"The smallest effect {brief.rule.pairs} pairs could show {at(cell)} is {found} {unit}"
    said += f"; the brief asks for {asked}"
    if smallest < improvement_threshold(measure, smallest_wanted(brief)):
        return f"{said}."
    return (
        f"{said}, which takes {needed} pairs." if needed else f"{said}, which no affordable number of pairs can show."
    )


def control_difference(brief: Brief, trials: Iterable[TrialEvidence]) -> tuple[float | None, Cell | None, int]:
    """(smallest Holm-adjusted two-sided p-value over the gating cells, its cell, A/A pairs in the scarcest cell)."""
    pairs = control_pairs(brief, trials)
    comparisons = control_comparisons(brief, pairs, gating_cells(brief))
    fewest = min(len(one.values) for one in comparisons)
    p_values = holm([difference_p(one) for one in comparisons])
    if fewest < FEWEST_PAIRS:
        return None, None, fewest
    smallest = min(range(len(p_values)), key=lambda one: p_values[one])
    return p_values[smallest], comparisons[smallest].cell, fewest


def difference_p(comparison: Comparison) -> float:
    if comparison.bounds:
        return comparison.bounds.p_differs(0.0)
    # every pair lost in the same arm alone; with mixed losses there is nothing to compare
    return 0.0 if comparison.low == comparison.high else 1.0
