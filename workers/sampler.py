"""Takes the samples of a trial's timeline, every second of the trial's clock, from a thread of its own.

Nothing here may hold up the client that sends: reading the engine is waiting for a socket, and what is left of work is
one or two milliseconds a second. A reading that isn't there in time is a missing one.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

import psutil

from loadtests.evidence.timeline import Sample
from workers.accelerators import Accelerators
from workers.engines.base import RunningEngine
from workers.engines.metrics import timeline_values
from workers.engines.process_group import group_members
from workers.hardware import CpuTime, cpu_time

NANOSECONDS = 1_000_000_000
PERIOD_NS = NANOSECONDS
ANSWER_S = 0.8
# A clock that wakes us a moment early must not make us take the same second twice.
EARLY_NS = 50_000_000


class Machine:
    """The machine and, where it runs here, the engine: CPU since the reading before, memory now, accelerators."""

    def __init__(self, group: int | None, accelerators: Accelerators | None = None) -> None:
        # An engine starts no further process once it is ready, and looking through all of the machine's takes long.
        self.members = group_members(group) if group is not None else []
        self.accelerators = accelerators
        self._before = cpu_time(self.members)

    def read(self) -> dict[str, float]:
        now, memory = cpu_time(self.members), psutil.virtual_memory()
        values = cpu_shares(self._before, now) | {"host_memory_bytes": float(memory.total - memory.available)}
        self._before = now
        if now.own:
            values["engine_memory_bytes"] = float(sum(resident(one) for one in self.members))
        else:
            values.pop("engine_cpu", None)
        return values | (self.accelerators.read() if self.accelerators else {})


def cpu_shares(before: CpuTime, after: CpuTime) -> dict[str, float]:
    """Of all cores' time between two readings; nothing where too little passed for the kernel's clock ticks."""
    total = after.total - before.total
    if total < 0.1:
        return {}
    own = sum(spent - before.own.get(pid, spent) for pid, spent in after.own.items())
    shares = {"host_cpu": (after.busy - before.busy) / total, "engine_cpu": own / total}
    return {name: min(1.0, max(0.0, share)) for name, share in shares.items()}


def resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def read_now(engine: RunningEngine, machine: Machine) -> dict[str, float]:
    """By column of a timeline. What isn't told, or not in time, is left out."""
    values = machine.read()
    try:
        return values | timeline_values(engine.counters(ANSWER_S))
    except OSError:
        return values


class Sampler:
    """``with Sampler(read) as sampler: …``; the trial's clock is told by ``progress`` and, in the end, exactly."""

    def __init__(self, read: Callable[[], dict[str, float]]) -> None:
        self.read = read
        self.faults: list[str] = []
        self._taken: list[Sample] = []
        self._zero_ns = self._ended_ns = time.monotonic_ns()
        self._anchored = False
        self._wake = threading.Event()
        self._done = False
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended_ns = time.monotonic_ns()
        self._done = True
        self._wake.set()
        self._thread.join()

    def anchor(self, elapsed_s: float) -> None:
        """What the trial's clock shows now. Until the first time, the beginning of the trial is a guess."""
        if not self._anchored:
            self._zero_ns = time.monotonic_ns() - round(elapsed_s * NANOSECONDS)
            self._anchored = True
            self._wake.set()

    def _run(self) -> None:
        while not self._done:
            self._take()
            self._wake.wait(self._until_next_s())
            if not self._done:
                self._wake.clear()

    def _take(self) -> None:
        asked_ns = time.monotonic_ns()
        try:
            values = self.read()
        except Exception as error:
            # A timeline with a hole is worth more than no trial.
            self.faults[:] = [f"timeline: a sample could not be taken: {type(error).__name__}: {error}"]
            return
        self._taken.append(Sample(asked_ns, time.monotonic_ns(), values))

    def _until_next_s(self) -> float:
        left_ns = PERIOD_NS - (time.monotonic_ns() - self._zero_ns) % PERIOD_NS
        return (left_ns + PERIOD_NS if left_ns < EARLY_NS else left_ns) / NANOSECONDS

    def samples(self, started_at: int) -> tuple[list[Sample], int]:
        """The samples on the clock of a trial that began at ``started_at`` (ns since 1970), and when they ended."""
        zero_ns = time.monotonic_ns() - (time.time_ns() - started_at)
        moved = [replace(one, asked_ns=one.asked_ns - zero_ns, read_ns=one.read_ns - zero_ns) for one in self._taken]
        return moved, self._ended_ns - zero_ns
