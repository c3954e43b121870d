"""Writing briefs and moving them on."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from decisions.models import Account, BriefRevision, Route
from decisions.pages.access import require
from decisions.pages.problems import Problem, located
from decisions.rules.brief import BadBrief
from decisions.rules.who_may import may_write_brief
from decisions.selectors import briefs as selectors
from decisions.selectors.traffic import traffic_sets
from decisions.services.cancel_brief import cancel_brief
from decisions.services.create_brief import create_brief
from decisions.services.edit_brief import edit_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.people import person
from decisions.services.refused import Refused
from decisions.services.resume_brief import resume_brief
from decisions.services.revise_brief import revise_brief
from decisions.services.start_brief import start_brief
from decisions.services.withdraw_brief import withdraw_brief


@require_GET
@login_required
def briefs(request: HttpRequest) -> HttpResponse:
    account = require(request)
    context = {"briefs": selectors.briefs(), "may_write": may_write_brief(person(account)) is None}
    return render(request, "briefs/list.html", context)


@require_GET
@login_required
def latest(request: HttpRequest, brief: int) -> HttpResponse:
    require(request)
    revisions = selectors.revisions_of(brief)
    if not revisions:
        raise Http404("there is no such brief")
    return redirect("brief", brief, revisions[0].number)


@require_http_methods(["GET", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    account = require(request, may_write_brief)
    routes = list(Route.objects.select_related("service"))
    slug = request.POST.get("route") or request.GET.get("route", "")
    route = next((one for one in routes if one.slug == slug), routes[0] if routes else None)
    if request.method == "GET" or route is None:
        return writing(request, routes, route, source=beginning(route, account) if route else "")
    source = request.POST.get("source", "")
    try:
        revision = create_brief(route=route, source=source, by=account)
    except BadBrief as error:
        return writing(request, routes, route, source=source, problems=located(error.problems, source))
    messages.success(request, "The draft is kept. Freeze it when its words are final.")
    return redirect("brief", revision.brief_id, revision.number)


@require_http_methods(["GET", "POST"])
@login_required
def edit(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request, may_write_brief)
    revision = get_object_or_404(selectors.revision_for_page(), brief=brief, number=number)
    route = revision.brief.route
    if request.method == "GET" and revision.state != "draft":
        messages.error(request, "Only a draft can be edited. A change to this revision makes a new revision.")
        return redirect("brief", brief, number)
    if request.method == "GET":
        return writing(request, [route], route, source=revision.source, revision=revision)
    source = request.POST.get("source", "")
    try:
        edit_brief(revision=revision, source=source, by=account)
    except BadBrief as error:
        problems = located(error.problems, source)
        return writing(request, [route], route, source=source, revision=revision, problems=problems)
    except Refused as refusal:
        problems = [Problem("", str(refusal), None)]
        return writing(request, [route], route, source=source, revision=revision, problems=problems)
    messages.success(request, "The draft is changed.")
    return redirect("brief", brief, number)


def writing(
    request: HttpRequest,
    routes: list[Route],
    route: Route | None,
    *,
    source: str,
    revision: BriefRevision | None = None,
    problems: list[Problem] | None = None,
) -> HttpResponse:
    context = {"routes": routes, "route": route, "source": source, "revision": revision, "problems": problems or []}
    return render(request, "briefs/write.html", context, status=422 if problems else 200)


def beginning(route: Route, account: Account) -> str:
    """The route's last brief, or an example with what is already known filled in."""
    owner = route.service.owners.exclude(pk=account.pk).order_by("username").first()
    traffic = traffic_sets().first()
    parts = {part.kind: part.digest for part in traffic.parts.all()} if traffic else {}
    context = {
        "route": route,
        "owner": owner.username if owner else "",
        "traffic": traffic,
        "tuning": parts.get("tuning", ""),
        "held_out": parts.get("held-out", ""),
        "baseline": selectors.last_baseline(route.service.pool),
    }
    return selectors.last_source(route) or render_to_string("briefs/example.yaml", context)


def plain(service: Callable[..., object]) -> Callable[..., object]:
    def act(*, revision: BriefRevision, by: Account, reason: str) -> object:
        return service(revision=revision, by=by)

    return act


# act → what does it, what is said when it is done
ACTS: dict[str, tuple[Callable[..., object], str]] = {
    "freeze": (plain(freeze_brief), "Frozen. From here on a change is a new revision."),
    "start": (plain(start_brief), "Started. The stages follow each other by themselves."),
    "resume": (plain(resume_brief), "Resumed."),
    "cancel": (cancel_brief, "Cancelled. Its evidence stays."),
    "withdraw": (withdraw_brief, "Withdrawn."),
    "revise": (plain(revise_brief), "A new draft begins with this revision’s words."),
}


@require_POST
@login_required
def act(request: HttpRequest, brief: int, number: int, act: str) -> HttpResponse:
    account = require(request)
    revision = get_object_or_404(selectors.revision_for_page(), brief=brief, number=number)
    if act not in ACTS:
        raise Http404("there is no such act")
    service, done = ACTS[act]
    try:
        result = service(revision=revision, by=account, reason=request.POST.get("reason", "").strip())
    except BadBrief as error:
        for problem in error.problems:
            messages.error(request, problem)
        return redirect("brief", brief, number)
    except Refused as refusal:
        messages.error(request, f"{str(refusal).rstrip('.')}.")
        return redirect("brief", brief, number)
    messages.success(request, done)
    if isinstance(result, BriefRevision):
        return redirect("brief-edit", brief, result.number)
    return redirect("brief", brief, number)
