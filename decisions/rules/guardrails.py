"""The guardrails: each within its limit, absolute or against the baseline, or not."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from decisions.rules.behaviour import Behaviour
from decisions.rules.brief import Brief, Guardrail
from decisions.rules.comparison import Pair, compare
from decisions.rules.measures import EXCLUDED, Measure, margin_threshold, measure_of, over_limit, shown_change, value
from decisions.rules.requirements import (
    PairsAt,
    Row,
    cell_fields,
    compared,
    judged,
    no_requirement,
    over_pairs,
    state,
    values_are,
)
from decisions.rules.wording import at, change, counted, quantity, share
from loadtests.statistics.shares import (
    MOST_REQUESTS,
    Needed,
    ShareLimit,
    requests_needed,
    share_limit,
    still_needed,
)


def guardrail_rows(brief: Brief, pairs: PairsAt, behaviour: Behaviour | None, *, later: bool) -> list[Row]:
    """``later``: by the rules from verdict/2 on. More requests over an absolute limit never help; while it is open its
    row says how many requests and boots are missing; and the label says what isn't counted as failed."""
    rows = [
        behaviour_row(brief, rail, behaviour)
        if rail.metric == "behaviour"
        else guardrail_row(brief, rail, pairs.get(rail.cell.level, ()), later=later)
        for rail in brief.guardrails
    ]
    return [with_exclusion(row) for row in rows] if later else rows


def with_exclusion(row: Row) -> Row:
    """What timed out was answered too late: it is late and no failure, and whoever reads the row should know."""
    if row.fields["metric"] != "failed_share":
        return row
    name, _, where = row.label.partition(", ")
    return replace(row, fields={**row.fields, "label": f"{name} ({EXCLUDED}), {where}"})


def behaviour_row(brief: Brief, rail: Guardrail, found: Behaviour | None) -> Row:
    cell = rail.cell
    fields = no_requirement() | cell_fields(brief, measure_of(rail), cell)
    fields |= {
        "id": rail.id,
        "kind": rail.kind,
        "label": "Preserved behaviour",
        "scale": "absolute",
        "baseline": None,
        "candidate": len(found.broken) if found else None,
        "values_are": "cases",
        "difference": None,
        "low": None,
        "high": None,
        "interval_of": "cases",
        "interval_confidence": None,
        "required": 0,
        "share_limit": 0,
        "required_is": "at most",
        "required_text": "no case broken",
        "pairs": [],
    }
    if found is None:
        return Row(fields, "guardrail", "open", 1.0, "The preserved-behaviour suite: it has no result yet.")
    fields |= {"over": len(found.broken), "requests": found.cases, "evidence": found.evidence}
    fields |= {"cases": list(found.broken), "said": found.said}
    return Row(fields, "guardrail", found.shown, 0.0 if found.shown == "broken" else 1.0, found.settles)


def guardrail_row(brief: Brief, rail: Guardrail, pairs: Sequence[Pair], *, later: bool) -> Row:
    if rail.metric == "kv_cache_tokens":
        return kv_row(brief, rail, pairs)
    if rail.kind == "absolute":
        return absolute_row(brief, rail, pairs, later=later)
    measure = measure_of(rail)
    comparison = compare(brief, pairs, measure, rail.cell, alpha=brief.rule.alpha)
    fields = compared(comparison, brief) | {"id": rail.id, "kind": rail.kind}
    row = judged(fields, comparison, margin_threshold(measure, rail.limit), brief.rule.alpha, "guardrail")
    told = {one.pair for one in comparison.values}
    silent = [pair for pair in pairs if pair.number not in told]
    return untold(row, measure, rail, silent) if silent and measure.of_engine else row


def untold(row: Row, measure: Measure, rail: Guardrail, silent: Sequence[Pair]) -> Row:
    """An engine that died, or didn't tell, may have been worst in just these pairs: the others can't vouch for it."""
    names = ", ".join(str(pair.number + 1) for pair in silent)
    lacking = f"pair {names} doesn't" if len(silent) == 1 else f"pairs {names} don't"
    name = f"{measure.said} {at(rail.cell)}"
    settles = f"The engine's own figure of {name} in every pair: {lacking} tell it in both arms."
    return Row({**row.fields, "p_holds": None, "p_sign_flip": None}, row.role, "open", 1.0, settles)


def kv_row(brief: Brief, rail: Guardrail, pairs: Sequence[Pair]) -> Row:
    """An engine states its KV cache exactly, so pairs aren't a sample here: every one must hold, or every one break."""
    measure = measure_of(rail)
    comparison = compare(brief, pairs, measure, rail.cell, alpha=brief.rule.alpha)
    changes = [shown_change(measure, one.effect) for one in comparison.values]
    least = 1 - rail.limit
    shown = "open"
    if changes and len(changes) == len(pairs):
        # a ratio that equals its limit but for the last binary digit holds
        held = [1 + one >= least - 1e-12 for one in changes]
        shown = "shown" if all(held) else "open" if any(held) else "broken"
    fields = compared(comparison, brief) | no_requirement()
    fields |= {
        "id": rail.id,
        "kind": rail.kind,
        "low": min(changes, default=math.nan),
        "high": max(changes, default=math.nan),
        "interval_confidence": None,
        "difference": statistics.median(changes) if changes else math.nan,
        "required": -rail.limit,
        "required_is": "at least",
        "required_text": f"≥ {change(-rail.limit, 'ratio')}",
    }
    settles = f"The engine's own figure of {measure.said} for every boot of both arms, on one side of the limit."
    return Row(fields, "guardrail", shown, 0.0 if shown == "broken" else 1.0, settles)


def absolute_row(brief: Brief, rail: Guardrail, pairs: Sequence[Pair], *, later: bool) -> Row:
    measure = measure_of(rail)
    limit = rail.limit if rail.quantile is None else 1 - rail.quantile
    counts = [over_limit(measure, pair.other, rail.cell.class_, rail.limit, brief) for pair in pairs]
    counts = [(over, judged) for over, judged in counts if judged]
    fields = absolute_fields(brief, rail, measure, pairs) | {"required": rail.limit, "share_limit": limit}
    if not counts:
        return Row(fields, "guardrail", "open", 1.0, f"Requests to measure {measure.said} {at(rail.cell)} on.")
    over, judged = [one for one, _ in counts], [of for _, of in counts]
    result = share_limit(over, judged, limit=limit, alpha=brief.rule.alpha, with_fewer=later)
    fields |= share_fields(result)
    shown = state(result.p_holds, result.p_broken, brief.rule.alpha)
    # A broken row may still become open after Holm's correction: it needs its sentence too.
    settles = "" if shown == "shown" else absolute_settles(measure, rail, result, brief)
    if later:
        needed = still_needed(result, alpha=brief.rule.alpha)
        fields |= {"requests_needed": needed.requests, "boots_needed": needed.boots}
        settles = settles and missing_said(measure, rail, result, needed)
    return Row(fields, "guardrail", shown, result.p_broken, settles)


def absolute_fields(brief: Brief, rail: Guardrail, measure: Measure, pairs: Sequence[Pair]) -> dict[str, Any]:
    arms: dict[str, Callable[[Pair], float | None]] = {
        "baseline": lambda pair: value(measure, pair.baseline, rail.cell.class_, brief),
        "candidate": lambda pair: value(measure, pair.other, rail.cell.class_, brief),
    }
    found = {arm: [(pair.number, of(pair)) for pair in pairs] for arm, of in arms.items()}
    return no_requirement() | {
        "id": rail.id,
        "kind": rail.kind,
        "label": f"{measure.label}, {rail.cell.label}",
        "metric": measure.metric,
        "quantile": measure.quantile,
        "level": rail.cell.level,
        "class": rail.cell.class_,
        "unit": measure.unit,
        "scale": "absolute",
        **{arm: over_pairs([one for _, one in rows if one is not None], measure) for arm, rows in found.items()},
        "values_are": values_are(measure),
        "difference": None,
        "low": None,
        "high": None,
        "interval_of": "share over the limit" if rail.quantile is not None else "share",
        "interval_confidence": 1 - 2 * brief.rule.alpha,
        "required_is": "at most",
        "required_text": f"≤ {quantity(rail.limit, measure.unit)}",
        "pairs": [
            {"pair": number, "baseline": before, "candidate": after, "difference": None}
            for (number, before), (_, after) in zip(found["baseline"], found["candidate"], strict=True)
        ],
    }


def share_fields(result: ShareLimit) -> dict[str, Any]:
    """The wider side of the two tests each way: what both of them agree on."""
    lows, highs = [result.low], [result.high]
    if result.boots:
        lows.append(max(0.0, result.boots.low))
        highs.append(min(1.0, result.boots_high or 0.0))
    return {
        "low": min(lows),
        "high": max(highs) if result.boots else None,
        "over": result.counted,
        "requests": result.requests,
        "high_over_requests": result.high,
        "high_over_boots": result.boots_high,
        "p_holds": result.p_holds,
    }


def absolute_settles(measure: Measure, rail: Guardrail, result: ShareLimit, brief: Brief) -> str:
    name = f"{measure.said} {at(rail.cell)}"
    if result.limit == 0:
        return f"A revision with a limit above zero for {name}: that none will ever fail can't be shown."
    shares = f"{result.counted:,} of {result.requests:,} requests are over the limit"
    if result.counted >= result.limit * result.requests:
        return f"Fewer requests over the limit for {name}: {shares}, and at most {share(result.limit)} may be."
    try:
        needed = requests_needed(1 - result.limit, confidence=brief.rule.confidence, late=result.counted)
    except ValueError:
        tight = f"at most {100 * result.limit:g} % takes more than {MOST_REQUESTS:,} requests to show"
        return f"A revision with a wider limit for {name}: {tight}."
    if needed > result.requests:
        return f"At least {needed:,} requests for {name}, with no more over the limit: {shares}."
    return f"More boots for {name}: {shares}, but too unevenly over the boots to vouch for the next one."


def missing_said(measure: Measure, rail: Guardrail, result: ShareLimit, needed: Needed) -> str:
    name = f"{measure.said} {at(rail.cell)}"
    shares = f"{result.counted:,} of {result.requests:,} requests are over the limit"
    if result.counted >= result.limit * result.requests:
        return f"Fewer requests over the limit for {name}: {shares}, and at most {share(result.limit)} may be."
    if needed.requests is None:
        tight = f"at most {100 * result.limit:g} % takes more than {MOST_REQUESTS:,} requests to show"
        return f"A revision with a wider limit for {name}: {tight}."
    if needed.boots is None:
        return f"Boots that differ less, or a wider limit, for {name}: {shares}, far too unevenly over the boots."
    parts = []
    if needed.requests:
        in_all = f"{needed.requests + result.requests:,} in all"
        parts.append(f"at least {counted(needed.requests, 'more request')} ({in_all}) with no more over the limit")
    if needed.boots:
        boots = result.boots.count if result.boots else 1
        parts.append(f"about {counted(needed.boots, 'more boot')} of each arm ({needed.boots + boots} in all)")
    said = " and ".join(parts) or "more pairs"
    return f"{said[:1].upper()}{said[1:]}, for {name}: {shares}."
