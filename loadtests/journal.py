"""Where load tests report what happened to them, so that it stands in the ledger of decisions.

``loadtests`` may not import ``decisions``; ``decisions`` registers its writer here when Django starts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from django.db import transaction


class Writer(Protocol):
    def __call__(self, kind: str, *, subject: str, actor: str, details: dict[str, object]) -> object: ...


class Unregistered(RuntimeError):
    """Nobody keeps the record: better to stop than to lose an event."""


_registered: list[tuple[Writer, Callable[[], None]]] = []


def register(writer: Writer, lock: Callable[[], None]) -> None:
    """``lock`` lets one writing transaction at a time past it, until that transaction ends."""
    _registered[:] = [(writer, lock)]


def registered() -> tuple[Writer, Callable[[], None]]:
    if not _registered:
        raise Unregistered("no journal is registered: nothing may be written that leaves no event")
    return _registered[0]


@contextmanager
def act() -> Iterator[None]:
    """The transaction of an act. Every writing service takes the ledger's lock first and its rows after that: taken
    in any other order, two of them could wait for each other."""
    with transaction.atomic():
        registered()[1]()
        yield


def record(kind: str, *, subject: str, actor: str, **details: object) -> None:
    """Writes one event, inside the caller's act."""
    registered()[0](kind, subject=subject, actor=actor, details=details)
