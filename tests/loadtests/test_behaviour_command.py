"""``draftproof behaviour`` from end to end, against simulated servers in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from config.cli import main
from loadtests.behaviour.result import read_result
from loadtests.canonical import digest
from loadtests.commands.replay import held

DFLASH = '{"method": "dflash", "num_speculative_tokens": 4}'


class Started:
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def server(self, *more: str) -> str:
        command = [sys.executable, "-m", "loadtests.simulator.server", "--speed", "5000", *more]
        process = self._stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        self._stack.callback(process.kill)
        assert process.stdout is not None
        return str(json.loads(process.stdout.readline())["address"])


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        started = Started(stack)
        yield started.server(), started.server("--speculative", DFLASH)


def behaviour(baseline: str, candidate: str, out: Path, *more: str, env: dict[str, str] | None = None) -> Result:
    addresses = ["--baseline-url", baseline, "--candidate-url", candidate, "--model", "simulated", "--out", str(out)]
    return CliRunner().invoke(main, ["behaviour", *addresses, *more], env=env)


def only(*cases: str) -> list[str]:
    return [part for case in cases for part in ("--only", case)]


def test_a_candidate_that_answers_as_its_baseline_ends_with_zero(servers: tuple[str, str], tmp_path: Path) -> None:
    result = behaviour(*servers, tmp_path / "out", *only("json-schema", "stop-strings"), "--concurrency", "4")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["outcome"], told["counted"], told["broken"]) == ("held", 2, [])
    assert told["drafts"]["told_by"] == "counters"
    files = sorted(one.name for one in (tmp_path / "out").iterdir())
    assert files == ["baseline.jsonl", "candidate.jsonl", "result.json"]
    content = (tmp_path / "out" / "result.json").read_bytes()
    assert told["result_sha256"] == digest(content)
    kept = read_result(content)
    assert kept.asked["candidate"].answers_sha256 == digest((tmp_path / "out" / "candidate.jsonl").read_bytes())
    assert "candidate:" in result.stderr


def test_a_candidate_that_never_drafts_ends_with_four(servers: tuple[str, str], tmp_path: Path) -> None:
    result = behaviour(servers[0], servers[0], tmp_path / "out", *only("json-schema"))
    assert result.exit_code == 4, result.output
    assert json.loads(result.stdout)["outcome"] == "not_exercised"


def test_a_break_ends_with_one_and_is_named(servers: tuple[str, str], tmp_path: Path) -> None:
    result = behaviour(*servers, tmp_path / "out", *only("min-p", "regex"), "--uses", "min_p")
    assert result.exit_code == 1, result.output
    assert json.loads(result.stdout)["broken"] == ["min-p"]


def test_an_owners_cases_are_asked_too(servers: tuple[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    request = {"prompt": "Say a number.", "max_tokens": 9, "structured_outputs": {"regex": "[0-9]{4}"}}
    case = {"id": "number", "title": "A number", "request": request, "expect": {"regex": "[0-9]{4}"}}
    own.write_text(json.dumps({"schema": "draftproof.behaviour-cases/1", "cases": [case]}))
    # Four digits are too few for drafts of both kinds.
    result = behaviour(*servers, tmp_path / "out", "--cases", str(own), *only("number", "json-schema"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["cases"]["number"]["state"] == "held"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--only", "nothing"], "there is no case called nothing"),
        (["--temperature", "nan"], "no finite number"),
        (["--api-key-env", "NOT_SET"], "names NOT_SET, which is not set"),
        (["--ca-bundle", __file__, "--control-url", "https://127.0.0.1:9"], "CA bundle"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_asked(
    servers: tuple[str, str], tmp_path: Path, more: list[str], said: str
) -> None:
    result = behaviour(*servers, tmp_path / "out", *more)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_document_of_cases_that_cannot_be_used_is_said_with_its_line(
    servers: tuple[str, str], tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("schema: draftproof.behaviour-cases/1\ncases:\n  - id: UPPER\n")
    result = behaviour(*servers, tmp_path / "out", "--cases", str(own))
    assert result.exit_code == 2
    assert "own.yaml, line 3, cases.0.id" in result.stderr


def test_a_server_that_cannot_be_reached_leaves_no_directory(servers: tuple[str, str], tmp_path: Path) -> None:
    result = behaviour(servers[0], "http://127.0.0.1:9", tmp_path / "out", *only("regex"))
    assert result.exit_code == 3
    assert "http://127.0.0.1:9/v1 can't be reached" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_directory_with_evidence_is_never_written_over(servers: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "result.json").write_text("{}")
    result = behaviour(*servers, tmp_path / "out", *only("regex"))
    assert result.exit_code == 2
    assert "not empty" in result.stderr


def test_two_runs_never_share_a_directory(servers: tuple[str, str], tmp_path: Path) -> None:
    with held(tmp_path / "out"):
        result = behaviour(*servers, tmp_path / "out", *only("regex"))
    assert result.exit_code == 2
    assert "written to by another run" in result.stderr


def test_evidence_that_cannot_be_written_ends_with_six_and_the_summary_is_printed(
    servers: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes, mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("loadtests.commands.replay.write_durably", full)
    result = behaviour(*servers, tmp_path / "out", *only("regex"))
    assert result.exit_code == 6
    assert json.loads(result.stdout)["result_sha256"] is None
    assert "No space left" in result.stderr


def test_the_key_stands_nowhere(servers: tuple[str, str], tmp_path: Path) -> None:
    keys = ["--api-key-env", "THE_KEY"]
    result = behaviour(*servers, tmp_path / "out", *only("regex"), *keys, env={"THE_KEY": "sesame-open-123"})
    assert result.exit_code == 0, result.output
    kept = b"".join(one.read_bytes() for one in (tmp_path / "out").iterdir())
    assert b"sesame" not in kept + result.stdout_bytes + result.stderr_bytes
