"""A traffic file as it lies on the disk: plain, gzip or zstd, told apart by its first bytes and hashed on the way."""

import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow

from loadtests.traffic.importers.problems import ImportRefused, file_shown
from loadtests.traffic.importers.zstd_blocks import CUT, ZSTD, Blocks, Content

CHUNK = 1 << 18
CHUNK_COMPRESSED = 1 << 14
# A read of Arrow's that meets damage gives nothing at all, so little is asked for at a time.
PIECE = 1 << 8
GZIP = b"\x1f\x8b"
# Bytes that a compressed file may hold: a megabyte can unpack to a gigabyte, a few of them to more than any disk.
UNPACKED_LIMIT = 64_000_000_000


class Damaged(Exception):
    """A compressed file can't be read on from here."""


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

    def __init__(self, path: Path, hashed: HashedFile, unpacked_limit: int) -> None:
        self._hashed, self._unpacked_limit = hashed, unpacked_limit
        self._file = io.BufferedReader(hashed, CHUNK)
        self.name = file_shown(path)
        self.damage: str | None = None
        start = self._file.peek(4)
        self.compression = "gzip" if start[:2] == GZIP else "zstd" if start[:4] == ZSTD else None

    def chunks(self) -> Iterator[bytes]:
        """Raises ImportRefused for a compressed file that holds more than the limit."""
        content = CONTENTS[self.compression](self._file)
        try:
            yield from self._bounded(content) if self.compression else content
        except Damaged as error:
            self.damage = " ".join(str(error).split())[:200]

    def _bounded(self, content: Iterator[bytes]) -> Iterator[bytes]:
        unpacked = 0
        for chunk in content:
            unpacked += len(chunk)
            if unpacked > self._unpacked_limit:
                raise ImportRefused(
                    f"{self.name} unpacks to more than {self._unpacked_limit:,} bytes, the limit for a compressed "
                    "file: split it, or raise --unpacked-limit"
                )
            yield chunk

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


def plain(file: Content) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def gunzipped(file: Content) -> Iterator[bytes]:
    """The content of all members; raises Damaged after the last byte that can be had."""
    member = zlib.decompressobj(wbits=31)
    while packed := file.read(CHUNK_COMPRESSED):
        while packed:
            if member.eof:
                # Between members, and after the last, zeros may fill a block of the tape.
                packed = packed.lstrip(b"\0")
                if not packed:
                    break
                member = zlib.decompressobj(wbits=31)
            before = member.copy()
            try:
                piece = member.decompress(packed)
            except zlib.error as error:
                yield from byte_by_byte(before, packed)
                raise Damaged(str(error)) from None
            if piece:
                yield piece
            packed = member.unused_data if member.eof else b""
    if not member.eof:
        raise Damaged(CUT)


def byte_by_byte(member: Any, packed: bytes) -> Iterator[bytes]:
    """What comes before the damage: the call that meets it gives nothing at all."""
    for at in range(len(packed)):
        try:
            piece: bytes = member.decompress(packed[at : at + 1])
        except zlib.error:
            return
        if piece:
            yield piece


def unzstd(file: Content) -> Iterator[bytes]:
    """As ``gunzipped``, by whole blocks: what a block that is cut would hold can't be had."""
    blocks = Blocks(file)
    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(blocks, mode="r"), "zstd")
    pieces: list[bytes] = []
    try:
        # Towards an end that is known to be damaged, byte by byte.
        while piece := stream.read(1 if blocks.damage else PIECE):
            pieces.append(piece)
            if len(pieces) == CHUNK_COMPRESSED // PIECE:
                yield b"".join(pieces)
                pieces = []
    except (OSError, pyarrow.ArrowException) as error:
        yield from [b"".join(pieces)] if pieces else []
        raise Damaged(blocks.damage or str(error)) from None
    yield from [b"".join(pieces)] if pieces else []
    if blocks.damage:
        raise Damaged(blocks.damage)


CONTENTS: dict[str | None, Callable[[Content], Iterator[bytes]]] = {
    None: plain,
    "gzip": gunzipped,
    "zstd": unzstd,
}


@contextmanager
def opened(path: Path, unpacked_limit: int = UNPACKED_LIMIT) -> Iterator[Source]:
    with path.open("rb", buffering=0) as raw, HashedFile(raw) as hashed:
        yield Source(path, hashed, unpacked_limit)
