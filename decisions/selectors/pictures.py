"""Charts from what is stored; the chart functions themselves are pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from decisions.charts.attainment import LevelAttainment, attainment_by_level
from decisions.charts.completion import completion_ecdf
from decisions.charts.figure import Chart, Interval
from decisions.charts.heat_map import HeatCell, HeatRow, speed_up_heat_map
from decisions.models import Verdict
from decisions.rules.brief import Brief
from decisions.rules.evidence import ALL, TrialEvidence, classes_of, completion_s
from decisions.rules.measures import Measure, value
from decisions.rules.search import NAME
from decisions.rules.tested_range import tested_range
from decisions.selectors.evidence import evidence_of
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.models import Campaign
from loadtests.statistics.pairs import t_bounds
from loadtests.traffic.levels import Level

ATTAINMENT = Measure("attainment")


@dataclass(frozen=True)
class LevelPicture:
    level: str
    arrivals: str
    chart: Chart


@dataclass(frozen=True)
class HeldOutPictures:
    completion: list[LevelPicture]
    attainment: Chart | None
    tested_range: list[dict[str, Any]]
    missing: str = ""


def heat_map(rows: Sequence[Mapping[str, Any]], levels: Sequence[str]) -> Chart | None:
    """From the rows of a nomination, over all classes: no evidence is read."""
    whole = sorted((row for row in rows if row["class"] == ALL), key=lambda row: row["draft_length"])
    if not whole:
        return None
    own = [
        HeatRow(
            name,
            "schedule" if is_schedule(name) else "length",
            {row["level"]: cell_of(row) for row in whole if row["candidate"] == name},
        )
        for name in dict.fromkeys(row["candidate"] for row in whole)
    ]
    return speed_up_heat_map(
        sorted(own, key=lambda row: row.kind),
        [level for level in levels if any(row["level"] == level for row in whole)],
        measure=str(whole[0]["measure"]).lower().replace("slo", "SLO"),
    )


def is_schedule(name: str) -> bool:
    found = NAME.fullmatch(name)
    return found is not None and found["schedule"] is not None


def cell_of(row: Mapping[str, Any]) -> HeatCell:
    """A ratio of shares, or of whatever else in the direction that is better."""
    if row["scale"] == "difference":
        value, baseline = row["value"], row["baseline"]
        return HeatCell(value / baseline if value is not None and baseline else None, row["boots"])
    return HeatCell(None if row["improvement"] is None else math.exp(row["improvement"]), row["boots"])


def held_out_pictures(verdict: Verdict) -> HeldOutPictures:
    """Drawn once per verdict, whose digest names its evidence; read again only where the evidence was not to be had."""
    try:
        return drawn_from_evidence(verdict.digest)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return HeldOutPictures([], None, [], str(error))


@lru_cache(maxsize=64)
def drawn_from_evidence(digest: str) -> HeldOutPictures:
    revision = Verdict.objects.select_related("revision").get(digest=digest).revision
    brief = revision.document
    trials = evidence_of(revision, purposes=[Campaign.Purpose.HELD_OUT])
    levels = [level for level in brief.levels if {"baseline", "candidate"} <= arms_at(trials, level.name)]
    return HeldOutPictures(
        [LevelPicture(level.name, arrivals_words(level), ecdf(brief, trials, level)) for level in levels],
        attainment_by_level([attained(brief, trials, level.name) for level in levels]) if levels else None,
        in_order(tested_range(trials)["levels"], [level.name for level in brief.levels]),
    )


def in_order(ranges: Sequence[dict[str, Any]], levels: Sequence[str]) -> list[dict[str, Any]]:
    """The tested range in the brief's order of levels; it is stored by name."""
    return sorted(ranges, key=lambda one: levels.index(one["level"]) if one["level"] in levels else len(levels))


def arms_at(trials: Sequence[TrialEvidence], level: str) -> set[str]:
    return {trial.arm for trial in trials if trial.level == level}


def at_level(trials: Sequence[TrialEvidence], level: str, arm: str) -> list[TrialEvidence]:
    return [trial for trial in trials if trial.level == level and trial.arm == arm]


def ecdf(brief: Brief, trials: Sequence[TrialEvidence], level: Level) -> Chart:
    baseline, candidate = (at_level(trials, level.name, arm) for arm in ("baseline", "candidate"))
    return completion_ecdf(
        level.name,
        baseline_s=completed(baseline),
        candidate_s=completed(candidate),
        baseline_planned=sum(trial.planned for trial in baseline),
        candidate_planned=sum(trial.planned for trial in candidate),
        deadline_s=shared_deadline(brief, [*baseline, *candidate]),
    )


def completed(trials: Sequence[TrialEvidence]) -> list[float]:
    times = np.concatenate([completion_s(trial) for trial in trials])
    return [float(time) for time in times[np.isfinite(times)]]


def shared_deadline(brief: Brief, trials: Sequence[TrialEvidence]) -> float | None:
    """A line makes sense only where every class has the same completion deadline."""
    found = {brief.deadline(name, trial.level) for trial in trials for name in classes_of(trial)}
    limits = {deadline.completion_s if deadline else None for deadline in found}
    return limits.pop() if len(limits) == 1 else None


def arrivals_words(level: Level) -> str:
    arrival = level.arrival
    if arrival.mean_rate is None:
        return "replayed"
    bursts = arrival.process == "on-off" or (arrival.cv or 1) > 1
    return f"{arrival.mean_rate:g} requests/s" + (", bursts" if bursts else "")


def attained(brief: Brief, trials: Sequence[TrialEvidence], level: str) -> LevelAttainment:
    arms = [attainment_interval(brief, at_level(trials, level, arm)) for arm in ("baseline", "candidate")]
    return LevelAttainment(level, *arms)


def attainment_interval(brief: Brief, trials: Sequence[TrialEvidence]) -> Interval:
    """The mean over boots and its t interval over boots, no narrower than sampling the requests alone would make it."""
    shares = [share for trial in trials if (share := value(ATTAINMENT, trial, ALL, brief)) is not None]
    if len(shares) < 2:
        return Interval(shares[0] if shares else 0.0)
    requests = sum(trial.planned for trial in trials)
    pooled = (sum(shares) / len(shares) * requests + 1) / (requests + 2)
    floor = math.sqrt(pooled * (1 - pooled) / requests)
    bounds = t_bounds(shares, alpha=brief.rule.alpha, smallest_se=floor)
    return Interval(bounds.mean, max(0.0, bounds.low), min(1.0, bounds.high))
