"""What the next step of a brief's race is computed from, beside its trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils import timezone

from decisions.models import BriefCampaign, BriefRevision
from decisions.rules.brief import Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.foresight import Foresight, SeenTrial, foresee
from decisions.rules.race import State, rules_of, runner
from decisions.selectors.evidence import evidence_of_trial, judged_boots
from decisions.selectors.progress import ASSUMED_OVERHEAD_S, planned_boots, window_s
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.timeline import read_timeline
from loadtests.models import Boot, Campaign, Trial
from loadtests.tuning.race import Amount

EXPLORED = (Campaign.Purpose.NOISE_FLOOR, Campaign.Purpose.TUNING)
# A boot takes some time even where nobody waits for it.
SHORTEST_BOOT_MINUTES = 0.01


def raced_campaigns(revision: BriefRevision) -> list[BriefCampaign]:
    """The rounds so far, each with the step that planned it, in their order."""
    found = BriefCampaign.objects.filter(revision=revision, campaign__purpose=Campaign.Purpose.TUNING)
    return list(found.select_related("campaign").prefetch_related("campaign__boots").order_by("pk"))


@dataclass(frozen=True, eq=False)
class RaceSoFar:
    """Everything that the next step of a race is computed from: the boots that count, their trials as the rules take
    them, and what is expected of the candidates."""

    boots: frozenset[int]
    trials: list[TrialEvidence]
    foresight: Foresight


def race_so_far(revision: BriefRevision) -> RaceSoFar | None:
    """None where no step of a race is due. Reads every record: call it outside of any act."""
    if not is_due(revision):
        return None
    boots = judged_boots(revision, purposes=EXPLORED)
    store = evidence_store()
    trials = [evidence_of_trial(boot, trial, store) for boot in boots for trial in boot.trials.all()]
    seen = [seen_trial(boot, trial, store) for boot in boots for trial in boot.trials.all()]
    document = revision.document
    foresight = foresee(document, seen, candidates_in_the_race(document, raced_campaigns(revision)))
    return RaceSoFar(frozenset(boot.pk for boot in boots), trials, foresight)


def is_due(revision: BriefRevision) -> bool:
    """After the noise floor, between two rounds and after the last."""
    if revision.state != "measuring" or revision.halted or revision.nomination is not None:
        return False
    states = Campaign.objects.filter(brief_campaign__revision=revision, purpose__in=EXPLORED).values_list("state")
    return revision.document.races and bool(states) and not {state for (state,) in states} & set(Campaign.OPEN)


def seen_trial(boot: Boot, trial: Trial, store: EvidenceStore) -> SeenTrial:
    timeline = trial.summary.get("timeline")
    return SeenTrial(
        boot=str(boot.pk),
        candidate=boot.candidate or None,
        round=boot.campaign.plan.get("round"),
        level=trial.level,
        records=read_records(store.get(trial.records_digest)),
        timeline=read_timeline(store.get(timeline)) if timeline else None,
        kv_tokens=boot.facts.get("kv_cache_tokens"),
    )


def candidates_in_the_race(document: Brief, rounds: Sequence[BriefCampaign]) -> list[str]:
    """Those of the brief, then what was proposed in the rounds so far."""
    stored = [one["name"] for race in rounds for one in (race.race or {}).get("state", {}).get("runners", [])]
    return list(dict.fromkeys([*(one.name for one in document.all_candidates), *stored]))


def race_state(revision: BriefRevision, rounds: Sequence[BriefCampaign], seen: RaceSoFar) -> State:
    document = revision.document
    minutes = boot_minutes(revision, document)
    rules = rules_of(document, seen.trials, budget_of(revision, document, minutes), minutes)
    names = [*candidates_in_the_race(document, rounds), *seen.foresight.proposed]
    runners = tuple(runner(document.candidate(name), seen.foresight.batches) for name in names)
    return State(rules, runners, spent_on(rounds), seen.foresight.predictions)


def boot_minutes(revision: BriefRevision, document: Brief) -> float:
    """What a boot of all levels took, on the average of those that have finished."""
    boots = Boot.objects.filter(
        campaign__brief_campaign__revision=revision,
        campaign__purpose__in=EXPLORED,
        state=Boot.State.FINISHED,
        died=False,
    )
    took = [boot.engine_minutes for boot in boots]
    if not took:
        return (window_s("tuning", document) + ASSUMED_OVERHEAD_S) / 60
    return max(SHORTEST_BOOT_MINUTES, sum(took) / len(took))


def budget_of(revision: BriefRevision, document: Brief, minutes: float) -> Amount:
    """What the whole race may use. Where the brief sets no engine minutes for it, what the held-out, behaviour and
    fallback boots will take is left to them."""
    asked = document.race
    engine_minutes = asked.engine_minutes
    if engine_minutes is None:
        others = Boot.objects.filter(campaign__brief_campaign__revision=revision).exclude(
            campaign__purpose=Campaign.Purpose.TUNING
        )
        set_aside = (2 * document.rule.pairs + 1) * minutes + suite_minutes(document)
        used = sum(boot.engine_minutes for boot in others)
        engine_minutes = max(0.0, document.budget_engine_minutes - used - set_aside)
    return Amount(engine_minutes, asked.boots, math.inf if asked.wall_minutes is None else asked.wall_minutes)


def suite_minutes(document: Brief) -> float:
    boots = planned_boots("behaviour", document) if document.suite else 0
    return boots * (window_s("behaviour", document) + ASSUMED_OVERHEAD_S) / 60


def spent_on(rounds: Sequence[BriefCampaign]) -> Amount:
    """Every attempt counts, also those that were cut off."""
    boots = [boot for one in rounds for boot in one.campaign.boots.all() if boot.claimed_at is not None]
    wall = (timezone.now() - rounds[0].campaign.created_at).total_seconds() / 60 if rounds else 0.0
    return Amount(sum(boot.engine_minutes for boot in boots), len(boots), wall)
