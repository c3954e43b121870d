from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from loadtests.models import Boot, Campaign, SuiteRun, Trial


def beat(*, boot: Boot, trial: int | None, progress: Mapping[str, Any] | None) -> bool:
    """One heartbeat with the progress of the running trial, or of the suite where there is none. False when the boot
    must end: its campaign has, or the boot was given up. A boot that is still stopping its engine beats all the same,
    so that nobody takes its place meanwhile."""
    mine = Boot.objects.filter(pk=boot.pk, state=Boot.State.RUNNING, worker=boot.worker)
    if progress is not None and trial is not None:
        Trial.objects.filter(pk=trial, boot=boot, state=Trial.State.RUNNING).update(progress=dict(progress))
    elif progress is not None:
        SuiteRun.objects.filter(boot=boot, ended_at=None).update(progress=dict(progress))
    alive = bool(mine.update(heartbeat_at=timezone.now()))
    return alive and Campaign.objects.filter(pk=boot.campaign_id, state__in=Campaign.OPEN).exists()
