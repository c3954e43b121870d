"""One boot, from a claimed row to its evidence: start the engine, run its trials, stop it, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from django.conf import settings

from loadtests.configurations import Configuration
from loadtests.evidence.manifest import counters_around
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.timeline import gaps, timeline_table
from loadtests.generator.progress import Progress
from loadtests.generator.self_test import RateNotHeld
from loadtests.generator.several import GeneratorLost, run_several
from loadtests.generator.trial import TrialRun, WarmUp, warm_up
from loadtests.models import Boot, Campaign, Trial
from loadtests.services.end_campaign import end_campaign
from loadtests.services.finish_boot import finish_boot
from loadtests.services.finish_trial import start_trial
from loadtests.services.give_up_boot import give_up_boot
from loadtests.services.read_part import read_part
from loadtests.services.record_engine import record_engine_group, record_engine_ready
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import PlannedRequest, plan_content
from loadtests.traffic.rows import Row
from workers.accelerators import Accelerators, find_accelerators
from workers.client_floor import client_processes
from workers.engines.base import (
    EngineFailed,
    EngineStopped,
    EngineUnfit,
    Order,
    RunningEngine,
    Spawned,
    endpoint_of,
)
from workers.engines.local_process import LOG_NAME
from workers.engines.starting import start
from workers.engines.vllm import runs_on_cpu
from workers.hardware import NeighbourLoad
from workers.insist import insist
from workers.left_behind import TrialFiles
from workers.pulse import Pulse
from workers.sampler import Machine, Sampler, read_now
from workers.suite import run_suite_boot
from workers.target import TargetError
from workers.trial_evidence import Measured, boot_seed, level_of, never_served, store_trial
from workers.warm_up import WARM_UP_PROMPTS, warm_up_body

logger = logging.getLogger(__name__)

SETTLE_S = 10.0


@dataclass(frozen=True)
class ClientOrder:
    """How many processes send a trial's requests, and where they write what has ended."""

    processes: int
    spool: str


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
        except (EngineUnfit, TargetError, RateNotHeld) as error:
            # It will not pass by itself, so nothing is tried again before a person has seen to it.
            cant = "send this campaign's requests" if isinstance(error, RateNotHeld) else "run this configuration"
            reason = f"the worker on {boot.host} can't {cant}: {error}"
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
    suite = boot.campaign.purpose == Campaign.Purpose.BEHAVIOUR
    rows = [] if suite else part_rows(boot)
    processes = 1 if suite else client_processes(boot, rows)
    engine: RunningEngine | None = None
    failure = ""
    try:
        engine = start_engine(boot, directory, pulse)
    except EngineFailed as error:
        failure = f"the engine did not start: {error}"
    try:
        if suite:
            return run_suite_boot(boot, engine, directory, pulse, failure)
        return run_trials(boot, rows, engine, directory, pulse, failure, processes)
    finally:
        if engine is not None:
            engine.stop()


def end_boot(boot: Boot, directory: Path, failure: str) -> None:
    log = directory / LOG_NAME
    log_digest = evidence_store().put_file(log) if log.exists() else ""
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
    def spawned(process: Spawned) -> None:
        record_engine_group(
            boot=boot, group=process.group, leader_started=process.leader_started, server=process.server_id
        )

    seed = boot_seed(boot)
    engine = start(Order(boot.configuration.document, directory, seed, pulse.is_cut, spawned))
    record_engine_ready(boot=boot, facts=engine.facts.document)
    return engine


def last_words(engine: RunningEngine) -> str:
    return "it no longer answers" if engine.returncode is None else f"exit {engine.returncode}"


def run_trials(
    boot: Boot,
    rows: Sequence[Row],
    engine: RunningEngine | None,
    directory: Path,
    pulse: Pulse,
    failure: str,
    processes: int,
) -> str:
    """Every trial of the boot in order; says how the engine died, or "" where it lived to the end. Raises GeneratorLost
    once what its client left is stored."""
    warmed, accelerators = WarmUp(0, 0), accelerators_of(boot.configuration.document)
    if engine is not None:
        warmed = asyncio.run(warm_up(endpoint_of(engine), [warm_up_body(one, engine.model) for one in WARM_UP_PROMPTS]))
    for trial in insist(lambda: list(boot.trials.all())):
        if pulse.is_cut():
            return failure
        level = level_of(boot, trial.level)
        planned = plan_of(trial, rows, level)
        files = TrialFiles(directory, trial.pk)
        files.begin(planned, level, boot.configuration.document.target.name)
        insist(partial(start_trial, trial=trial))
        pulse.trial, pulse.progress = trial.pk, None
        if engine is None or not engine.answers():
            failure = failure or "the engine died between two trials"
            measured = never_served(planned, boot, level, failure, warmed)
        else:
            client = ClientOrder(processes, str(files.spool))
            measured = measure(planned, engine, level, pulse, warmed, accelerators, client)
        pulse.trial = None
        if engine is not None and not measured.stopped and not engine.answers():
            failure = failure or f"the engine died during level {trial.level} ({last_words(engine)})"
        measured.died = failure
        try:
            store_trial(boot, trial, level, plan_content(planned, level), measured, engine, directory)
        finally:
            files.remove()
        if measured.fault is not None:
            raise measured.fault
        if measured.stopped:
            break
    return failure


def plan_of(trial: Trial, rows: Sequence[Row], level: Level) -> list[PlannedRequest]:
    indices = trial.segment["rows"]
    return plan_level(
        [(index, rows[index]) for index in indices],
        level,
        seed=trial.segment["seed"],
        # Both arms of a pair plan the same requests, so their names are the same too.
        prefix=f"{level.name}-{trial.segment['start']}",
    )


def accelerators_of(configuration: Configuration) -> Accelerators | None:
    """Those of this machine, where the engine works on them."""
    here = configuration.runtime.engine == "vllm" and not runs_on_cpu(configuration.hardware.accelerator)
    return find_accelerators() if here else None


def measure(
    planned: Sequence[PlannedRequest],
    engine: RunningEngine,
    level: Level,
    pulse: Pulse,
    warmed: WarmUp,
    accelerators: Accelerators | None,
    client: ClientOrder,
) -> Measured:
    settle(engine)
    machine = Machine(engine.facts.group, accelerators)
    before = counters_or_none(engine)
    with NeighbourLoad(engine.facts.group) as neighbours, Sampler(partial(read_now, engine, machine)) as sampler:
        run, fault = asyncio.run(open_loop(planned, engine, level, pulse, sampler, client))
    settle(engine)
    after = counters_or_none(engine)
    samples, end_ns = sampler.samples(run.started_at)
    timeline = timeline_table(samples, run.records, end_ns=end_ns)
    return Measured(
        records=run.records,
        started_at=run.started_at,
        stopped=run.stopped,
        fingerprints=run.fingerprints,
        findings=[*run.findings, *gaps(timeline).sentences, *sampler.faults],
        counters=counters_around(before, after) if before is not None and after is not None else None,
        warm_up=warmed,
        neighbour_cpu_share=neighbours.share,
        timeline=timeline,
        fault=fault,
    )


async def open_loop(
    planned: Sequence[PlannedRequest],
    engine: RunningEngine,
    level: Level,
    pulse: Pulse,
    sampler: Sampler,
    client: ClientOrder,
) -> tuple[TrialRun, GeneratorLost | None]:
    """What was recorded, and the loss of a process of the client: then the others were stopped."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    pulse.on_cut(lambda: loop.call_soon_threadsafe(stop.set))
    try:
        run = await run_several(
            planned,
            endpoint_of(engine),
            processes=client.processes,
            spool=client.spool,
            level=level.name,
            window_s=level.duration_s,
            drain_s=level.drain_s,
            warm_up_s=level.warm_up_s,
            max_concurrency=level.max_concurrency,
            on_progress=lambda progress: keep(pulse, sampler, progress),
            stop=stop,
            server_alive=engine.alive,
        )
    except GeneratorLost as lost:
        return lost.partial, lost
    else:
        return run, None
    finally:
        pulse.on_cut(lambda: None)


def keep(pulse: Pulse, sampler: Sampler, progress: Progress) -> None:
    sampler.anchor(progress.elapsed_s)
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
