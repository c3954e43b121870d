"""What the preserved-behaviour suite found for a revision."""

from __future__ import annotations

from typing import cast

from decisions.models import BehaviourResult, BriefRevision
from decisions.rules.behaviour import Behaviour, Outcome
from decisions.selectors.progress import last_campaign
from loadtests.evidence.ahead import need, source
from loadtests.models import Boot, Campaign
from loadtests.models.campaign import counted_boots


def suite_boots(revision: BriefRevision) -> dict[str, Boot] | None:
    """By arm, the boots whose answers count: of the revision's last behaviour campaign, once it is done."""
    campaign = last_campaign(revision, Campaign.Purpose.BEHAVIOUR)
    if campaign is None or campaign.state != Campaign.State.DONE:
        return None
    boots = Boot.objects.filter(campaign=campaign).select_related("campaign", "configuration", "suite_run")
    return {boot.arm: boot for boot in counted_boots(boots)}


def answers_of(boots: dict[str, Boot]) -> dict[str, str]:
    return {arm: boot.suite_run.answers_digest for arm, boot in boots.items()}


def behaviour_result(revision: BriefRevision) -> BehaviourResult | None:
    """Of the answers that count now; None where there are none, or nobody has judged them yet."""
    boots = suite_boots(revision)
    if boots is None:
        return None
    found = BehaviourResult.objects.filter(campaign=next(iter(boots.values())).campaign, answers=answers_of(boots))
    return found.last()


def behaviour_of(revision: BriefRevision) -> Behaviour | None:
    """As a verdict takes it."""
    found = behaviour_result(revision)
    if found is None:
        return None
    return Behaviour(cast(Outcome, found.outcome), found.cases, tuple(found.broken), found.sentence, found.digest)


def read_behaviour(revision: BriefRevision) -> None:
    """Reads the suite's result and every answer that it rests on. Raises EvidenceMissing, EvidenceDamaged,
    EvidenceUnreachable."""
    found = behaviour_result(revision)
    if found is None:
        return
    digests = [found.digest, *found.answers.values()]
    need(digests)
    for one in digests:
        source().get(one)
