"""Who may open a held-out part, and who has opened it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import QuerySet

from decisions.models import BriefRevision, Event
from decisions.rules.states import MEASURING
from decisions.selectors.kept_text import is_joined, sets_of_one_text
from loadtests.evidence.ahead import need
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable
from loadtests.models import Campaign, TrafficPart, TrafficSet
from loadtests.part_indexes import index_of
from loadtests.traffic.part_index import seen_in

# Up to this share of the rows, or this many, another set may hold too by chance.
MOST_SEEN = 0.01
FEW_ROWS = 2


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

    ``through`` names another set whose rows it read, of which ``rows`` prompts stand in this held-out part too;
    ``unknown`` says why nobody can tell how many.
    """

    brief_id: int
    number: int
    title: str
    route: str
    first_read_at: datetime
    reads: int
    same_route: bool = False
    through: str = ""
    rows: int = 0
    unknown: str = ""

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
    others = uses_through_other_sets(part)
    uses += [use for use in others if (use.brief_id, use.number) not in known]
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


def campaigns_that_saw(part: TrafficPart) -> Iterator[tuple[Campaign, int, str]]:
    """Campaigns, of whatever purpose, on other sets, and how many of this part's rows theirs held too: what one set
    holds out, another split of the file, a longer file or an export that overlaps may have tuned on. Where an index
    can't be read nobody can tell, which counts as seen, with 0 rows and the reason."""
    seen: dict[str, int | str] = {}
    of_one_text = sets_of_one_text(part.set_id)
    others = list(campaigns().exclude(part__set=part.set_id).exclude(part__kind=part.kind, part__digest=part.digest))
    if others:
        need({part.index_digest, *(one.part.index_digest for one in others)} - {""})
    for campaign in others:
        digest = campaign.part.index_digest
        if digest not in seen:
            seen[digest] = rows_seen(part, campaign.part, of_one_text)
        rows = seen[digest]
        if isinstance(rows, str):
            yield campaign, 0, rows
        elif rows > max(FEW_ROWS, MOST_SEEN * part.rows):
            yield campaign, rows, ""


def rows_seen(part: TrafficPart, other: TrafficPart, of_one_text: Container[int]) -> int | str:
    """Why nobody can tell where an index can't be read; 0 where a part was stored before there were any. The times of a
    joined set are those of a trace: what it shares with the sets ``of_one_text`` its prompts alone tell."""
    try:
        mine, theirs = index_of(part), index_of(other)
    except EvidenceUnreachable as error:
        return f"the evidence store can’t be reached ({error})"
    except (EvidenceMissing, EvidenceDamaged):
        return "an index is missing"
    if not (mine and theirs):
        return 0
    joined = is_joined(part.set) or is_joined(other.set)
    return seen_in(mine, theirs, timed=not (joined and other.set_id in of_one_text))


def reads_of(part: TrafficPart) -> list[tuple[str, datetime]]:
    """(digest of the brief, when) for every reading of these rows in the ledger."""
    sets = TrafficPart.objects.filter(kind=part.kind, digest=part.digest).values_list("set_id", flat=True)
    subjects = [f"traffic set {pk}" for pk in sets]
    events = Event.objects.filter(kind="held-out-read", subject__in=subjects).order_by("sequence")
    return [(event.details["brief"], event.at) for event in events]


def uses_through_other_sets(part: TrafficPart) -> list[Use]:
    """One for each revision, from its first campaign on."""
    uses: dict[tuple[int, int], Use] = {}
    for campaign, rows, unknown in campaigns_that_saw(part):
        revision = campaign.brief_campaign.revision
        earlier = uses.get(key_of(revision))
        uses[key_of(revision)] = Use(
            brief_id=revision.brief_id,
            number=revision.number,
            title=revision.title,
            route=str(revision.brief.route),
            first_read_at=earlier.first_read_at if earlier else campaign.created_at,
            reads=earlier.reads + 1 if earlier else 1,
            through=str(campaign.part.set),
            rows=max(rows, earlier.rows if earlier else 0),
            unknown=unknown or (earlier.unknown if earlier else ""),
        )
    return list(uses.values())


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
