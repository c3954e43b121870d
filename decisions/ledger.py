"""The ledger: an append-only chain in which every event holds the hash of the one before it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection, transaction
from django.utils import timezone

from decisions import outbox
from decisions.models import Event
from decisions.selectors.places import place_of
from loadtests.canonical import canonical, digest

SCHEMA = "draftproof.event/1"
GENESIS = "0" * 64
# Before the first event: how many there are, and what the next one follows.
START = (0, GENESIS)
# Any constant will do, as long as every writer takes the same lock.
LOCK = 0x6472_6166


def append(kind: str, *, subject: str, actor: str, details: dict[str, object]) -> Event:
    """Adds one event, and what people are told of it, in the caller's transaction: an act and its event stand or fall
    together."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("a ledger event is written in the transaction of its act")
    serialise_writers()
    last = Event.objects.order_by("-sequence").values_list("sequence", "hash").first()
    sequence, previous = (last[0] + 1, last[1]) if last else (1, GENESIS)
    at = timezone.now()
    place = place_of(subject, details)
    content = canonical(
        {
            "schema": SCHEMA,
            "sequence": sequence,
            "previous": previous,
            "at": timestamp(at),
            "kind": kind,
            "actor": actor,
            "subject": subject,
            # Rows change, names are given anew: where an event belonged is copied into it.
            **{name: slug for name, slug in place._asdict().items() if slug},
            "details": details,
        }
    )
    event = Event.objects.create(
        sequence=sequence,
        kind=kind,
        actor=actor,
        subject=subject,
        at=at,
        content=content,
        previous=previous,
        hash=digest(content),
        service=place.service,
        route=place.route,
    )
    outbox.put(event, details)
    return event


def timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def serialise_writers() -> None:
    # SQLite's transactions are IMMEDIATE here, so a writer already holds the only write lock.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


@dataclass(frozen=True)
class Broken:
    sequence: int
    reason: str

    def __str__(self) -> str:
        return f"broken at event {self.sequence}: {self.reason}"


@dataclass(frozen=True)
class Verified:
    events: int
    broken: Broken | None

    def __str__(self) -> str:
        return str(self.broken) if self.broken else f"ok {self.events} events"


def verify(events: Iterable[Event] | None = None, *, after: tuple[int, str] = START) -> Verified:
    """Walks the chain from its start, or ``after`` an event that is known to hold, and stops at the first event that
    does not hold."""
    count, previous = after
    for event in Event.objects.order_by("sequence").iterator() if events is None else events:
        fault = fault_of(event, expected_sequence=count + 1, expected_previous=previous)
        if fault:
            return Verified(count, Broken(event.sequence, fault))
        count, previous = count + 1, event.hash
    return Verified(count, None)


def fault_of(event: Event, *, expected_sequence: int, expected_previous: str) -> str | None:
    content = bytes(event.content)
    if event.sequence != expected_sequence:
        return f"event {expected_sequence} is missing"
    if digest(content) != event.hash:
        return "its bytes do not give its hash"
    if event.previous != expected_previous:
        return "it does not follow the event before it"
    try:
        stated = dict(json.loads(content))
    except (ValueError, TypeError, RecursionError):
        return "its bytes are no event"
    columns = {
        "sequence": event.sequence,
        "previous": event.previous,
        "at": timestamp(event.at),
        "kind": event.kind,
        "actor": event.actor,
        "subject": event.subject,
        # Events from before the place was written into the bytes have it in the columns alone.
        **{name: getattr(event, name) for name in ("service", "route") if name in stated},
    }
    differing = [name for name, value in columns.items() if stated.get(name) != value]
    return f"its columns {', '.join(differing)} differ from its bytes" if differing else None
