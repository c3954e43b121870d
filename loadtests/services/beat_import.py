from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from loadtests.models import TrafficImport

GIVEN_UP = "it was given up"


def beat_import(*, wanted: TrafficImport, worker: str, progress: Mapping[str, Any] | None = None) -> str:
    """One heartbeat, with how far the import is where that is known. Gives why it must stop, or "" while it may go
    on."""
    mine = TrafficImport.objects.filter(pk=wanted.pk, state=TrafficImport.State.RUNNING, worker=worker)
    news = {} if progress is None else {"progress": dict(progress)}
    if not mine.update(beat_at=timezone.now(), **news):
        return GIVEN_UP
    return mine.values_list("reason", flat=True).first() or ""
