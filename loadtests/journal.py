"""Where load tests report what happened to them, so that it stands in the ledger of decisions.

``loadtests`` may not import ``decisions``; ``decisions`` registers its writer here when Django starts.
"""

from typing import Protocol


class Writer(Protocol):
    def __call__(self, kind: str, *, subject: str, actor: str, details: dict[str, object]) -> object: ...


class Unregistered(RuntimeError):
    """Nobody keeps the record: better to stop than to lose an event."""


_writers: list[Writer] = []


def register(writer: Writer) -> None:
    _writers[:] = [writer]


def record(kind: str, *, subject: str, actor: str, **details: object) -> None:
    """Writes one event, inside the caller's transaction."""
    if not _writers:
        raise Unregistered(f"no journal is registered, event {kind} of {subject} was refused")
    _writers[0](kind, subject=subject, actor=actor, details=details)
