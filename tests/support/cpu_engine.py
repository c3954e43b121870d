"""A real vLLM on this machine's processor, and a question to it."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings

from loadtests.configurations import (
    Checkpoint,
    Configuration,
    EngineArguments,
    EngineEnvironment,
    Hardware,
    Speculative,
)
from workers.engines.base import RunningEngine
from workers.engines.vllm import installed_runtime, start
from workers.target import find_checkpoint, prepare_demo_target


def cpu_configuration(
    target: Checkpoint, engine_python: Path, speculative: Speculative | None, **arguments: Any
) -> Configuration:
    return Configuration(
        schema="draftproof.configuration/1",
        runtime=installed_runtime(engine_python),
        target=target,
        arguments=EngineArguments(dtype="bfloat16", enforce_eager=True, **arguments),
        environment=EngineEnvironment(VLLM_CPU_KVCACHE_SPACE=1),
        hardware=Hardware(pool="here", accelerator="cpu"),
        speculative=speculative,
    )


def complete(engine: RunningEngine, prompt: str, **asked: Any) -> dict[str, Any]:
    message = {"role": "user", "content": prompt}
    body = {"model": engine.model, "messages": [message], "temperature": 0.0} | asked
    request = urllib.request.Request(  # noqa: S310 - the loopback address
        f"{engine.base_url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310 - the loopback address
        return dict(json.load(answer))


@contextmanager
def cpu_engine(directory: Path, speculative: Speculative | None, **arguments: Any) -> Iterator[RunningEngine]:
    """The demo target, served until the end of the block."""
    engine_python, models = Path(settings.ENGINE_PYTHON), Path(settings.MODELS_DIR)
    target = prepare_demo_target(models, engine_python)
    engine = start(
        cpu_configuration(target, engine_python, speculative, **arguments),
        engine_python=engine_python,
        model_path=find_checkpoint(models, target),
        drafter_path=None,
        directory=directory,
    )
    try:
        yield engine
    finally:
        engine.stop()
