"""The hostile server, in this process or in one of its own, and plans for it."""

import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from loadtests import seal
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import Message, Row

# A busy machine is slow, and slow is not wrong.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

SUPPORT = Path(__file__).resolve().parent.parent / "support"


@pytest.fixture
def unsealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For campaigns that no brief planned: the seal opens for everyone."""
    monkeypatch.setattr(seal, "_registered", [lambda **_: None])


@pytest.fixture(scope="session")
def hostile() -> ModuleType:
    """The support module: its cases with the status that each must end in (tests are no package to import from)."""
    spec = importlib.util.spec_from_file_location("hostile_server", SUPPORT / "hostile_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hostile_server"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
async def server(hostile: ModuleType) -> AsyncIterator[Any]:
    async with hostile.hostile_server() as running:
        yield running


@dataclass(frozen=True)
class ServerProcess:
    process: subprocess.Popen[str]
    base_url: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def alive(self) -> bool:
        return self.process.poll() is None


@pytest.fixture
def server_process() -> Iterator[ServerProcess]:
    command = [sys.executable, str(SUPPORT / "hostile_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        running = ServerProcess(process, f"http://127.0.0.1:{process.stdout.readline().strip()}")
        try:
            yield running
        finally:
            running.kill()


def row_of(text: str, number: int, *, class_: str = "chat", arrival_s: float = 0.0) -> Row:
    return Row.model_validate(
        {
            "id": f"row-{number}",
            "conversation": f"conversation-{number}",
            "arrival_s": arrival_s,
            "class": class_,
            "messages": [Message(role="user", content=text)],
            "max_tokens": 64,
        }
    )


@pytest.fixture
def traffic_row() -> Callable[..., Row]:
    return row_of


@pytest.fixture
def planned() -> Callable[..., list[PlannedRequest]]:
    """A plan that sends one chat a text, evenly spaced; a second one starts where the first one's numbers end."""

    def plan(texts: Sequence[str], *, gap_ms: float = 5, start_ms: float = 0, first: int = 0) -> list[PlannedRequest]:
        return [
            PlannedRequest(
                f"r-{number:05d}", number, row_of(text, number), round((start_ms + gap_ms * step) * 1_000_000)
            )
            for step, (number, text) in enumerate(enumerate(texts, start=first))
        ]

    return plan
