"""One boot, from a claimed row to its evidence: start the engine, run its trials, stop it, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings

from loadtests.configurations import Runtime
from loadtests.evidence.manifest import (
    Counters,
    Digests,
    Manifest,
    WarmUpFacts,
    counters_around,
    manifest_content,
    named,
    this_client,
    timestamp,
)
from loadtests.evidence.records import RequestRecord, records_content, status_counts
from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.summary import summarise
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.progress import Progress
from loadtests.generator.trial import TrialRun, WarmUp, run_trial, warm_up
from loadtests.generator.unserved import unserved
from loadtests.models import Boot, Campaign, Trial
from loadtests.services.end_campaign import end_campaign
from loadtests.services.finish_boot import finish_boot
from loadtests.services.finish_trial import TrialResult, finish_trial, start_trial
from loadtests.services.give_up_boot import give_up_boot
from loadtests.services.read_part import read_part
from loadtests.services.record_engine import record_engine_group, record_engine_ready
from loadtests.traffic.levels import Deadline, Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import PlannedRequest, plan_content
from loadtests.traffic.rows import Row
from workers.engines.base import EngineFailed, EngineStopped, EngineUnfit, RunningEngine, Spawned
from workers.engines.vllm import installed_runtime, start
from workers.hardware import NeighbourLoad
from workers.insist import insist
from workers.pulse import Pulse
from workers.target import TargetError, find_checkpoint
from workers.warm_up import WARM_UP_PROMPTS, warm_up_body

logger = logging.getLogger(__name__)

SETTLE_S = 10.0


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


def run_boot(boot: Boot, stopping: threading.Event) -> None:
    """Runs a claimed boot to its end. A dead engine is a result; any fault of ours gives the boot up and says why."""
    directory = Path(settings.RUNS_DIR) / f"boot-{boot.pk}"
    with Pulse(boot, stopping) as pulse:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            failure = measure_boot(boot, directory, pulse)
            if not pulse.is_cut():
                end_boot(boot, directory, failure)
                return
            reason = pulse.reason
        except EngineStopped:
            reason = pulse.reason
        except (EngineUnfit, TargetError) as error:
            # It will not pass by itself, so nothing is tried again before a person has seen to it.
            reason = f"the worker on {boot.host} can't run this configuration: {error}"
            stopped = Campaign.State.STOPPED
            insist(lambda: end_campaign(campaign=boot.campaign, state=stopped, reason=reason, actor=boot.worker))
        except Exception as error:
            logger.exception("boot %s could not be run", boot.pk)
            reason = f"a fault of the worker: {type(error).__name__}: {error}"
        insist(lambda: leave(boot, reason))


def leave(boot: Boot, reason: str) -> None:
    """Ends a boot without a result: cancelled where its campaign has ended, else lost and tried again."""
    boot.campaign.refresh_from_db()
    state = Boot.State.LOST if boot.campaign.state in Campaign.OPEN else Boot.State.CANCELLED
    give_up_boot(boot=boot, state=state, reason=boot.campaign.reason or reason, actor=boot.worker)


def measure_boot(boot: Boot, directory: Path, pulse: Pulse) -> str:
    """Starts the engine, runs the trials, stops the engine; says how it died, or "" where it lived to the end."""
    rows = part_rows(boot)
    engine: RunningEngine | None = None
    failure = ""
    try:
        engine = start_engine(boot, directory, pulse)
    except EngineFailed as error:
        failure = f"the engine did not start: {error}"
    try:
        return run_trials(boot, rows, engine, pulse, failure)
    finally:
        if engine is not None:
            engine.stop()


def end_boot(boot: Boot, directory: Path, failure: str) -> None:
    log = directory / "engine.log"
    log_digest = EvidenceStore(settings.EVIDENCE_DIR).put_file(log) if log.exists() else ""
    tail = tail_of(log) if failure else ""
    insist(lambda: finish_boot(boot=boot, died=bool(failure), reason=failure, log_digest=log_digest, log_tail=tail))


def tail_of(log: Path, lines: int = 60) -> str:
    if not log.exists():
        return ""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def part_rows(boot: Boot) -> list[Row]:
    campaign = boot.campaign
    return read_part(
        part=campaign.part,
        purpose=campaign.purpose,
        brief_digest=campaign.brief_digest,
        reader=f"boot {boot.pk}",
        actor=boot.worker,
    )


def start_engine(boot: Boot, directory: Path, pulse: Pulse) -> RunningEngine:
    configuration = boot.configuration.document
    check_runtime(configuration.runtime)
    models = Path(settings.MODELS_DIR)
    speculative = configuration.speculative
    drafter = find_checkpoint(models, speculative.drafter) if speculative and speculative.drafter else None

    def spawned(process: Spawned) -> None:
        record_engine_group(
            boot=boot, group=process.group, leader_started=process.leader_started, server=process.server_id
        )

    engine = start(
        configuration,
        engine_python=Path(settings.ENGINE_PYTHON),
        model_path=find_checkpoint(models, configuration.target),
        drafter_path=drafter,
        directory=directory,
        should_stop=pulse.is_cut,
        on_spawn=spawned,
    )
    record_engine_ready(boot=boot, facts=engine.facts.document)
    return engine


def check_runtime(runtime: Runtime) -> None:
    """The plan names engine, distribution and version: another one would be another configuration."""
    found = installed_runtime(Path(settings.ENGINE_PYTHON))
    if runtime != found:
        wanted = f"{runtime.engine} by {runtime.distribution} {runtime.version}"
        raise EngineUnfit(f"the plan needs {wanted}; here is {found.engine} by {found.distribution} {found.version}")


def run_trials(boot: Boot, rows: Sequence[Row], engine: RunningEngine | None, pulse: Pulse, failure: str) -> str:
    """Every trial of the boot in order; says how the engine died, or "" where it lived to the end."""
    warmed = WarmUp(0, 0)
    if engine is not None:
        warmed = asyncio.run(warm_up(endpoint_of(engine), [warm_up_body(one, engine.model) for one in WARM_UP_PROMPTS]))
    for trial in insist(lambda: list(boot.trials.all())):
        if pulse.is_cut():
            return failure
        level = level_of(boot, trial.level)
        planned = plan_of(trial, rows, level)
        insist(partial(start_trial, trial=trial))
        pulse.trial, pulse.progress = trial.pk, None
        if engine is None or not engine.alive():
            failure = failure or "the engine died between two trials"
            measured = never_served(planned, boot, level, failure, warmed)
        else:
            measured = measure(planned, engine, level, pulse, warmed)
        pulse.trial = None
        if measured.stopped:
            return failure
        if engine is not None and not engine.alive():
            failure = failure or f"the engine died during level {trial.level} (exit {engine.returncode})"
        store_trial(boot, trial, level, planned, measured, engine)
    return failure


def level_of(boot: Boot, name: str) -> Level:
    return Level.model_validate(next(one for one in boot.campaign.plan["levels"] if one["name"] == name))


def plan_of(trial: Trial, rows: Sequence[Row], level: Level) -> list[PlannedRequest]:
    indices = trial.segment["rows"]
    return plan_level(
        [(index, rows[index]) for index in indices],
        level,
        seed=trial.segment["seed"],
        # Both arms of a pair plan the same requests, so their names are the same too.
        prefix=f"{level.name}-{trial.segment['start']}",
    )


def endpoint_of(engine: RunningEngine) -> Endpoint:
    return Endpoint(engine.base_url, engine.model)


def measure(
    planned: Sequence[PlannedRequest], engine: RunningEngine, level: Level, pulse: Pulse, warmed: WarmUp
) -> Measured:
    settle(engine)
    before = counters_or_none(engine)
    with NeighbourLoad(engine.facts.group) as neighbours:
        run = asyncio.run(open_loop(planned, engine, level, pulse))
    settle(engine)
    after = counters_or_none(engine)
    return Measured(
        records=run.records,
        started_at=run.started_at,
        stopped=run.stopped,
        fingerprints=run.fingerprints,
        findings=run.findings,
        counters=counters_around(before, after) if before is not None and after is not None else None,
        warm_up=warmed,
        neighbour_cpu_share=neighbours.share,
    )


async def open_loop(planned: Sequence[PlannedRequest], engine: RunningEngine, level: Level, pulse: Pulse) -> TrialRun:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    pulse.on_cut(lambda: loop.call_soon_threadsafe(stop.set))
    try:
        return await run_trial(
            planned,
            endpoint_of(engine),
            level=level.name,
            window_s=level.duration_s,
            drain_s=level.drain_s,
            warm_up_s=level.warm_up_s,
            max_concurrency=level.max_concurrency,
            on_progress=lambda progress: keep(pulse, progress),
            stop=stop,
            server_alive=engine.alive,
        )
    finally:
        pulse.on_cut(lambda: None)


def keep(pulse: Pulse, progress: Progress) -> None:
    pulse.progress = asdict(progress)


def settle(engine: RunningEngine) -> None:
    """Waits until the engine works on nothing, so that the counters hold whole requests."""
    until = time.monotonic() + SETTLE_S
    while engine.alive() and time.monotonic() < until:
        counters = counters_or_none(engine) or {}
        if not counters.get("vllm:num_requests_running") and not counters.get("vllm:num_requests_waiting"):
            return
        time.sleep(0.2)


def counters_or_none(engine: RunningEngine) -> dict[str, float] | None:
    try:
        return engine.counters()
    except OSError:
        return None


def never_served(planned: Sequence[PlannedRequest], boot: Boot, level: Level, reason: str, warmed: WarmUp) -> Measured:
    records = unserved(planned, model=boot.configuration.document.target.name, level=level.name, reason=reason)
    return Measured(records, time.time_ns(), False, {}, [reason], None, warmed, None)


def store_trial(
    boot: Boot,
    trial: Trial,
    level: Level,
    planned: Sequence[PlannedRequest],
    measured: Measured,
    engine: RunningEngine | None,
) -> None:
    store = EvidenceStore(settings.EVIDENCE_DIR)
    summary = summary_of(boot, level, measured)
    plan = store.put(plan_content(planned, level))
    records = store.put(records_content(measured.records))
    manifest = store.put(manifest_content(manifest_of(boot, trial, level, measured, engine, summary, plan, records)))
    difference = measured.counters.difference if measured.counters else {}
    result = TrialResult(
        summary=summary,
        progress={"planned": len(planned), "ended": status_counts(measured.records)},
        counters=difference,
        findings=measured.findings,
        plan_digest=plan,
        records_digest=records,
        manifest_digest=manifest,
    )
    insist(lambda: finish_trial(trial=trial, result=result, actor=boot.worker))


def summary_of(boot: Boot, level: Level, measured: Measured) -> dict[str, Any]:
    deadlines = {name: Deadline.model_validate(one) for name, one in boot.campaign.plan["deadlines"].items()}
    deadlines = level.deadlines_over(deadlines)
    return summarise(measured.records, window_s=level.duration_s, deadlines=deadlines) | {
        "evidence_class": "measured",
        "fingerprints": named(measured.fingerprints),
        "neighbour_cpu_share": measured.neighbour_cpu_share,
        "warm_up": {"planned": measured.warm_up.planned, "completed": measured.warm_up.completed},
    }


def manifest_of(
    boot: Boot,
    trial: Trial,
    level: Level,
    measured: Measured,
    engine: RunningEngine | None,
    summary: dict[str, Any],
    plan: str,
    records: str,
) -> Manifest:
    campaign = boot.campaign
    return Manifest(
        evidence_class="measured",
        level=level.model_dump(mode="json"),
        base_url=engine.base_url if engine else None,
        model=boot.configuration.document.target.name,
        started_at=timestamp(measured.started_at),
        window_s=level.duration_s,
        drain_s=level.drain_s,
        stopped=measured.stopped,
        digests=Digests(
            plan=plan,
            records=records,
            part=campaign.part.digest,
            configuration=boot.configuration.digest,
            brief=campaign.brief_digest,
        ),
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
        seeds={"segment": trial.segment["seed"], "campaign": campaign.plan["seed"]},
        engine=boot.facts,
        counters=measured.counters,
        client=this_client(sys.argv),
    )
