from __future__ import annotations

from datetime import datetime

from django.db.models import Prefetch, QuerySet
from django.http import Http404, HttpRequest
from ninja import Router, Schema

from decisions.api.auth import access
from decisions.api.keys import Number
from decisions.api.paging import Page, Paging, page_of
from loadtests.models import TrafficPart, TrafficSet

router = Router(tags=["traffic"])


class PartOut(Schema):
    kind: str
    digest: str
    rows: int


class TrafficSetOut(Schema):
    """Counts and digests, as a brief names them; never text."""

    id: int
    name: str
    digest: str
    service: str
    rows: int
    source: str
    parts: list[PartOut]
    created_by: str
    created_at: datetime
    text_deleted_at: datetime | None


def sets() -> QuerySet[TrafficSet]:
    parts = Prefetch("parts", TrafficPart.objects.only("set_id", "kind", "digest", "rows").order_by("kind"))
    return TrafficSet.objects.defer("statistics", "imported", "split").prefetch_related(parts)


def set_shown(found: TrafficSet) -> TrafficSetOut:
    return TrafficSetOut(
        id=found.pk,
        name=found.name,
        digest=found.digest,
        service=found.service,
        rows=found.rows,
        source=found.source,
        parts=[PartOut(kind=one.kind, digest=one.digest, rows=one.rows) for one in found.parts.all()],
        created_by=found.created_by,
        created_at=found.created_at,
        text_deleted_at=found.text_deleted_at,
    )


@router.get("", response=Page[TrafficSetOut], summary="Traffic sets, the newest first", **access())
def list_traffic(request: HttpRequest, asked: Paging, service: str = "") -> object:
    wanted = sets()
    return page_of(wanted.filter(service=service) if service else wanted, asked, set_shown)


@router.get("/{number}", response=TrafficSetOut, summary="One traffic set", **access())
def read_traffic(request: HttpRequest, number: Number) -> TrafficSetOut:
    found = sets().filter(pk=number).first()
    if found is None:
        raise Http404("there is no such traffic set")
    return set_shown(found)
