"""A zstd file in pieces that end where its blocks do (RFC 8878, section 3.1.1), so that a block that is damaged or cut
spoils none of those before it."""

import io
from collections.abc import Iterator
from typing import Protocol

ZSTD = b"\x28\xb5\x2f\xfd"
# Frames that hold no content begin with any of 16 numbers.
SKIPPED = {bytes([low, 0x2A, 0x4D, 0x18]) for low in range(0x50, 0x60)}
AT_ONCE = 1 << 16
CUT = "it ends before its end"
STRANGE = "what follows its end is no zstd"
NAME_SIZES = (0, 1, 2, 4)
CONTENT_SIZES = (0, 2, 4, 8)
ONE_BYTE_REPEATED = 1


class Content(Protocol):
    """A file whose ``read`` gives fewer bytes than asked for at its end alone."""

    def read(self, size: int, /) -> bytes: ...


class Blocks(io.RawIOBase):
    """``damage`` tells that the file ends within a frame, or goes on with something else. It is known when the last
    whole block is given out, and what it is about is given to nobody."""

    def __init__(self, file: Content) -> None:
        self._file = file
        self._pieces = self._frames()
        self._held = b""
        self.damage = ""
        self._next = self._following()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes and not beyond a block."""
        if not self._held:
            self._held, self._next = self._next, self._following()
        size = len(self._held) if size < 0 else size
        piece, self._held = self._held[:size], self._held[size:]
        return piece

    def _following(self) -> bytes:
        try:
            return next(self._pieces, b"")
        except EOFError:
            self.damage = CUT
            return b""

    def _frames(self) -> Iterator[bytes]:
        while magic := self._file.read(len(ZSTD)):
            if len(magic) < len(ZSTD):
                raise EOFError
            if magic == ZSTD:
                yield from self._frame()
            elif magic in SKIPPED:
                yield from self._skipped(magic)
            else:
                self.damage = STRANGE
                return

    def _frame(self) -> Iterator[bytes]:
        (flags,) = descriptor = self._taken(1)
        whole = flags >> 5 & 1
        window_or_size = 1 if not whole or not flags >> 6 else 0
        before = ZSTD + descriptor + self._taken(window_or_size + NAME_SIZES[flags & 3] + CONTENT_SIZES[flags >> 6])
        last = 0
        while not last:
            header = self._taken(3)
            number = int.from_bytes(header, "little")
            last = number & 1
            yield before + header + self._taken(1 if number >> 1 & 3 == ONE_BYTE_REPEATED else number >> 3)
            before = b""
        if flags & 4:
            yield self._taken(4)

    def _skipped(self, magic: bytes) -> Iterator[bytes]:
        size = self._taken(4)
        yield magic + size
        left = int.from_bytes(size, "little")
        while left:
            piece = self._taken(min(left, AT_ONCE))
            yield piece
            left -= len(piece)

    def _taken(self, count: int) -> bytes:
        taken = self._file.read(count)
        if len(taken) < count:
            raise EOFError
        return taken
