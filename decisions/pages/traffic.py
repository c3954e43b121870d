"""Traffic sets: what they hold, what was left out of them, and who has read them. Counts, never text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from decisions.models import Account, BriefRevision, Service
from decisions.pages.access import require
from decisions.pages.traffic_block import block, named
from decisions.pages.traffic_words import arrives, burst_word, indices_of_dispersion, share_together, what_it_is
from decisions.rules.brief import BadBrief
from decisions.rules.may_carry import percent
from decisions.rules.who_may import Relation, may_delete_text, may_import_traffic, may_write_brief
from decisions.selectors import traffic as selectors
from decisions.selectors.traffic_imports import recent_imports
from decisions.selectors.traffic_pictures import (
    LevelsShown,
    Sides,
    arrivals_chart,
    length_charts,
    levels_shown,
    own_seconds,
    sides,
)
from decisions.selectors.traffic_problems import ProblemsPage, problem_lines, problems_page
from decisions.services.delete_text import delete_text
from decisions.services.people import owners, person
from decisions.services.refused import Refused
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.models import TrafficPart, TrafficSet
from loadtests.services.delete_text import holds_text

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


@require_GET
@login_required
def traffic(request: HttpRequest) -> HttpResponse:
    account = require(request)
    context = {
        "sets": [ListRow(row, arrives(row.known)) for row in selectors.set_rows()],
        "imports": recent_imports(),
        "kinds": selectors.PART_ORDER,
        "may_import": may_import_traffic(person(account)) is None,
    }
    return render(request, "traffic/list.html", context)


@require_GET
@login_required
def traffic_set(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    return render(request, "traffic/set.html", set_context(found, account))


@require_POST
@login_required
def delete_the_text(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    reason = request.POST.get("reason", "")
    try:
        if request.POST.get("sure") != "yes":
            raise Refused("tick that it can't be undone")
        delete_text(traffic_set=found, by=account, reason=reason)
    except Refused as refusal:
        context = set_context(found, account) | {"refusal": str(refusal), "reason": reason}
        return render(request, "traffic/set.html", context, status=422)
    messages.success(request, "The text is deleted. Hashes, lengths, times and all evidence stay.")
    return redirect("traffic-set", pk)


def why_not_delete(account: Account, service: Service | None) -> str | None:
    return may_delete_text(person(account), Relation(service_owners=owners(service) if service else frozenset()))


def set_context(found: TrafficSet, account: Account) -> dict[str, Any]:
    parts = selectors.parts_in_order(found)
    briefs = selectors.briefs_on(found)
    measured_with = selectors.newest_frozen(briefs)
    statistics = found.statistics
    counts = selectors.problem_counts(found.imported)
    service = selectors.service_of(found)
    uses = selectors.uses_shown(found)
    return {
        "set": found,
        "sentence": what_it_is(statistics, found.imported),
        "standing": selectors.standing_of(found, uses),
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
        "counts": counts,
        "total": sum(counts.values()),
        "measured_with": measured_with,
        "levels": levels_of(measured_with, parts) if measured_with else None,
        "uses": uses,
        "named": block(named(found)),
        "held_out": next((part for part in parts if part.kind == TrafficPart.Kind.HELD_OUT), None),
        "briefs": briefs,
        "service": service,
        "has_text": holds_text(found),
        "kept_until": selectors.text_kept_until(found, service),
        "why_not_delete": why_not_delete(account, service),
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


@require_GET
@login_required
def problems(request: HttpRequest, pk: int) -> HttpResponse:
    require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    counts = selectors.problem_counts(found.imported)
    reason = request.GET.get("reason", "")
    context: dict[str, Any] = {"set": found, "counts": counts, "total": sum(counts.values()), "reason": reason}
    try:
        context["page"] = page_of(found, reason, request.GET.get("page", ""))
    except (EvidenceMissing, EvidenceDamaged) as error:
        context["missing"] = str(error)
    return render(request, "traffic/problems.html", context)


def page_of(found: TrafficSet, reason: str, number: str) -> ProblemsPage | None:
    if not found.problems_digest:
        return None
    # Nine digits are more pages than any file has.
    return problems_page(found, reason=reason, number=int(number) if number.isdecimal() and len(number) < 10 else 1)


@require_GET
@login_required
def problems_file(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    if not found.problems_digest:
        raise Http404("no row was left out of this set")
    try:
        lines = problem_lines(found.problems_digest)
    except (EvidenceMissing, EvidenceDamaged) as error:
        raise Http404(str(error)) from None
    name = f"traffic-set-{found.pk}-problems.jsonl"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(in_batches(lines), content_type="application/jsonl", headers=headers)


def in_batches(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Millions of short lines, sent a few hundred kilobytes at a time."""
    while batch := b"".join(islice(lines, LINES_SENT_AT_ONCE)):
        yield batch
