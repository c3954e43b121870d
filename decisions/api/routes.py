from __future__ import annotations

from typing import Literal

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Router, Schema

from decisions.api.auth import access
from decisions.api.services import ReleaseOut, release_shown
from decisions.models import Route
from decisions.selectors.route_configuration import route_configuration
from decisions.selectors.standing import standing_of_route
from loadtests.canonical import canonical, digest

router = Router(tags=["routes"])


class RouteStanding(Schema):
    service: str
    route: str
    environment: str
    standing: Literal["in-force", "stale", "none"]
    sentence: str
    release: ReleaseOut | None


@router.get(
    "/{slug}", response=RouteStanding, summary="Whether what is released on a route may be relied on", **access()
)
def read_route(request: HttpRequest, slug: str) -> RouteStanding:
    """What a deployment pipeline asks. ``release`` is the last one, be it in force or not."""
    route = route_or_404(slug)
    found = standing_of_route(route)
    return RouteStanding(
        service=route.service.slug,
        route=route.slug,
        environment=route.environment,
        standing=found.state,
        sentence=found.sentence,
        release=release_shown(found.release) if found.release else None,
    )


@router.api_operation(
    ["GET", "HEAD"],
    "/{slug}/configuration",
    summary="The speculative setting in force on a route, or none",
    auth=None,
)
def read_configuration(request: HttpRequest, slug: str) -> HttpResponse:
    """Without a token. Cacheable by its ETag: send ``If-None-Match`` and take 304 as "nothing has changed"."""
    content = canonical(route_configuration(route_or_404(slug)))
    etag = f'"{digest(content)}"'
    if etag in [one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")]:
        return with_validator(HttpResponse(status=304), etag)
    return with_validator(HttpResponse(content, content_type="application/json"), etag)


def route_or_404(slug: str) -> Route:
    route = Route.objects.select_related("service").filter(slug=slug).first()
    if route is None:
        raise Http404("there is no such route")
    return route


def with_validator(response: HttpResponse, etag: str) -> HttpResponse:
    response["ETag"] = etag
    # Revoking takes effect on the next read: a cache may keep the answer but must ask before it serves it.
    response["Cache-Control"] = "no-cache"
    return response
