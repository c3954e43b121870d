"""Where an event belongs: the service and the route that its subject is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from django.db.models import QuerySet

from decisions.models import Brief, Route, Service
from loadtests.models import Boot, Campaign, TrafficImport, TrafficSet, Trial


class Place(NamedTuple):
    """Slugs; None: of no service, of no route."""

    service: str | None
    route: str | None


NOWHERE = Place(None, None)
# A key has at most so many digits.
KEY = r"(\d{1,18})"


def place_of(subject: str, details: Mapping[str, Any]) -> Place:
    """As it is now. What the event itself says counts where its subject is of no service."""
    for pattern, find in SUBJECTS:
        found = pattern.fullmatch(subject)
        if found:
            place = find(found[1])
            return told(details) if place == NOWHERE else place
    return told(details)


def told(details: Mapping[str, Any]) -> Place:
    service = details.get("service")
    return Place(service, None) if isinstance(service, str) and 0 < len(service) <= 50 else NOWHERE


def of_service(slug: str) -> Place:
    return Place(slug, None) if Service.objects.filter(slug=slug).exists() else NOWHERE


def of_route(slug: str) -> Place:
    return first(Route.objects.filter(slug=slug), "service__slug", "slug")


def of_brief(key: str) -> Place:
    return first(Brief.objects.filter(pk=key), "route__service__slug", "route__slug")


def of_campaign(key: str) -> Place:
    return of_digest(Campaign.objects.filter(pk=key).values_list("brief_digest", flat=True).first())


def of_boot(key: str) -> Place:
    return of_digest(Boot.objects.filter(pk=key).values_list("campaign__brief_digest", flat=True).first())


def of_trial(key: str) -> Place:
    return of_digest(Trial.objects.filter(pk=key).values_list("boot__campaign__brief_digest", flat=True).first())


def of_digest(digest: str | None) -> Place:
    """By the brief's digest: a campaign's first event is written before its row is tied to the revision. Revisions of
    one digest say the same route."""
    named = Brief.objects.filter(revisions__digest=digest) if digest else Brief.objects.none()
    return first(named, "route__service__slug", "route__slug")


def of_traffic_set(key: str) -> Place:
    return first(TrafficSet.objects.filter(pk=key).exclude(service=""), "service")


def of_traffic_import(key: str) -> Place:
    return first(TrafficImport.objects.filter(pk=key).exclude(service=""), "service")


def first(rows: QuerySet[Any, Any], *columns: str) -> Place:
    found = rows.values_list(*columns).first()
    return Place(found[0], found[1] if len(found) > 1 else None) if found else NOWHERE


SUBJECTS: tuple[tuple[re.Pattern[str], Callable[[str], Place]], ...] = (
    (re.compile(rf"trial {KEY}"), of_trial),
    (re.compile(rf"boot {KEY}"), of_boot),
    (re.compile(rf"campaign {KEY}"), of_campaign),
    (re.compile(rf"brief {KEY} revision \d+"), of_brief),
    (re.compile(r"route (\S+)"), of_route),
    (re.compile(r"service (\S+)"), of_service),
    (re.compile(rf"traffic set {KEY}"), of_traffic_set),
    (re.compile(rf"traffic import {KEY}"), of_traffic_import),
)
