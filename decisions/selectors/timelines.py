"""The timelines of trials, as charts. A held-out trial's is for whoever may see its latencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from decisions.charts.figure import Chart
from decisions.charts.timeline import Second, engine_over_time
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.timeline import BadTimeline, read_timeline
from loadtests.models import Trial


@dataclass(frozen=True)
class TrialTimeline:
    trial: Trial
    chart: Chart | None
    missing: str = ""


def timelines_of(trials: Iterable[Trial]) -> list[TrialTimeline]:
    return [timeline_of(trial) for trial in trials if trial.summary.get("timeline")]


def timeline_of(trial: Trial) -> TrialTimeline:
    try:
        return TrialTimeline(trial, engine_over_time(seconds_of(read_timeline(timeline_bytes(trial)))))
    except (EvidenceMissing, EvidenceDamaged, BadTimeline) as error:
        return TrialTimeline(trial, None, str(error))


def timeline_bytes(trial: Trial) -> bytes:
    """Raises EvidenceMissing where the trial left no timeline, or the store has lost it."""
    wanted = trial.summary.get("timeline")
    if not wanted:
        raise EvidenceMissing("the trial left no timeline")
    return evidence_store().get(wanted)


def seconds_of(table: pa.Table) -> list[Second]:
    columns = ("running", "waiting", "kv_cache_use", "in_flight", "generation_tokens")
    return [Second(*values) for values in zip(*(table[name].to_pylist() for name in columns), strict=True)]
