"""A content-addressed, write-once directory: root/sha256/ab/cdef… holds the bytes whose SHA-256 is abcdef….

A file is written under a temporary name, flushed to the disk with its directory, and only then gets its name, so a
name that can be seen always has all of its bytes.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

from loadtests.canonical import digest

DIGEST = re.compile(r"[0-9a-f]{64}")
# Rows are what people wrote: for this installation alone, like the uploads they came from.
READ_ONLY, PRIVATE_DIRECTORY = 0o400, 0o700
TEMPORARY = (".incoming-", ".outline-")


class EvidenceMissing(LookupError):
    """Nothing of this digest is to be had."""


class EvidenceUnreachable(EvidenceMissing, OSError):
    """The store can't be asked now, or refuses. Whether it holds the bytes nobody can say; what was to be kept isn't.
    ``passing``: it may well be back in a while."""

    def __init__(self, why: str, *, passing: bool = True) -> None:
        super().__init__(why)
        self.passing = passing


class EvidenceDamaged(RuntimeError):
    """The bytes under a digest are not the bytes that were put there."""

    def __init__(self, wanted: str, path: Path | str, found: str) -> None:
        super().__init__(f"evidence {wanted} is damaged: {path} holds bytes of digest {found}")
        self.digest, self.path, self.found = wanted, path, found


def sync_directory(directory: Path) -> None:
    """A new name survives a power cut only once its directory is on the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Create the directory and its parents, each made durable in the one above it."""
    if directory.is_dir():
        return
    make_directory(directory.parent, mode)
    directory.mkdir(mode=mode, exist_ok=True)
    sync_directory(directory.parent)


@contextmanager
def incoming(directory: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A temporary file that is gone afterwards, unless it was given its name."""
    handle, name = tempfile.mkstemp(prefix=".incoming-", dir=directory)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as sink:
            yield sink, path
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def settle(sink: BinaryIO, path: Path, final: Path, mode: int) -> None:
    sink.flush()
    os.fchmod(sink.fileno(), mode)
    os.fsync(sink.fileno())
    path.replace(final)
    sync_directory(final.parent)


def write_durably(path: Path, content: bytes, mode: int = 0o644) -> None:
    """All of the bytes under the name, on the disk, or nothing."""
    make_directory(path.parent)
    with incoming(path.parent) as (sink, temporary):
        sink.write(content)
        settle(sink, temporary, path, mode)


class EvidenceStore:
    """Evidence in a directory; ``loadtests.evidence.bucket`` has the same in a bucket."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = root / "sha256"

    def path(self, wanted: str) -> Path:
        return self.base / place_of(wanted)

    def reach(self) -> None:
        """Raises EvidenceUnreachable where nothing can be kept. A directory is made when it is first needed."""

    def has(self, wanted: str) -> bool:
        return self.path(wanted).is_file()

    def put(self, content: bytes) -> str:
        """Keep the bytes; returns their digest. Bytes already here are checked, and never written again."""
        name = digest(content)
        self._keep(name, lambda final: write_durably(final, content, READ_ONLY))
        return name

    def put_file(self, source: Path) -> str:
        """Keep a file of any size. It is hashed while it is copied, so a file that still grows can't mislead."""
        make_directory(self.base, PRIVATE_DIRECTORY)
        with incoming(self.base) as (sink, temporary):
            with source.open("rb") as opened:
                copyfileobj(opened, sink, 1 << 20)
            sink.flush()
            name = digest_of_file(temporary)
            self._keep(name, lambda final: settle(sink, temporary, final, READ_ONLY))
        return name

    def get(self, wanted: str) -> bytes:
        """The bytes of this digest, checked; raises EvidenceMissing or EvidenceDamaged."""
        path = self.path(wanted)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise EvidenceMissing(f"no evidence {wanted} in {self.root}") from None
        if (found := sha256(content).hexdigest()) != wanted:
            raise EvidenceDamaged(wanted, path, found)
        return content

    def check(self, wanted: str) -> None:
        """Like ``get`` for a file of any size, without its bytes."""
        path = self.path(wanted)
        if not path.is_file():
            raise EvidenceMissing(f"no evidence {wanted} in {self.root}")
        if (found := digest_of_file(path)) != wanted:
            raise EvidenceDamaged(wanted, path, found)

    def size(self, wanted: str) -> int:
        try:
            return self.path(wanted).stat().st_size
        except FileNotFoundError:
            raise EvidenceMissing(f"no evidence {wanted} in {self.root}") from None

    def file(self, wanted: str) -> Path:
        """A file on this machine that holds the bytes, checked; for reading. Raises as ``get``."""
        self.check(wanted)
        return self.path(wanted)

    def drop_copy(self, wanted: str) -> None:
        """What ``file`` made of the bytes on this machine isn't needed any more; here it made nothing."""

    def forget(self, wanted: str) -> None:
        """Remove the bytes of this digest for good; that there are none is no fault."""
        path = self.path(wanted)
        with suppress(FileNotFoundError):
            path.unlink()
            sync_directory(path.parent)

    def sweep(self, *, older_than_s: float) -> None:
        """Removes what processes that were killed were still writing: no digest names it."""
        limit = time.time() - older_than_s
        for directory in (self.base, *self.base.glob("[0-9a-f][0-9a-f]")):
            for prefix in TEMPORARY:
                for path in directory.glob(f"{prefix}*"):
                    with suppress(FileNotFoundError):
                        if path.stat().st_mtime < limit:
                            path.unlink()

    def _keep(self, name: str, write: Callable[[Path], None]) -> None:
        if self.has(name):
            self.check(name)
            return
        final = self.path(name)
        make_directory(final.parent, PRIVATE_DIRECTORY)
        write(final)


def place_of(wanted: str) -> str:
    """Under which name a store keeps the bytes of this digest."""
    if not DIGEST.fullmatch(wanted):
        raise ValueError(f"not a SHA-256 digest of 64 lower-case hexadecimal digits: {wanted!r}")
    return f"{wanted[:2]}/{wanted[2:]}"


def digest_of_file(path: Path) -> str:
    with path.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()
