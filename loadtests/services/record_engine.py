from typing import Any

from django.utils import timezone

from loadtests.models import Boot

# Where a boot's facts tell of the client, and not of the engine.
SELF_TEST = "self_test"


def record_self_test(*, boot: Boot, floor: dict[str, Any]) -> None:
    """Before there is an engine to tell of."""
    Boot.objects.filter(pk=boot.pk).update(facts={SELF_TEST: floor})
    boot.refresh_from_db()


def record_engine_group(*, boot: Boot, group: int | None, leader_started: float | None, server: str) -> None:
    """Written as soon as the process exists, so that an orphan can be found if this worker is killed. An engine that
    others run has no process of ours."""
    Boot.objects.filter(pk=boot.pk).update(
        engine_group=group, engine_leader_started=leader_started, server=server, started_at=timezone.now()
    )
    boot.refresh_from_db()


def record_engine_ready(*, boot: Boot, facts: dict[str, Any]) -> None:
    """An engine that others run is named by what it told, which is known only now."""
    server = facts.get("server_id", boot.server)
    facts = facts | {name: boot.facts[name] for name in (SELF_TEST,) if name in boot.facts}
    Boot.objects.filter(pk=boot.pk).update(facts=facts, server=server, ready_at=timezone.now())
    boot.refresh_from_db()
