"""Ctrl-C, a plain kill and a closed terminal: none of them may cost what was measured, however often it comes."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130


def asked() -> list[signal.Signals]:
    """Whoever started it with nohup wants it to go on."""
    return [one for one in HEARD if signal.getsignal(one) is not signal.SIG_IGN]


class Ending:
    """Ends the process in order, with the status of whoever was interrupted: for the time before there is anything to
    keep."""

    def __init__(self) -> None:
        self.heard = False

    def __call__(self, *_: object) -> NoReturn:
        self.heard = True
        raise SystemExit(INTERRUPTED)

    def begin(self) -> None:
        for one in asked():
            signal.signal(one, self)

    def check(self) -> None:
        """Libraries have places, as where they look for another one, that let no exception through."""
        if self.heard:
            self()


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    ending, before = Ending(), {one: signal.getsignal(one) for one in HEARD}
    try:
        yield ending
    finally:
        for one, handler in before.items():
            # Once one was heard, the others are ignored to the last moment.
            if signal.getsignal(one) is ending:
                signal.signal(one, signal.SIG_IGN if ending.heard else handler)


class Signals:
    """What was heard of them so far."""

    def __init__(self) -> None:
        self.heard = False
        self._tell: Callable[[], object] = lambda: None

    def hear(self, *_: object) -> None:
        self.heard = True
        # A loop that is closed has nothing left to stop.
        with suppress(RuntimeError):
            self._tell()

    def stop(self) -> asyncio.Event:
        """Of the running loop; set by the first of them, also where that came before."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._tell = lambda: loop.call_soon_threadsafe(stop.set)
        if self.heard:
            stop.set()
        return stop


@contextmanager
def heard_signals() -> Iterator[Signals]:
    """Within the block they end nothing by themselves: handlers of the loop would be gone with it, while there is still
    something to write. Once one was heard the process is about to end, and ignores the others to its last moment."""
    signals = Signals()
    before = {one: signal.signal(one, signals.hear) for one in asked()}
    try:
        for handler in before.values():
            if isinstance(handler, Ending):
                handler.check()
        yield signals
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_IGN if signals.heard else handler)
