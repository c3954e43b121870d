"""Boots and campaigns as pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Prefetch, QuerySet

from decisions.models import BriefRevision
from loadtests.evidence.records import STATUSES
from loadtests.models import Boot, Campaign, SuiteRun, Trial

DECIDED = ("approved", "rejected", "changes-requested")
QUEUE_SHOWN, LOST_SHOWN, RECENT_SHOWN = 30, 20, 20


@dataclass(frozen=True)
class TrialRow:
    """A trial's counts, never its latencies."""

    trial: Trial
    planned: int
    sent: int
    ended: int
    statuses: list[tuple[str, int]]
    elapsed_s: float | None

    @property
    def over(self) -> bool:
        return self.trial.state in (Trial.State.FINISHED, Trial.State.CUT_OFF)


@dataclass(frozen=True)
class SuiteRow:
    """How far the preserved-behaviour suite is with one server, in case runs: each is a case in one manner."""

    run: SuiteRun
    done: int
    planned: int
    last: str

    @property
    def over(self) -> bool:
        return self.run.ended_at is not None


def suite_row(run: SuiteRun) -> SuiteRow:
    progress: dict[str, Any] = run.progress or {}
    planned = progress.get("planned", 0)
    # The last beat may have come before the last case run.
    done = planned if run.answers_digest else progress.get("done", 0)
    return SuiteRow(run, done, planned, progress.get("last", ""))


def suite_of(boot: Boot) -> SuiteRow | None:
    """None for a boot that has trials instead."""
    run = getattr(boot, "suite_run", None) if boot.campaign.purpose == Campaign.Purpose.BEHAVIOUR else None
    return suite_row(run) if run else None


def boots() -> QuerySet[Boot]:
    trials = Trial.objects.only("pk", "boot_id", "position", "level", "state", "planned", "progress", "summary")
    return (
        Boot.objects.select_related(
            "campaign__brief_campaign__revision__brief__route__service", "configuration", "suite_run"
        )
        .defer(
            "log_tail",
            "campaign__plan",
            "configuration__content",
            "campaign__brief_campaign__revision__source",
            "campaign__brief_campaign__revision__content",
        )
        .prefetch_related(Prefetch("trials", queryset=trials))
    )


def running_boots() -> QuerySet[Boot]:
    return boots().filter(state=Boot.State.RUNNING).order_by("pool")


def queued_boots() -> QuerySet[Boot]:
    waiting = boots().filter(state=Boot.State.WAITING, campaign__state__in=Campaign.OPEN)
    return waiting.order_by("campaign_id", "position", "attempt")[:QUEUE_SHOWN]


def lost_boots() -> QuerySet[Boot]:
    return boots().filter(state__in=[Boot.State.LOST, Boot.State.VOID]).order_by("-pk")[:LOST_SHOWN]


def recent_boots() -> QuerySet[Boot]:
    return boots().filter(state=Boot.State.FINISHED).order_by("-stopped_at")[:RECENT_SHOWN]


def boot_for_page() -> QuerySet[Boot]:
    return (
        Boot.objects.select_related(
            "campaign__part__set",
            "campaign__brief_campaign__revision__brief__route__service",
            "configuration",
            "suite_run",
        )
        .defer("campaign__plan", "campaign__brief_campaign__revision__source")
        .prefetch_related("trials")
    )


def siblings_of(boot: Boot) -> list[Boot]:
    """The other attempts of this place, and the other arm of its pair."""
    mine = boot.campaign.boots.filter(position=boot.position)
    if boot.pair is not None:
        mine = boot.campaign.boots.filter(pair=boot.pair)
    return list(mine.exclude(pk=boot.pk).order_by("attempt", "position").defer("log_tail", "facts"))


def trial_rows(boot: Boot) -> list[TrialRow]:
    return [trial_row(trial) for trial in boot.trials.all()]


def trial_row(trial: Trial) -> TrialRow:
    progress: dict[str, Any] = trial.progress or {}
    counts: dict[str, int] = trial.summary.get("statuses") or progress.get("ended") or {}
    # While it runs everything that is sent counts; afterwards the window alone, without the level's warm-up.
    planned = trial.summary.get("planned") or trial.planned or progress.get("planned", 0)
    return TrialRow(
        trial,
        planned,
        progress.get("sent", sum(counts.values())),
        sum(counts.values()),
        [(status, counts[status]) for status in STATUSES if counts.get(status)],
        progress.get("elapsed_s"),
    )


def is_sealed(boot: Boot, revision: BriefRevision | None) -> bool:
    """Held-out trials show no latency before their verdict exists."""
    if boot.campaign.purpose != Campaign.Purpose.HELD_OUT:
        return False
    return revision is None or not revision.verdicts.exists()


def may_download(trial: Trial, revision: BriefRevision | None) -> bool:
    """Records of measured trials of a brief that has been decided on."""
    measured = trial.summary.get("evidence_class", "measured") == "measured"
    return bool(trial.records_digest) and measured and revision is not None and revision.state in DECIDED


def may_download_answers(boot: Boot, revision: BriefRevision | None) -> bool:
    """As records: of a measured boot of a brief that has been decided on. What of them is personal stays with whoever
    may read text."""
    suite = suite_of(boot)
    if suite is None or revision is None:
        return False
    measured = boot.configuration.document.runtime.evidence_class == "measured"
    return bool(suite.run.answers_digest) and measured and revision.state in DECIDED


def asks_own_cases(revision: BriefRevision) -> bool:
    """Whether the suite asks the service's own cases, whose texts are personal data."""
    suite = revision.document.suite
    return suite is not None and suite.cases is not None


def revision_of(boot: Boot) -> BriefRevision | None:
    link = getattr(boot.campaign, "brief_campaign", None)
    return link.revision if link else None
