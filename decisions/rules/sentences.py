"""The one sentence an owner reads first, with the figures it rests on.

``later``: by the rules from verdict/2 on, whose figures have as many digits as tell them from what was asked.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from decisions.rules.brief import Brief, Cell
from decisions.rules.may_carry import listed
from decisions.rules.measures import Measure
from decisions.rules.requirements import Row
from decisions.rules.saturation import saturated_said
from decisions.rules.validity import Check
from decisions.rules.wording import at_level, change, confidence, counted, digits_apart, interval, quantity, signed

OFF = "leave speculation off"
MOST_NAMED = 3


def outcome_said(brief: Brief, row: Row, *, later: bool) -> str:
    """'+3.7 points (90 % interval +2.4 to +5.0; the brief asked for +2.0 points)'"""
    fields, scale = row.fields, row.fields["scale"]
    digits = digits_beside(fields) if later else 1
    level = confidence(1 - 2 * brief.rule.alpha)
    shown = f"{level} interval {bounds(fields, digits, later=later)}"
    if later and unbounded(fields):
        shown = f"no bound either way at {level}"
    asked = change(fields["required"], scale, digits)
    return f"{change(fields['difference'], scale, digits)} ({shown}; the brief asked for {asked})"


def digits_beside(fields: Mapping[str, Any]) -> int:
    """Of a change and its bounds in percent or points, beside what is required of it."""
    numbers = (fields[name] for name in ("difference", "low", "high"))
    return digits_apart(100 * fields["required"], *(None if one is None else 100 * one for one in numbers))


def bounds(fields: Mapping[str, Any], digits: int, *, later: bool) -> str:
    low, high, scale = fields["low"], fields["high"], fields["scale"]
    return interval(low, high, scale, digits) if later else first_interval(low, high, scale)


def first_interval(low: float | None, high: float | None, scale: str) -> str:
    """As the first version said it."""
    ends = ("no bound" if is_unknown(one) else signed(100 * (one or 0.0)) for one in (low, high))
    return " to ".join(ends) + ("" if scale == "difference" else " %")


def is_unknown(number: float | None) -> bool:
    return number is None or not math.isfinite(number)


def unbounded(fields: Mapping[str, Any]) -> bool:
    return is_unknown(fields["low"]) and is_unknown(fields["high"])


def where(row: Row) -> str:
    return at_level(row.fields["level"], row.fields["class"])


def outcome_clause(brief: Brief, row: Row, *, later: bool) -> str:
    """'lets 94.9 % of requests finish within their deadline at peak, against 91.2 % with speculation disabled'"""
    fields = row.fields
    after, before = (quantity(fields[arm], fields["unit"]) for arm in ("candidate", "baseline"))
    found = outcome_said(brief, row, later=later)
    if fields["metric"] == "attainment":
        said = f"lets {after} of requests finish within their deadline {where(row)}"
    elif fields["metric"] == "slo_goodput":
        said = f"serves {after} within their deadline {where(row)}"
    elif fields["metric"] == "capacity":
        return f"is shown to carry {after}, against {before} with speculation disabled: {found}"
    elif fields["metric"] == "completion_quantile":
        said = f"brings completion p{fields['quantile'] * 100:g} {where(row)} to {after}"
    else:
        said = f"yields {after} of verified output {where(row)}"
    return f"{said}, against {before} with speculation disabled: {found}"


def subject(brief: Brief, nominee: str) -> str:
    return f"On held-out traffic {brief.configuration(nominee).label}"


def weakest(rows: Sequence[Row]) -> Row:
    """The improve cell nearest to its requirement, which is the one that decides."""
    return max(
        (row for row in rows if row.role == "improve"), key=lambda row: (row.fields["p_holds"] or 0.0, row.label)
    )


def pass_sentence(brief: Brief, nominee: str, outcome: Sequence[Row], *, later: bool) -> str:
    row = weakest(outcome)
    improved = sum(one.role == "improve" for one in outcome)
    cells = (
        f" That is the least clear of {improved} cells in which it had to improve; all are shown."
        if improved > 1
        else ""
    )
    clause, rails = outcome_clause(brief, row, later=later), all_guardrails(brief, later=later)
    return f"{subject(brief, nominee)} {clause}.{cells} {rails}."


def all_guardrails(brief: Brief, *, later: bool) -> str:
    number = len(brief.guardrails)
    if not number:
        return "The brief set no guardrails; no other level is worse by more than its margin"
    rails = "The one guardrail holds" if number == 1 else f"All {number} guardrails hold"
    if later and number == 2:
        rails = "Both guardrails hold"
    return f"{rails}, and no other level is worse by more than its margin"


def fail_sentence(brief: Brief, nominee: str, missed: Sequence[Row], *, later: bool) -> str:
    first = missed[0]
    small = first.role == "improve"
    reason = too_small_said(brief, first, later=later) if small else broken_said(first, later=later)
    more = f", and misses {counted(len(missed) - 1, 'more requirement')}" if len(missed) > 1 else ""
    return f"{subject(brief, nominee)} {reason}{more}: {OFF}.{why_too_small(first)}"


def why_too_small(row: Row) -> str:
    """The load's fault, where it is: a floor or a ceiling, at which no candidate could have shown more."""
    name = row.fields.get("saturated")
    if row.role != "improve" or name is None:
        return ""
    cell = Cell.model_validate({"level": row.fields["level"], "class": row.fields["class"]})
    return f" {saturated_said(name, cell)}"


def too_small_said(brief: Brief, row: Row, *, later: bool) -> str:
    return f"{outcome_clause(brief, row, later=later)}, which is shown to be too small"


def broken_said(row: Row, *, later: bool) -> str:
    fields = row.fields
    kind = f"guardrail {fields['id']}" if row.role == "guardrail" else "the margin of a level that need not improve"
    digits = digits_of(fields) if later else None
    limit = limit_said(fields, digits) if digits else fields["required_text"]
    return f"breaks {kind}: {measured(row)} {found_said(fields, digits)} (limit {limit})"


def digits_of(fields: Mapping[str, Any]) -> int:
    """After the point, so that neither the figure nor its bounds read like a limit that they miss."""
    if fields["scale"] != "absolute":
        return digits_beside(fields)
    size, least = (1, 2) if fields["unit"] == "s" else (100, 1)
    found = fields["candidate"]
    return digits_apart(size * fields["required"], None if found is None else size * found, least=least)


def limit_said(fields: Mapping[str, Any], digits: int) -> str:
    if fields["metric"] == "behaviour":
        return str(fields["required_text"])
    absolute = fields["scale"] == "absolute"
    number = quantity(fields["required"], fields["unit"], digits) if absolute else ""
    sign = str(fields["required_text"])[:1]
    return f"{sign} {number or change(fields['required'], fields['scale'], digits)}"


def found_said(fields: Mapping[str, Any], digits: int | None) -> str:
    """``digits`` None: as the first version said it."""
    if fields["metric"] == "behaviour":
        return behaviour_said(fields)
    if fields["scale"] == "absolute":
        over = f", with {fields['over']:,} of {fields['requests']:,} requests over the limit"
        return f"is {quantity(fields['candidate'], fields['unit'], digits)}" + (
            "" if fields["unit"] == "share" else over
        )
    if digits is not None and is_unknown(fields["difference"]):
        return lost_said(fields)
    said = f"changes by {change(fields['difference'], fields['scale'], digits or 1)}"
    if fields["interval_confidence"] is None:
        return said
    return f"{said}, interval {bounds(fields, digits or 1, later=digits is not None)}"


def lost_said(fields: Mapping[str, Any]) -> str:
    """Where no ratio has a number: the candidate never got there, and the baseline did."""
    after, before = (quantity(fields[arm], fields["unit"]) for arm in ("candidate", "baseline"))
    return f"{'never came' if after == 'never' else f'is {after}'}, against {before} with speculation disabled"


def behaviour_said(fields: Mapping[str, Any]) -> str:
    """With the first few of the broken cases by name; of a server that died under the suite, what the suite says."""
    cases = fields["cases"]
    if not cases:
        return f"is not preserved: {fields['said']}"
    more = [f"{len(cases) - MOST_NAMED} more"] if len(cases) > MOST_NAMED else []
    named = listed([*cases[:MOST_NAMED], *more])
    return f"differs from the baseline's in {fields['over']:,} of {fields['requests']:,} cases, {named}"


def measured(row: Row) -> str:
    if row.fields["metric"] == "behaviour":
        return Measure("behaviour", None).said
    return f"{Measure(row.fields['metric'], row.fields['quantile']).said} {where(row)}"


def lowered(said: str) -> str:
    return said[:1].lower() + said[1:]


def inconclusive_sentence(
    brief: Brief, nominee: str, outcome: Sequence[Row], settles: Sequence[str], *, later: bool
) -> str:
    row = weakest(outcome)
    found = f": {measured(row)} {outcome_said(brief, row, later=later)}" if row.fields["pairs"] else ""
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
