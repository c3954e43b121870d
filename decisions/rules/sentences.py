"""The one sentence an owner reads first, with the figures it rests on."""

from collections.abc import Mapping, Sequence
from typing import Any

from decisions.rules.brief import Brief, Cell
from decisions.rules.measures import Measure
from decisions.rules.requirements import Row
from decisions.rules.saturation import saturated_said
from decisions.rules.validity import Check
from decisions.rules.wording import at_level, change, confidence, counted, interval, quantity

OFF = "leave speculation off"


def outcome_said(brief: Brief, row: Row) -> str:
    """'+3.7 points (90 % interval +2.4 to +5.0; the brief asked for +2.0 points)'"""
    fields = row.fields
    scale = fields["scale"]
    shown = interval(fields["low"], fields["high"], scale)
    asked = change(fields["required"], scale)
    level = confidence(1 - 2 * brief.rule.alpha)
    return f"{change(fields['difference'], scale)} ({level} interval {shown}; the brief asked for {asked})"


def where(row: Row) -> str:
    return at_level(row.fields["level"], row.fields["class"])


def outcome_clause(brief: Brief, row: Row) -> str:
    """'lets 94.9 % of requests finish within their deadline at peak, against 91.2 % with speculation disabled'"""
    fields = row.fields
    after, before = (quantity(fields[arm], fields["unit"]) for arm in ("candidate", "baseline"))
    if fields["metric"] == "attainment":
        said = f"lets {after} of requests finish within their deadline {where(row)}"
    elif fields["metric"] == "slo_goodput":
        said = f"serves {after} within their deadline {where(row)}"
    elif fields["metric"] == "capacity":
        return f"is shown to carry {after}, against {before} with speculation disabled: {outcome_said(brief, row)}"
    elif fields["metric"] == "completion_quantile":
        said = f"brings completion p{fields['quantile'] * 100:g} {where(row)} to {after}"
    else:
        said = f"yields {after} of verified output {where(row)}"
    return f"{said}, against {before} with speculation disabled: {outcome_said(brief, row)}"


def subject(brief: Brief, nominee: str) -> str:
    return f"On held-out traffic {brief.configuration(nominee).label}"


def weakest(rows: Sequence[Row]) -> Row:
    """The improve cell nearest to its requirement, which is the one that decides."""
    return max(
        (row for row in rows if row.role == "improve"), key=lambda row: (row.fields["p_holds"] or 0.0, row.label)
    )


def pass_sentence(brief: Brief, nominee: str, outcome: Sequence[Row]) -> str:
    row = weakest(outcome)
    improved = sum(one.role == "improve" for one in outcome)
    cells = (
        f" That is the least clear of {improved} cells in which it had to improve; all are shown."
        if improved > 1
        else ""
    )
    return f"{subject(brief, nominee)} {outcome_clause(brief, row)}.{cells} {all_guardrails(brief)}."


def all_guardrails(brief: Brief) -> str:
    number = len(brief.guardrails)
    if not number:
        return "The brief set no guardrails; no other level is worse by more than its margin"
    rails = "The one guardrail holds" if number == 1 else f"All {number} guardrails hold"
    return f"{rails}, and no other level is worse by more than its margin"


def fail_sentence(brief: Brief, nominee: str, missed: Sequence[Row]) -> str:
    first = missed[0]
    reason = too_small_said(brief, first) if first.role == "improve" else broken_said(first)
    more = f", and misses {counted(len(missed) - 1, 'more requirement')}" if len(missed) > 1 else ""
    return f"{subject(brief, nominee)} {reason}{more}: {OFF}.{why_too_small(first)}"


def why_too_small(row: Row) -> str:
    """The load's fault, where it is: a floor or a ceiling, at which no candidate could have shown more."""
    name = row.fields.get("saturated")
    if row.role != "improve" or name is None:
        return ""
    cell = Cell.model_validate({"level": row.fields["level"], "class": row.fields["class"]})
    return f" {saturated_said(name, cell)}"


def too_small_said(brief: Brief, row: Row) -> str:
    return f"{outcome_clause(brief, row)}, which is shown to be too small"


def broken_said(row: Row) -> str:
    fields = row.fields
    kind = f"guardrail {fields['id']}" if row.role == "guardrail" else "the margin of a level that need not improve"
    return f"breaks {kind}: {measured(row)} {found_said(fields)} (limit {fields['required_text']})"


def found_said(fields: Mapping[str, Any]) -> str:
    if fields["metric"] == "behaviour":
        return f"differs from the baseline's in {fields['over']:,} of {fields['requests']:,} cases"
    if fields["scale"] == "absolute":
        over = f", with {fields['over']:,} of {fields['requests']:,} requests over the limit"
        return f"is {quantity(fields['candidate'], fields['unit'])}" + ("" if fields["unit"] == "share" else over)
    said = f"changes by {change(fields['difference'], fields['scale'])}"
    if fields["interval_confidence"] is None:
        return said
    return f"{said}, interval {interval(fields['low'], fields['high'], fields['scale'])}"


def measured(row: Row) -> str:
    return f"{Measure(row.fields['metric'], row.fields['quantile']).said} {where(row)}"


def lowered(said: str) -> str:
    return said[:1].lower() + said[1:]


def inconclusive_sentence(brief: Brief, nominee: str, outcome: Sequence[Row], settles: Sequence[str]) -> str:
    row = weakest(outcome)
    found = f": {measured(row)} {outcome_said(brief, row)}" if row.fields["pairs"] else ""
    first = f" What would settle it: {lowered(settles[0])}" if settles else ""
    return f"{subject(brief, nominee)} can't be accepted or refused yet{found}.{first}"


def invalid_sentence(checks: Sequence[Check]) -> str:
    failed = [one for one in checks if one.ok is False]
    more = f" ({counted(len(failed) - 1, 'more check')} failed.)" if len(failed) > 1 else ""
    said = f"These measurements can't be judged: {lowered(failed[0].sentence)}{more}"
    return f"{said} They say nothing for or against speculation."


def nobody_sentence(rows: Sequence[dict[str, Any]]) -> str:
    """Nobody was nominated: the answer is to leave speculation off, and it rests on tuning alone."""
    deciding = deciding_rows(rows)
    if not deciding:
        return f"No candidate was nominated, so {OFF}: the tuning trials give no candidate a figure to go by."
    best = max(deciding, key=lambda row: float(row["improvement"]))
    after, before = (quantity(best[arm], best["unit"]) for arm in ("value", "baseline"))
    said = f"No candidate did better than no speculation, so {OFF}: the best of {counted(len(deciding), 'candidate')}"
    said += f", {best['label']}, had {lowered(best['measure'])} {after} {at_level(best['level'], best['class'])}"
    said += f", against {before} without speculation, over {counted(best['boots'], 'boot')} of tuning traffic"
    return f"{said}; no held-out traffic was used."


def deciding_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per candidate the improve cell in which it did worst."""
    worst: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["improves"] and row["improvement"] is not None:
            held = worst.setdefault(row["candidate"], row)
            worst[row["candidate"]] = min(held, row, key=lambda one: float(one["improvement"]))
    return list(worst.values())
