"""Who could have signed on a revision at a moment."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from decisions.models import BriefRevision, Event
from decisions.pages.access import require
from decisions.pages.ledger import number as number_in
from decisions.rules.policy import in_words
from decisions.rules.who_may import may_read_ledger
from decisions.selectors import could_sign as selectors
from decisions.selectors import events
from decisions.services.check_chain import lately_checked


@require_safe
@login_required
def could_sign(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    require(request, may_read_ledger)
    revision = get_object_or_404(
        BriefRevision.objects.select_related("brief__route__service"), brief_id=brief, number=number
    )
    moment, at, problem = moment_asked(request)
    answer = selectors.could_sign(revision, moment, at) if moment else None
    context = {
        "revision": revision,
        "moment": moment,
        "at": at,
        "typed": request.GET.get("at", "") or f"{at:%Y-%m-%dT%H:%M}",
        "problem": problem,
        "answer": answer,
        "policy": in_words(answer.policy) if answer else [],
        "chain": events.chain_of(lately_checked()),
    }
    return render(request, "history/could_sign.html", context, status=422 if problem else 200)


def moment_asked(request: HttpRequest) -> tuple[Event | None, datetime, str]:
    """(the last event that counts, the time, what is wrong with what was asked). An event is meant as it was written:
    with everything before it and itself."""
    if asked := request.GET.get("event", "").strip():
        found = Event.objects.filter(pk=number_in(asked) or 0).first()
        return found, found.at if found else timezone.now(), "" if found else f"there is no event {asked}"
    typed = request.GET.get("at", "").strip()
    at = time_of(typed) if typed else timezone.now()
    if at is None:
        return None, timezone.now(), f"{typed} is no time: write it as 2026-11-30T14:05, in UTC"
    found = selectors.moment_at(at)
    return found, at, "" if found else "the history begins later than that"


def time_of(typed: str) -> datetime | None:
    """Without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(typed)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
