from typing import Any

from django.utils import timezone

from loadtests.models import Boot


def record_engine_group(*, boot: Boot, group: int, leader_started: float, server: str) -> None:
    """Written as soon as the process exists, so that an orphan can be found if this worker is killed."""
    Boot.objects.filter(pk=boot.pk).update(
        engine_group=group, engine_leader_started=leader_started, server=server, started_at=timezone.now()
    )
    boot.refresh_from_db()


def record_engine_ready(*, boot: Boot, facts: dict[str, Any]) -> None:
    Boot.objects.filter(pk=boot.pk).update(facts=facts, ready_at=timezone.now())
    boot.refresh_from_db()
