"""One revision of a brief, tab by tab."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from decisions.models import Account, BriefRevision
from decisions.pages.access import require
from decisions.pages.problems import located
from decisions.pages.rows import tuning_rows
from decisions.rules.brief import BadBrief, Brief
from decisions.rules.cautions import cautions
from decisions.rules.states import FROZEN
from decisions.rules.who_may import may_start, may_write_brief
from decisions.selectors import briefs as selectors
from decisions.selectors.events import events_of_revision
from decisions.selectors.level_pictures import levels_shown
from decisions.selectors.pictures import heat_map, held_out_pictures
from decisions.selectors.progress import Progress, campaigns_of, progress_of
from decisions.selectors.runs import DECIDED, trial_rows
from decisions.selectors.seal import used_before
from decisions.selectors.traffic import replayed_part, set_by_digest, text_gone
from decisions.selectors.verdict_pictures import forests, ladder_rungs, trials
from decisions.services.people import person
from loadtests.models import Campaign

TABS = (
    ("brief", "Brief"),
    ("brief-tuning", "Tuning"),
    ("brief-held-out", "Held-out"),
    ("brief-health", "Health"),
    ("brief-imported", "Imported"),
    ("brief-sign-off", "Sign-off"),
    ("brief-history", "History"),
)
EVENTS_A_PAGE = 100


def frame(revision: BriefRevision, tab: str, account: Account) -> dict[str, Any]:
    """What every tab shows: the heading, the tabs, and the progress while the brief measures."""
    campaigns = campaigns_of(revision)
    revisions = selectors.revisions_of(revision.brief_id)
    may_write = may_write_brief(person(account)) is None
    context: dict[str, Any] = {
        "revision": revision,
        "brief": revision.brief,
        "route": revision.brief.route,
        "service": revision.brief.route.service,
        "revisions": revisions,
        "tabs": [{"name": name, "label": label, "here": name == tab} for name, label in TABS],
        "campaigns": campaigns,
        "may_write": may_write,
        "may_revise": may_write and revision.state in DECIDED and revisions[0].number == revision.number,
        "may_start": may_start(person(account)) is None,
    }
    try:
        document = revision.document
    except BadBrief as error:
        return context | {"document": None, "levels": [], "problems": located(error.problems, revision.source)}
    progress = progress_where_measured(revision, document, campaigns)
    running = trial_rows(progress.running) if progress and progress.running else []
    return context | {
        "document": document,
        "levels": [level.name for level in document.levels],
        "progress": progress,
        "running_rows": running,
    }


def progress_where_measured(revision: BriefRevision, document: Brief, campaigns: list[Campaign]) -> Progress | None:
    return progress_of(revision, document, campaigns) if campaigns or revision.state == "measuring" else None


def revision_or_404(brief: int, number: int) -> BriefRevision:
    return get_object_or_404(selectors.revision_for_page(), brief=brief, number=number)


def of_purpose(campaigns: list[Campaign], *purposes: str) -> list[Campaign]:
    return [campaign for campaign in campaigns if campaign.purpose in purposes]


@require_safe
@login_required
def brief(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief", account)
    document = context["document"]
    if document:
        named = {one.name: document.configuration(one.name) for one in document.candidates}
        traffic_set = revision.traffic_set or set_by_digest(document.traffic.set)
        context["candidates"] = selectors.candidates_of(document.baseline, named)
        context["level_pictures"] = levels_shown(document, replayed_part(document))
        context["rungs"] = ladder_rungs(document)
        context["used_before"] = used_before(revision, traffic_set)
        context["cautions"] = cautions(document) if revision.state == "draft" else []
    if revision.state == FROZEN:
        context["why_not_start"] = text_gone(revision.traffic_set)
    earlier = selectors.before(revision)
    context |= {"earlier": earlier, "diff": selectors.source_diff(earlier, revision)}
    return render(request, "briefs/brief.html", context)


@require_safe
@login_required
def progress(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    if revision.state != "measuring":
        # The stages are over or ended: the whole page says something else now.
        return HttpResponseClientRefresh()
    return render(request, "briefs/progress.html", frame(revision, "brief", account))


@require_safe
@login_required
def tuning(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-tuning", account)
    nomination = revision.nomination or {}
    rows = nomination.get("rows", [])
    listed = of_purpose(context["campaigns"], Campaign.Purpose.NOISE_FLOOR, Campaign.Purpose.TUNING)
    verdict = revision.verdicts.last()
    context |= {
        "nomination": nomination,
        "race": tuning_rows(rows, revision.nominee),
        "heat_map": heat_map(rows, context["levels"]) if rows else None,
        "boots": [(campaign, selectors.places_of(campaign, context["levels"])) for campaign in listed],
        "noise_floor": verdict.document.get("noise_floor") if verdict else None,
    }
    return render(request, "briefs/tuning.html", context)


@require_safe
@login_required
def held_out(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-held-out", account)
    verdict = revision.verdicts.last()
    listed = of_purpose(context["campaigns"], Campaign.Purpose.HELD_OUT)
    context |= {
        "verdict": verdict,
        "pairs": [(campaign, selectors.pairs_of(campaign, context["levels"])) for campaign in listed],
        "fallback": [
            (campaign, selectors.places_of(campaign, context["levels"]))
            for campaign in of_purpose(context["campaigns"], Campaign.Purpose.FALLBACK)
        ],
        # No latency before the verdict: a look that the brief did not plan.
        "pictures": held_out_pictures(verdict) if verdict and listed else None,
        "forests": forests(verdict.document, context["levels"]) if verdict else [],
        "trials": trials(context["document"], verdict.document) if verdict else [],
    }
    return render(request, "briefs/held_out.html", context)


@require_safe
@login_required
def history(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-history", account)
    page = Paginator(events_of_revision(revision), EVENTS_A_PAGE).get_page(request.GET.get("page"))
    return render(request, "briefs/history.html", context | {"page": page})
