"""The ledger as pages show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.core.cache import cache
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from decisions import ledger
from decisions.models import BriefRevision, Event
from loadtests.models import Boot, Campaign


@dataclass(frozen=True)
class Chain:
    events: int
    fault: str
    at: datetime


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


def chain_status() -> Chain:
    """The whole chain is walked again only when it has grown since it was last found whole, or after a minute."""
    last = Event.objects.aggregate(last=Max("sequence"))["last"] or 0
    key = f"chain-status-{last}"
    known: Chain | None = cache.get(key)
    if known:
        return known
    verified = ledger.verify()
    status = Chain(verified.events, str(verified.broken or ""), timezone.now())
    cache.set(key, status, timeout=60)
    return status


def events_of_revision(revision: BriefRevision) -> QuerySet[Event]:
    """What happened to a revision, to its campaigns and to their boots."""
    campaigns = Campaign.objects.filter(brief_campaign__revision=revision).values_list("pk", flat=True)
    boots = Boot.objects.filter(campaign__in=campaigns).values_list("pk", flat=True)
    subjects = [f"campaign {pk}" for pk in campaigns] + [f"boot {pk}" for pk in boots]
    own = f"brief {revision.brief_id} revision {revision.number}"
    return Event.objects.filter(Q(subject=own) | Q(subject__in=subjects)).order_by("-sequence")


SUBJECTS = (
    (re.compile(r"brief (\d+) revision (\d+)"), "brief"),
    (re.compile(r"boot (\d+)"), "boot"),
)


def subject_link(subject: str) -> tuple[str, tuple[int, ...]] | None:
    """The page that a subject of an event stands for: its name and arguments."""
    for pattern, name in SUBJECTS:
        found = pattern.fullmatch(subject)
        if found:
            return name, tuple(int(part) for part in found.groups())
    return None
