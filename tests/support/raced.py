"""Plays the tuning of a brief on the simulated engine, in virtual time: real services, evidence as of a real engine.

It shows what pages make of rounds, batches and schedules; it proves nothing about any engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import yaml
from django.utils import timezone

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Route
from decisions.services.advance_brief import advance_brief
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.start_brief import start_brief
from loadtests.configurations import Speculative
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.records import RequestRecord, records_content
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.summary import summarise
from loadtests.evidence.timeline import Sample, timeline_content, timeline_table
from loadtests.models import Boot, Trial
from loadtests.services.claim_boot import claim_boot
from loadtests.services.finish_boot import finish_boot
from loadtests.services.finish_trial import TrialResult, finish_trial, start_trial
from loadtests.services.import_traffic import import_traffic
from loadtests.services.read_part import read_part
from loadtests.services.record_engine import record_engine_group, record_engine_ready
from loadtests.simulator import Boot as Engine
from loadtests.simulator import EngineModel, SimulatedTrial, preset
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import PlannedRequest, plan_content
from loadtests.traffic.rows import NANOSECONDS
from tests.support.play import TARGET

MODEL = preset("cpu-2core")
DRAFTER = {"name": "block drafter", "weights_sha256": "e" * 64, "tokenizer_sha256": "b" * 64}
SEARCH = [
    {
        "name": "ngram",
        "speculative": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5},
        "draft_lengths": [1, 2, 4, 8],
        "schedules": {"fixed": ["1x8-3x2-6x0"]},
    },
    {
        "name": "block",
        "speculative": {"method": "dflash", "drafter": DRAFTER},
        "draft_lengths": [2, 4],
        "trained_block": 4,
    },
]
# Requests a second, and seconds: the held-out part has to be enough for four pairs.
LOADS = {"quiet": (0.4, 25), "ordinary": (1.0, 15), "peak": (2.4, 12)}
LEVELS = [
    {"name": name, "arrival": {"process": "poisson", "rate": rate}, "duration_s": seconds, "drain_s": 30}
    for name, (rate, seconds) in LOADS.items()
]
RACE = {
    "candidates": [],
    "search": SEARCH,
    "tuning": {"engine_minutes": 60, "boots": 9, "first": 2},
    "levels": LEVELS,
    "budget_engine_minutes": 600,
    "deadlines": {"default": {"first_token_s": 1.0, "completion_s": 2.5}},
}


def racing_brief(route: Route, engineer: Account, title: str, **changes: Any) -> BriefRevision:
    """Frozen and started; its tuning is a race unless ``changes`` say otherwise."""
    service = route.service.slug
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by=engineer.username, service=service, seed=7)
    document = brief_document(TARGET, traffic) | {"title": title, "route": route.slug} | RACE | changes
    source = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    revision = create_brief(route=route, source=source, by=engineer)
    freeze_brief(revision=revision, by=engineer)
    start_brief(revision=revision, by=engineer)
    return revision


class Clock:
    """When boots ran: one after the other, up to about now."""

    def __init__(self, hours_ago: float) -> None:
        self.now: datetime = timezone.now() - timedelta(hours=hours_ago)

    def take(self, seconds: float) -> tuple[datetime, datetime]:
        began = self.now
        self.now = began + timedelta(seconds=seconds)
        return began, self.now


def play_until(
    revision: BriefRevision, enough: Callable[[BriefRevision], bool], *, clock: Clock | None = None, tells: bool = True
) -> None:
    """Runs boots until the revision is ``enough``, or waits for people. An engine that ``tells`` nothing is a remote
    one without metrics."""
    clock = clock or Clock(hours_ago=6)
    while revision.state == "measuring" and not revision.halted and not enough(revision):
        boot = claim_boot(pool="cpu", worker="player", host="host")
        if boot is None:
            advance_brief(revision=revision)
        else:
            run_simulated(boot, clock, tells=tells)


def run_simulated(
    boot: Boot, clock: Clock, *, tells: bool = True, model: EngineModel = MODEL, seconds: float | None = None
) -> None:
    """``seconds`` of engine time, as budgets count it; where None, as long as the levels and a start take."""
    speculative = boot.configuration.document.speculative
    record_engine_group(boot=boot, group=0, leader_started=0, server=f"server-{boot.pk}")
    record_engine_ready(boot=boot, facts={"kv_cache_tokens": kv_tokens(model, speculative)} if tells else {})
    campaign = boot.campaign
    rows = read_part(
        part=campaign.part,
        purpose=campaign.purpose,
        brief_digest=campaign.brief_digest,
        reader="player",
        actor="player",
    )
    engine = Engine(model, speculative, seed=boot.pk, fingerprint=boot.configuration.digest)
    took = 30.0
    for trial in boot.trials.all():
        level = Level.model_validate(next(one for one in campaign.plan["levels"] if one["name"] == trial.level))
        planned = plan_level(
            [(index, rows[index]) for index in trial.segment["rows"]],
            level,
            seed=trial.segment["seed"],
            prefix=level.name,
        )
        simulated = engine.run_trial(planned, level=level.name, window_s=level.duration_s, drain_s=level.drain_s)
        store(trial, level, planned, simulated, tells=tells)
        took += level.span_s
    finish_boot(boot=boot, died=False, reason="", log_digest="", log_tail="")
    began, ended = clock.take(took if seconds is None else seconds)
    Boot.objects.filter(pk=boot.pk).update(started_at=began, stopped_at=ended)


def kv_tokens(model: EngineModel, speculative: Speculative | None) -> int:
    drafter = model.drafters.get(speculative.method) if speculative else None
    return model.kv_tokens - (drafter.kv_tokens if drafter else 0)


def store(trial: Trial, level: Level, planned: list[PlannedRequest], simulated: SimulatedTrial, *, tells: bool) -> None:
    evidence = evidence_store()
    records = simulated.records if tells else [without_rounds(one) for one in simulated.records]
    summary = summarise(records, window_s=level.duration_s) | {
        "evidence_class": "measured",
        "neighbour_cpu_share": 0.01,
        "warm_up": {"planned": 4, "completed": 4},
    }
    if tells:
        summary["timeline"] = evidence.put(timeline_content(timeline_of(simulated)))
    start_trial(trial=trial)
    finish_trial(
        trial=trial,
        actor="player",
        result=TrialResult(
            summary=summary,
            progress={"planned": len(planned), "ended": {"completed": len(planned)}},
            counters=simulated.counters if tells else {},
            findings=[],
            plan_digest=evidence.put(plan_content(planned, level)),
            records_digest=evidence.put(records_content(records)),
            manifest_digest=evidence.put(f"manifest of trial {trial.pk}".encode()),
        ),
    )


def without_rounds(record: RequestRecord) -> RequestRecord:
    return replace(
        record,
        server_queue_ms=None,
        server_prefill_ms=None,
        server_decode_ms=None,
        rounds=None,
        draft_tokens=None,
        accepted_tokens=None,
        accepted_histogram=None,
    )


def timeline_of(simulated: SimulatedTrial) -> pa.Table:
    samples = [
        Sample(
            round(one.at_s * NANOSECONDS),
            round(one.at_s * NANOSECONDS),
            {"running": one.running, "waiting": one.waiting, "kv_cache_use": one.kv_use},
        )
        for one in simulated.timeline
    ]
    end = max((one.asked_ns for one in samples), default=0)
    return timeline_table(samples, simulated.records, end_ns=end)
