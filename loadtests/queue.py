"""Work goes to the broker by task name, after the transaction that made it. A lost message is no loss: the
reconciler sends again what the database says is waiting."""

import logging

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


def request_boot(pool: str) -> None:
    transaction.on_commit(lambda: send_boot(pool))


def send_boot(pool: str) -> None:
    send("workers.run_next_boot", pool, queue=f"engine.{pool}", what=f"boots of pool {pool}")


def request_import() -> None:
    transaction.on_commit(send_import)


def send_import() -> None:
    """The next import that waits; a duplicate does no harm."""
    send("workers.run_import", queue="imports", what="the imports")


def send(task: str, *args: object, queue: str, what: str) -> None:
    try:
        current_app.send_task(task, args=list(args), queue=queue, expires=30)
    except (OperationalError, OSError) as error:
        logger.warning("the broker can't be reached (%s): the reconciler will send %s again", error, what)
