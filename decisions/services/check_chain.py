"""Keeps the chain verified: from the last point that held on to the end, and from the first event on at intervals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from time import monotonic

from django.db.models import QuerySet
from django.utils import timezone

from decisions import ledger
from decisions.history import checkpoint_faults
from decisions.models import ChainCheck, Checkpoint, Event
from decisions.selectors.events import last_sequence

# Verified in one turn: about a quarter of a second.
EVENTS_A_TURN = 5_000
# A change behind the point that is verified is found by a walk from the first event on. A history as short as a turn is
# walked whole each time.
WHOLE_EVERY = timedelta(hours=24)
# For so long a page says what was found before.
LATELY = timedelta(minutes=1)
# A page that finds nothing newer verifies for so long itself: no background task has to run.
PAGE_S = 0.5


def lately_checked() -> ChainCheck:
    check = ChainCheck.objects.first()
    if check is None or check.verified_at is None or check.verified_at <= timezone.now() - LATELY:
        return check_chain(seconds=PAGE_S)
    return check


def begin_whole_walk() -> None:
    """A walk that goes on already is left to go on."""
    check = the_check()
    ChainCheck.objects.filter(pk=check.pk, walk_began_at=None).update(
        walk_began_at=timezone.now(), walked_to=0, walked_head=ledger.GENESIS
    )


def check_chain(*, seconds: float) -> ChainCheck:
    """Verifies for about so long, and keeps how far it came. Whoever calls it next, page or background task, goes on
    from there."""
    end = monotonic() + seconds
    if whole_is_due(the_check()):
        begin_whole_walk()
    for _ in turns(end):
        check = the_check()
        goes_on = walk(check) if check.walk_began_at else follow(check)
        if not goes_on:
            break
    return the_check()


def turns(end: float) -> Iterator[None]:
    """One at least."""
    yield
    while monotonic() < end:
        yield


def the_check() -> ChainCheck:
    # One row. Two processes that both find none write the same one.
    return ChainCheck.objects.get_or_create(pk=1, defaults={"head": ledger.GENESIS})[0]


def whole_is_due(check: ChainCheck) -> bool:
    if check.whole_at is None or check.whole_at <= timezone.now() - WHOLE_EVERY:
        return True
    return last_sequence() <= EVENTS_A_TURN


def follow(check: ChainCheck) -> bool:
    """From the point that is verified on. A fault stands until a whole walk finds none."""
    if check.fault:
        return False
    fault, to, head = why_not_as_before(check), check.verified_to, check.head
    if fault is None:
        to, head, fault = verified_after(to, head)
    return keep(check, to, head, fault, checkpoints_after=check.checkpoint)


def walk(check: ChainCheck) -> bool:
    """From the first event on, a turn at a time. It may find what was verified before to be another."""
    to, head, fault = verified_after(check.walked_to, check.walked_head)
    if fault is None and to < last_sequence():
        unmoved(check).update(walked_to=to, walked_head=head)
        return True
    fault = fault or why_not_as_before(check)
    over = {"walk_began_at": None, "walked_to": 0, "walked_head": "", "whole_at": timezone.now()}
    return keep(check, to, head, fault, checkpoints_after=0, **over)


def verified_after(to: int, head: str) -> tuple[int, str, ledger.Broken | None]:
    """(the last event that holds, its hash, what doesn't) of one turn."""
    turn = list(Event.objects.filter(sequence__gt=to).order_by("sequence")[:EVENTS_A_TURN])
    found = ledger.verify(turn, after=(to, head))
    held = found.events - to
    return found.events, turn[held - 1].hash if held else head, found.broken


def why_not_as_before(check: ChainCheck) -> ledger.Broken | None:
    """A chain that was written anew from some event on, or whose end was cut off, holds in itself."""
    there = Event.objects.filter(sequence=check.verified_to).values_list("hash", flat=True).first()
    if check.verified_to == 0 or there == check.head:
        return None
    said = "it is gone, and was verified before" if there is None else "it is another one than was verified before"
    return ledger.Broken(check.verified_to, said)


def keep(
    check: ChainCheck, to: int, head: str, broken: ledger.Broken | None, *, checkpoints_after: int, **over: object
) -> bool:
    """Whether there is more to verify. What held before stays said beside a fault."""
    now, last = timezone.now(), Checkpoint.objects.order_by("pk").last()
    found = [str(broken)] if broken else faults_of_checkpoints(checkpoints_after)
    if found:
        fault = found[0] if broken else f"broken at {found[0]}"
        since = check.fault_at if check.fault == fault else now
        unmoved(check).update(fault=fault, fault_event=broken and broken.sequence, fault_at=since, **over)
        return False
    held = {"verified_to": to, "head": head, "verified_at": now, "checkpoint": last.pk if last else 0}
    unmoved(check).update(fault="", fault_event=None, fault_at=None, **held, **over)
    return to < last_sequence()


def faults_of_checkpoints(after: int) -> list[str]:
    """A key or a checkpoint that is added between two reads looks like a fault once; a real one is found twice."""
    return checkpoint_faults(after=after) and checkpoint_faults(after=after)


def unmoved(check: ChainCheck) -> QuerySet[ChainCheck]:
    """By compare-and-swap: whoever was slower has found nothing that the faster one hasn't, and takes back no fault
    that a whole walk found meanwhile."""
    return ChainCheck.objects.filter(
        pk=check.pk,
        verified_to=check.verified_to,
        walked_to=check.walked_to,
        walk_began_at=check.walk_began_at,
        whole_at=check.whole_at,
        fault=check.fault,
    )
