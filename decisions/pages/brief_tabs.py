"""One revision of a brief, tab by tab."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from decisions.models import Account, BriefRevision
from decisions.pages.access import require
from decisions.pages.problems import located
from decisions.pages.rows import tuning_rows
from decisions.rules.brief import BadBrief, Brief
from decisions.rules.cautions import cautions, unnamed_cases
from decisions.rules.power import looks_taken
from decisions.rules.preflight import refused
from decisions.rules.request_counts import request_counts
from decisions.rules.speed_up import NONE
from decisions.rules.states import APPROVED, CHANGES_REQUESTED, FROZEN, IN_REVIEW, REJECTED, SUPERSEDED
from decisions.rules.who_may import may_start, may_write_brief
from decisions.selectors import briefs as selectors
from decisions.selectors.drafts import judged_before, traffic_told
from decisions.selectors.events import broken_chain, events_of_revision
from decisions.selectors.level_pictures import levels_shown
from decisions.selectors.looks import taken_looks
from decisions.selectors.pictures import held_out_pictures
from decisions.selectors.preflight import findings_of_brief
from decisions.selectors.progress import Progress, campaigns_of, progress_of
from decisions.selectors.review import Review, SignatureShown, has_lapsed, review_of, signed_by
from decisions.selectors.runs import DECIDED, suite_of, trial_rows
from decisions.selectors.seal import used_before
from decisions.selectors.service_cases import digests_of
from decisions.selectors.traffic import replayed_part, set_by_digest, text_gone
from decisions.selectors.tuning import tuning_pictures
from decisions.selectors.tuning_race import RaceShown, race_shown, shrinkage
from decisions.selectors.verdict_pictures import forests, ladder_rungs, trials
from decisions.services.people import person
from loadtests.models import Campaign

TABS = (
    ("brief", "Brief"),
    ("brief-tuning", "Tuning"),
    ("brief-held-out", "Held-out"),
    ("brief-behaviour", "Behaviour"),
    ("brief-health", "Health"),
    ("brief-imported", "Imported"),
    ("brief-sign-off", "Sign-off"),
    ("brief-history", "History"),
)
EVENTS_A_PAGE = 100
# Something can still be done about a refusal.
BEFORE_ITS_END = ("draft", FROZEN, "measuring")
SIGNED_ON = (IN_REVIEW, APPROVED, REJECTED, CHANGES_REQUESTED, SUPERSEDED)


def frame(revision: BriefRevision, tab: str, account: Account, review: Review | None = None) -> dict[str, Any]:
    """What every tab shows: the heading, who signed, the tabs, and the progress while the brief measures."""
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
    context |= review_told(revision, review)
    try:
        document = revision.document
    except BadBrief as error:
        problems = located(error.problems, revision.source, error.rules)
        return context | {"document": None, "levels": [], "problems": problems}
    progress = progress_where_measured(revision, document, campaigns)
    running = trial_rows(progress.running) if progress and progress.running else []
    taken = {one.number: one.result for one in taken_looks(revision)} if document.rule.looks > 1 else {}
    return context | {
        "document": document,
        "taken": taken,
        "on_the_way": looks_taken(document, None, taken) if document.rule.looks > 1 else [],
        "levels": [level.name for level in document.levels],
        "progress": progress,
        "running_rows": running,
        "running_suite": suite_of(progress.running) if progress and progress.running else None,
    }


def review_told(revision: BriefRevision, review: Review | None) -> dict[str, Any]:
    """Whose signatures the revision carries, and whether the request for them expired; asked of ``review`` where a page
    knows it already. Before a decision it is asked, too, whether they stand."""
    now = timezone.now()
    signed = signed_by(revision) if review is None and revision.state in SIGNED_ON else []
    verdict = revision.verdicts.last() if signed and revision.state == IN_REVIEW else None
    found = review or (review_of(revision, verdict, now) if verdict else None)
    if found:
        return {"signed": found.signatures, "lapsed": found.lapsed}
    return {
        "signed": [SignatureShown(one, fallen=False) for one in signed],
        "lapsed": revision.state == IN_REVIEW and has_lapsed(revision, now),
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
        # The nominee may be a schedule that tuning proposed.
        names = dict.fromkeys([*(one.name for one in document.all_candidates), revision.nominee or "baseline"])
        named = {name: document.configuration(name) for name in names if name != "baseline"}
        traffic_set = revision.traffic_set or set_by_digest(document.traffic.set)
        context["candidates"] = selectors.candidates_of(document.baseline, named)
        context["level_pictures"] = levels_shown(document, replayed_part(document))
        context["rungs"] = ladder_rungs(document)
        context["findings"] = findings_of_brief(document, traffic_set)
        if revision.state in BEFORE_ITS_END:
            context["refused"] = refused(context["findings"])
        context["used_before"] = used_before(revision, traffic_set)
        told = traffic_told(traffic_set)
        context["request_counts"] = request_counts(document, told)
        if revision.state == "draft":
            own = unnamed_cases(document, digests_of(context["service"]), context["service"].name)
            context["cautions"] = [*cautions(document, told, earlier=judged_before(revision)), *own]
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
    document = context["document"]
    listed = of_purpose(context["campaigns"], Campaign.Purpose.NOISE_FLOOR, Campaign.Purpose.TUNING)
    verdict = revision.verdicts.last()
    context |= {
        "nomination": revision.nomination or {},
        "cells": tuning_rows((revision.nomination or {}).get("rows", []), revision.nominee),
        "boots": [(campaign, selectors.places_of(campaign, context["levels"])) for campaign in listed],
        "noise_floor": verdict.document.get("noise_floor") if verdict else None,
        # A held-out figure: there is none before the verdict.
        "shrinkage": shrinkage(revision, verdict.document if verdict else None),
    }
    if document is not None:
        tuned = of_purpose(context["campaigns"], Campaign.Purpose.TUNING)
        race = race_shown(revision, document, tuned)
        raced = [name for name in race.names if name != NONE]
        context |= raced_context(revision, document, race, race.finished) | {
            "pictures": tuning_pictures(document, tuned, nominee=revision.nominee, model="model" in request.GET),
            "candidates": selectors.candidates_of(
                document.baseline, {name: document.configuration(name) for name in raced}
            ),
        }
    return render(request, "briefs/tuning.html", context)


@require_safe
@login_required
def tuning_race(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    """The race alone, while it runs: nothing where the page shows it as it is."""
    require(request)
    revision = revision_or_404(brief, number)
    if not goes_on(revision):
        return HttpResponseClientRefresh()
    tuned = of_purpose(campaigns_of(revision), Campaign.Purpose.TUNING)
    document = revision.document
    race = race_shown(revision, document, tuned)
    if request.GET.get("shown") == race.token:
        return HttpResponse(status=204)
    figures_of = request.GET.get("finished", "")
    known = int(figures_of) if figures_of.isdecimal() else race.finished
    context = raced_context(revision, document, race, known)
    return render(request, "briefs/tuning_race.html", context | {"revision": revision, "brief": revision.brief})


def raced_context(revision: BriefRevision, document: Brief, race: RaceShown, figures_of: int) -> dict[str, Any]:
    """``figures_of``: how many finished boots the page's figures are of."""
    return {
        "race": race,
        "raced": document.races,
        "race_goes_on": goes_on(revision),
        "figures_of": figures_of,
        "newer": max(0, race.finished - figures_of),
    }


def goes_on(revision: BriefRevision) -> bool:
    return revision.state == "measuring" and not revision.halted and revision.nomination is None


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
def changes(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    """The difference to any earlier revision, as it was written."""
    account = require(request)
    revision = revision_or_404(brief, number)
    earlier = selectors.earlier_revisions(revision)
    asked = request.GET.get("since", "")
    since = next((one for one in earlier if str(one.number) == asked), None) if asked else next(iter(earlier), None)
    if asked and since is None:
        raise Http404("there is no such earlier revision")
    context = {"earlier": earlier, "since": since, "diff": selectors.source_diff(since, revision)}
    return render(request, "briefs/changes.html", frame(revision, "brief-changes", account) | context)


@require_safe
@login_required
def history(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-history", account)
    page = Paginator(events_of_revision(revision), EVENTS_A_PAGE).get_page(request.GET.get("page"))
    return render(request, "briefs/history.html", context | {"page": page, "chain": broken_chain()})
