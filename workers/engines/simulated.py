"""The simulated engine as a local process: for rehearsals, in which every stage runs and nothing can be approved.

The target's digest of weights names the engine model: that document is all there is to a simulated target.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.configurations import Checkpoint, Configuration
from loadtests.simulator import PRESETS, EngineModel, preset, read_model
from workers import hardware
from workers.engines.base import EngineFacts, EngineUnfit, Spawned, Tells
from workers.engines.local_process import HOST, PASSED_ON, EngineProcess, LocalEngine, free_port, started

MODULE = "loadtests.simulator.server"
SUFFIX = ".engine-model.json"
# Where this program lies: the child runs in the boot's own directory and has to find it too.
SOURCE = Path(__file__).resolve().parents[2]


def find_engine_model(models_dir: Path, target: Checkpoint) -> list[str]:
    """The option that names the engine model of this digest: a preset, or a document beside the checkpoints."""
    for name in PRESETS:
        if preset(name).digest == target.weights_sha256:
            return ["--preset", name]
    for path in sorted(models_dir.glob(f"*{SUFFIX}")):
        if readable(path).digest == target.weights_sha256:
            return ["--model", str(path)]
    raise EngineUnfit(
        f"no engine model has the digest {target.weights_sha256[:12]}… of {target.name}: it is no preset "
        f"({', '.join(sorted(PRESETS))}), and no *{SUFFIX} in {models_dir} has it"
    )


def readable(path: Path) -> EngineModel:
    try:
        return read_model(path)
    except ValueError as error:
        raise EngineUnfit(f"{path}: {error}") from None


def engine_arguments(
    configuration: Configuration, model: list[str], *, port: int, seed: int, speed: float
) -> list[str]:
    speculative = configuration.speculative
    return [
        *model,
        *("--arguments", configuration.arguments.model_dump_json(exclude_none=True)),
        *(["--speculative", speculative.model_dump_json(exclude_none=True)] if speculative else []),
        *("--host", HOST, "--port", str(port)),
        *("--speed", str(speed), "--seed", str(seed)),
        *("--served-model-name", configuration.target.name),
        *("--fingerprint-value", configuration.digest),
    ]


def start(
    configuration: Configuration,
    *,
    models_dir: Path,
    directory: Path,
    seed: int,
    speed: float,
    ready_timeout_s: float = 60.0,
    should_stop: Callable[[], bool] = lambda: False,
    on_spawn: Callable[[Spawned], None] = lambda spawned: None,
) -> LocalEngine:
    """Starts the configuration and returns when it is ready; whatever happens before that, nothing is left running."""
    port = free_port()
    model = find_engine_model(models_dir, configuration.target)
    return started(
        (sys.executable, "-m", MODULE, *engine_arguments(configuration, model, port=port, seed=seed, speed=speed)),
        engine_environment(),
        directory=directory,
        port=port,
        ready_timeout_s=ready_timeout_s,
        should_stop=should_stop,
        on_spawn=on_spawn,
        facts_of=partial(collect_facts, configuration, seed, speed),
        model=configuration.target.name,
    )


def engine_environment() -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed_on | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}


def collect_facts(configuration: Configuration, seed: int, speed: float, process: EngineProcess) -> EngineFacts:
    boot_seconds = time.monotonic() - process.since
    told = first_line(process)
    return EngineFacts(
        server_id=process.server_id,
        group=process.group,
        leader_started=process.leader_started,
        version=process.checked_version(configuration.runtime.version),
        device="simulated",
        kv_cache_tokens=told["kv_cache_tokens"],
        max_model_len=configuration.arguments.max_model_len,
        boot_seconds=round(boot_seconds, 3),
        command=process.command,
        environment=process.environment,
        log_path=str(process.log_path),
        hardware=hardware.probe().document,
        tells=Tells(queue_time=True, acceptance=configuration.speculative is not None, token_ids=True),
        details={name: told[name] for name in ("engine_model", "engine_model_sha256", "speed")} | {"seed": seed},
    )


def first_line(process: EngineProcess) -> dict[str, Any]:
    """What the server says of itself once it listens, on the first line of its log that is a JSON object."""
    for line in process.log_path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("{"):
            return dict(json.loads(line))
    raise process.failed("the simulated engine did not say what it is")
