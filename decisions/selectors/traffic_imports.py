"""Imports of traffic as pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, QuerySet
from django.utils import timezone

from decisions.models import Service
from loadtests import uploads
from loadtests.models import TrafficImport, TrafficSet
from loadtests.services.remove_old_uploads import KEPT
from loadtests.services.retry_import import RETRIABLE, donor_upload

RECENT = timedelta(days=1)
SHOWN = 20
STAGE_WORDS = {
    "reading": "Reading the file",
    "reading prompts": "Reading prompts",
    "looking for near-duplicates": "Looking for near-duplicates",
    "joining text": "Joining text",
    "writing": "Writing the parts",
}
# What the numbers of a stage count.
UNITS = {
    "reading": "MB",
    "reading prompts": "rows",
    "looking for near-duplicates": "passes",
    "joining text": "MB",
    "writing": "rows",
}


@dataclass(frozen=True)
class ImportNow:
    """An import and how far it is. ``done`` and ``of`` are in ``unit``; ``of`` is 0 where nobody knows."""

    wanted: TrafficImport
    stage: str
    done: float
    of: float
    unit: str
    elapsed_s: float
    stopping: bool
    # What this one waits for.
    ahead: TrafficImport | None

    @property
    def share(self) -> float | None:
        return self.done / self.of if self.of else None

    @property
    def is_open(self) -> bool:
        return self.wanted.state in TrafficImport.OPEN


def import_now(wanted: TrafficImport, now: datetime, ahead: TrafficImport | None = None) -> ImportNow:
    progress = wanted.progress or {}
    stage = progress.get("stage", "")
    unit = UNITS.get(stage, "")
    scale = 1_000_000 if unit == "MB" else 1
    return ImportNow(
        wanted,
        STAGE_WORDS.get(stage, stage.capitalize()),
        progress.get("done", 0) / scale,
        progress.get("of", 0) / scale,
        unit,
        ((wanted.ended_at or now) - wanted.created_at).total_seconds(),
        wanted.state == TrafficImport.State.RUNNING and bool(wanted.reason),
        ahead,
    )


def imports() -> QuerySet[TrafficImport]:
    return TrafficImport.objects.select_related("created_set").defer(
        "created_set__statistics", "created_set__split", "created_set__imported"
    )


def recent_imports() -> list[ImportNow]:
    """Those that go on, and those of a day that ended without a set; the newest first."""
    now = timezone.now()
    going = imports().filter(state__in=TrafficImport.OPEN)
    ended = imports().filter(state__in=RETRIABLE, ended_at__gt=now - RECENT)
    # One that was started again has given its file away and says no more than its successor.
    return [import_now(one, now) for one in [*going[:SHOWN], *ended.exclude(upload="")[:SHOWN]]]


def now_of(wanted: TrafficImport) -> ImportNow:
    """With what it waits for: the one that runs, or the next one before it."""
    now = timezone.now()
    ahead = None
    if wanted.state == TrafficImport.State.QUEUED:
        others = imports().filter(pk__lt=wanted.pk, state=TrafficImport.State.QUEUED).order_by("-pk")
        ahead = imports().filter(state=TrafficImport.State.RUNNING).first() or others.first()
    return import_now(wanted, now, ahead)


def may_try_again(wanted: TrafficImport) -> bool:
    return wanted.state in RETRIABLE and uploads.is_here(wanted.upload)


def kept_until(wanted: TrafficImport) -> datetime | None:
    return wanted.ended_at + KEPT if wanted.ended_at else None


def kept_donor(wanted: TrafficImport) -> str:
    """The name of the donor's file, while it is here."""
    donor = wanted.options["donor"] or {}
    return str(donor.get("file_name", "")) if uploads.is_here(donor_upload(wanted.options)) else ""


def services_for_import() -> list[Service]:
    return list(Service.objects.order_by("slug").only("slug", "name", "retention_days", "redactions"))


def donor_sets() -> list[TrafficSet]:
    """Sets whose tuning part has text."""
    sets = TrafficSet.objects.filter(text_deleted_at=None, parts__kind="tuning").order_by("-pk")
    known = sets.only("pk", "name", "imported").annotate(tuning_rows=F("parts__rows"))
    return [one for one in known if one.imported.get("label") != "lengths without text"]
