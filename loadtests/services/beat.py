from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from loadtests.models import Boot, Campaign, Trial


def beat(*, boot: Boot, trial: int | None, progress: Mapping[str, Any] | None) -> bool:
    """One heartbeat with the running trial's progress. False when the boot is no longer the worker's to run."""
    alive = Boot.objects.filter(
        pk=boot.pk, state=Boot.State.RUNNING, worker=boot.worker, campaign__state__in=Campaign.OPEN
    )
    if trial is not None and progress is not None:
        Trial.objects.filter(pk=trial, boot=boot, state=Trial.State.RUNNING).update(progress=dict(progress))
    return bool(alive.update(heartbeat_at=timezone.now()))
