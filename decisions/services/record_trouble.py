"""What is wrong with the history itself, in the history: once a day for as long as it is so. People are told of it."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from decisions import ledger
from decisions.models import ChainCheck, Event
from loadtests.journal import act

ACTOR, SUBJECT = "draftproof", "history"
AGAIN_AFTER = timedelta(days=1)
BROKEN, CHECKPOINT_FAILED = "history-broken", "checkpoint-failed"
SIGNED, WRITTEN, MAILED = "signed", "written", "mailed"


def record_broken_history() -> None:
    """Where the verification that goes on all the time has found it."""
    found = ChainCheck.objects.exclude(fault="").first()
    if found:
        record_trouble(BROKEN, found.fault)


def record_failed_checkpoint(what: str, reason: str) -> None:
    """``what`` could not be done with it."""
    record_trouble(CHECKPOINT_FAILED, reason, what=what)


def record_trouble(kind: str, reason: str, **details: object) -> None:
    with act():
        lately = Event.objects.filter(kind=kind, subject=SUBJECT, at__gt=timezone.now() - AGAIN_AFTER)
        if any(details.items() <= one.details.items() for one in lately):
            return
        ledger.append(kind, subject=SUBJECT, actor=ACTOR, details={"reason": reason, **details})
