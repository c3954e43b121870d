"""Engines that others start: found by digest, on hosts that are allowed, and proven to be the configuration."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtests.configurations import Checkpoint, Configuration, Hardware, Runtime
from workers.engines import asking, remote
from workers.engines.base import EngineFailed, EngineStopped, EngineUnfit, Spawned, Tells
from workers.engines.local_process import free_port
from workers.engines.remote import House, RemoteEngine

CONFIGURATION = Configuration(
    runtime=Runtime(engine="remote", version="0.32.0"),
    target=Checkpoint(name="target", weights_sha256="a" * 64, tokenizer_sha256="b" * 64),
    hardware=Hardware(pool="elsewhere", accelerator="NVIDIA H200"),
)
METRICS = (
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
    "process_start_time_seconds 1.7e+09\n"
    'vllm:generation_tokens_total{engine="0"} 7.0\n'
)


@dataclass
class Server:
    """What a server that somebody else runs says of itself."""

    port: int = 0
    models: list[str] = field(default_factory=lambda: ["target"])
    version: str = "0.32.0"
    fingerprint: str | None = CONFIGURATION.digest
    metrics: str | None = METRICS
    per_request: dict[str, Any] | None = field(default_factory=lambda: {"queue_time_ms": 0.5})
    status: int = 200
    keys: list[str | None] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def text(self, path: str) -> str | None:
        told = {
            "/v1/models": json.dumps({"data": [{"id": name} for name in self.models]}),
            "/version": json.dumps({"version": self.version}),
            "/metrics": self.metrics,
            "/v1/chat/completions": json.dumps(
                {
                    "system_fingerprint": self.fingerprint,
                    "choices": [{"message": {"content": "yes"}, "token_ids": [1, 2]}],
                    "metrics": self.per_request,
                }
            ),
        }
        return told.get(path)


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.keys.append(self.headers["Authorization"])
            text = server.text(self.path)
            self.send_response(404 if text is None else server.status)
            body = (text or "").encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *words: object) -> None:
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(told)) as listening:
        told.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield told
        listening.shutdown()
        thread.join()


Start = Callable[..., RemoteEngine]


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Start:
    def started(*, hosts: tuple[str, ...] = ("127.0.0.1",), key: str | None = None, **endpoint: Any) -> RemoteEngine:
        table = tmp_path / "engines.yaml"
        entry = {"base_url": server.base_url} | endpoint
        table.write_text(
            yaml.safe_dump({"schema": "draftproof.remote-engines/1", "engines": {CONFIGURATION.digest: entry}})
        )
        house = House(table, hosts, {"ENGINE_KEY": key}.get)
        return remote.start(CONFIGURATION, house=house, directory=tmp_path / "run", on_spawn=SPAWNED.append)

    SPAWNED.clear()
    return started


SPAWNED: list[Spawned] = []


def test_a_remote_engine_tells_what_it_can_and_no_more(start: Start, server: Server) -> None:
    engine = start()
    facts = engine.facts
    assert (engine.base_url, engine.model, engine.returncode) == (server.base_url, "target", None)
    assert (facts.group, facts.leader_started, facts.device, facts.hardware) == (None, None, None, None)
    assert (facts.version, facts.kv_cache_tokens) == ("0.32.0", 1600)
    assert facts.tells == Tells(queue_time=True, acceptance=False, token_ids=True)
    assert facts.details["fingerprint"] == CONFIGURATION.digest
    assert engine.counters() == {"vllm:generation_tokens_total": 7.0}
    assert [(one.group, one.leader_started) for one in SPAWNED] == [(None, None)]
    assert (server.asked[0]["model"], server.asked[0]["return_token_ids"]) == ("target", True)


def test_two_boots_on_one_server_process_have_one_server(start: Start, server: Server) -> None:
    first, second = start().facts.server_id, start().facts.server_id
    server.metrics = METRICS.replace("1.7e+09", "1.8e+09")
    assert first == second != start().facts.server_id
    # Without the process's own word every boot at the address counts as the same server.
    server.metrics = None
    assert start().facts.server_id == start().facts.server_id


def test_a_server_without_a_fingerprint_or_metrics_is_measured_and_both_are_missing(
    start: Start, server: Server
) -> None:
    server.fingerprint = server.metrics = server.per_request = None
    engine = start()
    assert engine.facts.details["fingerprint"] is None
    assert engine.facts.kv_cache_tokens is None
    assert engine.facts.tells.queue_time is False
    with pytest.raises(OSError, match="/metrics answered 404"):
        engine.counters()


@pytest.mark.parametrize(
    ("says", "refusal"),
    [
        ({"models": ["other"]}, "serves other, not target"),
        ({"version": "0.31.0"}, r"is version 0\.31\.0, not 0\.32\.0"),
        ({"fingerprint": "c" * 64}, f"answers as {'c' * 64}, not as {CONFIGURATION.digest}"),
        ({"status": 500}, "nothing answers at"),
    ],
)
def test_another_engine_than_the_configurations_is_not_measured(
    start: Start, server: Server, says: dict[str, Any], refusal: str
) -> None:
    for name, value in says.items():
        setattr(server, name, value)
    with pytest.raises(EngineUnfit, match=refusal):
        start()


def test_a_simulated_engine_can_not_pass_for_a_measured_one(
    start: Start, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = CONFIGURATION.model_copy(update={"runtime": Runtime(engine="remote", version="simulated-1")})
    monkeypatch.setattr(sys.modules[__name__], "CONFIGURATION", simulated)
    server.version = "simulated-1"
    with pytest.raises(EngineUnfit, match="is a simulated engine"):
        start()


def test_a_host_that_is_not_allowed_is_never_asked(start: Start, server: Server) -> None:
    with pytest.raises(EngineUnfit, match=r"127\.0\.0\.1 is not among the hosts .* allows: engines\.example"):
        start(hosts=("engines.example",))
    assert (server.keys, server.asked) == ([], [])


def test_the_key_is_sent_and_shown_nowhere(start: Start, server: Server) -> None:
    engine = start(key="s3cret", api_key_env="ENGINE_KEY")
    assert set(server.keys) == {"Bearer s3cret"}
    assert engine.api_key == "s3cret"
    assert "s3cret" not in json.dumps(engine.facts.document)
    assert "s3cret" not in repr(engine.server)
    with pytest.raises(EngineUnfit, match="ENGINE_KEY is not set"):
        start(api_key_env="ENGINE_KEY")


@pytest.mark.parametrize("field", ["models", "version", "fingerprint"])
def test_a_key_that_the_server_repeats_is_in_no_reason(start: Start, server: Server, field: str) -> None:
    key = "s3cret-of-the-house&more"
    setattr(server, field, [f"x-{key}"] if field == "models" else f"x-{key}")
    with pytest.raises(EngineUnfit, match=r"x-\[key\]") as unfit:
        start(key=key, api_key_env="ENGINE_KEY")
    assert "house" not in str(unfit.value)


def test_a_key_among_a_servers_models_is_in_no_fact(start: Start, server: Server) -> None:
    key = "s3cret-of-the-house&more"
    server.models = ["target", key]
    server.metrics = METRICS.replace('engine="0"', f'engine="{key}"')
    engine = start(key=key, api_key_env="ENGINE_KEY")
    assert engine.facts.details["models"] == ["target", "[key]"]
    assert "house" not in str(engine.counters())
    server.metrics = METRICS.replace("7.0", key)
    with pytest.raises(OSError, match="/metrics is not readable") as unreadable:
        engine.counters()
    assert "house" not in str(unreadable.value)


def written(path: Path, *, exit_code: int = 0) -> list[str]:
    """A hook that says what it was told; its words go through no shell."""
    program = f"""
import os, sys
print("hook ran")
with open({str(path)!r}, "a") as sink:
    print(os.environ["DRAFTPROOF_CONFIGURATION"], os.environ["DRAFTPROOF_BASE_URL"], sys.argv[1], file=sink)
sys.exit({exit_code})
"""
    return [sys.executable, "-c", program, "$(touch nothing)"]


def test_hooks_are_argument_lists_and_know_what_they_start(start: Start, server: Server, tmp_path: Path) -> None:
    engine = start(start=written(tmp_path / "started"), stop=written(tmp_path / "stopped"))
    line = f"{CONFIGURATION.digest} {server.base_url} $(touch nothing)\n"
    assert (tmp_path / "started").read_text() == line
    assert "hook ran" in engine.log_tail()
    assert not (tmp_path / "stopped").exists()
    engine.stop()
    assert (tmp_path / "stopped").read_text() == line


def test_a_start_hook_that_fails_is_a_result_and_the_stop_hook_clears_up(start: Start, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="the start hook ended with exit status 3") as failure:
        start(start=written(tmp_path / "started", exit_code=3), stop=written(tmp_path / "stopped"))
    assert failure.value.log_tail.splitlines()[0] == "hook ran"
    assert (tmp_path / "stopped").exists()


def test_a_stop_hook_that_fails_is_the_operators_fault(start: Start, tmp_path: Path) -> None:
    engine = start(stop=written(tmp_path / "stopped", exit_code=1))
    with pytest.raises(OSError, match=r"the stop hook of .* ended with exit status 1"):
        engine.stop()


def test_an_engine_that_does_not_come_up_after_its_hook_is_a_result(start: Start, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EngineFailed, match=r"was not ready 0\.1 s after its start hook"):
        start(base_url=nobody, start=written(tmp_path / "started"), ready_timeout_s=0.1)
    with pytest.raises(EngineUnfit, match="start the server, or give its table a start hook"):
        start(base_url=nobody)


def test_waiting_for_a_hooks_engine_can_be_called_off(tmp_path: Path) -> None:
    endpoint = remote.Endpoint(base_url=f"http://127.0.0.1:{free_port()}", start=("true",))
    server = asking.Server(endpoint.base_url)
    hook = remote.Hooks(CONFIGURATION.digest, endpoint.base_url, tmp_path / "engine.log")
    with pytest.raises(EngineStopped):
        remote.come_up(endpoint, server, hook, lambda: True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engines: [", "the table of remote engines can't be read"),
        ("engines: {}", "serves no configuration"),
        (f"engines: {{{'a' * 63}: {{base_url: 'http://here'}}}}", r"String should match pattern"),
        (f"engines: {{{'a' * 64}: {{base_url: 'ftp://here'}}}}", "must start with http"),
        (f"engines: {{{'a' * 64}: {{base_url: 'http://u:p@here'}}}}", "must carry no user name"),
        (f"engines: {{{'a' * 64}: {{base_url: 'http://here', start: 'sh -c x'}}}}", "valid tuple"),
        ("[]", "valid dictionary"),
    ],
)
def test_a_table_that_cannot_be_used_is_the_operators(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "engines.yaml").write_text(text)
    with pytest.raises(EngineUnfit, match=said):
        remote.find_endpoint(House(tmp_path / "engines.yaml", ("here",), lambda name: None), CONFIGURATION)


def test_no_table_is_said_with_the_settings_name() -> None:
    with pytest.raises(EngineUnfit, match="DRAFTPROOF_REMOTE_ENGINES"):
        remote.find_endpoint(House(None, (), lambda name: None), CONFIGURATION)
