"""The tuning trials that have finished, as figures. Of tuning traffic alone: nothing held out is read here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from decisions.rules.brief import Brief
from decisions.rules.speed_up import NONE
from decisions.rules.trial_figures import TrialFigures, figures_of
from decisions.selectors.evidence import evidence_of_trial
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceStore
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.timeline import BadTimeline, read_timeline
from loadtests.models import Boot, Campaign, Trial
from loadtests.models.campaign import counted_boots
from loadtests.traffic.levels import Level
from loadtests.tuning.cost_model import MeasuredTrial, ObservedTrial, observe
from loadtests.tuning.economics import RoundEconomics, round_economics

# Far more trials than a race has; each is a few kilobytes.
MOST_KEPT = 4_096


@dataclass(frozen=True)
class TrialRead:
    """``observed``: None where too few requests tell the engine's own times."""

    figures: TrialFigures
    economics: RoundEconomics
    observed: ObservedTrial | None


@dataclass(frozen=True)
class TuningTrial:
    """``runner`` is the candidate's name, or NONE for no speculation; ``campaign`` its round, whose boots share their
    segments and are compared with the baseline boots among them."""

    boot: int
    campaign: int
    runner: str
    level: str
    read: TrialRead


@dataclass(frozen=True)
class Source:
    """One trial, with the digests of everything that its figures depend on."""

    trial: int
    brief: str
    level: str
    records: str
    manifest: str
    baseline_kv_tokens: int | None


# Evidence never changes under its digest: what was worked out from it holds for as long as the process lives.
kept: dict[Source, TrialRead] = {}


def tuning_trials(document: Brief, campaigns: Sequence[Campaign]) -> list[TuningTrial]:
    """Of the last finished attempt of every place, in the order in which they ran. Raises EvidenceMissing or
    EvidenceDamaged where a trial's records are not there as they were."""
    boots = {boot.pk: boot for boot in counted_boots(boot for one in campaigns for boot in one.boots.all())}
    sizes = baseline_kv_tokens(boots.values())
    found = Trial.objects.filter(boot__in=list(boots)).exclude(records_digest="").order_by("boot_id", "position")
    trials = list(found.only("boot_id", "level", "records_digest", "manifest_digest"))
    brief = document.digest
    sources = [
        Source(
            one.pk, brief, one.level, one.records_digest, one.manifest_digest, sizes.get(boots[one.boot_id].campaign_id)
        )
        for one in trials
    ]
    read_all(document, [one for one in sources if one not in kept])
    return [
        TuningTrial(boot.pk, boot.campaign_id, boot.candidate or NONE, one.level, kept[source])
        for one, source in zip(trials, sources, strict=True)
        for boot in [boots[one.boot_id]]
    ]


def baseline_kv_tokens(boots: Iterable[Boot]) -> dict[int, int]:
    """By campaign: the engine's own figure of the first baseline boot that told one."""
    sizes: dict[int, int] = {}
    for boot in boots:
        size = boot.facts.get("kv_cache_tokens")
        if not boot.candidate and size is not None:
            sizes.setdefault(boot.campaign_id, size)
    return sizes


def read_all(document: Brief, sources: Sequence[Source]) -> None:
    if len(kept) + len(sources) > MOST_KEPT:
        kept.clear()
    trials = (
        Trial.objects.filter(pk__in=[one.trial for one in sources])
        .select_related("boot__campaign", "boot__configuration")
        .defer("boot__log_tail")
        .in_bulk()
    )
    store = evidence_store()
    for one in sources:
        kept[one] = read_trial(document, trials[one.trial], one.baseline_kv_tokens, store)


def read_trial(document: Brief, trial: Trial, baseline_tokens: int | None, store: EvidenceStore) -> TrialRead:
    boot = trial.boot
    level = Level.model_validate(next(one for one in boot.campaign.plan["levels"] if one["name"] == trial.level))
    records = read_records(store.get(trial.records_digest))
    speculative = boot.configuration.document.speculative
    return TrialRead(
        figures_of(document, evidence_of_trial(boot, trial, store)),
        round_economics(
            records,
            speculative,
            counters=trial.counters,
            timeline=timeline_of(trial, store),
            warm_up_s=level.warm_up_s,
            window_s=level.duration_s,
            kv_tokens=boot.facts.get("kv_cache_tokens"),
            baseline_kv_tokens=baseline_tokens,
        ),
        observed(MeasuredTrial(str(boot.pk), trial.level, speculative, records)),
    )


def timeline_of(trial: Trial, store: EvidenceStore) -> pa.Table | None:
    """A trial without a timeline, or with one that can't be read, only lacks what it would tell."""
    digest = trial.summary.get("timeline")
    try:
        return read_timeline(store.get(digest)) if digest else None
    except (EvidenceMissing, EvidenceDamaged, BadTimeline):
        return None


def observed(trial: MeasuredTrial) -> ObservedTrial | None:
    try:
        return observe(trial)
    except ValueError:
        return None
