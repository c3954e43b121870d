"""Evidence that acts read. An act holds the ledger's lock, for which everybody waits who writes, and a store may take
its time: so what an act reads was read before it.

The act itself tells what that is: it begins, is taken back where it needs what wasn't read yet, and begins again once
that was read without the lock. It asks by digest, and evidence is written once: it gets what it would read now.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Protocol, TypeVar

from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.evidence.stores import evidence_store
from loadtests.journal import act

T = TypeVar("T")
# By digest the bytes, or why they are not to be had.
Found = dict[str, bytes | EvidenceMissing | EvidenceDamaged]
_found: ContextVar[Found | None] = ContextVar("found", default=None)


class NotRead(Exception):
    """What an act needs, and was not read before it."""

    def __init__(self, digests: set[str]) -> None:
        super().__init__(f"evidence that is needed within an act was not read before it: {', '.join(sorted(digests))}")
        self.digests = digests


class Source(Protocol):
    """Raises EvidenceMissing, EvidenceDamaged."""

    def get(self, wanted: str) -> bytes: ...


class ReadBefore:
    """What was read for an act."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def get(self, wanted: str) -> bytes:
        need([wanted])
        content = self._found[wanted]
        if isinstance(content, bytes):
            return content
        raise content


def source() -> Source:
    """The evidence store, or within ``act_on_evidence`` what was read before the act."""
    found = _found.get()
    return evidence_store() if found is None else ReadBefore(found)


def need(digests: Iterable[str]) -> None:
    """Says all at once what is about to be read; each on its own would begin the act once more."""
    found = _found.get()
    if found is not None and (missing := set(digests) - found.keys()):
        raise NotRead(missing)


def act_on_evidence(doing: Callable[[], T]) -> T:
    """``doing`` as an act. It reads through ``source``, and may be called several times, of which the last one counts:
    whatever it changes is in the database, or read there anew."""
    found: Found = {}
    while True:
        try:
            return attempted(doing, found)
        except NotRead as error:
            found |= {one: read_now(one) for one in sorted(error.digests)}


def attempted(doing: Callable[[], T], found: Found) -> T:
    token = _found.set(found)
    try:
        with act():
            return doing()
    finally:
        _found.reset(token)


def read_now(wanted: str) -> bytes | EvidenceMissing | EvidenceDamaged:
    try:
        return evidence_store().get(wanted)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return error
