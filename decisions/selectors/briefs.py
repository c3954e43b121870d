"""A brief and its revisions as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Exists, Max, OuterRef, QuerySet, Subquery
from django.utils import timezone

from decisions.models import Brief, BriefRevision, Route, SignatureRequest, Verdict
from decisions.rules.difference import Line, line_difference
from decisions.rules.states import IN_REVIEW
from decisions.selectors.runs import TrialRow, trial_row
from loadtests.configurations import Configuration, flatten
from loadtests.configurations import difference as difference_of
from loadtests.models import Boot, Campaign
from loadtests.models import Configuration as StoredConfiguration
from loadtests.models.campaign import latest_attempts


@dataclass(frozen=True)
class CandidateShown:
    name: str
    label: str
    digest: str
    # (setting, without speculation, with it)
    changes: list[tuple[str, object]]


@dataclass(frozen=True)
class PlaceShown:
    """One place of a campaign's order: its latest attempt, and the attempts before it that stay in history."""

    boot: Boot
    rows: list[TrialRow]
    earlier: list[Boot]

    @property
    def not_completed(self) -> int:
        return sum(count for row in self.rows for status, count in row.statuses if status != "completed")


@dataclass(frozen=True)
class PairShown:
    number: int
    places: list[PlaceShown]


def briefs() -> QuerySet[Brief]:
    """Every brief with its latest revision's number and state, and the result of its latest verdict."""
    latest = BriefRevision.objects.filter(brief=OuterRef("pk")).order_by("-number")
    verdict = Verdict.objects.filter(revision__brief=OuterRef("pk")).order_by("-pk")
    return (
        Brief.objects.select_related("route__service")
        .annotate(
            number=Max("revisions__number"),
            state=Subquery(latest.values("state")[:1]),
            halted=Subquery(latest.values("halted")[:1]),
            author=Subquery(latest.values("author__username")[:1]),
            verdict_revision=Subquery(verdict.values("revision__number")[:1]),
            result=Subquery(verdict.values("result")[:1]),
            lapsed=Exists(
                SignatureRequest.objects.lapsed(timezone.now()).filter(
                    revision__brief=OuterRef("pk"), revision__state=IN_REVIEW
                )
            ),
        )
        .order_by("-pk")
    )


def revision_for_page() -> QuerySet[BriefRevision]:
    return BriefRevision.objects.select_related("brief__route__service", "author", "traffic_set")


def revisions_of(brief_id: int) -> list[BriefRevision]:
    return list(BriefRevision.objects.filter(brief=brief_id).defer("source", "content").order_by("-number"))


def last_source(route: Route) -> str:
    """The words of the route's latest brief, to begin the next one with."""
    return (
        BriefRevision.objects.filter(brief__route=route).order_by("-pk").values_list("source", flat=True).first() or ""
    )


def last_baseline(pool: str) -> Configuration | None:
    """A baseline that has been run on the pool, so that an example can name real digests."""
    stored = StoredConfiguration.objects.filter(label="no speculation", boots__pool=pool).order_by("-pk").first()
    return stored.document if stored else None


def candidates_of(document_baseline: Configuration, named: dict[str, Configuration]) -> list[CandidateShown]:
    return [CandidateShown(name, one.label, one.digest, changes(document_baseline, one)) for name, one in named.items()]


def changes(baseline: Configuration, candidate: Configuration) -> list[tuple[str, object]]:
    """What the candidate sets that the baseline does not: by rule, the speculative setting and nothing else."""
    found: list[tuple[str, object]] = []
    for name, (_, right) in difference_of(baseline, candidate).items():
        if isinstance(right, dict):
            found += [(key, value) for key, value in flatten(right, f"{name}.").items() if value is not None]
        else:
            found.append((name, right))
    return found


def source_diff(before: BriefRevision | None, after: BriefRevision) -> list[Line]:
    """(kind, line) per line of the difference between two revisions' words; kind is plus, minus, at or empty."""
    return line_difference(before.source, after.source) if before else []


def before(revision: BriefRevision) -> BriefRevision | None:
    return BriefRevision.objects.filter(brief=revision.brief_id, number__lt=revision.number).order_by("-number").first()


def earlier_revisions(revision: BriefRevision) -> list[BriefRevision]:
    """The latest first."""
    return list(
        BriefRevision.objects.filter(brief=revision.brief_id, number__lt=revision.number)
        .defer("content")
        .order_by("-number")
    )


def places_of(campaign: Campaign, levels: Sequence[str]) -> list[PlaceShown]:
    """The campaign's places; each one's trials in the order of ``levels``, not in the drawn order of the boot."""
    every = list(campaign.boots.all())
    return [
        PlaceShown(
            boot,
            [trial_row(trial) for trial in sorted(boot.trials.all(), key=lambda one: levels.index(one.level))],
            [one for one in every if one.position == boot.position and one.attempt < boot.attempt],
        )
        for boot in latest_attempts(every)
    ]


def pairs_of(campaign: Campaign, levels: Sequence[str]) -> list[PairShown]:
    pairs: dict[int, list[PlaceShown]] = {}
    for place in places_of(campaign, levels):
        if place.boot.pair is not None:
            pairs.setdefault(place.boot.pair, []).append(place)
    return [PairShown(number, places) for number, places in sorted(pairs.items())]
