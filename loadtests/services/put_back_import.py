from loadtests import journal
from loadtests.journal import act
from loadtests.models import TrafficImport

State = TrafficImport.State


def put_back_import(*, wanted: TrafficImport, worker: str) -> None:
    """It waits again, since its worker was stopped; nothing of it was written, and its process must have ended."""
    mine = TrafficImport.objects.filter(pk=wanted.pk, state=State.RUNNING, worker=worker, reason="")
    with act():
        if mine.update(state=State.QUEUED, worker="", progress={}, beat_at=None):
            journal.record("traffic-import-put-back", subject=f"traffic import {wanted.pk}", actor=worker)
