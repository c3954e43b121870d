"""What waits for a person, what runs, what is in force."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet

from decisions.models import Account, Brief, BriefRevision, Release, Route, Signature, Verdict
from decisions.rules.brief import BadBrief
from decisions.selectors.progress import Progress, campaigns_of, progress_of
from decisions.selectors.traffic import text_gone
from loadtests.models import TrafficSet

EXPIRES_SOON = timedelta(days=21)


@dataclass(frozen=True)
class Waiting:
    revision: BriefRevision
    tab: str
    act: str
    sentence: str
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Running:
    revision: BriefRevision
    progress: Progress


@dataclass(frozen=True)
class FirstSteps:
    """What a fresh installation has already of what a brief needs."""

    route: bool
    traffic: bool


def first_steps(account: Account) -> FirstSteps | None:
    """For engineers, until there is a brief."""
    if "engineer" not in account.group_names or Brief.objects.exists():
        return None
    return FirstSteps(route=Route.objects.exists(), traffic=TrafficSet.objects.exists())


def revisions() -> QuerySet[BriefRevision]:
    return BriefRevision.objects.select_related("brief__route__service", "author").defer("source")


def to_sign(account: Account) -> QuerySet[BriefRevision]:
    """Verdicts of services the person owns and had no hand in; a superuser can't sign."""
    if account.is_superuser or "owner" not in account.group_names:
        return BriefRevision.objects.none()
    return (
        revisions()
        .filter(state="in-review", brief__route__service__owners=account)
        .exclude(Q(author=account) | Q(editors=account) | Q(run_starters=account))
        .prefetch_related(Prefetch("verdicts", queryset=Verdict.objects.defer("content")))
        .order_by("pk")
    )


def to_work_on(account: Account) -> QuerySet[BriefRevision]:
    """An engineer's drafts, frozen briefs not yet started, halted runs and requests for changes without an answer."""
    if "engineer" not in account.group_names:
        return BriefRevision.objects.none()
    newer = BriefRevision.objects.filter(brief=OuterRef("brief_id"), number__gt=OuterRef("number"))
    mine = Q(author=account) | Q(editors=account) | Q(run_starters=account)
    wanted = Q(state__in=["draft", "frozen"]) | Q(state="measuring") & ~Q(halted="")
    asked = Q(state="changes-requested") & ~Exists(newer)
    return revisions().filter(mine, wanted | asked).distinct().order_by("-pk")


ENGINEERS_ACTS = {
    "draft": ("brief", "Edit or freeze", "A draft. Freeze it when its words are final: nothing is measured before."),
    "frozen": ("brief", "Start", "Frozen and not started. Start it when the pool is free."),
    "measuring": ("brief", "See why", ""),
    "changes-requested": (
        "brief-sign-off",
        "Read and revise",
        "The owner asked for changes: a new revision is needed.",
    ),
}


def waiting_for(account: Account) -> list[Waiting]:
    verdicts = [
        Waiting(one, "brief-sign-off", "Review and sign", verdict.sentence if verdict else "", verdict)
        for one in to_sign(account)
        for verdict in [last(one)]
    ]
    work = []
    for one in to_work_on(account):
        tab, act, sentence = ENGINEERS_ACTS[one.state]
        gone = text_gone(one.traffic_set) if one.state == "frozen" else None
        work.append(Waiting(one, tab, "See why" if gone else act, gone or one.halted or sentence))
    return verdicts + work


def last(revision: BriefRevision) -> Verdict | None:
    return max(revision.verdicts.all(), key=lambda verdict: verdict.pk, default=None)


def waiting_count(account: Account) -> int:
    return to_sign(account).count() + to_work_on(account).count()


def running_briefs() -> list[Running]:
    measuring = BriefRevision.objects.filter(state="measuring").select_related("brief__route__service").order_by("pk")
    found = []
    for revision in measuring:
        try:
            document = revision.document
        except BadBrief:
            continue
        found.append(Running(revision, progress_of(revision, document, campaigns_of(revision))))
    return found


def in_force(now: datetime) -> list[Release]:
    return list(
        Release.objects.in_force(now)
        .select_related("route__service", "configuration", "revision__brief", "signature")
        .order_by("expires_at")
    )


def recent_decisions(count: int = 10) -> list[Signature]:
    return list(
        Signature.objects.select_related("revision__brief__route__service", "verdict", "release__route__service")
        .defer("statement", "verdict__content", "revision__source")
        .order_by("-pk")[:count]
    )
