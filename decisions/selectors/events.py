"""The ledger as pages show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.core.cache import cache
from django.db.models import Q, QuerySet
from django.utils import timezone

from decisions.history import verify_history
from decisions.models import BriefRevision, Checkpoint, Event, SigningKey
from loadtests.models import Boot, Campaign, Trial

CHAIN_STATUS = "chain-status"


@dataclass(frozen=True)
class Chain:
    events: int
    fault: str
    at: datetime
    checkpoints: int = 0
    latest: Checkpoint | None = None


def events(*, kind: str = "", actor: str = "", subject: str = "") -> QuerySet[Event]:
    wanted = Event.objects.order_by("-sequence")
    if kind:
        wanted = wanted.filter(kind=kind)
    if actor:
        wanted = wanted.filter(actor=actor)
    if subject:
        wanted = wanted.filter(subject__startswith=subject)
    return wanted


def event_kinds() -> list[str]:
    return list(Event.objects.order_by("kind").values_list("kind", flat=True).distinct())


def event_actors() -> list[str]:
    return list(Event.objects.order_by("actor").values_list("actor", flat=True).distinct())


def chain_status(*, afresh: bool = False) -> Chain:
    """The chain and its checkpoints. Walking a long one takes seconds: it is done at most once a minute, unless someone
    asks for it."""
    known: Chain | None = None if afresh else cache.get(CHAIN_STATUS)
    if known:
        return known
    history = verify_history()
    status = Chain(history.events, history.fault, timezone.now(), history.checkpoints, history.latest)
    cache.set(CHAIN_STATUS, status, timeout=60)
    return status


def signing_keys() -> list[SigningKey]:
    return list(SigningKey.objects.all())


def events_of_revision(revision: BriefRevision) -> QuerySet[Event]:
    """What happened to a revision, to its campaigns, their boots and trials."""
    campaigns = Campaign.objects.filter(brief_campaign__revision=revision).values_list("pk", flat=True)
    boots = Boot.objects.filter(campaign__in=campaigns).values_list("pk", flat=True)
    trials = Trial.objects.filter(boot__campaign__in=campaigns).values_list("pk", flat=True)
    named = (("campaign", campaigns), ("boot", boots), ("trial", trials))
    subjects = [f"{name} {pk}" for name, keys in named for pk in keys]
    own = f"brief {revision.brief_id} revision {revision.number}"
    return Event.objects.filter(Q(subject=own) | Q(subject__in=subjects)).order_by("-sequence")


SUBJECTS = (
    (re.compile(r"brief (\d+) revision (\d+)"), "brief"),
    (re.compile(r"boot (\d+)"), "boot"),
    (re.compile(r"demonstration (\d+)"), "demonstration"),
)


def subject_link(subject: str) -> tuple[str, tuple[int, ...]] | None:
    """The page that a subject of an event stands for: its name and arguments."""
    for pattern, name in SUBJECTS:
        found = pattern.fullmatch(subject)
        if found:
            return name, tuple(int(part) for part in found.groups())
    return None
