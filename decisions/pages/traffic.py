"""Traffic sets: what they hold, what was left out of them, and who has read them. Counts, never text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from decisions.models import Account, BriefRevision, Service
from decisions.pages.access import posted_from, require
from decisions.pages.evidence_away import without_evidence
from decisions.pages.traffic_block import block, named
from decisions.pages.traffic_privacy import chosen, deleted_words, not_gone_yet, privacy_context
from decisions.pages.traffic_words import arrives, burst_word, indices_of_dispersion, share_together, what_it_is
from decisions.rules.brief import BadBrief
from decisions.rules.may_carry import percent
from decisions.rules.who_may import may_import_traffic, may_write_brief
from decisions.selectors import traffic as selectors
from decisions.selectors.kept_text import not_removed_yet
from decisions.selectors.level_pictures import LevelsShown, levels_shown
from decisions.selectors.traffic_imports import recent_imports
from decisions.selectors.traffic_pictures import Sides, arrivals_chart, length_charts, own_seconds, sides
from decisions.selectors.traffic_problems import ProblemsPage, problem_lines, problems_page
from decisions.services.delete_text import delete_text
from decisions.services.give_service import give_service
from decisions.services.people import person
from decisions.services.refused import Refused
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.models import TrafficPart, TrafficSet

LINES_SENT_AT_ONCE = 2_000


@dataclass(frozen=True)
class PartRow:
    part: TrafficPart
    own_s: float


@dataclass(frozen=True)
class ListRow:
    row: selectors.SetRow
    arrives: str


@dataclass(frozen=True)
class Index:
    """An index of dispersion: over windows of how many seconds, and what it means."""

    window_s: int
    value: float
    word: str


@require_safe
@login_required
def traffic(request: HttpRequest) -> HttpResponse:
    account = require(request)
    context = {
        "sets": [ListRow(row, arrives(row.known)) for row in selectors.set_rows()],
        "imports": recent_imports(),
        "kinds": selectors.PART_ORDER,
        "not_removed": not_removed_yet(),
        "may_import": may_import_traffic(person(account)) is None,
    }
    return render(request, "traffic/list.html", context)


@require_safe
@login_required
def traffic_set(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    return render(request, "traffic/set.html", set_context(found, account))


@posted_from("traffic-set", "pk")
@login_required
def delete_the_text(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    reason, also = request.POST.get("reason", ""), request.POST.getlist("also")
    try:
        if request.POST.get("sure") != "yes":
            raise Refused("tick that it can't be undone")
        others = chosen(found, also)
        delete_text(traffic_set=found, by=account, reason=reason, also=others)
    except Refused as refusal:
        context = set_context(found, account) | {"refusal": str(refusal), "reason": reason, "also": also}
        return render(request, "traffic/set.html", context, status=422)
    if trouble := not_gone_yet([found, *others]):
        messages.error(request, trouble)
    else:
        messages.success(request, deleted_words(found))
    return redirect("traffic-set", pk)


@posted_from("traffic-set", "pk")
@login_required
def give_it_a_service(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request, may_import_traffic)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    service = Service.objects.filter(slug=request.POST.get("service", "")).first()
    try:
        if service is None:
            raise Refused("choose a service")
        give_service(traffic_set=found, service=service, by=account)
    except Refused as refusal:
        context = set_context(found, account) | {"give_refusal": str(refusal)}
        return render(request, "traffic/set.html", context, status=422)
    messages.success(request, f"This traffic belongs to {service.name} now.")
    return redirect("traffic-set", pk)


def set_context(found: TrafficSet, account: Account) -> dict[str, Any]:
    parts = selectors.parts_in_order(found)
    briefs = selectors.briefs_on(found)
    measured_with = selectors.newest_frozen(briefs)
    statistics = found.statistics
    uses = selectors.uses_shown(found)
    return {
        "set": found,
        "sentence": what_it_is(statistics, found.imported),
        "standing": selectors.standing_of(found, uses),
        "may_import": may_import_traffic(person(account)) is None,
        "may_write": may_write_brief(person(account)) is None,
        "statistics": statistics,
        "indices": [Index(window_s, value, burst_word(value)) for window_s, value in indices_of_dispersion(statistics)],
        "together": together_words(found),
        "parts": [PartRow(part, own_seconds(part)) for part in parts],
        "unit": statistics.get("prompt", {}).get("unit", "characters"),
        "classes": selectors.classes_shown(statistics, parts),
        "chart": arrivals_chart(statistics, parts),
        "lengths": length_charts(statistics),
        "sides": sides_of(found, parts),
        **left_out(found),
        "donor_set": selectors.donor_set(found.imported),
        "measured_with": measured_with,
        "levels": levels_of(measured_with, parts) if measured_with else None,
        "uses": uses,
        "named": block(named(found)),
        "held_out": next((part for part in parts if part.kind == TrafficPart.Kind.HELD_OUT), None),
        "briefs": briefs,
        **privacy_context(found, account),
    }


def together_words(found: TrafficSet) -> str:
    share = share_together(found.statistics, found.imported) if found.statistics.get("timed", True) else 0
    return percent(share) if share else ""


def sides_of(found: TrafficSet, parts: list[TrafficPart]) -> Sides | None:
    """None where a side is missing: an import may be asked for one part alone."""
    of = {part.kind: part.statistics for part in parts}
    if not {TrafficPart.Kind.TUNING, TrafficPart.Kind.HELD_OUT} <= of.keys():
        return None
    comparison = found.statistics.get("comparison", {})
    return sides(comparison, of[TrafficPart.Kind.TUNING], of[TrafficPart.Kind.HELD_OUT])


def levels_of(revision: BriefRevision, parts: list[TrafficPart]) -> LevelsShown | None:
    try:
        document = revision.document
    except BadBrief:
        return None
    return levels_shown(document, next((part for part in parts if part.kind == TrafficPart.Kind.TUNING), None))


@require_safe
@login_required
def problems(request: HttpRequest, pk: int) -> HttpResponse:
    require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    reason, of_donor = request.GET.get("reason", ""), request.GET.get("of") == "donor"
    context = left_out(found) | {"set": found, "reason": reason, "of_donor": of_donor}
    try:
        context["page"] = page_of(found, reason, request.GET.get("page", ""), of_donor=of_donor)
    except (EvidenceMissing, EvidenceDamaged) as error:
        context["missing"] = str(error)
    return render(request, "traffic/problems.html", context)


def left_out(found: TrafficSet) -> dict[str, Any]:
    """Rows of the file, and of its donor, by reason and together."""
    counts, donor = selectors.problem_counts(found.imported), selectors.donor_problem_counts(found.imported)
    return {
        "counts": counts,
        "total": sum(counts.values()),
        "donor_counts": donor,
        "donor_total": sum(donor.values()),
        "donor_file": selectors.donor_file(found.imported),
    }


def page_of(found: TrafficSet, reason: str, number: str, *, of_donor: bool) -> ProblemsPage | None:
    if not found.problems_digest:
        return None
    # Nine digits are more pages than any file has.
    page = int(number) if number.isdecimal() and len(number) < 10 else 1
    return problems_page(found, reason=reason, number=page, of_donor=of_donor)


@require_safe
@login_required
def problems_file(request: HttpRequest, pk: int) -> HttpResponseBase:
    require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    if not found.problems_digest:
        raise Http404("no row was left out of this set")
    try:
        lines = problem_lines(found.problems_digest)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return without_evidence(request, error)
    name = f"traffic-set-{found.pk}-problems.jsonl"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(in_batches(lines), content_type="application/jsonl", headers=headers)


def in_batches(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Millions of short lines, sent a few hundred kilobytes at a time."""
    while batch := b"".join(islice(lines, LINES_SENT_AT_ONCE)):
        yield batch
