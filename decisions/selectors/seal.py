"""Who may open a held-out part, and who has opened it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import QuerySet

from decisions.models import BriefRevision, Event
from decisions.rules.states import MEASURING
from loadtests.models import Campaign, TrafficPart, TrafficSet


def may_open(*, brief_digest: str, part_digest: str, set_pk: int) -> str | None:
    """None for a frozen brief that is measuring on this very part; attempts after a stop find it measuring too."""
    bound = BriefRevision.objects.filter(digest=brief_digest, traffic_set=set_pk).exclude(digest="")
    named = [one for one in bound if one.document.traffic.held_out == part_digest]
    if any(one.state == MEASURING for one in named):
        return None
    if not named:
        return f"no frozen brief with the digest {brief_digest[:12]}… names this held-out part, so it stays sealed"
    states = " and ".join(sorted({one.state for one in named}))
    return f"the brief is {states}: the held-out part opens for a frozen brief alone, and only while it is measuring"


@dataclass(frozen=True)
class Use:
    """A revision for which the held-out rows were read. ``same_route`` is relative to the revision asked about.

    ``through`` names another split of the same rows: what one split holds out, another may have tuned on.
    """

    brief_id: int
    number: int
    title: str
    route: str
    first_read_at: datetime
    reads: int
    same_route: bool = False
    through: str = ""

    @property
    def document(self) -> dict[str, object]:
        return {"brief": self.brief_id, "revision": self.number, "route": self.route, "same_route": self.same_route}


def uses_of(traffic_set: TrafficSet) -> list[Use]:
    """The revisions that read the set's held-out rows, the first one first; the same rows in another set count too."""
    part = traffic_set.parts.filter(kind=TrafficPart.Kind.HELD_OUT).first()
    if part is None:
        return []
    reads = reads_of(part)
    direct = (use_of(revision, theirs, reads) for revision, theirs in by_revision(held_out_campaigns(part)).items())
    uses = [use for use in direct if use]
    known = {(use.brief_id, use.number) for use in uses}
    other = by_revision(campaigns_of_another_split(traffic_set, part))
    uses += [use_through(revision, theirs) for revision, theirs in other.items() if key_of(revision) not in known]
    return sorted(uses, key=lambda use: (use.first_read_at, use.brief_id, use.number))


def by_revision(campaigns: Iterable[Campaign]) -> dict[BriefRevision, list[Campaign]]:
    found: dict[BriefRevision, list[Campaign]] = {}
    for campaign in campaigns:
        found.setdefault(campaign.brief_campaign.revision, []).append(campaign)
    return found


def key_of(revision: BriefRevision) -> tuple[int, int]:
    return revision.brief_id, revision.number


def used_before(revision: BriefRevision, traffic_set: TrafficSet | None = None) -> list[Use]:
    """Who read the revision's held-out rows before it did; for the same route it is a second use of them.

    ``traffic_set`` is for a draft, which is bound to none yet.
    """
    asked = traffic_set or revision.traffic_set
    uses = uses_of(asked) if asked else []
    own = [use.first_read_at for use in uses if is_of(use, revision)]
    route = str(revision.brief.route)
    return [
        replace(use, same_route=use.route == route)
        for use in uses
        if not is_of(use, revision) and (not own or use.first_read_at < own[0])
    ]


def is_of(use: Use, revision: BriefRevision) -> bool:
    return (use.brief_id, use.number) == key_of(revision)


def campaigns() -> QuerySet[Campaign]:
    return (
        Campaign.objects.filter(brief_campaign__isnull=False)
        .select_related("part__set", "brief_campaign__revision__brief__route__service")
        .defer("plan", "part__statistics", "part__set__statistics", "brief_campaign__revision__source")
        .order_by("pk")
    )


def held_out_campaigns(part: TrafficPart) -> QuerySet[Campaign]:
    return campaigns().filter(purpose=Campaign.Purpose.HELD_OUT, part__digest=part.digest)


def campaigns_of_another_split(traffic_set: TrafficSet, part: TrafficPart) -> Iterable[Campaign]:
    """Campaigns, of whatever purpose, on the same rows divided otherwise: some of this held-out part has been seen."""
    rows = traffic_set.imported.get("digest")
    if not rows:
        return []
    return (
        campaigns()
        .filter(part__set__imported__digest=rows)
        .exclude(part__set=traffic_set)
        .exclude(part__set__parts__kind=part.kind, part__set__parts__digest=part.digest)
    )


def reads_of(part: TrafficPart) -> list[tuple[str, datetime]]:
    """(digest of the brief, when) for every reading of these rows in the ledger."""
    sets = TrafficPart.objects.filter(kind=part.kind, digest=part.digest).values_list("set_id", flat=True)
    subjects = [f"traffic set {pk}" for pk in sets]
    events = Event.objects.filter(kind="held-out-read", subject__in=subjects).order_by("sequence")
    return [(event.details["brief"], event.at) for event in events]


def use_through(revision: BriefRevision, campaigns: list[Campaign]) -> Use:
    return Use(
        brief_id=revision.brief_id,
        number=revision.number,
        title=revision.title,
        route=str(revision.brief.route),
        first_read_at=campaigns[0].created_at,
        reads=len(campaigns),
        through=str(campaigns[0].part.set),
    )


def use_of(revision: BriefRevision, campaigns: list[Campaign], reads: Iterable[tuple[str, datetime]]) -> Use | None:
    """Two revisions may have the same words and so one digest: each has the readings of its own time."""
    ended = [campaign.ended_at for campaign in campaigns]
    until = None if None in ended else max(at for at in ended if at)
    own = [
        at
        for brief, at in reads
        if brief == revision.digest
        and (revision.frozen_at is None or at >= revision.frozen_at)
        and (until is None or at <= until)
    ]
    if not own:
        return None
    return Use(
        brief_id=revision.brief_id,
        number=revision.number,
        title=revision.title,
        route=str(revision.brief.route),
        first_read_at=min(own),
        reads=len(own),
    )
