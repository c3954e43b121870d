"""The rows an owner reads: the outcome in every cell and every guardrail, each shown, broken or open."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from decisions.rules.behaviour import Behaviour
from decisions.rules.brief import Brief, Cell, Guardrail
from decisions.rules.capacity import capacity_of
from decisions.rules.comparison import Comparison, Pair, compare
from decisions.rules.evidence import ALL, classes_of
from decisions.rules.measures import (
    Measure,
    improvement_threshold,
    margin_threshold,
    measure_of,
    over_limit,
    shown_change,
    trial_measure,
    value,
)
from decisions.rules.wording import at, change, counted, quantity, share
from loadtests.statistics.capacity import Capacity
from loadtests.statistics.effects import pairs_to_bound
from loadtests.statistics.multiplicity import holm
from loadtests.statistics.order import ARMS
from loadtests.statistics.shares import (
    MOST_REQUESTS,
    Needed,
    ShareLimit,
    requests_needed,
    share_limit,
    still_needed,
)

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


def outcome_rows(brief: Brief, pairs: PairsAt) -> list[Row]:
    measure = trial_measure(brief.outcome)
    if brief.outcome.metric == "capacity":
        rows, asked = [capacity_gate(brief, pairs)], set()
    else:
        rows = [gated(brief, pairs, measure, cell, "improve") for cell in brief.outcome.improve_in]
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


def guardrail_rows(brief: Brief, pairs: PairsAt, behaviour: Behaviour | None, *, later: bool) -> list[Row]:
    """``later``: by the rules from verdict/2 on. More requests over an absolute limit never help, and while it is open
    its row says how many requests and boots are missing."""
    return [
        behaviour_row(brief, rail, behaviour)
        if rail.metric == "behaviour"
        else guardrail_row(brief, rail, pairs.get(rail.cell.level, ()), later=later)
        for rail in brief.guardrails
    ]


def behaviour_row(brief: Brief, rail: Guardrail, found: Behaviour | None) -> Row:
    cell = rail.cell
    fields = no_requirement() | cell_fields(brief, measure_of(rail), cell)
    fields |= {
        "id": rail.id,
        "kind": rail.kind,
        "label": "Preserved behaviour",
        "scale": "absolute",
        "baseline": None,
        "candidate": found.broken if found else None,
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
    fields |= {"over": found.broken, "requests": found.cases, "evidence": found.evidence}
    settles = "A suite in which drafts are both accepted and rejected: else it proves nothing."
    return Row(fields, "guardrail", found.shown, 0.0 if found.broken else 1.0, settles if found.shown == "open" else "")


def guardrail_row(brief: Brief, rail: Guardrail, pairs: Sequence[Pair], *, later: bool) -> Row:
    if rail.metric == "kv_cache_tokens":
        return kv_row(brief, rail, pairs)
    if rail.kind == "absolute":
        return absolute_row(brief, rail, pairs, later=later)
    measure = measure_of(rail)
    comparison = compare(brief, pairs, measure, rail.cell, alpha=brief.rule.alpha)
    fields = compared(comparison, brief) | {"id": rail.id, "kind": rail.kind}
    return judged(fields, comparison, margin_threshold(measure, rail.limit), brief.rule.alpha, "guardrail")


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
