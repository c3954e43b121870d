"""The files of a set's parts: each row's line, byte for byte, in the file of its part."""

from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import numpy as np

from loadtests.traffic.columns import Columns
from loadtests.traffic.division import Division

COPIED_AT_ONCE = 1 << 20
Tell = Callable[[int], None]


def write_parts(rows: Path, columns: Columns, division: Division, directory: Path, tell: Tell) -> dict[str, str]:
    """Write ``directory/<kind>.jsonl`` for every part; gives their digests. ``tell`` gets the rows written so far."""
    # Rows of one part that follow each other are copied together.
    ends = np.append(np.flatnonzero(np.diff(division.part_of)) + 1, len(columns))
    begins = np.append(0, ends[:-1])
    offsets = columns.line_ends
    with ExitStack() as opened:
        source = opened.enter_context(rows.open("rb"))
        sinks = [Sink(opened.enter_context(part_file(directory, kind).open("wb"))) for kind in division.kinds]
        due = 0
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            copy(source, sinks[division.part_of[begin]], int(offsets[end] - offsets[begin]))
            if source.tell() >= due:
                tell(end)
                due = source.tell() + COPIED_AT_ONCE
    return {kind: sink.hashed.hexdigest() for kind, sink in zip(division.kinds, sinks, strict=True)}


def part_file(directory: Path, kind: str) -> Path:
    return directory / f"{kind}.jsonl"


class Sink:
    def __init__(self, file: BinaryIO) -> None:
        self._file, self.hashed = file, sha256()

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self.hashed.update(content)


def copy(source: BinaryIO, sink: Sink, size: int) -> None:
    while size:
        piece = source.read(min(size, COPIED_AT_ONCE))
        sink.write(piece)
        size -= len(piece)
