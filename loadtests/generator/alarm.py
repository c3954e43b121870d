"""Waking at a moment. The event loop's own timers are whole milliseconds; Linux has one of nanoseconds for it."""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

NANOSECONDS = 1_000_000_000
# Without such a timer: timers fire late rather than early, so sleep to just before, then spin.
SPIN_NS = 1_000_000
CLOCK_MONOTONIC = 1
ABSOLUTE = 1


class Alarm:
    """``at`` waits for one moment at a time, told in nanoseconds of the monotonic clock."""

    async def at(self, moment_ns: int) -> None:
        while (left_ns := moment_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(max(0, left_ns - SPIN_NS) / NANOSECONDS)


class TimerFile(Alarm):
    """``timerfd_create(2)``; the standard library has it from Python 3.13 on."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._rung: asyncio.Future[None] | None = None
        asyncio.get_running_loop().add_reader(self._file, self._ring)

    async def at(self, moment_ns: int) -> None:
        if moment_ns <= time.monotonic_ns():
            return
        self._rung = asyncio.get_running_loop().create_future()
        self._set(moment_ns)
        await self._rung

    def _set(self, moment_ns: int) -> None:
        # struct itimerspec: interval, then the moment, each in seconds and nanoseconds.
        wanted = (ctypes.c_long * 4)(0, 0, *divmod(moment_ns, NANOSECONDS))
        self._libc.timerfd_settime(self._file, ABSOLUTE, wanted, None)

    def _ring(self) -> None:
        os.read(self._file, 8)
        if self._rung is not None and not self._rung.done():
            self._rung.set_result(None)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)


@contextmanager
def alarm() -> Iterator[Alarm]:
    """An alarm of the running loop."""
    if not sys.platform.startswith("linux"):
        yield Alarm()
        return
    timer = TimerFile()
    try:
        yield timer
    finally:
        timer.close()
