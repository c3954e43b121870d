"""A boot of a behaviour campaign: the preserved-behaviour suite, asked of one engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from loadtests.behaviour.answers import Answers
from loadtests.behaviour.collect import Progress, collect
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.rebuild import plan_of_document
from loadtests.behaviour.result import Server
from loadtests.evidence.store import EvidenceStore, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.generator.reach import Unreachable
from loadtests.models import Boot
from loadtests.services.finish_suite import finish_suite, start_suite
from workers.engines.base import RunningEngine, endpoint_of
from workers.insist import insist
from workers.pulse import Pulse


def run_suite_boot(boot: Boot, engine: RunningEngine | None, directory: Path, pulse: Pulse, failure: str) -> str:
    """Asks the engine everything and stores what it said; says how the engine died, or "" where it lived to the end.
    Of one that never started, or that died half-way, the answers say so: that is a result too."""
    plan = plan_of_document(boot.campaign.plan["suite"])
    insist(lambda: start_suite(boot=boot))
    answers = asked(boot, plan, engine, pulse, failure)
    if pulse.is_cut():
        return failure
    digest, findings, progress = stored(boot, answers, directory), findings_of(answers), pulse.progress
    finish = partial(finish_suite, boot=boot, answers=digest, findings=findings, progress=progress, actor=boot.worker)
    insist(finish)
    return failure or answers.died or ""


def asked(boot: Boot, plan: SuitePlan, engine: RunningEngine | None, pulse: Pulse, failure: str) -> Answers:
    arm = cast(Server, boot.arm)
    silent = Answers(server=arm, base_url="", plan_sha256=plan.digest, lines=())
    if engine is None:
        return replace(silent, died=failure)
    try:
        return asyncio.run(collected(plan, arm, engine, pulse))
    except Unreachable as error:
        return replace(silent, base_url=engine.base_url, died=str(error))


async def collected(plan: SuitePlan, arm: Server, engine: RunningEngine, pulse: Pulse) -> Answers:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    pulse.on_cut(lambda: loop.call_soon_threadsafe(stop.set))

    def tell(progress: Progress) -> None:
        pulse.progress = {"done": progress.done, "planned": progress.planned, "last": progress.last}

    try:
        return await collect(endpoint_of(engine), plan, server=arm, on_progress=tell, stop=stop)
    finally:
        pulse.on_cut(lambda: None)


def stored(boot: Boot, answers: Answers, directory: Path) -> str:
    """Raises EvidenceUnreachable where the store stayed away: the answers then lie in the boot's own directory."""
    try:
        return evidence_store().put(answers.content)
    except EvidenceUnreachable as error:
        here = EvidenceStore(directory / "evidence")
        name = here.put(answers.content)
        said = f"the answers of {boot} are not stored: they lie in {here.root} on {boot.host} as {name}"
        raise EvidenceUnreachable(f"{said}. {error}", passing=error.passing) from error


def findings_of(answers: Answers) -> list[str]:
    failed, requests = answers.asked.failed, answers.asked.requests
    found = [f"{failed} of {requests} requests got no answer"] if failed else []
    return [*found, f"the engine died: {answers.died}"] if answers.died else found
