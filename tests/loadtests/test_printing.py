"""What a command prints: all of it in UTF-8, or an exit status that says that it isn't there."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.exceptions import Exit

from config.cli import main
from decisions.commands import compare as comparing
from loadtests.commands.printing import print_result
from loadtests.traffic.rows import Row
from tests.support.bench import bench, written


@contextmanager
def full_output() -> Iterator[None]:
    with open("/dev/full", "w", encoding="utf-8") as nowhere, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", nowhere)
        yield


@pytest.fixture
def rows(tmp_path: Path, traffic_row: Callable[..., Row]) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(traffic_row("Why?", number, arrival_s=number).content + b"\n" for number in range(9)))
    return str(path)


def compile_(tmp_path: Path, rows: str) -> list[str]:
    setting = tmp_path / "setting.json"
    setting.write_text('{"method": "ngram", "num_speculative_tokens": 4}', encoding="utf-8")
    return ["compile", "--engine", "vllm", "--speculative", str(setting), "--max-num-seqs", "8"]


def import_(tmp_path: Path, rows: str) -> list[str]:
    return ["import", rows, "--out", str(tmp_path / "out")]


def import_evidence(tmp_path: Path, rows: str) -> list[str]:
    return ["import-evidence", str(written(tmp_path / "result.json", bench())), "--out", str(tmp_path / "out")]


def simulate(tmp_path: Path, rows: str) -> list[str]:
    level = {"name": "quiet", "arrival": {"process": "constant", "rate": 2}, "duration_s": 2}
    return ["simulate", "--traffic", rows, "--level", json.dumps(level), "--out", str(tmp_path / "out")]


def self_test(tmp_path: Path, rows: str) -> list[str]:
    return ["self-test", "--rate", "5", "--duration", "0.2"]


def compare(tmp_path: Path, rows: str) -> list[str]:
    return ["compare", "--brief", rows, "--baseline", str(tmp_path), "--candidate", str(tmp_path)]


def verify(tmp_path: Path, rows: str) -> list[str]:
    return ["verify", rows]


@pytest.mark.parametrize("command", [compile_, import_, import_evidence, simulate, self_test, compare, verify])
def test_every_command_says_that_its_result_could_not_be_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    rows: str,
    command: Callable[[Path, str], list[str]],
) -> None:
    monkeypatch.setattr(comparing, "judged", lambda *_: b'{"verdict":"FAIL"}')
    with full_output(), pytest.raises(SystemExit) as ended:
        main(command(tmp_path, rows), prog_name="draftproof")
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "Error: the result could not be printed on standard output (No space left on device)"
    assert ended.value.code == 7


def test_the_status_may_be_another_where_there_is_something_worse() -> None:
    with full_output(), pytest.raises(Exit) as ended:
        print_result("{}", otherwise=6)
    assert ended.value.exit_code == 6


def test_it_is_utf_8_whatever_the_terminal_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(told, encoding="ascii"))
    document = {"name": "naïve \udcff"}
    print_result(json.dumps(document, ensure_ascii=False))
    assert json.loads(told.getvalue()) == document
