"""The demo's processes: whatever happens, what was started is stopped, and what ends is started again."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import psutil
import pytest

from config import processes

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
ENDER = [sys.executable, "-c", "print('no database'); raise SystemExit(3)"]


def interrupted(started: list[processes.Started], logs: Path) -> None:
    with processes.running(started):
        started.append(processes.start("two", SLEEPER, logs))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)


def test_an_interrupt_stops_everything(tmp_path: Path) -> None:
    started = [processes.start("one", SLEEPER, tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        interrupted(started, tmp_path)
    assert len(started) == 2
    assert not any(psutil.pid_exists(one.process.pid) for one in started)


def test_a_process_that_ended_is_started_again(tmp_path: Path) -> None:
    with processes.running([processes.start("worker", SLEEPER, tmp_path)]) as started:
        assert processes.revive(started) == []
        first = started[0].process.pid
        os.kill(first, signal.SIGKILL)
        started[0].process.wait()
        assert processes.revive(started) == ["The worker process ended with -9 and was started again."]
        assert started[0].process.pid != first
        assert started[0].process.poll() is None


def test_a_process_that_keeps_ending_is_given_up_with_its_log(tmp_path: Path) -> None:
    with processes.running([processes.start("worker", ENDER, tmp_path)]) as started:
        for _ in range(processes.MOST_RESTARTS):
            started[0].process.wait()
            processes.revive(started)
        started[0].process.wait()
        with pytest.raises(processes.ProcessEnded, match="keeps ending") as ended:
            processes.revive(started)
    assert "no database" in str(ended.value)


def test_a_taken_port_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert processes.free_port(port) > port
