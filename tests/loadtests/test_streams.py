"""A command that was started with closed or full standard files, or is told to end before it has begun."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from loadtests.evidence.manifest import document_of
from loadtests.traffic.rows import Row

ROOT = Path(__file__).parents[2]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def traffic(tmp_path: Path, traffic_row: Callable[..., Row]) -> Path:
    path = tmp_path / "traffic.jsonl"
    rows = [traffic_row("plain-answer", number, arrival_s=number / 50) for number in range(3)]
    path.write_bytes(b"".join(row.content + b"\n" for row in rows))
    return path


def command(traffic: Path, base_url: str, out: Path, *more: str) -> list[str]:
    asked = ["--traffic", str(traffic), "--base-url", base_url, "--out", str(out), "--model", "other"]
    return [sys.executable, "-m", "config.cli", "replay", *asked, *more]


def in_a_shell(redirected: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", f'"$@" {redirected}', "bash", *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("redirected", "status", "more"),
    [
        ("0<&-", 0, []),
        ("2>&-", 0, []),
        ("2>&-", 0, ["--processes", "2"]),
        ("2>/dev/full", 0, []),
        (">&- 2>&-", 7, []),
        ("0<&- >&-", 7, []),
        ("0<&- >&- 2>&-", 7, ["--processes", "2"]),
        (">/dev/full 2>/dev/full", 7, []),
    ],
)
def test_evidence_is_kept_whatever_is_closed_or_full(
    server_process: Any, traffic: Path, tmp_path: Path, redirected: str, status: int, more: list[str]
) -> None:
    """A warning is due as well: the server has no model of that name."""
    ran = in_a_shell(redirected, command(traffic, server_process.base_url, tmp_path / "out", *more))
    assert ran.returncode == status, ran.stderr
    assert (ran.stdout != "") == (status == 0)
    manifest = document_of((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["statuses"]["completed"] == 3
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "plan.json",
        "records.parquet",
    ]


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", "0<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("base_url", "more", "status"),
    [("nowhere", [], 2), ("http://127.0.0.1:1", [], 3), ("http://h", ["--no-such-option"], 2)],
)
def test_a_refusal_that_nobody_reads_has_its_status(
    traffic: Path, tmp_path: Path, redirected: str, base_url: str, more: list[str], status: int
) -> None:
    ran = in_a_shell(redirected, command(traffic, base_url, tmp_path / "out", *more))
    assert (ran.returncode, (tmp_path / "out").exists()) == (status, False)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["replay", "--help"]])
@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
def test_help_that_can_not_be_printed_has_the_status_of_a_result(words: list[str], unbuffered: list[str]) -> None:
    ran = in_a_shell(">/dev/full", [sys.executable, *unbuffered, "-m", "config.cli", *words])
    told = "Error: the help could not be printed on standard output (No space left on device)\n"
    assert (ran.returncode, ran.stderr) == (7, told)
    assert in_a_shell(">/dev/null", [sys.executable, "-m", "config.cli", *words]).returncode == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_who_is_stopped_while_the_file_is_read_was_interrupted(
    traffic: Path, tmp_path: Path, number: signal.Signals
) -> None:
    waiting = tmp_path / "waiting.jsonl"
    os.mkfifo(waiting)
    process = subprocess.Popen(command(waiting, "http://127.0.0.1:1", tmp_path / "out"), stderr=subprocess.PIPE)
    # Opens once the command has opened it, and then waits for a row.
    with waiting.open("wb"):
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("swallowed", [False, True])
def test_who_is_stopped_while_the_program_is_read_was_interrupted(
    traffic: Path, tmp_path: Path, number: signal.Signals, swallowed: bool
) -> None:
    """Also where a library that is just being read lets no exception through."""
    stopped = tmp_path / "stopped.py"
    stopped.write_text(
        "import atexit, os, time\n"
        "from config import cli\n"
        # Somebody is impatient: it comes again while the interpreter ends.
        f"atexit.register(lambda: (os.kill(os.getpid(), {number.value}), time.sleep(0.1)))\n"
        "from importlib import import_module\n"
        "def read(name):\n"
        "    try:\n"
        f"        os.kill(os.getpid(), {number.value})\n"
        "        time.sleep(60)\n"
        "    except BaseException:\n"
        f"        if not {swallowed}:\n"
        "            raise\n"
        "    return import_module(name)\n"
        "cli.import_module = read\n"
        "cli.main()\n"
    )
    _, _, _, *asked = command(traffic, "http://127.0.0.1:1", tmp_path / "out")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, str(stopped), *asked], env=environment, capture_output=True, timeout=50)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


@pytest.mark.parametrize("number", SIGNALS)
async def test_client_processes_that_are_still_being_read_are_not_lost(
    server_process: Any, traffic: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The signal reaches the whole group, as a terminal sends it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, sys, time\n"
        'if "loadtests.generator.part" in sys.orig_argv:\n'
        f"    pathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        "    time.sleep(2)\n"
    )
    process = await asyncio.create_subprocess_exec(
        *command(traffic, server_process.base_url, tmp_path / "out", "--processes", "2"),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        start_new_session=True,
    )
    async with asyncio.timeout(60):
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        os.killpg(process.pid, number)
        stdout, _ = await process.communicate()
    assert process.returncode == 130
    assert json.loads(stdout)["stopped"]
    assert document_of((tmp_path / "out" / "manifest.json").read_bytes())["stopped"]
