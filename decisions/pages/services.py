from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from decisions.models import Account, Route
from decisions.pages.access import require
from decisions.rules.who_may import Relation, may_revoke
from decisions.selectors import services as selectors
from decisions.services.people import owners, person
from decisions.services.refused import Refused
from decisions.services.revoke_release import revoke_release


@require_GET
@login_required
def services(request: HttpRequest) -> HttpResponse:
    require(request)
    return render(request, "services/list.html", {"services": selectors.services()})


@require_GET
@login_required
def service(request: HttpRequest, slug: str) -> HttpResponse:
    require(request)
    found = get_object_or_404(selectors.services(), slug=slug)
    routes = selectors.routes_now(found.routes.all(), timezone.now())
    decisions = selectors.decisions_of_service(found)
    return render(request, "services/service.html", {"service": found, "routes": routes, "decisions": decisions})


@require_GET
@login_required
def route(request: HttpRequest, slug: str, route: str) -> HttpResponse:
    account = require(request)
    return render_route(request, get_object_or_404(selectors.route_of(slug, route)), account)


@require_POST
@login_required
def revoke(request: HttpRequest, slug: str, route: str) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.route_of(slug, route))
    release = get_object_or_404(found.releases.in_force(timezone.now()), pk=request.POST.get("release", 0))
    reason = request.POST.get("reason", "")
    try:
        revoke_release(release=release, by=account, password=request.POST.get("password", ""), reason=reason)
    except Refused as refusal:
        return render_route(request, found, account, refusal=str(refusal), reason=reason, status=422)
    messages.success(request, f"Revoked. {found} answers with the baseline from now on.")
    return redirect("route", slug, route)


def render_route(
    request: HttpRequest, route: Route, account: Account, *, refusal: str = "", reason: str = "", status: int = 200
) -> HttpResponse:
    now = timezone.now()
    releases = selectors.releases_of(route)
    listed = [(release, selectors.release_state(release, now)) for release in releases]
    context = {
        "route": route,
        "in_force": next((release for release, state in listed if state == "in-force"), None),
        "releases": listed,
        "briefs": route.briefs.order_by("-pk")[:10],
        "why_not_revoke": may_revoke(person(account), Relation(service_owners=owners(route.service))),
        "endpoint": f"/api/v1/routes/{route.slug}/configuration",
        "refusal": refusal,
        "reason": reason,
    }
    return render(request, "services/route.html", context, status=status)
