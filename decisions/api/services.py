from __future__ import annotations

from datetime import datetime

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Router, Schema

from decisions.api.auth import access
from decisions.api.paging import Page, Paging, page_of
from decisions.models import Release, Service
from decisions.selectors import services as selectors

router = Router(tags=["services"])


class ReleaseOut(Schema):
    id: int
    brief: int
    revision: int
    configuration: str
    fallback: str
    signed_by: str
    meaning: str
    released_at: datetime
    expires_at: datetime


class RouteOut(Schema):
    slug: str
    name: str
    purpose: str
    environment: str
    release: ReleaseOut | None


class ServiceOut(Schema):
    slug: str
    name: str
    purpose: str
    target: str
    pool: str
    owners: list[str]
    retention_days: int | None
    routes: list[RouteOut]


def release_shown(release: Release) -> ReleaseOut:
    return ReleaseOut(
        id=release.pk,
        brief=release.revision.brief_id,
        revision=release.revision.number,
        configuration=release.configuration.digest,
        fallback=release.fallback.digest,
        signed_by=release.signature.signer_name,
        meaning=release.signature.meaning,
        released_at=release.released_at,
        expires_at=release.expires_at,
    )


def service_shown(service: Service) -> ServiceOut:
    return ServiceOut(
        slug=service.slug,
        name=service.name,
        purpose=service.purpose,
        target=service.target,
        pool=service.pool,
        owners=[one.username for one in service.owners.all()],
        retention_days=service.retention_days,
        routes=[
            RouteOut(
                slug=one.route.slug,
                name=one.route.name,
                purpose=one.route.purpose,
                environment=one.route.environment,
                release=release_shown(one.release) if one.release else None,
            )
            for one in selectors.routes_now(service.routes.all(), timezone.now())
        ],
    )


@router.get("", response=Page[ServiceOut], summary="Services with their routes and what is in force", **access())
def list_services(request: HttpRequest, asked: Paging) -> object:
    return page_of(selectors.services(), asked, service_shown)


@router.get("/{slug}", response=ServiceOut, summary="One service", **access())
def read_service(request: HttpRequest, slug: str) -> ServiceOut:
    service = selectors.services().filter(slug=slug).first()
    if service is None:
        raise Http404("there is no such service")
    return service_shown(service)
