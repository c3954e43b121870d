"""Can this machine's client send as fast as a campaign wants? Told before its first engine starts on the machine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.utils import timezone

from loadtests.generator.self_test import Floor, RateNotHeld, sufficient_floor
from loadtests.models import Boot
from loadtests.services.record_engine import SELF_TEST, record_self_test
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import busiest_second, level_times_ns
from loadtests.traffic.rows import Row
from workers.insist import insist

# A machine that was quiet yesterday may be another one today.
RECENT = timedelta(hours=12)


def client_processes(boot: Boot, rows: Sequence[Row]) -> int:
    """How many processes the client needs for this boot's campaign; the floor that tells it stands in the boot's facts.
    Raises RateNotHeld."""
    floor = known_floor(boot) or measured_floor(boot, rows)
    insist(partial(record_self_test, boot=boot, floor=floor))
    return int(floor["processes"])


def known_floor(boot: Boot) -> dict[str, Any] | None:
    """What the other arm of its pair was sent with, so that both are sent alike; else what another boot of the campaign
    found on this machine not long ago."""
    told = boot.campaign.boots.filter(host=boot.host, facts__has_key=SELF_TEST).exclude(pk=boot.pk).order_by("-pk")
    floors = told.values_list(f"facts__{SELF_TEST}", flat=True)
    partner = floors.filter(pair=boot.pair, attempt=boot.attempt) if boot.pair is not None else floors.none()
    shared: dict[str, Any] | None = insist(partner.first)
    if shared is not None:
        return shared
    last: dict[str, Any] | None = insist(floors.first)
    return last if last and timezone.now() - datetime.fromisoformat(last["measured_at"]) < RECENT else None


def measured_floor(boot: Boot, rows: Sequence[Row]) -> dict[str, Any]:
    plan = boot.campaign.plan
    levels = {one["name"]: Level.model_validate(one) for one in plan["levels"]}
    # A plan without a limit was made for no brief: then every request has to complete, however late it leaves.
    limit_ms = plan.get("max_client_lag_ms", math.inf)
    capped = [name for name, level in levels.items() if level.max_concurrency is not None]
    try:
        floor = sufficient_floor(
            max(planned_rates(plan, levels, rows), default=1),
            limit_ms=limit_ms,
            most_processes=1 if capped else len(os.sched_getaffinity(0)),
            duration_s=settings.SELF_TEST_S,
        )
    except RateNotHeld as error:
        raise RateNotHeld(f"{error} {advice(capped)}") from None
    return document_of(floor, boot, limit_ms)


def planned_rates(plan: dict[str, Any], levels: dict[str, Level], rows: Sequence[Row]) -> Iterator[int]:
    """Of each trial the most requests that it plans within a second."""
    for trial in (one for boot in plan["boots"] for one in boot["trials"]):
        recorded = [rows[index].arrival_ns for index in trial["rows"]]
        yield busiest_second(level_times_ns(levels[trial["level"]], seed=trial["seed"], recorded_ns=recorded))


def advice(capped: Sequence[str]) -> str:
    if capped:
        return (
            f"Level {capped[0]} caps what is open, so one process sends everything: plan a lower rate or leave "
            "max_concurrency out, or give the worker a faster machine."
        )
    return "Plan a lower rate, or give the worker a machine with more cores."


def document_of(floor: Floor, boot: Boot, limit_ms: float) -> dict[str, Any]:
    return floor.document | {
        "host": boot.host,
        "measured_at": timezone.now().isoformat(),
        "limit_ms": None if math.isinf(limit_ms) else limit_ms,
    }
