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
            journal.record(
                "trial-finished",
                subject=f"trial {trial.pk}",
                actor=actor,
                boot=trial.boot_id,
                level=trial.level,
                records=result.records_digest,
                manifest=result.manifest_digest,
                plan=result.plan_digest,
            )
    return bool(moved)
