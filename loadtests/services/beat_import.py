from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from loadtests.models import TrafficImport


def beat_import(*, wanted: TrafficImport, worker: str, progress: Mapping[str, Any]) -> str:
    """One heartbeat with how far the import is. Gives why it must stop, or "" while it may go on."""
    mine = TrafficImport.objects.filter(pk=wanted.pk, state=TrafficImport.State.RUNNING, worker=worker)
    if not mine.update(beat_at=timezone.now(), progress=dict(progress)):
        return "it was given up"
    return mine.values_list("reason", flat=True).first() or ""
