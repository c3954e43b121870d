"""Writes that must not be lost because the database was away for a moment."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connection

logger = logging.getLogger(__name__)

PATIENCE_S = 60.0
PAUSE_S = 2.0
T = TypeVar("T")


def insist(act: Callable[[], T]) -> T:
    """Does the act, again on a new connection where the old one broke; after a minute the error is the caller's.

    Only for acts that are one transaction and whose repetition does no harm.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() > until or connection.in_atomic_block:
                raise
            logger.warning("the database is away, trying again: %s", error)
            connection.close()
            time.sleep(PAUSE_S)
