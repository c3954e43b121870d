"""What happened at each level, per class and arm: counted and described, not judged."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from decisions.rules.brief import Brief
from decisions.rules.evidence import (
    ALL,
    STATUSES,
    Floats,
    TrialEvidence,
    classes_of,
    completion_s,
    first_token_s,
    has_deadline,
    in_class,
    with_status,
    within,
)
from decisions.rules.measures import tokens_per_s
from loadtests.statistics.quantiles import quantile

COMPLETION = (0.5, 0.9, 0.99)
FIRST_TOKEN = (0.5, 0.99)
PERCENTILES_ARE = "percentiles of a trial's pooled requests; over several trials the median of their values"


def level_rows(brief: Brief, trials: Iterable[TrialEvidence]) -> list[dict[str, Any]]:
    """One row per level (in the brief's order), class ('all' first) and arm ('baseline' first)."""
    trials = list(trials)
    rows: list[dict[str, Any]] = []
    for level in brief.levels:
        here = [one for one in trials if one.level == level.name]
        for class_ in [ALL, *sorted({name for one in here for name in classes_of(one)})]:
            for arm in sorted({one.arm for one in here}):
                rows.append(level_row(brief, [one for one in here if one.arm == arm], class_))
    return rows


def level_row(brief: Brief, trials: Sequence[TrialEvidence], class_: str) -> dict[str, Any]:
    chosen = [(one, in_class(one, class_)) for one in trials]
    chosen = [(one, mask) for one, mask in chosen if mask.any()]
    met = sum(int((within(one, brief) & mask).sum()) for one, mask in chosen)
    judged = sum(int((has_deadline(one, brief) & mask).sum()) for one, mask in chosen)
    row: dict[str, Any] = {
        "level": trials[0].level,
        "class": class_,
        "arm": trials[0].arm,
        "trials": len(chosen),
        "died": sum(one.died for one in trials),
        "planned": sum(int(mask.sum()) for _, mask in chosen),
        "statuses": {
            status: sum(int((with_status(one, status) & mask).sum()) for one, mask in chosen) for status in STATUSES
        },
        "within_deadline": met,
        "attainment": met / judged if judged else None,
        "output_tokens_per_s": statistics.median(tokens_per_s(one, mask) for one, mask in chosen) if chosen else None,
        "percentiles_are": PERCENTILES_ARE,
    }
    latencies = [(completion_s(one)[mask], first_token_s(one)[mask]) for one, mask in chosen]
    row |= {f"completion_p{share * 100:g}_s": over_trials([one for one, _ in latencies], share) for share in COMPLETION}
    return row | {
        f"first_token_p{share * 100:g}_s": over_trials([one for _, one in latencies], share) for share in FIRST_TOKEN
    }


def over_trials(latencies: Sequence[Floats], share: float) -> float | None:
    return statistics.median(quantile(one, share) for one in latencies) if latencies else None


def pairs_as_run(trials: Iterable[TrialEvidence]) -> list[dict[str, Any]]:
    """The held-out pairs by number, each with its arms in the order in which their boots started."""
    pairs: dict[int, list[TrialEvidence]] = {}
    for trial in sorted(trials, key=lambda one: (one.boot_started_ns, one.arm, one.trial)):
        if trial.pair is not None:
            pairs.setdefault(trial.pair, []).append(trial)
    return [
        {"pair": number, "order": list(dict.fromkeys(one.arm for one in found)), "boots": boots(found)}
        for number, found in sorted(pairs.items())
    ]


def boots(trials: Sequence[TrialEvidence]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for trial in trials:
        boot = found.setdefault(
            trial.boot, {"boot": trial.boot, "server": trial.server, "arm": trial.arm, "trials": []}
        )
        boot["trials"] = sorted([*boot["trials"], trial.trial])
        boot["died"] = bool(boot.get("died")) or trial.died
    return list(found.values())
