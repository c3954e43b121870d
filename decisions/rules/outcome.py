"""The outcome in every cell: where it must improve, where it must be no worse, and where it is only reported."""

from collections.abc import Sequence
from dataclasses import replace

from decisions.rules.brief import Brief, Cell
from decisions.rules.capacity import capacity_of
from decisions.rules.comparison import Pair, compare
from decisions.rules.evidence import ALL, classes_of
from decisions.rules.measures import Measure, improvement_threshold, margin_threshold, measure_of, trial_measure
from decisions.rules.requirements import PairsAt, Role, Row, cell_fields, compared, judged, no_requirement
from decisions.rules.saturation import OF_SHARES, attained, saturated, saturated_said
from decisions.rules.wording import change
from loadtests.statistics.capacity import Capacity
from loadtests.statistics.order import ARMS


def outcome_rows(brief: Brief, pairs: PairsAt, *, later: bool) -> list[Row]:
    """``later``: by the rules from verdict/2 on, which say where a load can't tell the arms apart."""
    measure = trial_measure(brief.outcome)
    if brief.outcome.metric == "capacity":
        rows, asked = [capacity_gate(brief, pairs)], set()
    else:
        rows = [gated(brief, pairs, measure, cell, "improve") for cell in brief.outcome.improve_in]
        if later:
            rows = [
                told_apart(brief, pairs, row, cell) for row, cell in zip(rows, brief.outcome.improve_in, strict=True)
            ]
        asked = {(cell.level, cell.class_) for cell in brief.outcome.improve_in}
    for level in brief.levels:
        for class_ in [ALL, *classes_at(pairs.get(level.name, ()))]:
            cell = Cell.model_validate({"level": level.name, "class": class_})
            if (level.name, class_) not in asked:
                rows.append(gated(brief, pairs, measure, cell, "non-inferior" if class_ == ALL else "reported"))
    return rows


def classes_at(pairs: Sequence[Pair]) -> list[str]:
    return sorted({name for pair in pairs for name in classes_of(pair.baseline)})


def gated(brief: Brief, pairs: PairsAt, measure: Measure, cell: Cell, role: Role) -> Row:
    comparison = compare(brief, pairs.get(cell.level, ()), measure, cell, alpha=brief.rule.alpha)
    fields = compared(comparison, brief) | {"id": f"{measure.metric}:{cell.level}:{cell.class_}"}
    if role == "reported":
        return Row(fields | no_requirement(), role, None, 1.0)
    if role == "improve":
        threshold = improvement_threshold(measure, brief.outcome.minimum_improvement)
    else:
        threshold = margin_threshold(measure, brief.outcome.non_inferiority_margin)
    return judged(fields, comparison, threshold, brief.rule.alpha, role)


def told_apart(brief: Brief, pairs: PairsAt, row: Row, cell: Cell) -> Row:
    """With ``saturated``: "floor" or "ceiling" where both arms serve about no request or about every one in time."""
    if brief.outcome.metric not in OF_SHARES:
        return row
    found = pairs.get(cell.level, ())
    arms = ([pair.baseline for pair in found], [pair.other for pair in found])
    name = saturated([attained(brief, arm, cell) for arm in arms], brief.outcome.minimum_improvement)
    settles = saturated_said(name, cell) if name and row.shown == "open" else row.settles
    return replace(row, fields={**row.fields, "saturated": name}, settles=settles)


def capacity_gate(brief: Brief, pairs: PairsAt) -> Row:
    """What the candidate is shown to carry against what the baseline is shown not to, each at half of alpha."""
    trials = [one for found in pairs.values() for pair in found for one in (pair.baseline, pair.other)]
    arms = {arm: capacity_of(brief, trials, arm, alpha=brief.rule.alpha / 2) for arm in ARMS}
    before, after = arms["baseline"], arms["candidate"]
    low = ratio_less_one(after.shown, before.above) if before and after else None
    high = ratio_less_one(after.above, before.shown) if before and after else None
    required = brief.outcome.minimum_improvement
    shown = "open"
    if low is not None and low >= required:
        shown = "shown"
    elif high is not None and high < required:
        shown = "broken"
    fields = no_requirement() | cell_fields(brief, measure_of(brief.outcome), brief.outcome.improve_in[0])
    fields |= {
        "id": f"capacity:{brief.peak}:{fields['class']}",
        "label": "Capacity" if fields["class"] == ALL else f"Capacity, {fields['class']}",
        "scale": "ratio",
        "baseline": before.shown if before else None,
        "candidate": after.shown if after else None,
        "values_are": "rates shown to hold",
        "difference": ratio_less_one(after.shown, before.shown) if before and after else None,
        "low": low,
        "high": high,
        "interval_of": "ratio",
        "required": required,
        "required_is": "at least",
        "required_text": f"≥ {change(required, 'ratio')}",
        "pairs": [],
    }
    settles = capacity_settles(before, after)
    return Row(fields, "improve", shown, 0.0 if shown == "broken" else 1.0, "" if shown == "shown" else settles)


def ratio_less_one(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below - 1


def capacity_settles(before: Capacity | None, after: Capacity | None) -> str:
    if before is None or after is None:
        return "Trials of both arms at the lowest rung of the ladder."
    if before.above is None:
        return "Higher rungs: the baseline wasn't shown to fail at any, so what it carries has no upper bound."
    if after.shown is None:
        return "Lower rungs: the candidate wasn't shown to hold any."
    return "Rungs closer together between what either arm is shown to carry and shown not to, or more pairs."
