"""One decision of the benchmark: by the verdict's own rules, and by the rule that people use today."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from decisions.rules.brief import Brief
from decisions.rules.evidence import Purpose, TrialEvidence
from decisions.rules.looks import look_at
from decisions.rules.measures import Measure, value
from decisions.rules.nomination import nominate
from decisions.rules.verdict import VERDICT_CODE, Judged, findings
from tests.benchmarks.decision_fleet import trials
from tests.benchmarks.decision_truths import RAIL
from tests.benchmarks.decision_world import (
    COMPLETION,
    COMPLETION_S,
    FIRST_TOKEN,
    GRID,
    LATE,
    MINIMUM,
    NOMINEE,
    PAIRS,
    TUNING_RUNS,
    Arm,
    Drafter,
    Place,
    brief,
)

Trials = list[TrialEvidence]
Measured = tuple[str | None, Place]


def decide(spread: float, number: int, drafters: Mapping[str, Drafter]) -> dict[str, Any]:
    """The ``number``-th decision on each truth: the truths share the baseline's boots, never the candidate's."""
    rule, pairs = brief(spread), PAIRS[spread]

    def places(purpose: Purpose, arm: Arm, count: int, k: int | None = None) -> list[Place]:
        return [Place("decision", number, purpose, pair, arm, k) for pair in range(count)]

    def held_out(k: int) -> list[Place]:
        return places("held-out", "candidate", pairs, k)

    floor = [*places("noise-floor", "baseline", pairs), *places("noise-floor", "control", pairs)]
    beside, tuned = places("held-out", "baseline", pairs), places("tuning", "baseline", TUNING_RUNS)
    tries = [place for k in GRID for place in places("tuning", "candidate", TUNING_RUNS, k)]
    wanted: list[Measured] = [(None, one) for one in [*floor, *beside, *tuned]]
    # Place by place: what all drafters find in one is drawn once.
    wanted += [(name, one) for one in [*held_out(NOMINEE), *tries] for name in drafters]
    measured = measure(spread, wanted, drafters)

    def baselines(*wanted: list[Place]) -> Trials:
        return [measured[None, one] for places_ in wanted for one in places_]

    def candidates(name: str, wanted: list[Place]) -> Trials:
        return [measured[name, one] for one in wanted]

    tuning = {name: baselines(tuned) + candidates(name, tries) for name in drafters}
    nominees = {
        name: draft_length(nominate(rule, found + baselines(floor)).candidate) for name, found in tuning.items()
    }
    others = [place for k in GRID if k != NOMINEE for place in held_out(k)]
    wanted = [(name, one) for one in others for name, k in nominees.items() if k == one.k]
    measured |= measure(spread, wanted, drafters)
    judged = {
        (name, k): judge(rule, k, baselines(floor, beside) + candidates(name, held_out(k)))
        for name, nominee in nominees.items()
        for k in {NOMINEE, nominee or NOMINEE}
    }
    return {
        name: {
            **judged[name, NOMINEE],
            "nominee": nominee,
            "after_tuning": judged[name, nominee]["verdict"] if nominee else None,
            "today": todays_choice(rule, tuning[name]),
        }
        for name, nominee in nominees.items()
    }


def measure(spread: float, wanted: list[Measured], drafters: Mapping[str, Drafter]) -> dict[Measured, TrialEvidence]:
    """The trials in places, of a truth's candidate or, by None, of the baseline."""
    found = trials(spread, [(place, drafters[name] if name else None) for name, place in wanted])
    return {one: evidence for one, (evidence, _) in zip(wanted, found, strict=True)}


def draft_length(candidate: str | None) -> int | None:
    return int(candidate.removeprefix("k")) if candidate else None


def judge(rule: Brief, k: int, trials: Trials) -> dict[str, Any]:
    """The verdict, what of it wasn't shown, and how far each requirement was from being shown: as ``verdict`` has them,
    without its document, which describes every trial."""
    ordered = sorted(trials, key=lambda one: one.order)
    found = findings(Judged(rule, rule, f"k{k}", ordered, look_at(rule, ordered), None, VERDICT_CODE))
    rows = [one.document for one in [*found.outcome, *found.guardrails]]
    open_ = [row["id"] for row in rows if row["shown"] not in (None, "shown")]
    open_ += [check.id for check in found.checks if not check.ok]
    if not found.floor["ok"]:
        open_.append("noise-floor")
    p_values = {row["id"]: round(row["p_holds"], 5) for row in rows if row["p_holds"] is not None}
    return {"verdict": found.result, "open": open_, "p_holds": p_values}


def todays_choice(rule: Brief, tuning: Trials) -> int | None:
    """Grid, mean of three runs, pick the best: of the draft lengths whose means keep every guardrail the one with the
    best mean attainment, accepted where that is better than the baseline's by the minimum. None: no speculation."""
    means = {
        k: means_of(rule, [one for one in tuning if one.candidate == (f"k{k}" if k else None)]) for k in (0, *GRID)
    }
    before = means.pop(0)
    kept = {k: after["attainment"] for k, after in means.items() if keeps_guardrails(before, after)}
    if not kept:
        return None
    best = max(kept, key=lambda k: kept[k])
    return best if kept[best] - before["attainment"] >= MINIMUM else None


def means_of(rule: Brief, runs: Sequence[TrialEvidence]) -> dict[str, float]:
    """Percentiles are averaged over runs, as is usual."""
    measures = {
        "attainment": (Measure("attainment"), "all"),
        FIRST_TOKEN: (Measure("first_token_quantile", RAIL[FIRST_TOKEN]["quantile"]), "all"),
        LATE: (Measure("late_share"), "code"),
        COMPLETION: (Measure("completion_quantile", RAIL[COMPLETION]["quantile"]), "translate"),
    }
    return {
        name: statistics.fmean(found for one in runs if (found := value(measure, one, class_, rule)) is not None)
        for name, (measure, class_) in measures.items()
    }


def keeps_guardrails(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return (
        after[FIRST_TOKEN] <= before[FIRST_TOKEN] * (1 + RAIL[FIRST_TOKEN]["limit"])
        and after[LATE] <= before[LATE] + RAIL[LATE]["limit"]
        and after[COMPLETION] <= COMPLETION_S
    )
