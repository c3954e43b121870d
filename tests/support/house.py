"""A house with people, a brief in review, one that is being measured and a draft; its records are made up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import yaml
from django.contrib.auth.models import Group
from django.utils import timezone

from config.demo import brief_document
from decisions.models import Account, BriefRevision, Route, Service
from decisions.services.advance_brief import advance_brief
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.start_brief import start_brief
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Boot, Trial
from loadtests.services.claim_boot import claim_boot
from loadtests.services.finish_trial import start_trial
from loadtests.services.give_up_boot import give_up_boot
from loadtests.services.import_traffic import import_traffic
from loadtests.services.record_engine import record_engine_group, record_engine_ready, record_self_test
from tests.support.play import TARGET, helps_when_quiet, play, run

CAST = {
    "engineer": ("engineer",),
    "owner": ("owner",),
    "second_owner": ("owner",),
    "auditor": ("auditor",),
    "superuser": ("owner",),
    "stranger": (),
}
FLOOR = {
    "rate": 3.0,
    "processes": 1,
    "lag_ms": {"p99": 0.4},
    "added_first_token_ms": {"p99": 1.25},
    "added_completion_ms": {"p99": 1.5},
    "host": "host-1",
    "measured_at": "2026-03-01T12:00:00+00:00",
}
# Noise floor 8, tuning 5, then one whole held-out pair and the first arm of the next.
BOOTS_BEFORE_THE_LOSS = 15


@dataclass(frozen=True)
class House:
    people: dict[str, Account]
    route: Route
    in_review: BriefRevision
    measuring: BriefRevision
    draft: BriefRevision
    live_boot: Boot
    lost_boot: Boot


def support_assistant(owners: Iterable[Account]) -> Route:
    """The route chat of a service of these owners."""
    service = Service.objects.create(
        slug="support-assistant",
        name="Support assistant",
        purpose="Answers customers' questions",
        target="SmolLM2-135M-Instruct",
        pool="cpu",
    )
    service.owners.set(owners)
    return Route.objects.create(service=service, slug="chat", name="Chat", purpose="Interactive answers")


def build_house(password: str) -> House:
    people = {name: person(name, password, groups) for name, groups in CAST.items()}
    route = support_assistant(people[name] for name in ("owner", "second_owner", "superuser"))
    engineer = people["engineer"]
    in_review = written(route, engineer, "Prompt lookup for chat")
    start(in_review, engineer)
    # A spread this small leaves no doubt about the verdict, whatever the draw.
    play(in_review, spread=0.002)
    measuring = written(route, engineer, "Prompt lookup, second try")
    start(measuring, engineer)
    live_boot, lost_boot = half_measured(measuring)
    draft = written(route, engineer, "A drafter of our own")
    return House(people, route, in_review, measuring, draft, live_boot, lost_boot)


def person(name: str, password: str, groups: tuple[str, ...]) -> Account:
    account = Account.objects.create_user(name, password=password, is_superuser=name == "superuser")
    account.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return account


def written(route: Route, engineer: Account, title: str) -> BriefRevision:
    name, service = "Support assistant, two hours", route.service.slug
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name=name, by="engineer", service=service, seed=7)
    document = brief_document(TARGET, traffic) | {"title": title, "route": route.slug}
    source = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return create_brief(route=route, source=source, by=engineer)


def start(revision: BriefRevision, engineer: Account) -> None:
    freeze_brief(revision=revision, by=engineer)
    start_brief(revision=revision, by=engineer)


def half_measured(revision: BriefRevision) -> tuple[Boot, Boot]:
    """(a boot of a held-out pair that is running, the boot before it that was lost)"""
    draw = random.Random(3)
    for _ in range(BOOTS_BEFORE_THE_LOSS):
        boot = next_boot(revision)
        run(boot, helps_when_quiet, 1 + draw.gauss(0, 0.01), draw)
        now = timezone.now()
        Boot.objects.filter(pk=boot.pk).update(started_at=now - timedelta(seconds=120), stopped_at=now)
    lost = next_boot(revision)
    give_up_boot(boot=lost, state=Boot.State.LOST, reason="its worker fell silent", actor="reconciler")
    again = next_boot(revision)
    run(again, helps_when_quiet, 1.0, draw)
    return live(next_boot(revision)), lost


def next_boot(revision: BriefRevision) -> Boot:
    while True:
        boot = claim_boot(pool="cpu", worker="worker-1", host="host-1")
        if boot is not None:
            return boot
        advance_brief(revision=revision)


def live(boot: Boot) -> Boot:
    """The boot in the middle of its second trial."""
    record_self_test(boot=boot, floor=FLOOR)
    record_engine_group(boot=boot, group=0, leader_started=0, server=f"server-{boot.pk}")
    record_engine_ready(boot=boot, facts={"kv_cache_tokens": 46_592, "version": "0.32.0", "runner": "V1"})
    first, second = boot.trials.all()[:2]
    counts = {"completed": first.planned - 1, "timed_out": 1}
    start_trial(trial=first)
    done = {"planned": first.planned, "sent": first.planned, "ended": counts, "elapsed_s": 25.0}
    Trial.objects.filter(pk=first.pk).update(state=Trial.State.FINISHED, progress=done)
    start_trial(trial=second)
    going = {"planned": second.planned, "sent": 4, "ended": {"completed": 3}, "elapsed_s": 8.2}
    Trial.objects.filter(pk=second.pk).update(progress=going)
    boot.refresh_from_db()
    return boot
