from __future__ import annotations

import logging
from typing import Literal

from django.db import OperationalError

from decisions import ledger
from decisions.models import BriefCampaign, BriefRevision, Event
from decisions.rules.brief import Brief
from decisions.rules.nomination import nominate
from decisions.selectors.evidence import evidence_of
from decisions.services.compute_verdict import compute_verdict
from decisions.services.move_revision import subject
from loadtests.configurations import Configuration
from loadtests.evidence.store import EvidenceUnreachable
from loadtests.journal import act
from loadtests.models import Campaign
from loadtests.planning import Purpose
from loadtests.services.create_campaign import create_campaign

logger = logging.getLogger(__name__)

STAGES: tuple[Purpose, ...] = ("noise-floor", "tuning", "held-out", "fallback")
ACTOR = "draftproof"


def advance_brief(*, revision: BriefRevision) -> None:
    """Takes a measuring brief one step further, or leaves it. Safe to call at any time and twice at once.

    A step that fails for whatever reason leaves nothing half-planned and halts the brief with that reason, so that
    people see it; only a database or an evidence store that is away is left to the next call.
    """
    try:
        with act():
            held = BriefRevision.objects.get(pk=revision.pk)
            if is_going(held):
                step(held)
    except Exception as error:
        if is_away(error):
            raise
        logger.exception("brief %s revision %s could not be advanced", revision.brief_id, revision.number)
        with act():
            if is_going(BriefRevision.objects.get(pk=revision.pk)):
                halt(revision, str(error) or type(error).__name__)
    revision.refresh_from_db()


def is_away(error: Exception) -> bool:
    return isinstance(error, OperationalError) or (isinstance(error, EvidenceUnreachable) and error.passing)


def is_going(revision: BriefRevision) -> bool:
    return revision.state == "measuring" and not revision.halted


def step(revision: BriefRevision) -> None:
    stage = next_stage(revision)
    if stage == "verdict":
        compute_verdict(revision=revision)
    elif stage is not None:
        start_stage(revision, stage)


def next_stage(revision: BriefRevision) -> Purpose | Literal["verdict"] | None:
    """The stage to start now, "verdict" when all are done, None while one runs or was stopped."""
    for purpose in STAGES:
        if purpose == "held-out":
            if revision.nomination is None:
                nominate_candidate(revision)
            if not revision.nominee:
                continue
        campaign = last_campaign(revision, purpose)
        if campaign is None:
            return purpose
        if campaign.state in Campaign.OPEN:
            return None
        if campaign.state != Campaign.State.DONE:
            if was_halted_for(revision, campaign):
                return purpose
            halt(revision, f"the {purpose} campaign was {campaign.state}: {campaign.reason}", campaign)
            return None
    return "verdict"


def last_campaign(revision: BriefRevision, purpose: str) -> Campaign | None:
    return Campaign.objects.filter(brief_campaign__revision=revision, purpose=purpose).order_by("-pk").first()


def halt(revision: BriefRevision, reason: str, campaign: Campaign | None = None) -> None:
    BriefRevision.objects.filter(pk=revision.pk).update(halted=reason)
    ledger.append(
        "brief-halted",
        subject=subject(revision),
        actor=ACTOR,
        details={"reason": reason, "campaign": campaign.pk if campaign else None},
    )


def was_halted_for(revision: BriefRevision, campaign: Campaign) -> bool:
    """Whether people already know about this stop: then the brief was resumed since, and the stage starts anew."""
    halts = Event.objects.filter(kind="brief-halted", subject=subject(revision))
    return any(event.details["campaign"] == campaign.pk for event in halts)


def nominate_candidate(revision: BriefRevision) -> None:
    nomination = nominate(revision.document, evidence_of(revision, purposes=["noise-floor", "tuning"]))
    revision.nominee = nomination.candidate or ""
    revision.nomination = nomination.document
    BriefRevision.objects.filter(pk=revision.pk).update(nominee=revision.nominee, nomination=revision.nomination)
    ledger.append(
        "brief-nominated",
        subject=subject(revision),
        actor=ACTOR,
        details={"nominee": revision.nominee or "none", "reason": nomination.reason},
    )


def start_stage(revision: BriefRevision, purpose: Purpose) -> None:
    document = revision.document
    if revision.traffic_set is None:
        raise ValueError("the frozen brief has no traffic set")
    campaign = create_campaign(
        purpose=purpose,
        traffic_set=revision.traffic_set,
        brief_digest=revision.digest,
        baseline=document.baseline,
        candidates=candidates_for(document, purpose, revision.nominee),
        levels=document.levels,
        peak=document.peak,
        pairs=document.rule.noise_floor_pairs if purpose == "noise-floor" else document.rule.pairs,
        seed=document.rule.seed,
        deadlines={name: deadline.model_dump() for name, deadline in document.deadlines.items()},
        budget_engine_minutes=max(0.0, document.budget_engine_minutes - engine_minutes_used(revision)),
        max_reattempts=document.rule.max_reattempts,
        max_client_lag_ms=document.rule.max_client_lag_ms,
        by=ACTOR,
    )
    BriefCampaign.objects.create(revision=revision, campaign=campaign)


def candidates_for(document: Brief, purpose: str, nominee: str) -> dict[str, Configuration]:
    names = {"tuning": [one.name for one in document.candidates], "held-out": [nominee]}.get(purpose, [])
    return {name: document.configuration(name) for name in names}


def engine_minutes_used(revision: BriefRevision) -> float:
    campaigns = Campaign.objects.filter(brief_campaign__revision=revision).prefetch_related("boots")
    return sum(boot.engine_minutes for campaign in campaigns for boot in campaign.boots.all())
