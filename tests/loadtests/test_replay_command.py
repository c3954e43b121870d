"""``draftproof replay`` from end to end, against a server in another process."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from click.types import FloatParamType, IntParamType

from config.cli import main
from loadtests.canonical import digest
from loadtests.commands.numbers import Number
from loadtests.commands.replay import held, window_of, with_lateness
from loadtests.commands.replay import replay as replay_command
from loadtests.commands.rerun import is_outline
from loadtests.evidence.manifest import document_of
from loadtests.evidence.plans import BadPlan
from loadtests.evidence.plans import document_of as document_of_plan
from loadtests.evidence.records import read_records
from loadtests.evidence.store import write_durably
from loadtests.generator import TrialRun
from loadtests.traffic.levels import Arrival, Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.rows import Row

Rows = Callable[..., Row]


@pytest.fixture
def traffic(tmp_path: Path, traffic_row: Rows) -> Callable[..., Path]:
    def write(texts: Sequence[str], *, gap_s: float = 0.05, start_s: float = 100.0, at_s: Sequence[float] = ()) -> Path:
        path = tmp_path / "traffic.jsonl"
        times_s = at_s or [start_s + gap_s * number for number in range(len(texts))]
        rows = [traffic_row(text, number, arrival_s=times_s[number]) for number, text in enumerate(texts)]
        path.write_bytes(b"".join(row.content + b"\n" for row in rows))
        return path

    return write


def replay(traffic: Path, base_url: str, out: Path, *more: str, env: dict[str, str] | None = None) -> Result:
    arguments = ["replay", "--traffic", str(traffic), "--base-url", base_url, "--model", "hostile", "--out", str(out)]
    return CliRunner().invoke(main, [*arguments, "--drain", "2", *more], env=env)


def test_a_replay_leaves_plan_records_and_manifest(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path
) -> None:
    path = traffic(["plain-answer", "error-400-inside-200", "reset-mid-stream", "never-answers"])
    deadlines = ["--first-token-deadline", "5", "--completion-deadline", "5"]
    result = replay(path, server_process.base_url, tmp_path / "out", *deadlines)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    statuses = {"completed": 1, "failed": 1, "timed_out": 1, "cancelled": 0, "refused": 1, "not_sent": 0}
    assert summary["statuses"] == statuses
    assert summary["planned"] == 4
    assert summary["within_deadline"]["attainment"] == 0.25
    assert "type 7" in summary["percentiles"]

    out = tmp_path / "out"
    assert sorted(one.name for one in out.iterdir()) == ["manifest.json", "plan.json", "records.parquet"]
    records = read_records(out / "records.parquet")
    assert records["status"].to_pylist() == ["completed", "refused", "failed", "timed_out"]
    assert records["planned_ns"].to_pylist() == [0, 50_000_000, 100_000_000, 150_000_000]
    manifest = document_of((out / "manifest.json").read_bytes())
    assert manifest["digests"]["records"] == digest((out / "records.parquet").read_bytes())
    assert manifest["digests"]["plan"] == digest((out / "plan.json").read_bytes())
    assert manifest["statuses"] == statuses
    asked = {"api": "chat", "stream": True, "token_ids": False}
    assert manifest["engine"] == {"models": ["hostile"], "asked": asked}
    assert manifest["level"]["deadlines"] == {"default": {"first_token_s": 5.0, "completion_s": 5.0}}
    assert summary["manifest_sha256"] == digest((out / "manifest.json").read_bytes())


def test_the_same_seed_plans_the_same(server_process: Any, traffic: Callable[..., Path], tmp_path: Path) -> None:
    path = traffic(["plain-answer"] * 12)
    poisson = ["--arrival", "poisson", "--rate", "40", "--seed"]
    plans = []
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        result = replay(path, server_process.base_url, tmp_path / name, *poisson, seed)
        assert json.loads(result.stdout)["statuses"]["completed"] == 12
        plans.append((tmp_path / name / "plan.json").read_bytes())
    assert plans[0] == plans[1]
    assert plans[1] != plans[2]


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        (["--arrival", "constant", "--rate", "20"], 4),
        (["--arrival", "gamma", "--rate", "20", "--cv", "3"], 4),
        (["--arrival", "constant", "--rate", "20", "--duration", "0.1"], 2),
        (["--time-scale", "0.5"], 4),
        (["--duration", "0.12"], 3),
        (["--arrival", "on-off", "--rate", "40", "--on", "0.2", "--off", "0.1"], 4),
    ],
)
def test_without_a_duration_every_row_leaves_once(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path, options: list[str], planned: int
) -> None:
    result = replay(traffic(["plain-answer"] * 4), server_process.base_url, tmp_path / "out", *options)
    assert json.loads(result.stdout)["planned"] == planned


def test_a_server_that_cannot_be_reached_is_said_before_anything_is_sent(
    traffic: Callable[..., Path], tmp_path: Path
) -> None:
    result = replay(traffic(["plain-answer"]), "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 3
    assert "nothing could be sent: http://127.0.0.1:1/v1 can't be reached" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_that_the_server_lacks_is_warned_of(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path
) -> None:
    result = replay(traffic(["plain-answer"]), server_process.base_url, tmp_path / "out", "--model", "other")
    assert result.exit_code == 0
    assert "warning: other is not among the server's models: hostile" in result.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--arrival", "poisson"], "a poisson process needs a rate in requests per second"),
        (["--rate", "3"], "--rate alone says nothing: a replay keeps the recorded times"),
        (["--arrival", "constant", "--rate", "1", "--cv", "2"], "cv belongs to a gamma process"),
        (["--duration", "0"], "Invalid value for '--duration': 0.0 is not in the range 0<x<=86400."),
        (["--model", ""], "--model is empty: give the name under which the server knows the model"),
        (["--model", " \t"], "--model is empty"),
        (["--arrival", "constant", "--rate", "100", "--duration", "5"], "needs 500 requests and has 2"),
        (["--completion-deadline", "3"], "give both --first-token-deadline and --completion-deadline"),
        (["--api-key-env", "NOT_SET_ANYWHERE"], "--api-key-env names NOT_SET_ANYWHERE, which is not set"),
        (["--arrival", "on-off", "--rate", "1"], "an on-off process needs on_s, the seconds that a burst lasts"),
        (["--arrival", "ramp", "--rate", "1", "--rate-to", "2"], "give --duration: it says how steep the ramp is"),
        (["--rate-off", "1"], "rate_off belongs to an on-off process, not to replay: leave it out"),
        (["--warm-up", "7"], "--warm-up 7 takes the whole file: shorten it, or give --duration"),
        (["--max-concurrency", "0"], "Invalid value for '--max-concurrency': 0 is not in the range 1<=x<=100000."),
        (["--patience", "half"], "--patience half: give SHARE:SECONDS or SHARE:SECONDS:exponential, such as 0.2:10"),
        (["--patience", "2:5"], "(share: Input should be less than or equal to 1)"),
        (["--patience", "0.2:5:long"], "(spread: Input should be 'constant' or 'exponential')"),
        (["--patience", "0.2:500"], "patience.after_s: after 500 s nobody can give up"),
        (["--no-stream", "--first-token-deadline", "1", "--completion-deadline", "2"], "tells no first token"),
        (["--processes", "2", "--max-concurrency", "3"], "--max-concurrency needs one client process"),
        (["--patience", "0.2:nan"], "--patience 0.2:nan: give SHARE:SECONDS"),
        (["--ca-bundle", __file__], "http://127.0.0.1:1/v1 is asked without TLS, so nothing would be checked against"),
        (["--base-url", "http://127.0.0.1:99999"], "a port from 1 to 65535"),
        (["--processes", "2", "--think-time", "3"], "--think-time needs one client process"),
        (["--format", "azure"], "traffic.jsonl"),
        (["--base-url", "nowhere"], "the base URL must start with http:// or https://"),
        (["--base-url", "http://user:pw@h"], "the base URL must carry no user name, password"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_reason(
    traffic: Callable[..., Path], tmp_path: Path, options: list[str], sentence: str
) -> None:
    result = replay(traffic(["plain-answer"] * 2), "http://127.0.0.1:1", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert sentence in result.stderr


NUMBERS = ["--rate", "--cv", "--on", "--off", "--rate-off", "--rate-to", "--time-scale", "--warm-up", "--duration"]
NUMBERS += ["--drain", "--first-token-deadline", "--completion-deadline", "--think-time"]
WHOLE_NUMBERS = ["--seed", "--max-concurrency", "--processes"]


@pytest.mark.parametrize("option", [*NUMBERS, *WHOLE_NUMBERS])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1"])
def test_a_number_that_is_none_is_refused_under_its_own_name(
    traffic: Callable[..., Path], tmp_path: Path, option: str, value: str
) -> None:
    result = replay(traffic(["plain-answer"] * 2), "http://127.0.0.1:1", tmp_path / "out", option, value)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': " in result.stderr
    assert not (tmp_path / "out").exists()


def test_every_option_that_takes_a_number_is_among_them() -> None:
    found = {one.opts[0] for one in replay_command.params if isinstance(one.type, FloatParamType | IntParamType)}
    assert found == {*NUMBERS, *WHOLE_NUMBERS}
    own = {type(one.type) for one in replay_command.params if one.opts[0] in NUMBERS}
    assert own == {Number}


def test_a_file_without_times_is_not_sent_all_at_once(traffic: Callable[..., Path], tmp_path: Path) -> None:
    path = traffic(["plain-answer"] * 3, gap_s=0)
    result = replay(path, "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 2
    assert "the file has no times to replay: give an arrival process with --arrival and --rate" in result.stderr


def test_a_bad_row_is_named(traffic: Callable[..., Path], tmp_path: Path) -> None:
    path = traffic(["plain-answer"] * 2)
    path.write_text(path.read_text(encoding="utf-8") + '{"id": "x"}\n', encoding="utf-8")
    result = replay(path, "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 2
    assert "traffic.jsonl, line 3, field conversation: Field required" in result.stderr
    path.write_text("\n", encoding="utf-8")
    assert "traffic.jsonl: the file is empty" in replay(path, "http://127.0.0.1:1", tmp_path / "out").stderr


def test_evidence_is_never_written_over(traffic: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("{}", encoding="utf-8")
    result = replay(traffic(["plain-answer"]), "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 2
    assert "not empty: evidence is never written over" in result.stderr


def test_the_key_reaches_no_file(server_process: Any, traffic: Callable[..., Path], tmp_path: Path) -> None:
    options = ["--api-key-env", "SERVER_KEY"]
    result = replay(
        traffic(["plain-answer"]), server_process.base_url, tmp_path / "out", *options, env={"SERVER_KEY": "sesame"}
    )
    assert result.exit_code == 0
    assert "sesame" not in result.output
    assert not any(b"sesame" in one.read_bytes() for one in (tmp_path / "out").iterdir())


def test_a_level_with_everything(server_process: Any, traffic: Callable[..., Path], tmp_path: Path) -> None:
    path = traffic([*["http-500-json"] * 10, *["slow-answer"] * 10, *["never-answers"] * 10])
    level = ["--warm-up", "0.5", "--duration", "1", "--max-concurrency", "8", "--patience", "1:4"]
    result = replay(path, server_process.base_url, tmp_path / "out", *level, "--drain", "30")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["planned"], summary["window_s"], summary["warm_up_requests"]) == (20, 1.0, 10)
    assert (summary["statuses"]["completed"], summary["statuses"]["cancelled"]) == (10, 10)
    assert summary["gave_up_as_planned"] == 10
    manifest = document_of((tmp_path / "out" / "manifest.json").read_bytes())
    assert (manifest["planned"], manifest["statuses"]) == (20, summary["statuses"])
    assert manifest["warm_up_requests"] == 10
    assert manifest["level"]["patience"] == {"share": 1.0, "after_s": 4.0, "spread": "constant"}
    records = read_records(tmp_path / "out" / "records.parquet")
    assert records["warm_up"].to_pylist() == [True] * 10 + [False] * 20
    plan = json.loads((tmp_path / "out" / "plan.json").read_bytes())
    assert (plan["schema"], plan["max_concurrency"]) == ("draftproof.plan/2", 8)
    assert [one[4] for one in plan["requests"]] == records["give_up_ns"].to_pylist()


def test_a_server_that_completes_nothing_is_an_exit_status_of_its_own(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path
) -> None:
    result = replay(traffic(["http-400-json"] * 3), server_process.base_url, tmp_path / "out")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["statuses"]["refused"] == 3
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "plan.json",
        "records.parquet",
    ]


def test_what_completes_while_warming_up_is_no_result(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path
) -> None:
    path = traffic(["plain-answer", "http-400-json"], gap_s=0.5)
    result = replay(path, server_process.base_url, tmp_path / "out", "--warm-up", "0.4", "--duration", "1")
    assert (result.exit_code, json.loads(result.stdout)["planned"]) == (4, 1)


def foreign(name: str, number: int) -> dict[str, Any]:
    if name == "sharegpt":
        turns = [{"from": "human", "value": "plain-answer"}, {"from": "gpt", "value": "x"}]
        return {"id": f"c{number}", "conversations": turns}
    if name == "vllm-custom":
        return {"prompt": "plain-answer", "output_tokens": 8}
    body = {"messages": [{"role": "user", "content": "plain-answer"}], "max_tokens": 8}
    return {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


@pytest.mark.parametrize("name", ["sharegpt", "vllm-custom", "openai-batch"])
@pytest.mark.parametrize("rows", [1, 3])
def test_any_file_that_can_be_imported_can_be_replayed(
    server_process: Any, tmp_path: Path, name: str, rows: int
) -> None:
    path = tmp_path / "foreign.jsonl"
    lines = [json.dumps(foreign(name, number)) for number in range(rows)]
    path.write_text("\n".join([*lines, "{}", ""]), encoding="utf-8")
    timeless = replay(path, server_process.base_url, tmp_path / "out")
    assert timeless.exit_code == 2
    assert "the file has no times to replay: give an arrival process with --arrival and --rate" in timeless.stderr
    result = replay(path, server_process.base_url, tmp_path / "out", "--arrival", "constant", "--rate", "20")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["planned"], summary["statuses"]["completed"]) == (rows, rows)
    assert sum(summary["skipped_rows"].values()) == 1
    assert "warning: 1 rows of foreign.jsonl can't be used: " in result.stderr


def test_columns_of_other_names_are_for_the_import_to_name(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"question": "Why?"}\n', encoding="utf-8")
    result = replay(path, "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 2
    assert "its fields are 'question'; import it with draftproof import, where --map says" in result.stderr
    assert "say with --map" not in result.stderr


def test_a_trace_of_lengths_cannot_be_sent(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,10,20\n", encoding="utf-8")
    result = replay(path, "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 2
    assert "holds lengths and no text: import it with --donor, and replay its rows.jsonl" in result.stderr


@pytest.mark.parametrize(
    "options", [["--api", "completions"], ["--no-stream"], ["--api", "completions", "--no-stream"]]
)
def test_other_ways_to_ask(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path, options: list[str]
) -> None:
    result = replay(traffic(["as-asked"] * 2), server_process.base_url, tmp_path / "out", *options)
    assert json.loads(result.stdout)["statuses"]["completed"] == 2
    assert json.loads(result.stdout)["verified_output_tokens"] == 4
    records = read_records(tmp_path / "out" / "records.parquet")
    assert (records["first_token_ns"].null_count == 2) == ("--no-stream" in options)
    asked = document_of((tmp_path / "out" / "manifest.json").read_bytes())["engine"]["asked"]
    assert asked == {
        "api": "completions" if "completions" in options else "chat",
        "stream": "--no-stream" not in options,
        "token_ids": False,
    }


def test_a_chat_is_no_completion(tmp_path: Path, traffic_row: Rows) -> None:
    row = traffic_row("plain-answer", 0)
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(row.model_copy(update={"messages": row.messages * 2}).content + b"\n")
    result = replay(path, "http://127.0.0.1:1", tmp_path / "out", "--api", "completions")
    assert result.exit_code == 2
    assert "row row-0 is a chat, and a completion takes one prompt" in result.stderr


def test_several_processes_leave_the_same_evidence(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path
) -> None:
    path = traffic(["plain-answer", "http-400-json", "reset-mid-stream"] * 4, gap_s=0.02)
    for name, more in (("one", []), ("three", ["--processes", "3"])):
        result = replay(path, server_process.base_url, tmp_path / name, *more)
        assert json.loads(result.stdout)["statuses"] == {
            "completed": 4,
            "failed": 4,
            "timed_out": 0,
            "cancelled": 0,
            "refused": 4,
            "not_sent": 0,
        }
    one, three = (read_records(tmp_path / name / "records.parquet") for name in ("one", "three"))
    for same in ("request_id", "row", "prompt_sha256", "planned_ns", "status", "output_tokens", "error"):
        assert one[same].to_pylist() == three[same].to_pylist()
    assert (tmp_path / "one" / "plan.json").read_bytes() == (tmp_path / "three" / "plan.json").read_bytes()


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_keeps_what_was_measured(
    server: Any, traffic: Callable[..., Path], tmp_path: Path, number: signal.Signals, processes: str
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"this run was started to ignore {number.name}, and so does what it starts")
    path = traffic(["plain-answer", "never-answers", "plain-answer"], at_s=[0, 0.5, 600])
    options = ["--base-url", server.base_url, "--model", "hostile", "--out", str(tmp_path / "out")]
    command = ["-m", "config.cli", "replay", "--traffic", str(path), *options, "--processes", processes]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=subprocess.PIPE, start_new_session=True
    )
    async with asyncio.timeout(60):
        await server.has_received(2)
        # To the whole group, as a terminal or a supervisor sends it.
        os.killpg(process.pid, number)
        stdout, _ = await process.communicate()
    assert process.returncode == 130
    summary = json.loads(stdout)
    manifest = document_of((tmp_path / "out" / "manifest.json").read_bytes())
    assert (summary["stopped"], manifest["stopped"]) == (True, True)
    statuses = read_records(tmp_path / "out" / "records.parquet")["status"].to_pylist()
    assert statuses == ["completed", "cancelled", "not_sent"]
    assert manifest["statuses"] == summary["statuses"]


async def test_a_signal_while_evidence_is_written_costs_nothing(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path
) -> None:
    """A second kill comes when the first has ended the trial already."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import os, signal\n"
        "from loadtests.commands import replay\n"
        "written = replay.write_durably\n"
        "def killed(path, content):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    written(path, content)\n"
        "replay.write_durably = killed\n"
        "from config.cli import main\n"
        "main()\n"
    )
    path = traffic(["plain-answer"])
    options = ["--base-url", server_process.base_url, "--model", "hostile", "--out", str(tmp_path / "out")]
    command = [str(slow), "replay", "--traffic", str(path), *options]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    stdout, _ = await process.communicate()
    assert (process.returncode, json.loads(stdout)["stopped"]) == (0, False)
    assert len(list((tmp_path / "out").iterdir())) == 3


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_signals_without_end_cost_nothing(
    server: Any, traffic: Callable[..., Path], tmp_path: Path, processes: str
) -> None:
    """From the first one on, until there is no process any more."""
    path = traffic(["plain-answer", "never-answers", "plain-answer"], at_s=[0, 0.5, 600])
    options = ["--base-url", server.base_url, "--model", "hostile", "--out", str(tmp_path / "out")]
    command = ["-m", "config.cli", "replay", "--traffic", str(path), *options, "--processes", processes]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.PIPE)
    async with asyncio.timeout(60):
        await server.has_received(2)
        ended = asyncio.create_task(process.communicate())
        while not ended.done():
            # Not by the process's own method: that looks for its end, which then is missing where it is waited for.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            await asyncio.wait({ended}, timeout=0.01)
    stdout, _ = await ended
    assert (process.returncode, json.loads(stdout)["stopped"]) == (130, True)
    assert len(list((tmp_path / "out").iterdir())) == 3


async def test_a_signal_after_the_trial_costs_no_summary(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path
) -> None:
    """When the loop that heard them is closed."""
    killed = tmp_path / "killed.py"
    killed.write_text(
        "import os, signal\n"
        "from loadtests.commands import replay\n"
        "printed = replay.print_result\n"
        "def kill_first(*words, **more):\n"
        "    for _ in range(8):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    printed(*words, **more)\n"
        "replay.print_result = kill_first\n"
        "from config.cli import main\n"
        "main()\n"
    )
    options = ["--base-url", server_process.base_url, "--model", "hostile", "--out", str(tmp_path / "out")]
    command = [str(killed), "replay", "--traffic", str(traffic(["plain-answer"])), *options]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    stdout, _ = await process.communicate()
    assert (process.returncode, json.loads(stdout)["stopped"]) == (0, False)


@pytest.mark.parametrize(
    ("redirected", "why"),
    [
        (">/dev/full", "No space left on device"),
        (">&-", "Bad file descriptor"),
        ("| head -0", "Broken pipe"),
    ],
)
def test_a_summary_that_can_not_be_printed_costs_no_evidence(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path, redirected: str, why: str
) -> None:
    options = ["--base-url", server_process.base_url, "--model", "hostile", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "config.cli", "replay", "--traffic", str(traffic(["plain-answer"])), *options]
    # A pipe's status is that of its first command here, as its last one always succeeds.
    shell = ["bash", "-c", f'set -o pipefail; "$@" {redirected}', "bash"]
    ran = subprocess.run([*shell, *command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (7, "")
    assert ran.stderr.splitlines()[-1] == f"Error: the result could not be printed on standard output ({why})"
    assert "Traceback" not in ran.stderr
    manifest = document_of((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["digests"]["records"] == digest((tmp_path / "out" / "records.parquet").read_bytes())
    assert manifest["digests"]["plan"] == digest((tmp_path / "out" / "plan.json").read_bytes())


class Nowhere(BaseHTTPRequestHandler):
    """A server of something else altogether."""

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Silent."""


def test_a_server_that_knows_no_address_is_no_success(traffic: Callable[..., Path], tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Nowhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        result = replay(traffic(["plain-answer"] * 2), f"http://127.0.0.1:{server.server_port}", tmp_path / "out")
        server.shutdown()
    assert result.exit_code == 4
    said = json.loads(result.stdout)
    assert said["statuses"]["completed"] == 0
    assert list(said["errors"].values()) == [2]
    assert "HTTP 404" in next(iter(said["errors"]))
    assert read_records(tmp_path / "out" / "records.parquet").num_rows == 2


def out_in_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "out"


def out_behind_a_dangling_link(tmp_path: Path) -> Path:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    return tmp_path / "link"


def out_with_too_long_a_name(tmp_path: Path) -> Path:
    return tmp_path / "new" / ("n" * 300)


def out_that_is_no_text(tmp_path: Path) -> Path:
    return tmp_path / os.fsdecode(b"o\xff")


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (out_in_a_file, "nothing was sent: no evidence could be written to"),
        (out_behind_a_dangling_link, "is there and is no directory"),
        (out_with_too_long_a_name, "nothing was sent: no evidence could be written to"),
        (out_that_is_no_text, "--out is no valid UTF-8"),
    ],
)
def test_a_place_that_holds_no_evidence_is_refused_before_anything_is_sent(
    traffic: Callable[..., Path], tmp_path: Path, place: Callable[[Path], Path], sentence: str
) -> None:
    # Nobody is there to answer: whoever sent something would say so, with exit status 3.
    result = replay(traffic(["plain-answer"]), "http://127.0.0.1:1", place(tmp_path))
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_model_that_is_no_text_is_refused(traffic: Callable[..., Path], tmp_path: Path) -> None:
    result = replay(traffic(["plain-answer"]), "http://127.0.0.1:1", tmp_path / "out", "--model", "m\udcff")
    assert result.exit_code == 2
    assert "--model is no valid UTF-8" in result.stderr


def test_a_directory_that_another_run_writes_to_is_refused(traffic: Callable[..., Path], tmp_path: Path) -> None:
    with held(tmp_path / "out"):
        result = replay(traffic(["plain-answer"]), "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 2
    assert "is being written to by another run" in result.stderr


def test_a_full_disk_costs_no_summary_and_leaves_nothing_that_looks_whole(
    server_process: Any, traffic: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> None:
        if path.name == "manifest.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_durably(path, content)

    monkeypatch.setattr("loadtests.commands.replay.write_durably", write)
    result = replay(traffic(["plain-answer"]), server_process.base_url, tmp_path / "out")
    assert result.exit_code == 6
    summary = json.loads(result.stdout)
    assert (summary["statuses"]["completed"], summary["out"], summary["manifest_sha256"]) == (1, None, None)
    assert f"could not be written to {tmp_path / 'out'} (No space left on device)" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("late_ms", "found"), [(50.0, 0), (1033.0, 1)])
def test_a_client_that_was_late_is_a_finding(late_ms: float, found: int) -> None:
    lag = dict.fromkeys(("p50", "p90", "p99", "max"), late_ms)
    trial = TrialRun([], 0, 1.0, 1.0, stopped=False, lag_ms=lag, fingerprints={}, findings=[])
    findings = with_lateness(trial).findings
    assert len(findings) == found
    assert all("its lag p99 was 1033 ms, above 50 ms" in one for one in findings)


def test_a_server_with_strange_names_costs_nothing(traffic: Callable[..., Path], tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), StrangeNames) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        result = replay(traffic(["plain-answer"]), f"http://127.0.0.1:{server.server_port}", tmp_path / "out")
        server.shutdown()
    assert result.exit_code == 0, result.output
    assert "the server's models: \ufffd[31mred\ufffd, \ufffd, 0, 1, 2, 3, 4, 5, 6, 7 and 42 more" in result.stderr
    records = read_records(tmp_path / "out" / "records.parquet")
    assert records["finish_reason"].to_pylist() == ["\ufffd"]
    assert records["fingerprint"].to_pylist() == ["a text of 2000000 characters"]


class StrangeNames(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        names = ["\x1b[31mred\x07", "\ud800", *map(str, range(50))]
        self.answer(json.dumps({"data": [{"id": one} for one in names]}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        said = {"delta": {"content": "\ud83d"}, "finish_reason": "\udfff"}
        chunk = {"choices": [said], "system_fingerprint": "x" * 2_000_000}
        self.answer(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", "text/event-stream")

    def answer(self, text: str, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (DEEP, "no format that is known"),
        (b'{"arrival_s":1e300,', "line 1, field arrival_s: Input should be less than or equal to 9000000000"),
    ],
)
def test_traffic_beyond_reason_is_refused(
    traffic_row: Callable[..., Row], tmp_path: Path, content: bytes, said: str
) -> None:
    row = traffic_row("plain-answer", 0).content.replace(b'{"arrival_s":0,', content)
    path = tmp_path / "traffic.jsonl"
    path.write_bytes((row if content.startswith(b"{") else content) + b"\n")
    result = replay(path, "http://127.0.0.1:1", tmp_path / "out")
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_is_nested_beyond_reason_is_no_outline_and_no_plan() -> None:
    assert not is_outline(DEEP)
    with pytest.raises(BadPlan, match="no canonical JSON of a plan"):
        document_of_plan(DEEP)


@pytest.mark.parametrize("warm_up", [0.1, 0.31, 0.7, 1.3])
def test_a_warm_up_leaves_every_row_its_time(warm_up: float, traffic_row: Callable[..., Row]) -> None:
    """Whatever the two add up to in binary."""
    rows = [traffic_row(f"question {n}", n) for n in range(60)]
    for seed in range(10):
        arrival = Arrival(process="gamma", rate=15, cv=2)
        window_s = window_of(arrival, rows, seed, warm_up)
        level = Level(name="gamma", arrival=arrival, duration_s=window_s, warm_up_s=warm_up)
        assert len(plan_level(list(enumerate(rows)), level, seed=seed, prefix="r")) == 60
