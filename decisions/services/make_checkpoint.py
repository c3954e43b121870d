from __future__ import annotations

from django.conf import settings
from django.utils import timezone

from decisions import ledger
from decisions.models import Checkpoint, Event
from decisions.services.recorded_signer import recorded_signer
from decisions.services.refused import Refused
from decisions.signing import Signer, signed
from decisions.verify import CHECKPOINT, CHECKPOINT_SCHEMA
from loadtests.canonical import canonical, digest
from loadtests.journal import act


def make_checkpoint(*, signer: Signer | None = None, size: int | None = None) -> Checkpoint:
    """Signs the ledger's head, or its state after ``size`` events; keeps it, unless the key has signed that before.
    What doesn't follow from the last checkpoint is never signed."""
    by = signer or recorded_signer()
    with act():
        check_since_the_last()
        event = Event.objects.filter(**({} if size is None else {"sequence": size})).last()
        if event is None:
            raise Refused("the ledger is empty: there is nothing to sign yet")
        known = Checkpoint.objects.filter(size=event.sequence, key_id=by.key_id).first()
        return known or keep(event, by)


def check_since_the_last() -> None:
    last = Checkpoint.objects.order_by("size").last()
    after = (last.size, last.head) if last else ledger.START
    if last and Event.objects.filter(sequence=last.size, hash=last.head).first() is None:
        raise Refused(f"the ledger contradicts its checkpoint over event {last.size}: run manage.py verify_ledger")
    verified = ledger.verify(Event.objects.filter(sequence__gt=after[0]).order_by("sequence").iterator(), after=after)
    if verified.broken:
        raise Refused(f"the ledger is {verified.broken}: a broken history isn't signed")


def keep(event: Event, signer: Signer) -> Checkpoint:
    now = timezone.now()
    said = {
        "schema": CHECKPOINT_SCHEMA,
        "origin": settings.ORIGIN,
        "size": event.sequence,
        "head": event.hash,
        "at": ledger.timestamp(now),
    }
    content = signed(CHECKPOINT, canonical(said), [signer])
    return Checkpoint.objects.create(
        size=event.sequence, head=event.hash, at=now, key_id=signer.key_id, content=content, digest=digest(content)
    )
