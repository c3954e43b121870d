"""An import in a process of its own, and what watches it: whatever a file or an expression does in there, someone else
says how it is, and can end it."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

from django.conf import settings
from django.db import DatabaseError, connection

from loadtests import uploads
from loadtests.models import TrafficImport
from loadtests.services.beat_import import beat_import
from loadtests.services.put_back_import import put_back_import
from loadtests.services.remove_left_behind import remove_left_behind
from loadtests.services.retry_import import donor_upload
from loadtests.services.run_import import Ended, claim, end

logger = logging.getLogger(__name__)

State = TrafficImport.State
SAID_ITSELF = (State.DONE, State.REFUSED, State.CANCELLED)
TIDY_S = 5.0
BEAT_S = 1.0
START_AGAIN = "Nothing was written; start it again"


def watch_import(wanted: TrafficImport, worker: str, stopping: threading.Event) -> None:
    """Imports a queued file, unless another import runs or this one was taken."""
    if not claim(wanted, worker):
        return
    process = spawn(wanted, worker)
    try:
        reason = followed(process, Watch(wanted, worker, stopping))
    finally:
        kill_group(process)
        remove_left_behind()
    settle(wanted, worker, reason or died(process.returncode), stopped=stopping.is_set())


def spawn(wanted: TrafficImport, worker: str) -> subprocess.Popen[bytes]:
    manage = str(settings.BASE_DIR / "manage.py")
    command = [
        sys.executable,
        manage,
        "run_import",
        str(wanted.pk),
        "--worker",
        worker,
        "--watched-by",
        str(os.getpid()),
    ]
    # A session of its own, so that whatever it starts ends with it.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603


class Watch:
    """Beats for an import, and says when it must end and why."""

    def __init__(self, wanted: TrafficImport, worker: str, stopping: threading.Event) -> None:
        self.wanted, self.worker, self.stopping = wanted, worker, stopping
        self._began = self._moved = time.monotonic()
        self._progress: object = None

    def trouble(self) -> str:
        """Empty while the import may go on."""
        if self.stopping.is_set():
            return "its worker was stopped"
        try:
            asked = beat_import(wanted=self.wanted, worker=self.worker)
            state, progress = TrafficImport.objects.values_list("state", "progress").get(pk=self.wanted.pk)
        except DatabaseError as error:
            # A database that is away for a moment costs beats, not the import; the reconciler decides when it is lost.
            logger.warning("import %s could not beat: %s", self.wanted.pk, error)
            connection.close()
            return self.too_long()
        if (state, progress) != self._progress:
            self._progress, self._moved = (state, progress), time.monotonic()
        # It has said its end itself, and tidies up. A failed one may have been given up: nothing is left to do there.
        if state in SAID_ITSELF and time.monotonic() - self._moved < TIDY_S:
            return ""
        return asked or self.too_long()

    def too_long(self) -> str:
        now = time.monotonic()
        if now - self._moved > settings.IMPORT_SILENCE_S:
            return f"nothing moved for {in_words(settings.IMPORT_SILENCE_S)}{self.cause()}. {START_AGAIN}"
        if now - self._began > settings.IMPORT_LIMIT_S:
            return f"it took longer than {in_words(settings.IMPORT_LIMIT_S)}. Split the file, then start it again"
        return ""

    def cause(self) -> str:
        if not self.wanted.options["redactions"]:
            return ", and its process was ended"
        return (
            ": most likely one of the service's patterns of redaction backtracks without end on a row. Have its owner "
            "write that pattern without nested repetitions"
        )


def in_words(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:g} seconds"


def followed(process: subprocess.Popen[bytes], watch: Watch) -> str:
    """Until the process has ended, or must: then why."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(BEAT_S)
            return ""
        trouble = watch.trouble()
        if trouble:
            return trouble


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def died(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"its process was killed by {name}, as a machine does that is out of memory. {START_AGAIN}"
    return f"its process ended with {code}: its worker's log says more. {START_AGAIN}"


def settle(wanted: TrafficImport, worker: str, reason: str, *, stopped: bool) -> None:
    """What its own process could no longer say; an import that has ended is left as it is."""
    state, asked = TrafficImport.objects.values_list("state", "reason").get(pk=wanted.pk)
    if state in (State.DONE, State.CANCELLED):
        uploads.drop(wanted.upload, donor_upload(wanted.options))
        return
    if stopped and not asked:
        put_back_import(wanted=wanted, worker=worker)
        return
    if end(wanted, worker, Ended(State.CANCELLED, asked) if asked else Ended(State.FAILED, reason)):
        logger.warning("%s ended: %s", wanted, asked or reason)
