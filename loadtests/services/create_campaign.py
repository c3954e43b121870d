from collections.abc import Mapping, Sequence
from typing import Any

from loadtests import configurations, journal, queue
from loadtests.canonical import digest_of
from loadtests.journal import act
from loadtests.models import Boot, Campaign, SuiteRun, TrafficPart, TrafficSet, Trial
from loadtests.planning import PlannedBoot, Purpose, TuningRound, plan_boots, plan_document
from loadtests.services.read_part import PART_OF, read_part
from loadtests.services.store_configuration import store_configuration
from loadtests.traffic.levels import Level


def create_campaign(
    *,
    purpose: Purpose,
    traffic_set: TrafficSet,
    brief_digest: str,
    baseline: configurations.Configuration,
    candidates: Mapping[str, configurations.Configuration],
    levels: Sequence[Level],
    peak: str,
    pairs: int,
    seed: int,
    deadlines: Mapping[str, Any],
    budget_engine_minutes: float,
    max_reattempts: int,
    by: str,
    max_client_lag_ms: float | None = None,
    tuning_round: TuningRound | None = None,
    suite: Mapping[str, Any] | None = None,
) -> Campaign:
    """Plans a campaign and queues it; ``suite`` is the plan of the preserved-behaviour suite, of a behaviour campaign
    alone. Raises ValueError when its part of the traffic is too small."""
    part = TrafficPart.objects.get(set=traffic_set, kind=PART_OF[Campaign.Purpose(purpose)])
    rows = read_part(part=part, purpose=purpose, brief_digest=brief_digest, reader="planning", actor=by)
    boots = plan_boots(
        purpose,
        baseline=baseline.digest,
        candidates={name: one.digest for name, one in candidates.items()},
        rows=rows,
        levels=levels,
        peak=peak,
        pairs=pairs,
        seed=seed,
        stretches=part.stretches,
        tuning_round=tuning_round,
    )
    plan = plan_document(
        purpose,
        brief=brief_digest,
        part=part.digest,
        levels=levels,
        deadlines=deadlines,
        seed=seed,
        boots=boots,
        max_client_lag_ms=max_client_lag_ms,
        tuning_round=tuning_round,
        suite=suite,
    )
    with act():
        campaign = Campaign.objects.create(
            purpose=purpose,
            pool=baseline.hardware.pool,
            part=part,
            brief_digest=brief_digest,
            plan=plan,
            plan_digest=digest_of(plan),
            budget_engine_minutes=budget_engine_minutes,
            max_reattempts=max_reattempts,
            requested_by=by,
        )
        rows_by_digest = {one.digest: store_configuration(one) for one in (baseline, *candidates.values())}
        for planned in boots:
            create_boot(campaign, planned, rows_by_digest[planned.configuration].pk)
        journal.record(
            "campaign-queued",
            subject=f"campaign {campaign.pk}",
            actor=by,
            purpose=purpose,
            brief=brief_digest,
            plan=campaign.plan_digest,
            boots=len(boots),
        )
        queue.request_boot(campaign.pool)
    return campaign


def create_boot(campaign: Campaign, planned: PlannedBoot, configuration: int) -> Boot:
    boot = Boot.objects.create(
        campaign=campaign,
        pool=campaign.pool,
        position=planned.position,
        pair=planned.pair,
        arm=planned.arm,
        candidate=planned.candidate,
        configuration_id=configuration,
    )
    for position, trial in enumerate(planned.trials):
        Trial.objects.create(
            boot=boot,
            position=position,
            level=trial.level,
            segment={"start": trial.segment.start, "rows": list(trial.segment.rows), "seed": trial.segment.seed},
            planned=len(trial.segment.rows),
        )
    if campaign.purpose == Campaign.Purpose.BEHAVIOUR:
        SuiteRun.objects.create(boot=boot)
    return boot
