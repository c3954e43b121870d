"""What a trial leaves: plan, records, timeline, log and manifest in the evidence store, and digests in its row."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from loadtests.evidence.manifest import (
    Counters,
    Digests,
    Manifest,
    WarmUpFacts,
    manifest_content,
    named,
    this_client,
    timestamp,
)
from loadtests.evidence.records import RequestRecord, records_content, status_counts
from loadtests.evidence.store import EvidenceStore, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.summary import summarise
from loadtests.evidence.timeline import timeline_content
from loadtests.generator.trial import WarmUp
from loadtests.generator.unserved import unserved
from loadtests.models import Boot, Trial
from loadtests.services.finish_trial import TrialResult, finish_trial, keep_cut_trial
from loadtests.services.record_engine import SELF_TEST
from loadtests.traffic.arrivals import derived_seed
from loadtests.traffic.levels import Deadline, Level
from loadtests.traffic.planned import PlannedRequest
from workers.engines.base import RunningEngine, endpoint_of
from workers.engines.local_process import LOG_NAME
from workers.insist import insist


@dataclass
class Measured:
    """What a trial gave, before it is written down."""

    records: list[RequestRecord]
    started_at: int
    stopped: bool
    fingerprints: dict[str | None, int]
    findings: list[str]
    counters: Counters | None
    warm_up: WarmUp
    neighbour_cpu_share: float | None
    timeline: pa.Table | None = None
    # How the engine died, in this trial or before it; "" where it lived.
    died: str = ""
    # Of the client: then the trial is no result.
    fault: Exception | None = None


def level_of(boot: Boot, name: str) -> Level:
    return Level.model_validate(next(one for one in boot.campaign.plan["levels"] if one["name"] == name))


def boot_seed(boot: Boot) -> int:
    """Another one for every boot and attempt, and the same whenever the campaign's plan is carried out again."""
    return derived_seed("boot", boot.campaign.plan_digest, boot.position, boot.attempt)


def never_served(planned: Sequence[PlannedRequest], boot: Boot, level: Level, reason: str, warmed: WarmUp) -> Measured:
    records = unserved(planned, model=boot.configuration.document.target.name, level=level.name, reason=reason)
    return Measured(records, time.time_ns(), False, {}, [reason], None, warmed, None)


@dataclass(frozen=True)
class Kept:
    """A trial and the digests of what it left in the store."""

    boot: Boot
    trial: Trial
    level: Level
    engine: RunningEngine | None
    digests: Digests


def store_trial(
    boot: Boot,
    trial: Trial,
    level: Level,
    plan: bytes,
    measured: Measured,
    engine: RunningEngine | None,
    directory: Path,
) -> None:
    """Of a trial that was stopped what there is of it, marked in manifest and row; the next attempt is another row.

    Raises EvidenceUnreachable where the store stayed away: all of it then lies in the boot's own directory.
    """
    leave = partial(left_in, boot, trial, level, plan, measured, engine, directory)
    try:
        result = leave(evidence_store())
    except EvidenceUnreachable as error:
        here = EvidenceStore(directory / "evidence")
        manifest = leave(here).manifest_digest
        why = f"trial {trial.pk} is measured but not stored: manifest {manifest} and all it names lie in {here.root}"
        raise EvidenceUnreachable(f"{why} on {boot.host}. {error}", passing=error.passing) from error
    keep = keep_cut_trial if measured.stopped else finish_trial
    insist(lambda: keep(trial=trial, result=result, actor=boot.worker))


def left_in(
    boot: Boot,
    trial: Trial,
    level: Level,
    plan: bytes,
    measured: Measured,
    engine: RunningEngine | None,
    directory: Path,
    store: EvidenceStore,
) -> TrialResult:
    log = directory / LOG_NAME
    digests = Digests(
        plan=store.put(plan),
        records=store.put(records_content(measured.records)),
        part=boot.campaign.part.digest,
        configuration=boot.configuration.digest,
        brief=boot.campaign.brief_digest,
        log=store.put_file(log) if log.exists() else None,
        timeline=store.put(timeline_content(measured.timeline)) if measured.timeline is not None else None,
    )
    summary = summary_of(boot, level, measured, digests.timeline)
    kept = Kept(boot, trial, level, engine, digests)
    return TrialResult(
        summary=summary,
        progress={"planned": len(measured.records), "ended": status_counts(measured.records)},
        counters=measured.counters.difference if measured.counters else {},
        findings=measured.findings,
        plan_digest=digests.plan,
        records_digest=digests.records,
        manifest_digest=store.put(manifest_content(manifest_of(kept, measured, summary))),
    )


def summary_of(boot: Boot, level: Level, measured: Measured, timeline: str | None) -> dict[str, Any]:
    deadlines = {name: Deadline.model_validate(one) for name, one in boot.campaign.plan["deadlines"].items()}
    deadlines = level.deadlines_over(deadlines)
    told = {"timeline": timeline} if timeline else {}
    return (
        summarise(measured.records, window_s=level.duration_s, deadlines=deadlines)
        | told
        | {
            "evidence_class": boot.configuration.document.runtime.evidence_class,
            "fingerprints": named(measured.fingerprints),
            "neighbour_cpu_share": measured.neighbour_cpu_share,
            "warm_up": {"planned": measured.warm_up.planned, "completed": measured.warm_up.completed},
        }
    )


def manifest_of(kept: Kept, measured: Measured, summary: dict[str, Any]) -> Manifest:
    boot, level, engine = kept.boot, kept.level, kept.engine
    return Manifest(
        evidence_class=boot.configuration.document.runtime.evidence_class,
        level=level.model_dump(mode="json"),
        base_url=engine.base_url if engine else None,
        model=boot.configuration.document.target.name,
        started_at=timestamp(measured.started_at),
        window_s=level.duration_s,
        drain_s=level.drain_s,
        stopped=measured.stopped,
        digests=kept.digests,
        planned=summary["planned"],
        statuses=summary["statuses"],
        lag_ms=summary["lag_ms"],
        fingerprints=named(measured.fingerprints),
        findings=tuple(measured.findings),
        warm_up=WarmUpFacts(
            planned=measured.warm_up.planned,
            completed=measured.warm_up.completed,
            errors=tuple(measured.warm_up.errors),
        ),
        warm_up_requests=summary.get("warm_up_requests", 0),
        seeds={"segment": kept.trial.segment["seed"], "campaign": boot.campaign.plan["seed"], "boot": boot_seed(boot)},
        engine=engine_facts(kept),
        counters=measured.counters,
        neighbour_cpu_share=measured.neighbour_cpu_share,
        client=this_client(sys.argv),
        self_test=boot.facts.get(SELF_TEST),
        died=measured.died or None,
    )


def engine_facts(kept: Kept) -> dict[str, Any]:
    """With how it was asked, which a rerun needs to send the same bytes."""
    told = {name: fact for name, fact in kept.boot.facts.items() if name != SELF_TEST}
    return told | ({"asked": endpoint_of(kept.engine).asked} if kept.engine else {})
