"""One at a time in an installation: whoever names files of the evidence store in the database, and whoever removes
files that nothing names. Else a file could go between the look whether it is there and the row that names it.

This is not the ledger's lock: it may be held while a store takes its time.
"""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

# Beside the ledger's own constant.
LOCK = 0x6472_6167
LOOK_S = 0.1


@contextmanager
def naming_lock(*, patience_s: float) -> Iterator[bool]:
    """Whether it could be had in time. Of a process or a connection that dies it is free again. Not to be taken twice
    by one process, nor within an act, which it may be held around."""
    yield from on_postgresql(patience_s) if connection.vendor == "postgresql" else beside_the_database(patience_s)


def on_postgresql(patience_s: float) -> Iterator[bool]:
    def asked(function: str) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {function}(%s)", [LOCK])
            return bool(cursor.fetchone()[0])

    mine = in_time(lambda: asked("pg_try_advisory_lock"), patience_s)
    try:
        yield mine
    finally:
        if mine:
            asked("pg_advisory_unlock")


def beside_the_database(patience_s: float) -> Iterator[bool]:
    """SQLite's file lies on one machine, and so does all that writes to it."""
    with Path(f"{Path(connection.settings_dict['NAME']).resolve()}-naming-lock").open("w") as handle:

        def asked() -> bool:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        # Closing the file lets it go.
        yield in_time(asked, patience_s)


def in_time(asked: Callable[[], bool], patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while not asked():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True
