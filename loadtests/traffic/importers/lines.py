"""Chunks of bytes into lines, in bounded memory."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line without its newline. ``content`` is empty where ``size`` is above the limit; ``ended`` is False for a
    last line without a newline."""

    number: int
    content: bytes
    size: int
    ended: bool


def split_lines(chunks: Iterable[bytes], *, limit: int, number: int = 0) -> Iterator[Line]:
    """Lines end at "\\n" alone: U+2028 and its like stand inside JSON strings. A BOM before line 1 is dropped.
    ``number`` lines came before."""
    parts, size = list[bytes](), 0
    for chunk in chunks:
        *ending, rest = chunk.split(b"\n")
        for piece in ending:
            number += 1
            yield line_of(number, parts, piece, size, limit=limit, ended=True)
            parts, size = [], 0
        size += len(rest)
        # What is over the limit is counted and let go, however long it gets.
        parts = [*parts, rest] if size <= limit else []
    if size:
        yield line_of(number + 1, parts, b"", size, limit=limit, ended=False)


def line_of(number: int, parts: list[bytes], piece: bytes, size: int, *, limit: int, ended: bool) -> Line:
    whole = size + len(piece)
    if whole > limit:
        return Line(number, b"", whole, ended)
    content = b"".join([*parts, piece]) if parts else piece
    return Line(number, content.removeprefix(BOM) if number == 1 else content, whole, ended)
