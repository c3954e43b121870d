"""The events that say who could have signed at a moment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Q

from decisions.models import Account, BriefRevision, Event
from decisions.rules.could_sign import (
    ACTIVE,
    ROLES_SET,
    Answer,
    Fact,
    Now,
    Then,
    account_then,
    who_could_sign,
)
from loadtests.models import Boot

FAULTS = "fault-declared"


def could_sign(revision: BriefRevision, moment: Event, at: datetime) -> Answer:
    """``moment``: the last event that counts; ``at``: the time by which a request may have expired."""
    route = revision.brief.route
    return who_could_sign(
        people_then(moment.sequence),
        facts_of(revision, moment.sequence),
        subject=subject_of(revision),
        service=route.service.slug,
        environment=route.environment,
        at=at,
    )


def subject_of(revision: BriefRevision) -> str:
    return f"brief {revision.brief_id} revision {revision.number}"


def people_then(moment: int) -> list[Then]:
    told: dict[str, list[Fact]] = {}
    for fact in facts(Event.objects.filter(kind__in=[*ACTIVE, ROLES_SET]).order_by("sequence")):
        told.setdefault(fact.subject.removeprefix("account "), []).append(fact)
    accounts = Account.objects.prefetch_related("groups", "owned_services").order_by("username")
    return [account_then(now_of(one), told.get(one.username, []), moment) for one in accounts]


def now_of(account: Account) -> Now:
    return Now(
        username=account.username,
        groups=frozenset(one.name for one in account.groups.all()),
        services=frozenset(one.slug for one in account.owned_services.all()),
        is_active=account.is_active,
        is_superuser=account.is_superuser,
    )


def facts_of(revision: BriefRevision, moment: int) -> list[Fact]:
    """About the revision and those before it, its service's policies, and the faults declared of its boots."""
    boots = Boot.objects.filter(campaign__brief_campaign__revision=revision).values_list("pk", flat=True)
    subjects = [f"brief {revision.brief_id} revision {number}" for number in range(1, revision.number + 1)]
    wanted = Q(subject__in=subjects) | Q(subject=f"service {revision.brief.route.service.slug}", kind="policy-set")
    declared = Q(kind=FAULTS, subject__in=[f"boot {key}" for key in boots])
    return list(facts(Event.objects.filter(wanted | declared, sequence__lte=moment).order_by("sequence")))


def facts(events: Iterable[Event]) -> Iterable[Fact]:
    return (Fact(one.sequence, one.at, one.kind, one.actor, one.subject, one.details) for one in events)


def moment_at(at: datetime) -> Event | None:
    """The last event that was written by then."""
    return Event.objects.filter(at__lte=at).order_by("-sequence").first()
