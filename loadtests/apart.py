"""A process of its own for what a file may do to the one that reads it. It must not outlive whoever waits for it."""

import ctypes
import math
import os
import resource
import signal
import sys

# Of prctl: the signal that a process gets when its parent dies (linux/prctl.h). The parent is the thread that started
# it, which here is always the one that waits for it.
PR_SET_PDEATHSIG = 1


class Orphaned(RuntimeError):
    """Whoever started this process has ended."""


def bound(*, parent: int, seconds: float, memory_bytes: int | None = None) -> None:
    """The kernel ends this process with its parent, and after so long: an expression that runs, or a library, would
    hear no thread, nor a handler of ours. ``memory_bytes`` of address space are all that it gets: beyond them an
    allocation raises MemoryError. Raises Orphaned where it is too late already, and ValueError for no time at all: the
    kernel takes an alarm in 0 s for none."""
    if not 0 < seconds < math.inf:
        raise ValueError(f"{seconds} s is no limit: say a number of seconds above 0")
    signal.alarm(math.ceil(seconds))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if memory_bytes is not None:
            limit_memory(memory_bytes)
    if os.getppid() != parent:
        raise Orphaned(f"process {parent}, which started this one, has ended")


def limit_memory(wanted_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = wanted_bytes if hard == resource.RLIM_INFINITY else min(wanted_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
