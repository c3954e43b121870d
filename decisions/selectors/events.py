"""The ledger as pages show it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import connection
from django.db.models import Q, QuerySet

from decisions.models import BriefRevision, ChainCheck, Checkpoint, Event, SigningKey
from decisions.rules.history import Filter
from loadtests.models import Boot, Campaign, Trial

# Of these an export holds so many in memory at once.
EVENTS_READ_AT_ONCE = 1_000


@dataclass(frozen=True)
class Chain:
    """What is known of the whole history: how far it was verified and when, or what doesn't hold."""

    check: ChainCheck
    events: int
    checkpoints: int
    latest: Checkpoint | None

    @property
    def walking(self) -> bool:
        return self.check.walk_began_at is not None


@dataclass(frozen=True)
class EventPage:
    """The newest first. ``newer`` and ``older``: the number after and before which the next page lies; None: there is
    none."""

    events: list[Event]
    count: int
    newer: int | None
    older: int | None


def events(asked: Filter) -> QuerySet[Event]:
    found = Event.objects.all()
    for name in ("actor", "service", "route"):
        if value := getattr(asked, name):
            found = found.filter(**{name: value})
    if asked.kinds is not None:
        found = found.filter(kind=asked.kinds[0]) if len(asked.kinds) == 1 else found.filter(kind__in=asked.kinds)
    if asked.subject:
        found = found.filter(subject__startswith=asked.subject)
    if asked.first_moment:
        found = found.filter(at__gte=asked.first_moment)
    if asked.end_moment:
        found = found.filter(at__lt=asked.end_moment)
    return found


def page_of_events(asked: Filter, *, size: int, before: int | None = None, after: int | None = None) -> EventPage:
    """By the numbers of events, which never change: what is added meanwhile moves no page. ``before``: the page of
    older ones; ``after``: of newer ones."""
    found = events(asked)
    if after is not None:
        listed = list(found.filter(sequence__gt=after).order_by("sequence")[: size + 1])
        more_newer, listed = len(listed) > size, listed[:size][::-1]
        more_older = bool(listed) and found.filter(sequence__lte=after).exists()
    else:
        older = found if before is None else found.filter(sequence__lt=before)
        listed = list(older.order_by("-sequence")[: size + 1])
        more_older, listed = len(listed) > size, listed[:size]
        more_newer = before is not None and found.filter(sequence__gte=before).exists()
    return EventPage(
        events=listed,
        count=count_of(asked),
        newer=listed[0].sequence if listed and more_newer else None,
        older=listed[-1].sequence if listed and more_older else None,
    )


def count_of(asked: Filter) -> int:
    """The numbers have no gaps: how many events there are is the last one's."""
    return events(asked).count() if asked.asked else last_sequence()


def last_sequence() -> int:
    return Event.objects.order_by("-sequence").values_list("sequence", flat=True).first() or 0


def exported(asked: Filter, up_to: int) -> Iterator[Event]:
    """The oldest first, read in pieces: however long the history is, little of it is in memory."""
    found, after = events(asked).filter(sequence__lte=up_to).order_by("sequence"), 0
    while piece := list(found.filter(sequence__gt=after)[:EVENTS_READ_AT_ONCE]):
        yield from piece
        after = piece[-1].sequence


def event_kinds() -> list[str]:
    return distinct("kind")


def event_actors() -> list[str]:
    return distinct("actor")


def event_services() -> list[str]:
    return distinct("service")


def event_routes() -> list[str]:
    return distinct("route")


# Each step asks the index for the next value: over a million events that takes as many steps as there are values.
EACH = """
WITH RECURSIVE each (value) AS (
    SELECT min({column}) FROM decisions_event
    UNION ALL
    SELECT (SELECT min({column}) FROM decisions_event WHERE {column} > each.value)
    FROM each WHERE each.value IS NOT NULL
)
SELECT value FROM each WHERE value IS NOT NULL
"""


def distinct(column: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(EACH.format(column=column))
        return [row[0] for row in cursor.fetchall()]


def chain_of(check: ChainCheck) -> Chain:
    return Chain(check, last_sequence(), Checkpoint.objects.count(), Checkpoint.objects.order_by("size", "pk").last())


def broken_chain() -> Chain | None:
    """For pages that say of the chain only what they must."""
    check = ChainCheck.objects.exclude(fault="").first()
    return chain_of(check) if check else None


def signing_keys() -> list[SigningKey]:
    return list(SigningKey.objects.all())


def neighbours(event: Event) -> tuple[Event | None, Event | None]:
    """The events before and after it."""
    found = {one.sequence: one for one in Event.objects.filter(pk__in=[event.pk - 1, event.pk + 1])}
    return found.get(event.sequence - 1), found.get(event.sequence + 1)


def first_checkpoint_over(event: Event) -> Checkpoint | None:
    return Checkpoint.objects.filter(size__gte=event.sequence).order_by("size", "pk").first()


def events_of_revision(revision: BriefRevision) -> QuerySet[Event]:
    """What happened to a revision, to its campaigns, their boots and trials."""
    campaigns = Campaign.objects.filter(brief_campaign__revision=revision).values_list("pk", flat=True)
    boots = Boot.objects.filter(campaign__in=campaigns).values_list("pk", flat=True)
    trials = Trial.objects.filter(boot__campaign__in=campaigns).values_list("pk", flat=True)
    named = (("campaign", campaigns), ("boot", boots), ("trial", trials))
    subjects = [f"{name} {pk}" for name, keys in named for pk in keys]
    own = f"brief {revision.brief_id} revision {revision.number}"
    return Event.objects.filter(Q(subject=own) | Q(subject__in=subjects)).order_by("-sequence")


SUBJECTS = (
    (re.compile(r"brief (\d+) revision (\d+)"), "brief"),
    (re.compile(r"boot (\d+)"), "boot"),
    (re.compile(r"demonstration (\d+)"), "demonstration"),
)


def subject_link(subject: str) -> tuple[str, tuple[int, ...]] | None:
    """The page that a subject of an event stands for: its name and arguments."""
    for pattern, name in SUBJECTS:
        found = pattern.fullmatch(subject)
        if found:
            return name, tuple(int(part) for part in found.groups())
    return None
