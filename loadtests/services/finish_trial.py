from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from loadtests import journal
from loadtests.journal import act
from loadtests.models import Boot, Trial


@dataclass(frozen=True)
class TrialResult:
    summary: dict[str, Any]
    progress: dict[str, Any]
    counters: dict[str, float]
    findings: list[str]
    plan_digest: str
    records_digest: str
    manifest_digest: str


def start_trial(*, trial: Trial) -> None:
    waiting = Trial.objects.filter(pk=trial.pk, state=Trial.State.WAITING, boot__state=Boot.State.RUNNING)
    waiting.update(state=Trial.State.RUNNING, started_at=timezone.now())
    trial.refresh_from_db()


def finish_trial(*, trial: Trial, result: TrialResult, actor: str) -> bool:
    """Stores a trial's end if its boot is still this worker's; a boot given up meanwhile takes nothing more."""
    with act():
        # Touching the boot's row first holds it against a reconciler that is just giving it up.
        if not Boot.objects.filter(pk=trial.boot_id, state=Boot.State.RUNNING).update(heartbeat_at=timezone.now()):
            return False
        moved = Trial.objects.filter(pk=trial.pk, state=Trial.State.RUNNING).update(
            state=Trial.State.FINISHED, ended_at=timezone.now(), **vars(result)
        )
        if moved:
            record("trial-finished", trial, result, actor)
    return bool(moved)


def keep_cut_trial(*, trial: Trial, result: TrialResult, actor: str) -> bool:
    """Stores what a trial gave before it was cut off, also where its boot has been given up meanwhile. The trial is and
    stays cut off, so that no verdict rests on it."""
    with act():
        kept = Trial.objects.filter(
            pk=trial.pk, state__in=[Trial.State.RUNNING, Trial.State.CUT_OFF], manifest_digest=""
        ).update(state=Trial.State.CUT_OFF, ended_at=timezone.now(), **vars(result))
        if kept:
            record("trial-cut-off", trial, result, actor)
    return bool(kept)


def record(kind: str, trial: Trial, result: TrialResult, actor: str) -> None:
    journal.record(
        kind,
        subject=f"trial {trial.pk}",
        actor=actor,
        boot=trial.boot_id,
        level=trial.level,
        records=result.records_digest,
        manifest=result.manifest_digest,
        plan=result.plan_digest,
    )
