"""One decision of the benchmark: by the verdict's own rules, and by the rule that people use today."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import Measure, value
from decisions.rules.nomination import nominate
from decisions.rules.verdict import verdict
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
    trial,
)

Trials = list[TrialEvidence]


def decide(spread: float, number: int, drafters: Mapping[str, Drafter]) -> dict[str, Any]:
    """The ``number``-th decision on each truth: the truths share the baseline's boots, never the candidate's."""

    def run(purpose: Any, arm: Arm, count: int, k: int | None = None, drafter: Drafter | None = None) -> Trials:
        places = [Place("decision", number, purpose, pair, arm, k) for pair in range(count)]
        return [trial(spread, place, drafter)[0] for place in places]

    pairs = PAIRS[spread]
    floor = run("noise-floor", "baseline", pairs) + run("noise-floor", "control", pairs)
    baseline, tuned = run("held-out", "baseline", pairs), run("tuning", "baseline", TUNING_RUNS)
    found: dict[str, Any] = {}
    for name, drafter in drafters.items():
        held_out = {NOMINEE: run("held-out", "candidate", pairs, NOMINEE, drafter)}
        tuning = tuned + [one for k in GRID for one in run("tuning", "candidate", TUNING_RUNS, k, drafter)]
        nominee = draft_length(nominate(brief(spread), tuning + floor).candidate)
        if nominee is not None and nominee not in held_out:
            held_out[nominee] = run("held-out", "candidate", pairs, nominee, drafter)
        judged = {k: judge(brief(spread), k, floor + baseline + trials) for k, trials in held_out.items()}
        found[name] = {
            **judged[NOMINEE],
            "nominee": nominee,
            "after_tuning": judged[nominee]["verdict"] if nominee else None,
            "today": todays_choice(brief(spread), tuning),
        }
    return found


def draft_length(candidate: str | None) -> int | None:
    return int(candidate.removeprefix("k")) if candidate else None


def judge(rule: Brief, k: int, trials: Trials) -> dict[str, Any]:
    """The verdict, what of it wasn't shown, and how far each requirement was from being shown."""
    document = verdict(rule, f"k{k}", trials)
    rows = [*document["outcome"], *document["guardrails"]]
    open_ = [row["id"] for row in rows if row["shown"] not in (None, "shown")]
    open_ += [check["id"] for check in document["validity"] if not check["ok"]]
    if not document["noise_floor"]["ok"]:
        open_.append("noise-floor")
    p_values = {row["id"]: round(row["p_holds"], 5) for row in rows if row["p_holds"] is not None}
    return {"verdict": document["verdict"], "open": open_, "p_holds": p_values}


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
