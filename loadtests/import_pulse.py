"""What an import says of itself while it goes, and what it hears: how far it is, and when to stop."""

import logging
import time
from typing import Any

from django.db import DatabaseError, connection

from loadtests.models import TrafficImport
from loadtests.services.beat_import import beat_import

logger = logging.getLogger(__name__)

EVERY_S = 1.0


class StopAsked(Exception):
    """Someone cancelled the import, or it was given up; the sentence says which."""


class ImportPulse:
    """``tell`` writes down how far the import is, once a second and at each new stage, and raises StopAsked once it
    must end. It is heard from the import itself: an import that hangs says nothing, and is watched from outside."""

    def __init__(self, wanted: TrafficImport, worker: str) -> None:
        self.wanted, self.worker = wanted, worker
        self._stage, self._next = "", 0.0

    def tell(self, stage: str, done: int, of: int) -> None:
        now = time.monotonic()
        if stage == self._stage and now < self._next:
            return
        self._stage, self._next = stage, now + EVERY_S
        asked = self._beat({"stage": stage, "done": done, "of": of})
        if asked:
            raise StopAsked(asked)

    def _beat(self, progress: dict[str, Any]) -> str:
        try:
            return beat_import(wanted=self.wanted, worker=self.worker, progress=progress)
        except DatabaseError as error:
            # A database that is away for a moment costs news, not the import.
            logger.warning("import %s could not say how far it is: %s", self.wanted.pk, error)
            connection.close()
            return ""
