from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from loadtests import journal
from loadtests.journal import act
from loadtests.models import Boot, SuiteRun


def start_suite(*, boot: Boot) -> None:
    waiting = SuiteRun.objects.filter(boot=boot, started_at=None, boot__state=Boot.State.RUNNING)
    waiting.update(started_at=timezone.now())


def finish_suite(
    *, boot: Boot, answers: str, findings: list[str], actor: str, progress: Mapping[str, Any] | None = None
) -> bool:
    """Stores the digest of what the suite was answered if the boot is still this worker's; a boot given up meanwhile
    takes nothing more."""
    told: dict[str, Any] = {"answers_digest": answers, "findings": findings}
    with act():
        # Touching the boot's row first holds it against a reconciler that is just giving it up.
        if not Boot.objects.filter(pk=boot.pk, state=Boot.State.RUNNING).update(heartbeat_at=timezone.now()):
            return False
        mine = SuiteRun.objects.filter(boot=boot, answers_digest="")
        moved = mine.update(ended_at=timezone.now(), progress=dict(progress or {}), **told)
        if moved:
            journal.record("suite-answered", subject=f"boot {boot.pk}", actor=actor, arm=boot.arm, **told)
    return bool(moved)
