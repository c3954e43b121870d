"""Plays a measuring brief to its verdict without an engine.

Campaigns, claims, evidence files and services are the real ones; the records are made up. It stands in for hours of
engine time in tests and proves nothing about any engine.
"""

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from decisions.models import Account, BriefRevision, Route
from decisions.services.advance_brief import advance_brief
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.start_brief import start_brief
from loadtests.canonical import canonical, digest_of
from loadtests.configurations import Checkpoint
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.records import RequestRecord, records_content
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.summary import summarise
from loadtests.models import Boot, Trial
from loadtests.services.claim_boot import claim_boot
from loadtests.services.finish_boot import finish_boot
from loadtests.services.finish_trial import TrialResult, finish_trial, start_trial
from loadtests.services.import_traffic import import_traffic
from loadtests.services.read_part import read_part
from loadtests.services.record_engine import record_engine_group, record_engine_ready
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import PlannedRequest, plan_content

TARGET = Checkpoint(name="SmolLM2-135M-Instruct", weights_sha256="a" * 64, tokenizer_sha256="b" * 64)
SECOND = 1_000_000_000
Speed = Callable[[Boot, str], float]


def helps_when_quiet(boot: Boot, level: str) -> float:
    """Drafting takes a quarter off the time of a quiet level and changes nothing elsewhere."""
    return 0.75 if boot.candidate and level == "quiet" else 1.0


def changes_nothing(boot: Boot, level: str) -> float:
    return 1.0


def harms_everywhere(boot: Boot, level: str) -> float:
    return 1.3 if boot.candidate else 1.0


def harms_at_peak(boot: Boot, level: str) -> float:
    if not boot.candidate:
        return 1.0
    return {"quiet": 0.75, "peak": 1.9}.get(level, 1.0)


def other_traffic(directory: Path) -> Path:
    """As many requests at the same times with other words, as another day would bring them."""
    rows = [json.loads(line) for line in SUPPORT_ASSISTANT.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["messages"][-1]["content"] = row["messages"][-1]["content"][::-1]
    path = directory / "other.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def started_brief(route: Route, engineer: Account, *, path: Path = SUPPORT_ASSISTANT) -> BriefRevision:
    """The demo's brief on the traffic of this file, frozen and started."""
    from config.demo import brief_document

    traffic = import_traffic(path=path, name="demo", by=engineer.username, service=route.service.slug, seed=7)
    source = json.dumps(brief_document(TARGET, traffic))
    revision = create_brief(route=route, source=source, by=engineer)
    freeze_brief(revision=revision, by=engineer)
    start_brief(revision=revision, by=engineer)
    return revision


def play(
    revision: BriefRevision,
    speed: Speed = helps_when_quiet,
    *,
    spread: float = 0.003,
    neighbours: float = 0.01,
    evidence_class: str = "measured",
) -> None:
    """Runs every boot of every stage until the revision is no longer measuring; ``neighbours`` is the share of the
    machine that something else took meanwhile."""
    draw = random.Random(1)
    while revision.state == "measuring" and not revision.halted:
        boot = claim_boot(pool="cpu", worker="player", host="host")
        if boot is None:
            advance_brief(revision=revision)
            continue
        run(boot, speed, 1 + draw.gauss(0, spread), draw, neighbours=neighbours, evidence_class=evidence_class)


def run(
    boot: Boot,
    speed: Speed,
    boot_effect: float,
    draw: random.Random,
    *,
    neighbours: float = 0.01,
    evidence_class: str = "measured",
) -> None:
    campaign = boot.campaign
    record_engine_group(boot=boot, group=0, leader_started=0, server=f"server-{boot.pk}")
    record_engine_ready(boot=boot, facts={"kv_cache_tokens": 46_592, "version": "0.32.0"})
    rows = read_part(
        part=campaign.part,
        purpose=campaign.purpose,
        brief_digest=campaign.brief_digest,
        reader="player",
        actor="player",
    )
    for trial in boot.trials.all():
        level = Level.model_validate(next(one for one in campaign.plan["levels"] if one["name"] == trial.level))
        indices = trial.segment["rows"]
        planned = plan_level([(i, rows[i]) for i in indices], level, seed=trial.segment["seed"], prefix=level.name)
        factor = speed(boot, level.name) * boot_effect
        records = [record(one, boot, level.name, factor, draw) for one in planned]
        store(trial, level, planned, records, {"evidence_class": evidence_class, "neighbour_cpu_share": neighbours})
    finish_boot(boot=boot, died=False, reason="", log_digest="", log_tail="")
    # Boots must not overlap: real ones take minutes, these take none.
    Boot.objects.filter(pk=boot.pk).update(
        started_at=boot.claimed_at, stopped_at=timezone.now() - timedelta(microseconds=1)
    )


def record(one: PlannedRequest, boot: Boot, level: str, factor: float, draw: random.Random) -> RequestRecord:
    row = one.traffic_row
    # The same request takes about the same time in both arms, so that pairs are worth something.
    alone = random.Random(row.id).uniform(0.8, 2.4)
    first = one.planned_ns + round(0.12 * factor * SECOND * draw.uniform(0.98, 1.02))
    last = one.planned_ns + round(alone * factor * SECOND * draw.uniform(0.99, 1.01))
    return RequestRecord(
        request_id=one.request_id,
        row=one.row,
        class_=one.class_,
        level=level,
        prompt_sha256=digest_of([message.model_dump() for message in row.messages]),
        prompt_tokens=20 + len(row.messages[-1].content) // 4,
        planned_ns=one.planned_ns,
        sent_ns=one.planned_ns + 400_000,
        first_token_ns=first,
        last_token_ns=last,
        ended_ns=last + 1_000_000,
        server_queue_ms=1.0,
        server_prefill_ms=100.0,
        server_decode_ms=500.0,
        status="completed",
        finish_reason="stop",
        output_tokens=row.max_tokens // 2,
        chunks=row.max_tokens // 2,
        rounds=None,
        draft_tokens=None,
        accepted_tokens=None,
        accepted_histogram=None,
        output_sha256="d" * 64,
        error=None,
        fingerprint=boot.configuration.digest,
        due_ns=one.planned_ns,
        give_up_ns=one.give_up_ns,
        warm_up=one.warm_up,
    )


def store(
    trial: Trial, level: Level, planned: list[PlannedRequest], records: list[RequestRecord], told: dict[str, Any]
) -> None:
    evidence = evidence_store()
    plan = evidence.put(plan_content(planned, level))
    stored = evidence.put(records_content(records))
    tokens = float(sum(one.output_tokens or 0 for one in records))
    counters = {
        "vllm:generation_tokens_total": tokens,
        "vllm:prefix_cache_queries_total": 1000.0,
        "vllm:prefix_cache_hits_total": 100.0,
    }
    summary = summarise(records, window_s=level.duration_s) | told | {"warm_up": {"planned": 4, "completed": 4}}
    start_trial(trial=trial)
    finish_trial(
        trial=trial,
        actor="player",
        result=TrialResult(
            summary=summary,
            progress={"planned": len(planned), "ended": {"completed": len(planned)}},
            counters=counters,
            findings=[],
            plan_digest=plan,
            records_digest=stored,
            manifest_digest=evidence.put(canonical({"trial": trial.pk, "digests": {"plan": plan, "records": stored}})),
        ),
    )
