"""The Celery tasks: run the next boot of a pool or the next import, and put right what broke."""

import logging
import os
import platform
import threading
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down

from loadtests import queue
from loadtests.models import Boot
from loadtests.services.claim_boot import claim_boot, pools_with_work
from loadtests.services.give_up_boot import lose_silent_boots, orphans
from loadtests.services.lose_silent_imports import lose_silent_imports
from loadtests.services.remove_old_uploads import remove_old_uploads
from loadtests.services.run_import import next_import
from loadtests.services.sweep_evidence import sweep_evidence
from workers.boots import run_boot
from workers.engines.base import end_process_group
from workers.imports import watch_import
from workers.left_behind import keep_left_behind

logger = logging.getLogger(__name__)

stopping = threading.Event()


@worker_shutting_down.connect
def stop_boots(**_: Any) -> None:
    """A worker that is stopped stops its engine or its import and gives it back, instead of holding everyone up."""
    stopping.set()


def worker_name() -> str:
    return f"{platform.node()}:{os.getpid()}"


@shared_task(name="workers.run_next_boot")
def run_next_boot(pool: str) -> None:
    """Runs the pool's next boot, if there is one and nothing else runs there; duplicates of this task do no harm."""
    if stopping.is_set():
        return
    # Before anything is claimed: an accelerator that an old engine still holds is not free.
    end_orphans(pool, platform.node())
    keep_left_behind(platform.node())
    boot = claim_boot(pool=pool, worker=worker_name(), host=platform.node())
    if boot is None:
        return
    logger.info("%s claimed: campaign %s, pair %s, %s", boot, boot.campaign_id, boot.pair, boot.configuration)
    run_boot(boot, stopping)


def end_orphans(pool: str, host: str) -> None:
    """Ends what given-up boots of this host left running: by their recorded process group, never by name."""
    for orphan in orphans().filter(pool=pool, host=host):
        if end_process_group(orphan.engine_group or 0, orphan.engine_leader_started or 0.0):
            logger.warning("the engine of %s was still running and was ended", orphan)
        Boot.objects.filter(pk=orphan.pk).update(engine_group=None)


@shared_task(name="workers.run_import")
def run_import() -> None:
    """Imports the traffic file that has waited longest, if there is one and no other import runs."""
    wanted = None if stopping.is_set() else next_import()
    if wanted is not None:
        watch_import(wanted, worker_name(), stopping)


@shared_task(name="workers.sweep")
def sweep() -> None:
    sweep_evidence()


@shared_task(name="workers.reconcile")
def reconcile() -> None:
    """The database says what should run: lost boots are tried again, and what waits is sent again."""
    for boot in lose_silent_boots():
        logger.warning("%s was lost: %s", boot, boot.reason)
    for pool in pools_with_work() | set(orphans().values_list("pool", flat=True)):
        queue.send_boot(pool)
    for wanted in lose_silent_imports():
        logger.warning("%s ended: %s", wanted, wanted.reason)
    remove_old_uploads()
    if next_import() is not None:
        queue.send_import()
