"""What tests on a real vLLM have in common."""

from pathlib import Path
from typing import Any

import pytest

from loadtests.configurations import Checkpoint
from workers.target import DEMO_TARGET, recorded_checkpoint


@pytest.fixture
def engine_python(settings: Any) -> Path:
    if not settings.ENGINE_PYTHON.exists():
        pytest.skip("the engine environment is missing: requirements/engine-cpu.txt is not installed")
    return Path(settings.ENGINE_PYTHON)


@pytest.fixture
def target(settings: Any) -> Checkpoint:
    if not (settings.MODELS_DIR / DEMO_TARGET).exists():
        pytest.skip("the demo target is missing: it is unpacked by the first demo")
    return recorded_checkpoint(settings.MODELS_DIR / DEMO_TARGET)
