"""The one sentence an owner reads first, with the figures it rests on."""

from collections.abc import Sequence
from typing import Any

from decisions.rules.brief import Brief, Cell
from decisions.rules.gates import Row
from decisions.rules.validity import Check
from decisions.rules.wording import change, confidence, counted, interval, quantity

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
    class_ = row.fields["class"]
    return f"at {row.fields['level']}" + ("" if class_ == "all" else f" for {class_}")


def outcome_clause(brief: Brief, row: Row) -> str:
    """'lets 94.9 % of requests finish within their deadline at peak, against 91.2 % with speculation disabled'"""
    fields = row.fields
    after, before = (quantity(fields[arm], fields["unit"]) for arm in ("candidate", "baseline"))
    if fields["metric"] == "attainment":
        said = f"lets {after} of requests finish within their deadline {where(row)}"
    elif fields["metric"] == "completion_quantile":
        said = f"brings completion p{fields['quantile'] * 100:g} {where(row)} to {after}"
    else:
        said = f"yields {after} of verified output {where(row)}"
    return f"{said}, against {before} with speculation disabled: {outcome_said(brief, row)}"


def subject(brief: Brief, nominee: str) -> str:
    return f"On held-out traffic {brief.configuration(nominee).label}"


def weakest(rows: Sequence[Row]) -> Row:
    """The improve cell nearest to its requirement, which is the one that decides."""
    return max((row for row in rows if row.role == "improve"), key=lambda row: (row.fields["p_holds"], row.label))


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


def fail_sentence(brief: Brief, nominee: str, broken: Sequence[Row], too_small: Sequence[Row]) -> str:
    reasons = [broken_said(brief, row) for row in broken]
    reasons += [f"{outcome_clause(brief, row)}, too small an improvement" for row in too_small]
    more = f" ({counted(len(reasons) - 1, 'more requirement')} shown to be missed)" if len(reasons) > 1 else ""
    return f"{subject(brief, nominee)} {reasons[0]}{more}: {OFF}."


def broken_said(brief: Brief, row: Row) -> str:
    fields = row.fields
    kind = f"guardrail {fields['id']}" if row.role == "guardrail" else "the margin set for levels that need not improve"
    if fields["scale"] == "absolute":
        found = quantity(fields["candidate"], fields["unit"])
        if "over" in fields and fields["unit"] == "s":
            found += f", {fields['over']:,} of {fields['requests']:,} requests over the limit"
    else:
        scale = fields["scale"]
        found = f"{change(fields['difference'], scale)}, interval {interval(fields['low'], fields['high'], scale)}"
    return f"breaks {kind}: {lowered(row.label)} is {found} (limit {fields['required_text']})"


def lowered(label: str) -> str:
    return label if label.startswith("KV") else label[:1].lower() + label[1:]


def inconclusive_sentence(brief: Brief, nominee: str, outcome: Sequence[Row], settles: Sequence[str]) -> str:
    row = weakest(outcome)
    measured = row.fields["difference"] is not None and row.fields["pairs"]
    found = f": {lowered(row.label)} {outcome_said(brief, row)}" if measured else ""
    first = f" It would settle the matter to have: {lowered(settles[0])}" if settles else ""
    return f"{subject(brief, nominee)} can't be accepted or refused yet{found}.{first}"


def invalid_sentence(checks: Sequence[Check]) -> str:
    failed = [one for one in checks if one.ok is False]
    more = f" ({counted(len(failed) - 1, 'more check')} failed.)" if len(failed) > 1 else ""
    return (
        f"These measurements can't be judged: {lowered(failed[0].sentence)}{more} They say nothing for or against it."
    )


def nobody_sentence(brief: Brief, rows: Sequence[dict[str, Any]], cell: Cell) -> str:
    """Nobody was nominated: the answer is to leave speculation off, and it rests on tuning alone."""
    place = f"at {cell.level}" + ("" if cell.class_ == "all" else f" for {cell.class_}")
    known = [row for row in rows if row["improvement"] is not None]
    if not known:
        return f"No candidate was nominated, so {OFF}: the tuning trials give no candidate a figure {place}."
    best = max(known, key=lambda row: float(row["improvement"]))
    after, before = (quantity(best[arm], best["unit"]) for arm in ("value", "baseline"))
    figures = f"the best of {counted(len(known), 'candidate')}, {best['label']}, "
    figures += f"had {lowered(best['measure'])} {after} {place}"
    rest = f"against {before} without speculation, over {counted(best['boots'], 'boot')} of tuning traffic"
    return f"No candidate did better than no speculation, so {OFF}: {figures}, {rest}; no held-out traffic was used."
