from collections.abc import Iterable
from typing import Any

from decisions.models import BriefCampaign, BriefRevision
from decisions.rules.brief import Brief, Suite
from decisions.rules.flagged import of_these
from decisions.rules.preflight import refused
from decisions.selectors.preflight import known_here
from decisions.selectors.service_cases import cases_named
from loadtests.behaviour.case import Case, Settings
from loadtests.behaviour.declared import declared_by
from loadtests.behaviour.own_cases import read_own_cases
from loadtests.behaviour.registry import suite_plan
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
    whichever is less. ``race``: the step of the race that asks for it. Raises ValueError with the sentence of the
    preflight that refuses one of its candidates."""
    document, named = revision.document, list(candidates)
    if revision.traffic_set is None:
        raise ValueError("the frozen brief has no traffic set")
    check_preflight(document, purpose, named)
    left = max(0.0, document.budget_engine_minutes - engine_minutes_used(revision))
    campaign = create_campaign(
        purpose=purpose,
        traffic_set=revision.traffic_set,
        brief_digest=revision.digest,
        baseline=document.baseline,
        candidates={name: document.configuration(name) for name in named},
        levels=document.levels,
        peak=document.peak,
        pairs=document.rule.noise_floor_pairs if purpose == "noise-floor" else document.rule.pairs,
        seed=document.rule.seed,
        deadlines={name: deadline.model_dump() for name, deadline in document.deadlines.items()},
        budget_engine_minutes=left if most_minutes is None else min(left, most_minutes),
        max_reattempts=document.rule.max_reattempts,
        max_client_lag_ms=document.rule.max_client_lag_ms,
        tuning_round=tuning_round,
        suite=suite_document(revision, named) if purpose == "behaviour" else None,
        by=ACTOR,
    )
    BriefCampaign.objects.create(revision=revision, campaign=campaign, race=race)
    return campaign


def check_preflight(document: Brief, purpose: Purpose, candidates: list[str]) -> None:
    """Again before each campaign: a checkpoint may have come to this machine since, or a rule. The noise floor is the
    first, and is not worth its time where a candidate can't run afterwards."""
    names = [one.name for one in document.all_candidates] if purpose == "noise-floor" else candidates
    for one in refused(of_these(document, names, known_here())):
        raise ValueError(f"the preflight refuses {one.of}: {one.sentence} ({one.link}): write a revision without it")


def suite_document(revision: BriefRevision, candidates: Iterable[str]) -> dict[str, Any]:
    """The plan of the preserved-behaviour suite as the frozen brief asks for it. Raises ValueError where the service's
    own cases that it names aren't there."""
    document = revision.document
    asked, (nominee,) = document.suite, candidates
    if asked is None:
        raise ValueError("no guardrail of the frozen brief rests on the suite")
    configuration = document.configuration(nominee)
    setting = configuration.speculative
    own = own_cases_of(revision, asked.cases)
    return suite_plan(
        only=[*asked.only, *(one.id for one in own)] if asked.only else (),
        own=own,
        settings=settings_of(asked),
        concurrency=asked.concurrency,
        alpha=asked.false_alarm,
        seed=document.rule.seed,
        declared=declared_by(
            setting.model_dump(mode="json", exclude_none=True) if setting else None,
            started_by_us=configuration.runtime.engine != "remote",
        ),
    ).document


def settings_of(asked: Suite) -> Settings:
    return Settings(
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        thorough=asked.thorough,
        uses=frozenset(asked.uses),
        tie_nats=asked.tie_nats,
    )


def own_cases_of(revision: BriefRevision, digest: str | None) -> list[Case]:
    if digest is None:
        return []
    service = revision.brief.route.service
    found = cases_named(service, digest)
    if found is None:
        raise ValueError(f"behaviour.cases: {service.slug} has no cases with the digest {digest}")
    return [one.case for one in read_own_cases(bytes(found.content), found.digest).cases]


def engine_minutes_used(revision: BriefRevision) -> float:
    campaigns = Campaign.objects.filter(brief_campaign__revision=revision).prefetch_related("boots")
    return sum(boot.engine_minutes for campaign in campaigns for boot in campaign.boots.all())
