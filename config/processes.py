"""The processes of an installation on one machine: web, and the workers for control, imports, messages and engines."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# A worker that stops also stops its engine: it needs longer than a web server.
STOP_S = 45


# A process that ends is started again; one that keeps ending has something wrong with it.
MOST_RESTARTS = 5


@dataclass
class Started:
    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes]
    log: Path
    restarts: int = 0


class ProcessEnded(RuntimeError):
    """A process that should be running is not."""


def commands(port: int, pool: str) -> dict[str, list[str]]:
    celery = [sys.executable, "-m", "celery", "-A", "config", "worker", "--loglevel", "INFO"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    web = ["config.wsgi", "--bind", f"127.0.0.1:{port}", "--workers", "1", "--threads", "4", "--no-control-socket"]
    return {
        "web": [sys.executable, "-m", "gunicorn", *web],
        "control": [*celery, *quiet, "-B", "-Q", "control", "-c", "1", "-n", "control@%h"],
        # Beside what puts things right, never before it.
        "imports": [*celery, *quiet, "-Q", "imports", "-c", "1", "--pool", "solo", "-n", "imports@%h"],
        # A receiver that doesn't answer keeps nothing else waiting.
        "messages": [*celery, *quiet, "-Q", "messages", "-c", "1", "--pool", "solo", "-n", "messages@%h"],
        "engine": [*celery, *quiet, "-Q", f"engine.{pool}", "-c", "1", "--pool", "solo", "-n", f"engine-{pool}@%h"],
    }


def free_port(wanted: int) -> int:
    """The wanted port, or the next free one above it."""
    for port in range(wanted, wanted + 50):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ProcessEnded(f"no free port from {wanted} to {wanted + 49}: say another one with --port")


def start(name: str, command: Sequence[str], logs: Path) -> Started:
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{name}.log"
    return Started(name, command, spawn(command, log), log)


def spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as sink:
        # A session of its own: Ctrl-C reaches us alone, and we stop the others in order.
        return subprocess.Popen(command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603


def revive(started: Sequence[Started]) -> list[str]:
    """Starts again what has ended and says so; raises ProcessEnded for a process that won't stay."""
    said = []
    for one in started:
        code = one.process.poll()
        if code is None:
            continue
        if one.restarts >= MOST_RESTARTS:
            tail = "\n".join(one.log.read_text(errors="replace").splitlines()[-15:])
            raise ProcessEnded(f"the {one.name} process keeps ending (now with {code}); its log says:\n{tail}")
        one.restarts += 1
        one.process = spawn(one.command, one.log)
        said.append(f"The {one.name} process ended with {code} and was started again.")
    return said


def stop(started: Sequence[Started]) -> None:
    """Asks every process to stop, waits, and then ends what is left of its group."""
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            one.process.terminate()
    until = time.monotonic() + STOP_S
    for one in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.1, until - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def running(started: list[Started]) -> Iterator[list[Started]]:
    """Whatever happens in the block, everything that was started is stopped. A plain kill and a closed terminal count
    as Ctrl-C."""
    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield started
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        stop(started[::-1])
