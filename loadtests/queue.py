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
    try:
        current_app.send_task("workers.run_next_boot", args=[pool], queue=f"engine.{pool}", expires=30)
    except (OperationalError, OSError) as error:
        logger.warning("the broker can't be reached (%s): the reconciler will send boots of pool %s again", error, pool)


def request_import() -> None:
    transaction.on_commit(send_import)


def send_import() -> None:
    """The next import that waits; a duplicate does no harm."""
    try:
        current_app.send_task("workers.run_import", queue="imports", expires=30)
    except (OperationalError, OSError) as error:
        logger.warning("the broker can't be reached (%s): the reconciler will send the imports again", error)
