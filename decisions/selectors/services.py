from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Prefetch, QuerySet

from decisions.models import Release, Route, Service, Signature


@dataclass(frozen=True)
class RouteNow:
    route: Route
    release: Release | None


def services() -> QuerySet[Service]:
    return Service.objects.prefetch_related("routes", "owners").annotate(briefs=Count("routes__briefs"))


def routes_now(routes: Iterable[Route], now: datetime) -> list[RouteNow]:
    """Every route with what is in force on it at this moment."""
    listed = list(routes)
    found = Release.objects.in_force(now).filter(route__in=listed).select_related("configuration", "signature")
    by_route = {release.route_id: release for release in found}
    return [RouteNow(route, by_route.get(route.pk)) for route in listed]


def decisions_of_service(service: Service) -> list[Signature]:
    return list(decisions().filter(revision__brief__route__service=service).order_by("-pk")[:20])


def decisions() -> QuerySet[Signature]:
    return Signature.objects.select_related(
        "revision__brief__route", "verdict", "request", "release__route__service"
    ).defer("statement", "verdict__content", "revision__source")


def route_of(service: str, route: str) -> QuerySet[Route]:
    return Route.objects.filter(service__slug=service, slug=route).select_related("service")


def releases_of(route: Route) -> list[Release]:
    return list(
        route.releases.select_related(
            "configuration", "fallback", "signature__request", "revision__brief"
        ).prefetch_related(Prefetch("signature__verdict"))
    )


def release_state(release: Release, now: datetime) -> str:
    if release.revoked_at:
        return "revoked"
    if release.superseded_at:
        return "superseded"
    return "expired" if release.expires_at <= now else "in-force"
