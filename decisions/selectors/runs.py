"""Boots and campaigns as pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Prefetch, QuerySet

from decisions.models import BriefRevision
from loadtests.evidence.records import STATUSES
from loadtests.models import Boot, Campaign, Trial

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


def boots() -> QuerySet[Boot]:
    trials = Trial.objects.only("pk", "boot_id", "position", "level", "state", "planned", "progress", "summary")
    return (
        Boot.objects.select_related("campaign__brief_campaign__revision__brief__route__service", "configuration")
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
            "campaign__part__set", "campaign__brief_campaign__revision__brief__route__service", "configuration"
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


def revision_of(boot: Boot) -> BriefRevision | None:
    link = getattr(boot.campaign, "brief_campaign", None)
    return link.revision if link else None
