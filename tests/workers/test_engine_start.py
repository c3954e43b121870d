"""Start, health, early exit, log tail, stop: with a small server that stands in for vLLM's process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtests.configurations import Checkpoint, Configuration, Hardware, Runtime
from workers.engines.base import EngineFailed, EngineStopped, EngineUnfit, Spawned, end_process_group
from workers.engines.local_process import LocalEngine, free_port, is_port_open
from workers.engines.process_group import group_members, started_at
from workers.engines.vllm import engine_arguments, start

# Called like the engine environment's Python: -m MODULE --model DIRECTORY … ; the directory says how to behave.
SERVER = """
import http.server, json, os, pathlib, signal, subprocess, sys, time

words = sys.argv[1:]
value = lambda flag: words[words.index(flag) + 1]
behaviour = pathlib.Path(value("--model"), "behaviour").read_text().split()
print("started as", " ".join(words[:2]), flush=True)
if "dies" in behaviour:
    print("\\n".join(f"line {number}" for number in range(100)), file=sys.stderr)
    sys.exit(3)
if "stubborn" in behaviour:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "leaves-child" in behaviour:
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE).stdout.readline()
if "hangs" in behaviour:
    time.sleep(60)
print("CPU KV cache size: 46,592 tokens", flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/metrics" and "speechless" in behaviour:
            self.send_error(500)
            return
        texts = {
            "/health": "",
            "/version": json.dumps({"version": "0.31.0" if "older" in behaviour else "0.32.0"}),
            "/metrics": "# TYPE vllm:generation_tokens_total counter\\nvllm:generation_tokens_total 7.0\\n",
        }
        body = texts[self.path].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


http.server.HTTPServer((value("--host"), int(value("--port"))), Handler).serve_forever()
"""


def configuration() -> Configuration:
    return Configuration(
        schema="draftproof.configuration/1",
        runtime=Runtime(version="0.32.0"),
        target=Checkpoint(name="target", weights_sha256="a" * 64, tokenizer_sha256="b" * 64),
        # Not a CPU: nothing is preloaded into the little server.
        hardware=Hardware(pool="here", accelerator="NVIDIA H200"),
    )


@dataclass
class House:
    directory: Path
    spawned: list[Spawned] = field(default_factory=list)

    def start(self, behaviour: str = "", **words: Any) -> LocalEngine:
        python, model = self.directory / "python", self.directory / "model"
        python.write_text(f"#!{sys.executable}\n{SERVER}")
        python.chmod(0o755)
        model.mkdir()
        (model / "behaviour").write_text(behaviour)
        return start(
            configuration(),
            engine_python=python,
            model_path=model,
            drafter_path=None,
            directory=self.directory / "run",
            **({"on_spawn": self.spawned.append} | words),
        )

    def is_empty(self) -> bool:
        return all(not group_members(one.group or 0) for one in self.spawned)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    for one in house.spawned:
        end_process_group(one.group or 0, one.leader_started or 0.0, grace_s=0.0)


def test_a_ready_engine_tells_what_it_is(house: House) -> None:
    engine = house.start(port=(port := free_port()))
    facts = engine.facts
    arguments = engine_arguments(configuration(), model_path=house.directory / "model", drafter_path=None, port=port)
    assert (engine.base_url, engine.model, engine.alive(), engine.returncode) == (
        f"http://127.0.0.1:{port}",
        "target",
        True,
        None,
    )
    assert facts.command == (
        str(house.directory / "python"),
        "-m",
        "vllm.entrypoints.openai.api_server",
        *arguments,
    )
    assert Spawned(facts.group, facts.leader_started, facts.server_id) == house.spawned[0]
    assert (facts.version, facts.kv_cache_tokens, facts.preloaded) == ("0.32.0", 46592, ())
    assert facts.environment["HF_HUB_OFFLINE"] == "1"
    assert facts.document["command"] == list(facts.command)
    assert engine.counters() == {"vllm:generation_tokens_total": 7.0}
    assert "started as -m vllm.entrypoints.openai.api_server" in engine.log_tail()


def test_the_engine_runs_in_a_group_of_its_own(house: House) -> None:
    engine = house.start()
    assert os.getpgid(engine.process.group) == engine.process.group != os.getpgid(0)
    assert os.getsid(engine.process.group) == engine.process.group


def test_a_stopped_engine_leaves_no_process_and_no_port(house: House) -> None:
    engine = house.start(port=(port := free_port()))
    engine.stop()
    assert (engine.alive(), house.is_empty(), is_port_open(port)) == (False, True, False)
    assert engine.returncode == -signal.SIGTERM
    engine.stop()
    with pytest.raises(OSError, match="refused"):
        engine.counters()


def test_a_child_that_outlives_its_leader_is_ended_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = house.start("leaves-child")
    assert len(group_members(engine.process.group)) == 2
    os.kill(engine.process.group, signal.SIGKILL)
    while engine.alive():
        time.sleep(0.01)
    assert len(group_members(engine.process.group)) == 1
    end_process_group(engine.process.group, engine.process.leader_started, grace_s=0.2)
    assert house.is_empty()


def test_an_engine_deaf_to_sigterm_is_killed(house: House) -> None:
    engine = house.start("stubborn leaves-child")
    assert end_process_group(engine.process.group, engine.process.leader_started, grace_s=0.3) is True
    engine.stop()
    assert engine.returncode == -signal.SIGKILL
    assert house.is_empty()


def test_an_engine_that_dies_early_is_a_result_with_the_end_of_its_log(house: House) -> None:
    with pytest.raises(EngineFailed, match="ended with exit status 3 before it was ready") as failure:
        house.start("dies")
    assert failure.value.log_tail.splitlines() == [f"line {number}" for number in range(40, 100)]
    assert house.is_empty()


def test_an_engine_that_is_never_ready_is_ended(house: House) -> None:
    with pytest.raises(EngineFailed, match=r"was not ready after 1 s") as failure:
        house.start("hangs", ready_timeout_s=1.0)
    assert failure.value.log_tail == "started as -m vllm.entrypoints.openai.api_server"
    assert house.is_empty()


def test_a_start_can_be_called_off(house: House) -> None:
    with pytest.raises(EngineStopped):
        house.start("hangs leaves-child", should_stop=lambda: len(house.spawned) > 0)
    assert house.is_empty()


def test_an_engine_of_another_version_is_unfit(house: House) -> None:
    with pytest.raises(EngineUnfit, match=r"the engine is version 0\.31\.0, the configuration names 0\.32\.0"):
        house.start("older")
    assert house.is_empty()


def test_a_failing_record_of_the_group_leaves_no_engine(house: House) -> None:
    def refuse(spawned: Spawned) -> None:
        house.spawned.append(spawned)
        raise RuntimeError("the database is away")

    with pytest.raises(RuntimeError, match="the database is away"):
        house.start("hangs", on_spawn=refuse)
    assert house.is_empty()


def test_a_missing_engine_environment_is_an_operating_system_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start(
            configuration(),
            engine_python=tmp_path / "missing/python",
            model_path=tmp_path,
            drafter_path=None,
            directory=tmp_path / "run",
        )


def test_counters_that_the_engine_cannot_give_are_an_operating_system_error(house: House) -> None:
    with pytest.raises(OSError, match="answered 500"):
        house.start("speechless").counters()


def test_a_recycled_number_ends_nobody_elses_group() -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep, start_new_session=True) as stranger:
        try:
            started = started_at(stranger.pid)
            assert end_process_group(stranger.pid, started - 100.0) is False
            assert psutil.pid_exists(stranger.pid)
            assert end_process_group(stranger.pid, started) is True
        finally:
            stranger.kill()


def test_members_older_than_the_recorded_leader_are_not_its_group() -> None:
    parent = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with subprocess.Popen([sys.executable, "-c", parent], start_new_session=True) as leader:
        started = started_at(leader.pid)
        leader.wait()
        try:
            assert [member.pid for member in group_members(leader.pid)] != []
            assert end_process_group(leader.pid, started + 100.0) is False
            assert end_process_group(leader.pid, psutil.boot_time() - 100.0) is False
            assert end_process_group(leader.pid, started) is True
        finally:
            end_process_group(leader.pid, started, grace_s=0.0)


@pytest.mark.parametrize("group", [0, 1, 2**22 + 1])
def test_a_group_that_never_was_ours_is_left_alone(group: int) -> None:
    assert end_process_group(group, time.time()) is False
