"""The evidence of a revision, as the rules take it."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import cast

from django.db.models import Q

from decisions.models import BriefRevision
from decisions.rules.evidence import COLUMNS, Purpose, TrialEvidence, columns_of, window_and_warm_up
from decisions.selectors.behaviour import behaviour_of
from decisions.selectors.looks import decided_look
from loadtests.evidence.ahead import Source, need, source
from loadtests.evidence.records import read_records
from loadtests.generator.exchange import client_faults
from loadtests.models import Boot, Campaign, Trial
from loadtests.models.campaign import counted_boots
from loadtests.traffic.levels import Level
from loadtests.traffic.rows import NANOSECONDS

GENERATION_TOKENS = "vllm:generation_tokens_total"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
PREEMPTIONS = "vllm:num_preemptions_total"


def evidence_of(
    revision: BriefRevision, *, purposes: Iterable[str] = Campaign.Purpose.values, pairs: int | None = None
) -> list[TrialEvidence]:
    """One entry per trial of the boots that are judged."""
    judged = judged_boots(revision, purposes=purposes, pairs=pairs)
    return evidence_of_trials([(boot, trial) for boot in judged for trial in boot.trials.all()])


def evidence_digests(revision: BriefRevision, *, pairs: int | None = None) -> list[str]:
    """The manifest digests of the trials the verdict rests on, and that of what the preserved-behaviour suite found; a
    manifest names records, plan and log in turn, and the suite's result the answers."""
    boots = judged_boots(revision, pairs=pairs)
    suite = behaviour_of(revision) if pairs is None else None
    found = [suite.evidence] if suite else []
    return sorted([*found, *(trial.manifest_digest for boot in boots for trial in boot.trials.all())])


def evidence_named(revision: BriefRevision, manifests: Collection[str]) -> list[TrialEvidence]:
    """One entry per trial of the revision that has one of these manifests, whatever became of its boot since. Raises
    ValueError where a manifest has none."""
    trials = Trial.objects.filter(
        boot__campaign__brief_campaign__revision=revision, manifest_digest__in=manifests
    ).select_related("boot__campaign", "boot__configuration")
    found = [(one.boot, one) for one in trials]
    if gone := set(manifests) - {one.manifest_digest for _, one in found}:
        raise ValueError(f"{revision} has no trial of the manifests {', '.join(sorted(gone))}")
    return evidence_of_trials(found)


def evidence_of_trials(trials: Sequence[tuple[Boot, Trial]]) -> list[TrialEvidence]:
    need(trial.records_digest for _, trial in trials)
    store = source()
    return [evidence_of_trial(boot, trial, store) for boot, trial in trials]


def judged_boots(
    revision: BriefRevision, *, purposes: Iterable[str] = Campaign.Purpose.values, pairs: int | None = None
) -> list[Boot]:
    """The last finished attempt of every place in the revision's finished campaigns. ``pairs``: as a look after so many
    held-out pairs sees them, be it that their campaign still runs; left out, it is the look that decided, if one did:
    what else was measured until its campaign stopped belongs to no look."""
    decided = decided_look(revision)
    seen = pairs if pairs is not None else decided.pairs if decided else None
    done = Q(campaign__state=Campaign.State.DONE)
    # A round of the race that was stopped half-way keeps what its boots have told.
    stopped = Q(campaign__state=Campaign.State.STOPPED, campaign__purpose=Campaign.Purpose.TUNING)
    done |= stopped & Q(campaign__brief_campaign__race__isnull=False)
    if pairs is not None:
        done |= Q(campaign__state__in=Campaign.OPEN, campaign__purpose=Campaign.Purpose.HELD_OUT)
    boots = (
        Boot.objects.filter(done, campaign__brief_campaign__revision=revision, campaign__purpose__in=list(purposes))
        .select_related("campaign", "configuration")
        .prefetch_related("trials")
    )
    return [one for one in counted_boots(boots) if seen is None or belongs(one, seen)]


def belongs(boot: Boot, pairs: int) -> bool:
    return boot.campaign.purpose != Campaign.Purpose.HELD_OUT or (boot.pair is not None and boot.pair < pairs)


def evidence_of_trial(boot: Boot, trial: Trial, store: Source) -> TrialEvidence:
    level = Level.model_validate(next(one for one in boot.campaign.plan["levels"] if one["name"] == trial.level))
    columns, warm_up_columns = window_and_warm_up(columns_of(read_records(store.get(trial.records_digest), COLUMNS)))
    counters = trial.counters
    warm_up = trial.summary.get("warm_up", {})
    return TrialEvidence(
        trial=str(trial.pk),
        boot=str(boot.pk),
        server=boot.server,
        purpose=cast(Purpose, boot.campaign.purpose),
        # The boots of a round of the race share its traffic, as those of a pair do theirs.
        pair=boot.campaign.plan.get("round", boot.pair),
        arm=boot.arm,
        candidate=boot.candidate or None,
        level=trial.level,
        evidence_class=trial.summary["evidence_class"],
        configuration=boot.configuration.digest,
        planned=trial.planned - len(warm_up_columns["row"]),
        window_s=level.duration_s,
        columns=columns,
        engine_tokens=whole(counters.get(GENERATION_TOKENS)),
        prefix_queries=whole(counters.get(PREFIX_QUERIES)),
        prefix_hits=whole(counters.get(PREFIX_HITS)),
        kv_cache_tokens=boot.facts.get("kv_cache_tokens"),
        boot_started_ns=nanoseconds(boot.started_at or boot.claimed_at),
        boot_stopped_ns=nanoseconds(boot.stopped_at),
        neighbour_cpu_share=trial.summary.get("neighbour_cpu_share"),
        warm_up_planned=warm_up.get("planned", 0),
        warm_up_completed=warm_up.get("completed", 0),
        died=boot.died,
        window_start_ns=round(level.warm_up_s * NANOSECONDS),
        warm_up_columns=warm_up_columns,
        preemptions=whole(counters.get(PREEMPTIONS)),
        client_faults=tuple(client_faults(trial.findings)),
    )


def whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def nanoseconds(at: datetime | None) -> int:
    return 0 if at is None else round(at.timestamp() * 1_000_000) * 1_000
