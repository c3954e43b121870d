"""What every engine adapter promises to the boot that runs it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from loadtests.configurations import Configuration
from loadtests.generator.endpoint import Endpoint
from workers.engines.asking import TIMEOUT_S
from workers.engines.process_group import end_process_group

__all__ = [
    "EngineFacts",
    "EngineFailed",
    "EngineStopped",
    "EngineUnfit",
    "Order",
    "RunningEngine",
    "Spawned",
    "Tells",
    "end_process_group",
    "endpoint_of",
]


class EngineFailed(Exception):
    """The engine did not start: a result about the configuration, with the end of its log."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class EngineUnfit(OSError):
    """The engine environment here can't run this configuration: the worker's fault, never a result."""


class EngineStopped(Exception):
    """The start was called off by ``should_stop`` before the engine was ready; nothing of it runs any more."""


@dataclass(frozen=True)
class Spawned:
    """What it takes to end the engine later, even from another worker: to be stored before anything else happens. An
    engine that others run has a server's name alone."""

    group: int | None
    leader_started: float | None
    server_id: str


@dataclass(frozen=True)
class Tells:
    """What the engine says of a request, beyond its answer. None: we could not find out."""

    queue_time: bool | None
    acceptance: bool | None
    token_ids: bool | None


@dataclass(frozen=True)
class EngineFacts:
    """What a start told about itself. None where the engine did not say: missing is never zero. ``group`` and
    ``leader_started`` are those of a process on this host; an engine that others run has none."""

    server_id: str
    version: str
    device: str | None
    kv_cache_tokens: int | None
    max_model_len: int
    boot_seconds: float
    tells: Tells
    group: int | None = None
    leader_started: float | None = None
    driver: str | None = None
    runner: str | None = None
    threads: int | None = None
    async_scheduling: bool | None = None
    preloaded: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    log_path: str | None = None
    hardware: dict[str, Any] | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """For the manifest and the boot's row: JSON values alone."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Order:
    """What a boot wants started, where it may write, and how it stays in touch with the start. ``seed`` is the boot's
    own: the luck of a simulated engine, and nothing to any other."""

    configuration: Configuration
    directory: Path
    seed: int
    should_stop: Callable[[], bool]
    on_spawn: Callable[[Spawned], None]


class RunningEngine(Protocol):
    @property
    def base_url(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def api_key(self) -> str | None: ...

    @property
    def facts(self) -> EngineFacts: ...

    @property
    def returncode(self) -> int | None:
        """None while the engine's leader lives, and for an engine that others run."""

    def alive(self) -> bool:
        """Asked before every request, so it costs nothing. An engine that others run counts as alive here."""

    def answers(self) -> bool:
        """Asked between trials. One that others run is asked over the network."""

    def log_tail(self, lines: int = 60) -> str: ...

    def counters(self, timeout_s: float = TIMEOUT_S) -> dict[str, float]:
        """The engine's own counters and gauges now; OSError when it does not answer in time."""

    def stop(self) -> None:
        """Ends every process of the engine; returns when its memory and its port are free. May be called twice."""


def endpoint_of(engine: RunningEngine) -> Endpoint:
    """Asked for token ids where the engine tells them: they check its usage, and count what a cancelled request got."""
    return Endpoint(engine.base_url, engine.model, engine.api_key, token_ids=engine.facts.tells.token_ids is True)
