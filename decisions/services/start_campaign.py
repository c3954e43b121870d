from collections.abc import Iterable
from typing import Any

from decisions.models import BriefCampaign, BriefRevision
from loadtests.models import Campaign
from loadtests.planning import Purpose, TuningRound
from loadtests.services.create_campaign import create_campaign

ACTOR = "draftproof"


def start_campaign(
    *,
    revision: BriefRevision,
    purpose: Purpose,
    candidates: Iterable[str],
    most_minutes: float | None = None,
    tuning_round: TuningRound | None = None,
    race: dict[str, Any] | None = None,
) -> Campaign:
    """Plans and queues a campaign of a brief's revision, within what is left of the brief's budget or ``most_minutes``,
    whichever is less. ``race``: the step of the race that asks for it."""
    document = revision.document
    if revision.traffic_set is None:
        raise ValueError("the frozen brief has no traffic set")
    left = max(0.0, document.budget_engine_minutes - engine_minutes_used(revision))
    campaign = create_campaign(
        purpose=purpose,
        traffic_set=revision.traffic_set,
        brief_digest=revision.digest,
        baseline=document.baseline,
        candidates={name: document.configuration(name) for name in candidates},
        levels=document.levels,
        peak=document.peak,
        pairs=document.rule.noise_floor_pairs if purpose == "noise-floor" else document.rule.pairs,
        seed=document.rule.seed,
        deadlines={name: deadline.model_dump() for name, deadline in document.deadlines.items()},
        budget_engine_minutes=left if most_minutes is None else min(left, most_minutes),
        max_reattempts=document.rule.max_reattempts,
        max_client_lag_ms=document.rule.max_client_lag_ms,
        tuning_round=tuning_round,
        by=ACTOR,
    )
    BriefCampaign.objects.create(revision=revision, campaign=campaign, race=race)
    return campaign


def engine_minutes_used(revision: BriefRevision) -> float:
    campaigns = Campaign.objects.filter(brief_campaign__revision=revision).prefetch_related("boots")
    return sum(boot.engine_minutes for campaign in campaigns for boot in campaign.boots.all())
