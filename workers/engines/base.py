"""What every engine adapter promises to the boot that runs it."""

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from workers.engines.process_group import end_process_group

__all__ = [
    "EngineFacts",
    "EngineFailed",
    "EngineStopped",
    "EngineUnfit",
    "RunningEngine",
    "Spawned",
    "end_process_group",
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
    """What it takes to end the engine later, even from another worker: to be stored before anything else happens."""

    group: int
    leader_started: float
    server_id: str


@dataclass(frozen=True)
class EngineFacts:
    """What a start told about itself. None where the engine did not say: missing is never zero."""

    server_id: str
    group: int
    leader_started: float
    version: str
    device: str
    driver: str | None
    kv_cache_tokens: int | None
    runner: str | None
    threads: int | None
    async_scheduling: bool | None
    max_model_len: int
    preloaded: tuple[str, ...]
    boot_seconds: float
    command: tuple[str, ...]
    environment: dict[str, str]
    log_path: str
    hardware: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        """For the manifest and the boot's row: JSON values alone."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


class RunningEngine(Protocol):
    @property
    def base_url(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def facts(self) -> EngineFacts: ...

    @property
    def returncode(self) -> int | None:
        """None while the engine's leader lives."""

    def alive(self) -> bool: ...

    def log_tail(self, lines: int = 60) -> str: ...

    def counters(self) -> dict[str, float]:
        """The engine's own counters and gauges now; OSError when it does not answer."""

    def stop(self) -> None:
        """Ends every process of the engine; returns when its memory and its port are free. May be called twice."""
