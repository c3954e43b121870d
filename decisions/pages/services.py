from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, Release, Route, Service
from decisions.pages.access import posted_from, require
from decisions.pages.credentials import credentials_of
from decisions.pages.privacy import PrivacyForm, kept, typed
from decisions.rules.policy import PRODUCTION
from decisions.rules.who_may import Relation, may_add_route, may_manage_privacy, may_revoke
from decisions.selectors import services as selectors
from decisions.selectors.pictures import in_order
from decisions.selectors.policies import policies_of
from decisions.selectors.service_cases import versions_of
from decisions.services.add_route import add_route
from decisions.services.people import owners, person
from decisions.services.refused import Refused
from decisions.services.revoke_release import revoke_release
from decisions.services.set_privacy import set_privacy


@require_safe
@login_required
def services(request: HttpRequest) -> HttpResponse:
    require(request)
    return render(request, "services/list.html", {"services": selectors.services()})


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def service(request: HttpRequest, slug: str) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.services(), slug=slug)
    if request.method != "POST":
        return render_service(request, found, account, kept(found.retention_days, found.redactions))
    form = typed(request.POST.get("retention_days", ""), request.POST.get("redactions", ""))
    if form.problems:
        return render_service(request, found, account, form, status=422)
    try:
        set_privacy(service=found, retention_days=form.retention_days, redactions=form.redactions, by=account)
    except Refused as refusal:
        return render_service(request, found, account, form, refusal=str(refusal), status=422)
    messages.success(request, "These rules hold from now on.")
    return redirect("service", slug)


def render_service(
    request: HttpRequest,
    found: Service,
    account: Account,
    privacy: PrivacyForm,
    *,
    refusal: str = "",
    route: dict[str, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    """``route``: what was typed of a new route that was refused, and why."""
    relation = Relation(service_owners=owners(found))
    why_not_manage = may_manage_privacy(person(account), relation)
    context = {
        "service": found,
        "routes": selectors.routes_now(found.routes.all(), timezone.now()),
        "decisions": selectors.decisions_of_service(found),
        "cases": versions_of(found).first(),
        "policies": policies_of(found),
        "privacy": privacy,
        "may_manage": why_not_manage is None,
        "why_not_manage": why_not_manage,
        "refusal": refusal,
        "may_add_route": may_add_route(person(account), relation) is None,
        "new_route": route or {},
    }
    return render(request, "services/service.html", context, status=status)


@posted_from("service", "slug")
@login_required
def new_route(request: HttpRequest, slug: str) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.services(), slug=slug)
    typed_in = {name: request.POST.get(name, "").strip() for name in ("slug", "name", "environment", "purpose")}
    typed_in["environment"] = typed_in["environment"] or PRODUCTION
    try:
        added = add_route(service=found, by=account, **typed_in)
    except Refused as refusal:
        form = kept(found.retention_days, found.redactions)
        return render_service(request, found, account, form, route=typed_in | {"refusal": str(refusal)}, status=422)
    messages.success(request, f"{added.name} is a route of {found.name} now, without a release: the baseline answers.")
    return redirect("route", slug, added.slug)


@require_safe
@login_required
def route(request: HttpRequest, slug: str, route: str) -> HttpResponse:
    account = require(request)
    return render_route(request, get_object_or_404(selectors.route_of(slug, route)), account)


def key_of(text: str) -> int:
    """A row's number as a form sends it; 18 digits are the most that every key can hold."""
    if not text.isdecimal() or len(text) > 18:
        raise Http404("there is no such release")
    return int(text)


@posted_from("route", "slug", "route")
@login_required
def revoke(request: HttpRequest, slug: str, route: str) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.route_of(slug, route))
    release = get_object_or_404(found.releases, pk=key_of(request.POST.get("release", "")))
    if not in_force(release):
        return too_late(request, found)
    reason = request.POST.get("reason", "")
    try:
        revoke_release(release=release, by=account, credentials=credentials_of(request), reason=reason)
    except Refused as refusal:
        if not in_force(release):
            return too_late(request, found)
        return render_route(request, found, account, refusal=str(refusal), reason=reason, status=422)
    messages.success(request, f"Revoked. {found} answers with the baseline from now on.")
    return redirect("route", slug, route)


def in_force(release: Release) -> bool:
    return Release.objects.in_force(timezone.now()).filter(pk=release.pk).exists()


def too_late(request: HttpRequest, route: Route) -> HttpResponse:
    """Someone was faster, or the release expired or was replaced while the page stood open."""
    if route.releases.in_force(timezone.now()).exists():
        messages.error(request, "That release is no longer in force: another one is. Read it before you revoke it.")
    else:
        messages.info(request, "Nothing is in force: the baseline already answers.")
    return redirect("route", route.service.slug, route.slug)


def range_shown(release: Release) -> list[dict[str, Any]]:
    levels = [level.name for level in release.revision.document.levels]
    return in_order(release.tested_range.get("levels", []), levels)


def render_route(
    request: HttpRequest, route: Route, account: Account, *, refusal: str = "", reason: str = "", status: int = 200
) -> HttpResponse:
    now = timezone.now()
    releases = selectors.releases_of(route)
    listed = [(release, selectors.release_state(release, now)) for release in releases]
    found = next((release for release, state in listed if state == "in-force"), None)
    context = {
        "route": route,
        "in_force": found,
        "tested_range": range_shown(found) if found else [],
        "releases": listed,
        "briefs": route.briefs.order_by("-pk")[:10],
        "why_not_revoke": may_revoke(person(account), Relation(service_owners=owners(route.service))),
        "endpoint": f"/api/v1/routes/{route.slug}/configuration",
        "refusal": refusal,
        "reason": reason,
    }
    return render(request, "services/route.html", context, status=status)
