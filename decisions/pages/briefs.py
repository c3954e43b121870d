"""Writing briefs and moving them on."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, BriefRevision, Route
from decisions.pages.access import posted_from, require
from decisions.pages.problems import Problem, located
from decisions.pages.traffic_asked import traffic_asked_for
from decisions.pages.traffic_block import named, with_traffic
from decisions.rules.brief import BadBrief
from decisions.rules.who_may import may_write_brief
from decisions.selectors import briefs as selectors
from decisions.selectors.service_cases import versions_of
from decisions.selectors.traffic import newest_ready
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
from loadtests.models import TrafficSet


@require_safe
@login_required
def briefs(request: HttpRequest) -> HttpResponse:
    account = require(request)
    context = {"briefs": selectors.briefs(), "may_write": may_write_brief(person(account)) is None}
    return render(request, "briefs/list.html", context)


@require_safe
@login_required
def latest(request: HttpRequest, brief: int) -> HttpResponse:
    require(request)
    revisions = selectors.revisions_of(brief)
    if not revisions:
        raise Http404("there is no such brief")
    return redirect("brief", brief, revisions[0].number)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    account = require(request, may_write_brief)
    routes = list(Route.objects.select_related("service"))
    slug = request.POST.get("route") or request.GET.get("route", "")
    chosen = next((one for one in routes if one.slug == slug), None)
    traffic = traffic_asked_for(request.GET.get("traffic", ""))
    if request.method != "POST" and traffic and not chosen and (several := routes_for(traffic, routes)):
        return render(request, "briefs/choose_route.html", {"routes": several, "traffic": traffic})
    route = chosen or next(iter(own_routes(traffic, routes) or routes), None)
    if request.method != "POST" or route is None:
        return beginning(request, routes, route, account, traffic)
    source = request.POST.get("source", "")
    try:
        revision = create_brief(route=route, source=source, by=account)
    except BadBrief as error:
        problems = located(error.problems, source, error.rules)
        return writing(request, routes, route, source=source, problems=problems, traffic=traffic)
    messages.success(request, "The draft is kept. Freeze it when its words are final.")
    return redirect("brief", revision.brief_id, revision.number)


def own_routes(traffic: TrafficSet | None, routes: list[Route]) -> list[Route]:
    """Those of the service that the traffic is for."""
    return [one for one in routes if traffic and one.service.slug == traffic.service]


def routes_for(traffic: TrafficSet, routes: list[Route]) -> list[Route]:
    """Those to choose from: the service's own, or any where the traffic is of none yet; none where there is no
    choice."""
    found = own_routes(traffic, routes) if traffic.service else routes
    return found if len(found) > 1 else []


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def edit(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request, may_write_brief)
    revision = get_object_or_404(selectors.revision_for_page(), brief=brief, number=number)
    route = revision.brief.route
    if request.method != "POST" and revision.state != "draft":
        messages.error(request, "Only a draft can be edited. A change to this revision makes a new revision.")
        return redirect("brief", brief, number)
    if request.method != "POST":
        return writing(request, [route], route, source=revision.source, revision=revision)
    source = request.POST.get("source", "")
    try:
        edit_brief(revision=revision, source=source, by=account)
    except BadBrief as error:
        problems = located(error.problems, source, error.rules)
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
    traffic: TrafficSet | None = None,
    hint: str = "",
) -> HttpResponse:
    """``hint``, where the traffic wasn't asked for but found: "ready" where the source names it, "other" where that
    still names what the last brief did, "none" where none was found."""
    context = {
        "routes": routes,
        "route": route,
        "source": source,
        "revision": revision,
        "problems": problems or [],
        "traffic": traffic,
        "hint": hint,
        "cases": versions_of(route.service).first() if route else None,
    }
    return render(request, "briefs/write.html", context, status=422 if problems else 200)


def beginning(
    request: HttpRequest, routes: list[Route], route: Route | None, account: Account, traffic: TrafficSet | None
) -> HttpResponse:
    """The route's last brief, or an example with what is already known filled in; with the traffic, where one is asked
    for, in the place of its own. An example without begins with traffic of its own service or with none."""
    if route is None:
        return writing(request, routes, route, source="", traffic=traffic)
    last = selectors.last_source(route)
    if traffic:
        source = (with_traffic(last, named(traffic)) if last else "") or example(route, account, traffic)
        return writing(request, routes, route, source=source, traffic=traffic)
    ready = newest_ready(route.service)
    hint = "none" if ready is None else "other" if last and ready.digest not in last else "ready"
    return writing(request, routes, route, source=last or example(route, account, ready), traffic=ready, hint=hint)


def example(route: Route, account: Account, traffic: TrafficSet | None) -> str:
    owner = route.service.owners.exclude(pk=account.pk).order_by("username").first()
    context = {
        "route": route,
        "owner": owner.username if owner else "",
        "baseline": selectors.last_baseline(route.service.pool),
    }
    words = render_to_string("briefs/example.yaml", context)
    return with_traffic(words, named(traffic)) or words if traffic else words


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


@posted_from("brief", "brief", "number")
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
