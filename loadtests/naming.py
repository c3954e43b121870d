"""One at a time in an installation: whoever names files of the evidence store in the database, and whoever removes
files that nothing names. Else a file could go between the look whether it is there and the row that names it.

This is not the ledger's lock: it may be held while a store takes its time.

``loadtests`` doesn't know everybody who names files; ``decisions`` registers what it names when Django starts.
"""

import fcntl
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import OperationalError, connection

# Beside the ledger's own constant.
LOCK = 0x6472_6167
LOOK_S = 0.1
HELD = (
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted "
    "AND classid = 0 AND objid = %s)"
)

Named = Callable[[Collection[str]], Collection[str]]
_registered: list[Named] = []


def register(named: Named) -> None:
    """``named`` says which of some digests are named outside of traffic."""
    _registered[:] = [named]


def named_elsewhere(digests: Collection[str]) -> set[str]:
    return {one for named in _registered for one in named(digests)}


class NamingLockLost(OperationalError):
    """The session that held the lock has ended, and somebody else may have it."""


class Held:
    """The lock in hand. A file's own is lost with its process alone."""

    def check(self) -> None:
        """Raises NamingLockLost. Within an act that goes on, the lock lasts to its end: no act outlives its session."""


class HeldBySession(Held):
    def check(self) -> None:
        if not asked(HELD):
            raise NamingLockLost(
                "the lock on the names of files was lost with its database session, so nothing more is named or "
                "removed: start it again"
            )


@contextmanager
def naming_lock(*, patience_s: float) -> Iterator[Held | None]:
    """None where it could not be had in time. Of a process or a session that dies it is free again: ``check`` it before
    whatever rests on it. Not to be taken twice by one process, nor within an act, which it may be held around."""
    yield from on_postgresql(patience_s) if connection.vendor == "postgresql" else beside_the_database(patience_s)


def on_postgresql(patience_s: float) -> Iterator[Held | None]:
    if not in_time(lambda: asked("SELECT pg_try_advisory_lock(%s)"), patience_s):
        yield None
        return
    try:
        yield HeldBySession()
    finally:
        asked("SELECT pg_advisory_unlock(%s)")


def asked(question: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(question, [LOCK])
        return bool(cursor.fetchone()[0])


def beside_the_database(patience_s: float) -> Iterator[Held | None]:
    """SQLite's file lies on one machine, and so does all that writes to it."""
    with Path(f"{Path(connection.settings_dict['NAME']).resolve()}-naming-lock").open("w") as handle:

        def taken() -> bool:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        # Closing the file lets it go.
        yield Held() if in_time(taken, patience_s) else None


def in_time(taken: Callable[[], bool], patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while not taken():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True
