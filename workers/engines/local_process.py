"""An engine as a process of this host: started from an argument list, watched until it is ready, ended as a group."""

import http.client
import json
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from workers.engines.asking import TIMEOUT_S, Server
from workers.engines.base import EngineFacts, EngineFailed, EngineStopped, EngineUnfit, Spawned
from workers.engines.metrics import parse_metrics
from workers.engines.process_group import end_process_group, started_at
from workers.engines.startup_log import log_tail

HOST = "127.0.0.1"
LOG_NAME = "engine.log"
POLL_S = 0.2

# Handed on from the worker. Everything else it has in its environment (secrets, other VLLM_ settings) stays out.
PASSED_ON = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "TZ",
    "XDG_CACHE_HOME",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_port_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


@dataclass
class EngineProcess:
    """The started command, ready or not, with what it takes to end it."""

    popen: subprocess.Popen[bytes]
    group: int
    leader_started: float
    server_id: str
    port: int
    log_path: Path
    command: tuple[str, ...]
    environment: dict[str, str]
    since: float = field(default_factory=time.monotonic)

    @property
    def spawned(self) -> Spawned:
        return Spawned(self.group, self.leader_started, self.server_id)

    @property
    def server(self) -> Server:
        return Server(f"http://{HOST}:{self.port}")

    def is_ready(self) -> bool:
        try:
            return self.server.get("/health", timeout_s=2.0)[0] == http.client.OK
        except OSError:
            return False

    def version(self) -> str:
        try:
            return str(json.loads(self.server.get("/version")[1])["version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.failed(f"the engine does not tell its version: {error!r}") from error

    def checked_version(self, wanted: str) -> str:
        version = self.version()
        if version != wanted:
            raise EngineUnfit(f"the engine is version {version}, the configuration names {wanted}")
        return version

    def end(self) -> None:
        """Also ends what the leader left behind: a vLLM server that goes down may leave its worker for a moment."""
        end_process_group(self.group, self.leader_started)
        self.popen.wait(timeout=TIMEOUT_S)
        if is_port_open(self.port):
            raise OSError(f"port {self.port} still answers after the engine's group {self.group} ended")

    def failed(self, reason: str) -> EngineFailed:
        return EngineFailed(reason, log_tail(self.log_path))


@dataclass(frozen=True)
class LocalEngine:
    process: EngineProcess
    model: str
    facts: EngineFacts
    api_key: None = None

    @property
    def base_url(self) -> str:
        return self.process.server.base_url

    @property
    def returncode(self) -> int | None:
        return self.process.popen.poll()

    def alive(self) -> bool:
        return self.returncode is None

    def answers(self) -> bool:
        return self.alive()

    def log_tail(self, lines: int = 60) -> str:
        return log_tail(self.process.log_path, lines)

    def counters(self, timeout_s: float = TIMEOUT_S) -> dict[str, float]:
        return counters_of(self.process.server, timeout_s)

    def stop(self) -> None:
        self.process.end()


def counters_of(server: Server, timeout_s: float) -> dict[str, float]:
    text = metrics_of(server, timeout_s)
    try:
        return parse_metrics(text)
    except ValueError as error:
        raise OSError(f"/metrics is not readable: {error}") from error


def metrics_of(server: Server, timeout_s: float) -> str:
    status, text = server.get("/metrics", timeout_s=timeout_s)
    if status != http.client.OK:
        raise OSError(f"GET /metrics answered {status}")
    return text


def started(
    command: tuple[str, ...],
    environment: dict[str, str],
    *,
    directory: Path,
    port: int,
    ready_timeout_s: float,
    should_stop: Callable[[], bool],
    on_spawn: Callable[[Spawned], None],
    facts_of: Callable[[EngineProcess], EngineFacts],
    model: str,
) -> LocalEngine:
    """Starts the command and returns when it is ready; whatever happens before that, nothing is left running."""
    process = spawn(command, environment, directory=directory, port=port)
    try:
        on_spawn(process.spawned)
        wait_until_ready(process, ready_timeout_s, should_stop)
        facts = facts_of(process)
    except BaseException:
        process.end()
        raise
    return LocalEngine(process, model, facts)


def spawn(command: tuple[str, ...], environment: dict[str, str], *, directory: Path, port: int) -> EngineProcess:
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / LOG_NAME
    with log_path.open("wb") as log:
        # A session of its own: a signal to the worker's group does not reach the engine, and its group ends as one.
        popen = subprocess.Popen(  # noqa: S603 - a list from typed settings, no shell
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return EngineProcess(
        popen, popen.pid, started_at(popen.pid), uuid.uuid4().hex, port, log_path, command, environment
    )


def wait_until_ready(process: EngineProcess, timeout_s: float, should_stop: Callable[[], bool]) -> None:
    while True:
        if should_stop():
            raise EngineStopped("the start was called off")
        # Before the question to the port: a stranger there must not pass for an engine that could not bind it.
        if (code := process.popen.poll()) is not None:
            raise process.failed(f"the engine ended with exit status {code} before it was ready")
        if process.is_ready():
            return
        if time.monotonic() - process.since > timeout_s:
            raise process.failed(f"the engine was not ready after {timeout_s:g} s")
        time.sleep(POLL_S)
