from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import Http404, HttpRequest
from ninja import Router, Schema
from pydantic import Field

from decisions.api.auth import access
from decisions.api.keys import Number
from decisions.api.paging import Page, Paging, page_of
from decisions.models import Event
from decisions.rules.history import LONGEST, Filter
from decisions.rules.who_may import may_read_ledger
from decisions.selectors import events as selectors

router = Router(tags=["ledger"])
READING = access(rule=may_read_ledger)
Word = Annotated[str, Field(max_length=LONGEST)]


class EventOut(Schema):
    sequence: int
    at: datetime
    kind: str
    actor: str
    subject: str
    service: str | None
    route: str | None
    details: dict[str, Any]
    previous: str
    hash: str
    content: str


def event_shown(event: Event) -> EventOut:
    return EventOut(
        sequence=event.sequence,
        at=event.at,
        kind=event.kind,
        actor=event.actor,
        subject=event.subject,
        service=event.service,
        route=event.route,
        details=event.details,
        previous=event.previous,
        hash=event.hash,
        content=event.text,
    )


@router.get("", response=Page[EventOut], summary="Events of the history, the newest first", **READING)
def list_events(
    request: HttpRequest,
    asked: Paging,
    kind: Word = "",
    actor: Word = "",
    subject: Word = "",
    service: Word = "",
    route: Word = "",
) -> object:
    """``content`` is the exact text that was hashed: SHA-256 of its UTF-8 gives ``hash``, and ``previous`` is the hash
    of the event before. ``subject`` may be its beginning."""
    wanted = Filter(kind=kind, actor=actor, subject=subject, service=service, route=route)
    return page_of(selectors.events(wanted), asked, event_shown)


@router.get("/{number}", response=EventOut, summary="One event", **READING)
def read_event(request: HttpRequest, number: Number) -> EventOut:
    found = Event.objects.filter(pk=number).first()
    if found is None:
        raise Http404("there is no such event")
    return event_shown(found)
