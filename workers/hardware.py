"""What this machine is, and how much of it others use."""

import os
import platform
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

import psutil

from loadtests.evidence.manifest import processor
from workers.engines.process_group import group_members

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


@dataclass(frozen=True)
class HardwareFacts:
    cpu_model: str
    cores: int
    memory_bytes: int
    accelerators: tuple[str, ...]
    driver: str | None
    system: str
    kernel: str

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self) | {"accelerators": list(self.accelerators)}


def probe() -> HardwareFacts:
    accelerators, driver = parse_nvidia_smi(nvidia_smi())
    return HardwareFacts(
        cpu_model=processor(),
        # The cores this worker may use, which a container or taskset may have cut.
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        accelerators=accelerators,
        driver=driver,
        system=system_name(),
        kernel=platform.release(),
    )


def nvidia_smi() -> str:
    """One line per accelerator: name, driver version; nothing where the tool is missing or finds none."""
    try:
        asked = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, timeout=20)  # noqa: S603 - fixed words
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout if asked.returncode == 0 else ""


def parse_nvidia_smi(text: str) -> tuple[tuple[str, ...], str | None]:
    rows = [[cell.strip() for cell in line.rsplit(",", 1)] for line in text.splitlines() if "," in line]
    return tuple(name for name, _ in rows), rows[0][1] if rows else None


def system_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds since the machine started: all there were, those spent on work, and our own processes' share."""

    total: float
    busy: float
    own: dict[int, float]


def cpu_time(own: Iterable[psutil.Process]) -> CpuTime:
    times = psutil.cpu_times()
    idle = times.idle + times.iowait
    # user already holds guest, and nice holds guest_nice.
    worked = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return CpuTime(total=worked + idle, busy=worked, own=dict(filter(None, map(own_time, own))))


def own_time(process: psutil.Process) -> tuple[int, float] | None:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return None
    # Helpers that a process had and has seen end are its own as well, such as generators that send for it.
    return process.pid, times.user + times.system + times.children_user + times.children_system


def neighbour_share(before: CpuTime, after: CpuTime) -> float:
    """Share (0–1) of the machine's CPU time that went to others; time the hypervisor took away counts as theirs."""
    total = after.total - before.total
    if total <= 0:
        return 0.0
    own = sum(spent - before.own.get(pid, 0.0) for pid, spent in after.own.items())
    return min(1.0, max(0.0, (after.busy - before.busy - own) / total))


class NeighbourLoad:
    """``with NeighbourLoad(group) as load: …`` measures what neither the engine's group nor this process used. Without
    a group, of an engine elsewhere, nobody here can tell."""

    def __init__(self, group: int | None) -> None:
        self.group = group
        self.share: float | None = None
        self._before: CpuTime | None = None

    def _now(self) -> CpuTime:
        return cpu_time([*group_members(self.group or 0), psutil.Process()])

    def __enter__(self) -> Self:
        self._before = None if self.group is None else self._now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            self.share = neighbour_share(self._before, self._now())


def neighbour_load(group: int, interval_s: float) -> float:
    """Share (0–1) of the CPU that processes outside the group and this one use during the interval."""
    with NeighbourLoad(group) as load:
        time.sleep(interval_s)
    return load.share or 0.0
