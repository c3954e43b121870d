"""What waits for a person, what runs, what is in force."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from decisions.models import Account, Brief, BriefRevision, Release, Route, Signature, SignatureRequest, Verdict
from decisions.rules.brief import BadBrief
from decisions.rules.policy import AUTHOR, EDITOR, RUN_STARTER
from decisions.rules.signing import APPROVE, REJECT
from decisions.rules.states import IN_REVIEW
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
    glass_broken: bool = False


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


def to_sign(account: Account) -> list[SignatureRequest]:
    """Requests that have not expired, for services the person owns and under whose policy they may sign; a superuser
    never. One that the person has signed waits for others."""
    if account.is_superuser or "owner" not in account.group_names:
        return []
    hands = {
        AUTHOR: BriefRevision.objects.filter(pk=OuterRef("revision_id"), author=account),
        EDITOR: BriefRevision.editors.through.objects.filter(
            briefrevision_id=OuterRef("revision_id"), account_id=account.pk
        ),
        RUN_STARTER: BriefRevision.run_starters.through.objects.filter(
            briefrevision_id=OuterRef("revision_id"), account_id=account.pk
        ),
    }
    signed = Signature.objects.filter(request=OuterRef("pk"), signer=account, meaning__in=[APPROVE, REJECT])
    asked = (
        SignatureRequest.objects.open(timezone.now())
        .filter(~Exists(signed), revision__state=IN_REVIEW, revision__brief__route__service__owners=account)
        .annotate(**{f"hand_{number}": Exists(found) for number, found in enumerate(hands.values())})
        .select_related("revision__brief__route__service", "revision__author", "verdict")
        .defer("revision__source", "verdict__content")
        .order_by("pk")
    )
    return [one for one in asked if not barred(one, list(hands))]


def barred(request: SignatureRequest, hands: list[str]) -> bool:
    return any(
        getattr(request, f"hand_{number}") and hand in request.policy.may_not_sign for number, hand in enumerate(hands)
    )


def to_work_on(account: Account) -> QuerySet[BriefRevision]:
    """An engineer's drafts, frozen briefs not yet started, halted runs, requests for changes without an answer, and
    requests for signatures that expired."""
    if "engineer" not in account.group_names:
        return BriefRevision.objects.none()
    newer = BriefRevision.objects.filter(brief=OuterRef("brief_id"), number__gt=OuterRef("number"))
    mine = Q(author=account) | Q(editors=account) | Q(run_starters=account)
    wanted = Q(state__in=["draft", "frozen"]) | Q(state="measuring") & ~Q(halted="")
    asked = Q(state="changes-requested") & ~Exists(newer)
    lapsed = SignatureRequest.objects.lapsed(timezone.now()).filter(revision=OuterRef("pk"))
    expired = Q(state=IN_REVIEW) & Exists(lapsed)
    return revisions().filter(mine, wanted | asked | expired).distinct().order_by("-pk")


ENGINEERS_ACTS = {
    "draft": ("brief", "Edit or freeze", "A draft. Freeze it when its words are final: nothing is measured before."),
    "frozen": ("brief", "Start", "Frozen and not started. Start it when the pool is free."),
    "measuring": ("brief", "See why", ""),
    "changes-requested": (
        "brief-sign-off",
        "Read and revise",
        "The owner asked for changes: a new revision is needed.",
    ),
    IN_REVIEW: ("brief-sign-off", "Ask again or withdraw", "The request for signatures expired without a decision."),
}


def waiting_for(account: Account) -> list[Waiting]:
    verdicts = [asked_for(one) for one in to_sign(account)]
    work = []
    for one in to_work_on(account):
        tab, act, sentence = ENGINEERS_ACTS[one.state]
        gone = text_gone(one.traffic_set) if one.state == "frozen" else None
        work.append(Waiting(one, tab, "See why" if gone else act, gone or one.halted or sentence))
    return verdicts + work


def asked_for(request: SignatureRequest) -> Waiting:
    sentence = request.verdict.sentence
    if request.glass_broken_at is None:
        return Waiting(request.revision, "brief-sign-off", "Review and sign", sentence, request.verdict)
    said = f"The glass was broken for this: decide on it. {sentence}"
    return Waiting(request.revision, "brief-sign-off", "Follow up", said, request.verdict, glass_broken=True)


def waiting_count(account: Account) -> int:
    return len(to_sign(account)) + to_work_on(account).count()


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
        .select_related("route__service", "configuration", "revision__brief", "signature__request")
        .order_by("expires_at")
    )


def recent_decisions(count: int = 10) -> list[Signature]:
    return list(
        Signature.objects.select_related(
            "revision__brief__route__service", "verdict", "request", "release__route__service"
        )
        .defer("statement", "verdict__content", "revision__source")
        .order_by("-pk")[:count]
    )
