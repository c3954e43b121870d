"""A boot's heartbeat: a thread that tells the database that the boot is alive, and the boot when to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection

from loadtests.models import Boot
from loadtests.services.beat import beat

logger = logging.getLogger(__name__)


class Pulse:
    """Beats every ``HEARTBEAT_S`` seconds. ``cut`` is set when the boot must end without a result: the worker is
    stopping, the campaign was cancelled, or the boot was given up because its beats did not arrive."""

    def __init__(self, boot: Boot, stopping: threading.Event) -> None:
        self.boot = boot
        self.stopping = stopping
        self.cut = threading.Event()
        self.reason = ""
        self.trial: int | None = None
        self.progress: dict[str, Any] | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def on_cut(self, callback: Callable[[], object]) -> None:
        self._callbacks = [callback]
        if self.cut.is_set():
            callback()

    def is_cut(self) -> bool:
        return self.cut.is_set()

    def _end(self, reason: str) -> None:
        if self.cut.is_set():
            return
        self.reason = reason
        self.cut.set()
        for callback in self._callbacks:
            callback()

    def _run(self) -> None:
        """Goes on after a cut as well: until its engine has stopped, the boot holds its accelerator."""
        try:
            while not self._done.is_set():
                self._beat()
                self._wait()
        finally:
            connection.close()

    def _beat(self) -> None:
        try:
            ours = beat(boot=self.boot, trial=self.trial, progress=self.progress)
        except DatabaseError as error:
            # A database that is away for a moment costs beats, not the boot; the reconciler decides when it is lost.
            logger.warning("boot %s could not beat: %s", self.boot.pk, error)
            connection.close()
            return
        if not ours:
            self._end("its campaign has ended or the boot was given up")

    def _wait(self) -> None:
        """Until the next beat, looking often whether the worker is stopping."""
        for _ in range(settings.HEARTBEAT_S * 4):
            if self.stopping.is_set():
                self._end("its worker was stopped")
            if self._done.wait(0.25):
                return
