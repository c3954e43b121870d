from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from loadtests import journal
from loadtests.journal import act
from loadtests.models import TrafficImport
from loadtests.services.give_up_boot import MISSED_BEATS

State = TrafficImport.State
SILENT = "its worker fell silent; start it again"


def lose_silent_imports() -> list[TrafficImport]:
    """Ends every running import whose worker has missed three beats. Nothing of it was written; its file stays."""
    limit = timezone.now() - timedelta(seconds=MISSED_BEATS * settings.HEARTBEAT_S)
    silent = TrafficImport.objects.filter(state=State.RUNNING, beat_at__lt=limit)
    return [wanted for wanted in silent if lose(wanted, limit)]


def lose(wanted: TrafficImport, limit: datetime) -> bool:
    """Unless a beat arrived meanwhile. One that was asked to end has ended so."""
    state, reason = (State.CANCELLED, wanted.reason) if wanted.reason else (State.FAILED, SILENT)
    with act():
        moved = TrafficImport.objects.filter(pk=wanted.pk, state=State.RUNNING, beat_at__lt=limit).update(
            state=state, reason=reason, ended_at=timezone.now()
        )
        if moved:
            journal.record(
                f"traffic-import-{state}", subject=f"traffic import {wanted.pk}", actor="reconciler", reason=reason
            )
    wanted.refresh_from_db()
    return bool(moved)
