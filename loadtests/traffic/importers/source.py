"""A traffic file as it lies on the disk: plain, gzip or zstd, told apart by its first bytes and hashed on the way."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import pyarrow

CHUNK = 1 << 18
# A read that meets damage gives nothing at all, so little is asked for at a time.
CHUNK_COMPRESSED = 1 << 14
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class HashedFile(io.RawIOBase):
    """The raw bytes of a file, hashed as they are read."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw, self._hash, self.size = raw, sha256(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._raw.readinto(buffer) or 0
        self._hash.update(memoryview(buffer)[:count])
        self.size += count
        return count

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class Source:
    """``damage`` tells, once the chunks are used up, what is wrong with a compressed file; what came before it
    counts. ``document`` names the file as it lies there, compressed or not."""

    def __init__(self, path: Path, hashed: HashedFile) -> None:
        self._hashed = hashed
        self._file = io.BufferedReader(hashed, CHUNK)
        self.name = path.name
        self.damage: str | None = None
        start = self._file.peek(4)
        self.compression = "gzip" if start[:2] == GZIP else "zstd" if start[:4] == ZSTD else None

    def chunks(self) -> Iterator[bytes]:
        # Kept, because Arrow closes the file below when its stream goes.
        self._stream = self._opened()
        size = CHUNK if self.compression is None else CHUNK_COMPRESSED
        try:
            while chunk := self._stream.read(size):
                yield chunk
        except (EOFError, OSError, zlib.error, pyarrow.ArrowException) as error:
            if self.compression is None:
                raise
            self.damage = " ".join(str(error).split())[:200]

    def _opened(self) -> Readable:
        if self.compression == "gzip":
            return gzip.GzipFile(fileobj=self._file)
        if self.compression == "zstd":
            stream: Readable = pyarrow.CompressedInputStream(pyarrow.PythonFile(self._file, mode="r"), "zstd")
            return stream
        return self._file

    @property
    def bytes_read(self) -> int:
        return self._hashed.size

    def document(self) -> dict[str, Any]:
        while self._file.read(CHUNK):
            # What a reader left, such as bytes after the end of the compressed part, belongs to the file too.
            continue
        return {
            "file": self.name,
            "bytes": self._hashed.size,
            "sha256": self._hashed.hexdigest(),
            "compression": self.compression,
        }


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    with path.open("rb", buffering=0) as raw, HashedFile(raw) as hashed:
        yield Source(path, hashed)
