"""Writes what people are told of an event, in the event's own transaction: an act and its messages stand or fall
together. ``services/send_messages.py`` sends them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from decisions.models import (
    Account,
    BriefCampaign,
    BriefRevision,
    Endpoint,
    Event,
    MailSwitch,
    Message,
    Release,
    Service,
)
from decisions.rules import notices
from decisions.rules.notices import About, Notice, notice_of, sentence_of, told, wants_mail
from decisions.rules.who_may import AUDITOR, OPERATOR, ROLES
from loadtests.queue import send

# A worker of its own: a receiver that doesn't answer keeps nothing else waiting.
QUEUE = "messages"

BRIEF_SUBJECT = re.compile(r"brief (\d+) revision (\d+)")
CAMPAIGN_SUBJECT = re.compile(r"campaign (\d+)")
ENDPOINT_SUBJECT = re.compile(r"endpoint (\d+)")


@dataclass(frozen=True)
class Found:
    """The rows that an event is about, as far as there are any."""

    service: Service | None = None
    revision: BriefRevision | None = None
    release: Release | None = None
    endpoint: Endpoint | None = None
    stage: str = ""


def put(event: Event, details: Mapping[str, Any]) -> None:
    notice = notice_of(event.kind, details)
    found = found_for(event, details) if notice else None
    if notice is None or found is None:
        return
    about = about_of(event, notice, found)
    text, path = sentence_of(notice, about, details), path_of(notice, found)
    people = mailed(notice, told(notice, about))
    endpoints = Endpoint.objects.enabled_for(found.service)
    service = found.service.slug if found.service else ""
    write(
        [
            *(message(event, text, path, notice.happening, service, person=one) for one in people),
            *(message(event, text, path, notice.happening, service, endpoint=one) for one in endpoints),
        ]
    )


def write(messages: list[Message]) -> None:
    if messages:
        Message.objects.bulk_create(messages)
        send_on_commit()


def send_on_commit() -> None:
    transaction.on_commit(request_sending)


def request_sending() -> None:
    send("decisions.send_messages", queue=QUEUE, what="the messages")


def message(
    event: Event,
    sentence: str,
    path: str,
    happening: str,
    service: str,
    *,
    person: Account | None = None,
    endpoint: Endpoint | None = None,
) -> Message:
    return Message(
        name=f"msg_{secrets.token_hex(16)}",
        person=person,
        endpoint=endpoint,
        event=event.sequence,
        kind=event.kind,
        happening=happening,
        service=service,
        subject=event.subject,
        actor=event.actor,
        at=event.at,
        sentence=sentence,
        path=path,
        next_at=timezone.now(),
    )


def found_for(event: Event, details: Mapping[str, Any]) -> Found | None:
    """None where what it is about isn't there: then nobody is told."""
    if named := BRIEF_SUBJECT.fullmatch(event.subject):
        revision = revisions().filter(brief=int(named[1]), number=int(named[2])).first()
        return of_revision(revision) if revision else None
    if named := CAMPAIGN_SUBJECT.fullmatch(event.subject):
        ran = BriefCampaign.objects.filter(campaign=int(named[1])).select_related("campaign").first()
        return of_revision(revisions().get(pk=ran.revision_id), stage=ran.campaign.purpose) if ran else None
    if named := ENDPOINT_SUBJECT.fullmatch(event.subject):
        endpoint = Endpoint.objects.filter(pk=int(named[1])).select_related("service").first()
        return Found(service=endpoint.service, endpoint=endpoint) if endpoint else None
    if "release" in details:
        release = Release.objects.filter(pk=details["release"]).select_related("route__service").first()
        revision = revisions().get(pk=release.revision_id) if release else None
        return Found(release.route.service, revision, release) if release else None
    return Found()


def of_revision(revision: BriefRevision, stage: str = "") -> Found:
    return Found(service=revision.brief.route.service, revision=revision, stage=stage)


def revisions() -> Any:
    return BriefRevision.objects.select_related("brief__route__service", "author").defer("source")


def about_of(event: Event, notice: Notice, found: Found) -> About:
    revision, release = found.revision, found.release
    return About(
        actor=event.actor,
        brief=f"“{revision.title}”, revision {revision.number}" if revision else "",
        route=f"{release.route.slug} of {release.route.service.name}" if release else "",
        stage=found.stage,
        endpoint=str(found.endpoint) if found.endpoint else "",
        judged=revision is None or revision.verdicts.exists(),
        owners=names(found.service.owners.all()) if found.service else frozenset(),
        hands=hands_of(revision) if revision else frozenset(),
        operators=in_group(OPERATOR) if notices.OPERATORS in notice.tells else frozenset(),
        auditors=in_group(AUDITOR) if notices.AUDITORS in notice.tells else frozenset(),
    )


def hands_of(revision: BriefRevision) -> frozenset[str]:
    editors, starters = revision.editors.all(), revision.run_starters.all()
    return frozenset({revision.author.username}) | names(editors) | names(starters)


def names(people: Iterable[Account]) -> frozenset[str]:
    return frozenset(one.username for one in people)


def in_group(name: str) -> frozenset[str]:
    return names(Account.objects.filter(groups__name=name))


def mailed(notice: Notice, usernames: frozenset[str]) -> list[Account]:
    """Of these, whoever can and wants to get a mail of it. Mail goes with the roles, as pages and feeds do."""
    if not settings.EMAIL_URL:
        return []
    people = Account.objects.filter(username__in=usernames, is_active=True, groups__name__in=ROLES)
    people = people.exclude(email="").order_by("pk").distinct()
    switches = MailSwitch.objects.filter(person__in=people, happening=notice.happening)
    switched = dict(switches.values_list("person_id", "on"))
    return [person for person in people if wants_mail(notice.happening, switched.get(person.pk))]


def path_of(notice: Notice, found: Found) -> str:
    if notice.page == notices.LEDGER:
        return reverse("ledger")
    if notice.page == notices.ENDPOINT_PAGE and found.endpoint:
        return reverse("endpoint", args=[found.endpoint.pk])
    if notice.page == notices.ROUTE and found.release:
        return reverse("route", args=[found.release.route.service.slug, found.release.route.slug])
    if found.revision:
        page = "brief-sign-off" if notice.page == notices.SIGN_OFF else "brief"
        return reverse(page, args=[found.revision.brief_id, found.revision.number])
    return reverse("inbox")
