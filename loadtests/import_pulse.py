"""An import's heartbeat: a thread that tells the database how far it is, and the import when to stop."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Any

from django.db import DatabaseError, connection

from loadtests.models import TrafficImport
from loadtests.services.beat_import import beat_import

logger = logging.getLogger(__name__)

EVERY_S = 1.0


class StopAsked(Exception):
    """Someone cancelled the import, or it was given up; the sentence says which."""


class ImportPulse:
    """Beats every second beside the import, so that a long step without news is no silence. ``tell`` only notes how
    far the import is, and raises StopAsked once it must end."""

    def __init__(self, wanted: TrafficImport, worker: str) -> None:
        self.wanted, self.worker = wanted, worker
        self._progress: dict[str, Any] = {}
        self._asked = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="import pulse", daemon=True)

    def __enter__(self) -> ImportPulse:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def tell(self, stage: str, done: int, of: int) -> None:
        self._progress = {"stage": stage, "done": done, "of": of}
        if self._asked:
            raise StopAsked(self._asked)

    def _run(self) -> None:
        try:
            while not self._done.wait(EVERY_S):
                self._beat()
        finally:
            connection.close()

    def _beat(self) -> None:
        try:
            self._asked = beat_import(wanted=self.wanted, worker=self.worker, progress=self._progress)
        except DatabaseError as error:
            # A database that is away for a moment costs beats, not the import; the reconciler decides when it is lost.
            logger.warning("import %s could not beat: %s", self.wanted.pk, error)
            connection.close()
