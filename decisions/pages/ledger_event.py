"""One event of the history: its stored bytes, its place in the chain, what it is about."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from decisions import ledger
from decisions.models import BriefRevision, Event
from decisions.pages.access import require
from decisions.rules.who_may import may_read_ledger
from decisions.selectors import events as selectors
from decisions.services.check_chain import lately_checked

LARGEST_NUMBER = 2**63 - 1


@dataclass(frozen=True)
class Way:
    """From an event on to another page."""

    address: str
    says: str


@require_safe
@login_required
def event(request: HttpRequest, number: int) -> HttpResponse:
    require(request, may_read_ledger)
    found = event_or_404(number)
    before, after = selectors.neighbours(found)
    context = {
        "event": found,
        "content": found.text,
        "before": before,
        "after": after,
        "fault": ledger.fault_of(
            found, expected_sequence=found.sequence, expected_previous=before.hash if before else ledger.GENESIS
        ),
        "checkpoint": selectors.first_checkpoint_over(found),
        "ways": ways_from(found),
        "chain": selectors.chain_of(lately_checked()),
    }
    return render(request, "history/event.html", context)


@require_safe
@login_required
def event_bytes(request: HttpRequest, number: int) -> HttpResponse:
    """Exactly what was hashed: ``sha256sum`` of the file gives the event's hash."""
    require(request, may_read_ledger)
    found = event_or_404(number)
    headers = {"Content-Disposition": f'attachment; filename="event-{found.sequence}.json"'}
    return HttpResponse(bytes(found.content), content_type="application/json", headers=headers)


def event_or_404(number: int) -> Event:
    return get_object_or_404(Event, pk=min(number, LARGEST_NUMBER))


def ways_from(event: Event) -> list[Way]:
    ways = [Way(f"{reverse('ledger')}?subject={event.subject.replace(' ', '+')}", "All events of this subject")]
    revision = revision_of(event)
    if revision:
        keys = (revision.brief_id, revision.number)
        asked = f"{reverse('brief-could-sign', args=keys)}?event={event.sequence}"
        ways.append(Way(reverse("brief", args=keys), f"{revision.brief.title}, revision {revision.number}"))
        if revision.number > 1:
            ways.append(Way(reverse("brief-changes", args=keys), "What changed since the revision before"))
        ways.append(Way(asked, "Who could sign at that time"))
    return ways


def revision_of(event: Event) -> BriefRevision | None:
    link = selectors.subject_link(event.subject)
    if link is None or link[0] != "brief":
        return None
    brief, number = link[1]
    return BriefRevision.objects.filter(brief=brief, number=number).select_related("brief").first()
