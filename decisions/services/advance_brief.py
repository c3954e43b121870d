from __future__ import annotations

import logging
from typing import Literal

from django.db import OperationalError

from decisions import ledger
from decisions.models import BriefRevision, Event
from decisions.rules.brief import Brief
from decisions.rules.nomination import nominate
from decisions.selectors.behaviour import behaviour_result
from decisions.selectors.evidence import evidence_of
from decisions.selectors.progress import last_campaign
from decisions.selectors.race import RaceSoFar, race_so_far
from decisions.services.compute_verdict import compute_verdict
from decisions.services.judge_behaviour import judge_behaviour
from decisions.services.move_revision import subject
from decisions.services.record_nomination import record_nomination
from decisions.services.run_race import run_race
from decisions.services.start_campaign import ACTOR, start_campaign
from decisions.services.take_looks import take_looks
from loadtests.evidence.ahead import act_on_evidence
from loadtests.evidence.store import EvidenceUnreachable
from loadtests.journal import act
from loadtests.models import Campaign
from loadtests.planning import Purpose

logger = logging.getLogger(__name__)

STAGES: tuple[Purpose, ...] = ("noise-floor", "tuning", "held-out", "behaviour", "fallback")
# Nothing is asked of these where nobody was nominated.
OF_THE_NOMINEE = ("held-out", "behaviour")


def advance_brief(*, revision: BriefRevision) -> None:
    """Takes a measuring brief one step further, or leaves it. Safe to call at any time and twice at once.

    A step that fails for whatever reason leaves nothing half-planned and halts the brief with that reason, so that
    people see it; only a database or an evidence store that is away is left to the next call.
    """
    try:
        seen = race_so_far(BriefRevision.objects.get(pk=revision.pk))
        judge_behaviour(revision=BriefRevision.objects.get(pk=revision.pk))
        act_on_evidence(lambda: step(BriefRevision.objects.get(pk=revision.pk), seen))
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


def step(revision: BriefRevision, seen: RaceSoFar | None) -> None:
    stage = next_stage(revision) if is_going(revision) else None
    if stage == "verdict":
        compute_verdict(revision=revision)
    elif stage == "tuning" and revision.document.races:
        run_race(revision=revision, seen=seen)
    elif stage is not None:
        start_stage(revision, stage)


def next_stage(revision: BriefRevision) -> Purpose | Literal["verdict"] | None:
    """The stage to start now, "verdict" when all are done, None while one runs or was stopped."""
    raced = revision.document.races
    for purpose in STAGES:
        if purpose == "tuning" and raced and revision.nomination is not None:
            continue
        if purpose == "held-out" and revision.nomination is None:
            nominate_candidate(revision)
        if purpose in OF_THE_NOMINEE and not revision.nominee:
            continue
        if purpose == "behaviour" and revision.document.suite is None:
            continue
        campaign = last_campaign(revision, purpose)
        if campaign is None:
            return purpose
        if purpose == "held-out":
            take_looks(revision=revision, campaign=campaign)
        if campaign.state in Campaign.OPEN:
            return None
        if campaign.state != Campaign.State.DONE:
            if was_halted_for(revision, campaign):
                return purpose
            halt(revision, f"the {purpose} campaign was {campaign.state}: {campaign.reason}", campaign)
            return None
        if purpose == "tuning" and raced:
            # A round is over: the next one, or the nomination, which ends the race.
            return purpose
        if purpose == "behaviour" and behaviour_result(revision) is None:
            # Judged before the next call.
            return None
    return "verdict"


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
    trials = evidence_of(revision, purposes=["noise-floor", "tuning"])
    record_nomination(revision=revision, nomination=nominate(revision.document, trials), by=ACTOR)


def start_stage(revision: BriefRevision, purpose: Purpose) -> None:
    candidates = candidates_for(revision.document, purpose, revision.nominee)
    start_campaign(revision=revision, purpose=purpose, candidates=candidates)


def candidates_for(document: Brief, purpose: str, nominee: str) -> list[str]:
    if purpose in OF_THE_NOMINEE:
        return [nominee]
    return [one.name for one in document.all_candidates] if purpose == "tuning" else []
