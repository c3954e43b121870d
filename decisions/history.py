"""The ledger held against its signed checkpoints: the chain alone can't tell that it was written anew from some event
on, or that its end was cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from decisions import ledger
from decisions.models import Checkpoint, Event, SigningKey
from decisions.verify import CHECKPOINT, CHECKPOINT_SCHEMA, ROTATION, Envelope, Key, read_envelope

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
KEY_EVENTS = ("signing-key-added", "signing-key-rotated")


@dataclass(frozen=True)
class Stated:
    """What a checkpoint says, and where it comes from."""

    name: str
    size: int
    head: str
    at: str
    origin: str
    envelope: Envelope


@dataclass(frozen=True)
class History:
    """``fault`` is what doesn't hold first, "" where all of it does."""

    events: int
    fault: str
    first: datetime | None = None
    last: datetime | None = None
    checkpoints: int = 0
    latest: Checkpoint | None = None
    given: tuple[Stated, ...] = ()

    def __str__(self) -> str:
        return self.fault or "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        if self.first is None or self.last is None:
            yield "ok 0 events"
            return
        span = f"from event 1 of {ledger.timestamp(self.first)} to event {self.events} of {ledger.timestamp(self.last)}"
        yield f"ok {self.events} events, {span}"
        if self.latest is None:
            yield "no checkpoint yet: manage.py checkpoint_ledger makes one"
        else:
            yield (
                f"checkpoints that hold: {self.checkpoints}, the furthest over event {self.latest.size} of "
                f"{ledger.timestamp(self.latest.at)}, signed with the key {self.latest.key_id}"
            )
        for one in self.given:
            yield f"{one.name}: its history is this one's up to event {one.size}, of {one.at}"


def verify_history(given: Sequence[Stated] = ()) -> History:
    """Walks the chain and holds every kept checkpoint against it, and those ``given`` from elsewhere."""
    kept = list(Checkpoint.objects.order_by("size", "pk"))
    own, unread = kept_ones(kept)
    hashes = dict.fromkeys(one.size for one in [*own, *given])
    times: list[datetime] = []
    verified = ledger.verify(watched(Event.objects.order_by("sequence"), hashes, times))
    found = [*unread, *faults(kept, own, given, hashes, verified.events)]
    return History(
        events=verified.events,
        fault=str(verified.broken) if verified.broken else f"broken at {found[0]}" if found else "",
        first=times[0] if times else None,
        last=times[-1] if times else None,
        checkpoints=len(own),
        latest=kept[-1] if kept else None,
        given=tuple(given),
    )


def checkpoint_faults(*, after: int) -> list[str]:
    """What is wrong with the keys, and with the checkpoints that were kept later than the one of the key ``after``, in
    a ledger whose chain was walked already."""
    kept = list(Checkpoint.objects.filter(pk__gt=after).order_by("size", "pk"))
    own, unread = kept_ones(kept)
    there = Event.objects.filter(sequence__in={one.size for one in own}).values_list("sequence", "hash")
    hashes: dict[int, str | None] = {one.size: None for one in own} | dict(there)
    # Asked for last: no checkpoint is over an event that was written later.
    events = Event.objects.order_by("-sequence").values_list("sequence", flat=True).first() or 0
    return [*unread, *faults(kept, own, (), hashes, events)]


def kept_ones(kept: list[Checkpoint]) -> tuple[list[Stated], list[str]]:
    """(what they say, what is wrong with those that say nothing)"""
    own, unread = [], []
    for one in kept:
        try:
            own.append(stated(f"the checkpoint over event {one.size}", bytes(one.content)))
        except ValueError as error:
            unread.append(str(error))
    return own, unread


def watched(events: QuerySet[Event], hashes: dict[int, str | None], times: list[datetime]) -> Iterator[Event]:
    """Notes the hashes that checkpoints are about, and the times of the first and the last event, on the way."""
    for event in events.iterator():
        if event.sequence in hashes:
            hashes[event.sequence] = event.hash
        times[1:] = [event.at]
        yield event


def stated(name: str, content: bytes) -> Stated:
    """Raises ValueError where the bytes are no checkpoint."""
    try:
        envelope = read_envelope(content, CHECKPOINT)
        said = envelope.document
        if said["schema"] != CHECKPOINT_SCHEMA:
            raise ValueError(f"it is of the form {said['schema']!r}")
        return Stated(name, int(said["size"]), str(said["head"]), str(said["at"]), str(said["origin"]), envelope)
    except MALFORMED as error:
        raise ValueError(f"{name}: it is no signed checkpoint ({error})") from None


def faults(
    kept: list[Checkpoint],
    own: list[Stated],
    given: Sequence[Stated],
    hashes: dict[int, str | None],
    events: int,
) -> Iterator[str]:
    keys = {one.key_id: one for one in SigningKey.objects.all()}
    yield from key_faults(keys)
    signed = {(one.size, one.head, one.at) for one in own}
    for row in kept:
        if (row.size, row.head, ledger.timestamp(row.at)) not in signed:
            yield f"the checkpoint over event {row.size}: its columns differ from what was signed"
    for one in [*own, *given]:
        yield from faults_of(one, keys, hashes[one.size], events)


def faults_of(one: Stated, keys: Mapping[str, SigningKey], found: str | None, events: int) -> Iterator[str]:
    named = f"{one.name} ({one.origin}, {one.at})"
    if one.size > events:
        yield f"{named}: it is over event {one.size}, and the ledger ends at event {events}: its end was removed"
    elif found != one.head:
        yield (
            f"{named}: event {one.size} has another hash there. The history up to it was written anew since, or the "
            "checkpoint is another installation's"
        )
    signers = [keys[by] for by, _ in one.envelope.signatures if by in keys]
    if not any(one.envelope.signed_by(Key(bytes(key.public_key))) for key in signers):
        yield f"{named}: no key that is or was in use here signed it as it stands"


def key_faults(keys: Mapping[str, SigningKey]) -> Iterator[str]:
    """The keys are those that the ledger names, and each follows the one before it."""
    # Sorted here: asked for in order, SQLite reads the whole ledger to find these few.
    events = sorted(Event.objects.filter(kind__in=KEY_EVENTS).order_by(), key=lambda one: one.sequence)
    if [one.details["key"] for one in events] != list(keys):
        yield "the signing keys: they aren't those that the ledger names"
    before: Key | None = None
    for row in keys.values():
        key = Key(bytes(row.public_key))
        if key.id != row.key_id or not follows(row, key, before):
            yield f"the signing key {row.key_id}: its public key or its rotation isn't what was recorded"
        before = key


def follows(row: SigningKey, key: Key, before: Key | None) -> bool:
    if row.rotation is None:
        return before is None
    try:
        rotation = read_envelope(bytes(row.rotation), ROTATION)
        said = rotation.document
        return before is not None and (said["old"], said["new"]) == (before.id, key.id) and rotation.signed_by(key)
    except MALFORMED:
        return False


def size_of(content: bytes) -> int:
    """Over which event a checkpoint is. Raises ValueError."""
    return stated("the checkpoint", content.strip()).size


def rotations() -> list[object]:
    """The envelopes of all rotations, in their order."""
    kept = [one.rotation for one in SigningKey.objects.all()]
    return [json.loads(bytes(one)) for one in kept if one is not None]
