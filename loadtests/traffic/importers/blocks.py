"""Tables of times and lengths by whole blocks of lines: a million rows in seconds where nothing is odd about them.

A block with anything odd in it goes to the row reader, which is the one that says what is wrong. So this must accept
less than the row reader and agree with it on what it accepts.
"""

from collections.abc import Iterable, Iterator
from datetime import date
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import csv

from loadtests.traffic.importers.lines import BOM
from loadtests.traffic.importers.records import CheckColumns, Found, check_names, table
from loadtests.traffic.importers.values import EPOCH, FURTHEST_NS, INSTANT, MOST_TOKENS, zone_ns
from loadtests.traffic.rows import NANOSECONDS

Int64 = NDArray[np.int64]
# Without letters, quotes and signs there is one way to read a number, and pyarrow's is ours.
PLAIN = b"0123456789-:.,+ TZ\r\n"
DAY_NS = 86_400 * NANOSECONDS


class Columns(NamedTuple):
    """Where a table has the instant, the prompt's and the output's length."""

    time: str
    prompt: str
    output: str


class Block(NamedTuple):
    """Rows that follow each other without a gap, in lines and in numbers."""

    line: int
    number: int
    times_ns: Int64
    zoned: bool
    prompts: Int64
    outputs: Int64
    names: tuple[str, ...]


def whole_lines(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """The chunks, cut after their last newline. The last one may have none, nor has what is over the limit."""
    rest = b""
    for chunk in chunks:
        held, newline, after = chunk.rpartition(b"\n")
        if newline or len(rest) > limit:
            yield rest + (held + newline or chunk)
            rest = after if newline else b""
        else:
            rest += chunk
    if rest:
        yield rest


def table_blocks(
    chunks: Iterable[bytes], columns: Columns, *, limit: int, check: CheckColumns
) -> Iterator[Found | Block]:
    """As ``records.table`` for a comma-separated table with a header, with blocks where they can be."""
    pieces = iter(chunks)
    first = next(pieces, b"")
    header, newline, rest = first.removeprefix(BOM).partition(b"\n")
    header = header.removesuffix(b"\r")
    if (
        not newline
        or not header.strip()
        or not header.isascii()
        or len(header) > limit
        or b'"' in header
        or b"\r" in header
    ):
        yield from table(chain([first], pieces), limit=limit, tabs=False, header=True, check=check)
        return
    names = [name.strip() for name in header.decode().split(",")]
    check_names(names, check)
    line, number = 1, 0
    blocks = whole_lines(chain([rest], pieces), limit)
    for block in blocks:
        # A quoted cell may go on in the next block, and a long line through many: from here on it is row by row.
        if b'"' in block or len(block) > limit:
            rows = chain([block], blocks)
            yield from table(rows, limit=limit, tabs=False, header=True, names=names, line=line, number=number)
            return
        found = read_block(block, names, columns, line=line, number=number)
        if found is not None:
            yield found
            number += len(found.prompts)
        else:
            for one in table([block], limit=limit, tabs=False, header=True, names=names, line=line, number=number):
                number += 1
                yield one
        line += block.count(b"\n")


def read_block(block: bytes, names: list[str], columns: Columns, *, line: int, number: int) -> Block | None:
    """The rows of the block, or None where the row reader must look."""
    if block.translate(None, PLAIN):
        return None
    try:
        cells = csv.read_csv(
            pyarrow.BufferReader(block),
            read_options=csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False),
            parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                include_columns=list(columns),
                column_types=dict(zip(columns, (pyarrow.binary(), pyarrow.int64(), pyarrow.int64()), strict=True)),
                null_values=[],
            ),
        )
    except pyarrow.ArrowException:
        return None
    prompts, outputs = (cells[name].combine_chunks().to_numpy() for name in columns[1:])
    times = instants(cells[columns.time].combine_chunks())
    if times is None or len(prompts) != lines_in(block) or not usable(prompts) or not usable(outputs):
        return None
    return Block(line + 1, number + 1, times[0], times[1], prompts, outputs, tuple(names))


def lines_in(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def usable(counts: Int64) -> bool:
    return bool(len(counts)) and int(counts.min()) > 0 and int(counts.max()) <= MOST_TOKENS


def instants(cells: Any) -> tuple[Int64, bool] | None:
    """Times that are all written like the first; and whether they carry a zone."""
    size = len(cells)
    if not size or (match := INSTANT.fullmatch(cells[0].as_py().decode())) is None:
        return None
    width = len(match.group())
    offsets = np.frombuffer(cells.buffers()[1], dtype=np.int32)[cells.offset : cells.offset + size + 1]
    if not (np.diff(offsets) == width).all():
        return None
    text = np.frombuffer(cells.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(size, width)
    end = match.end(4) if match.group(4) else match.end(3)
    digits, others = text[:, :end] - 48, np.ones(width, dtype=bool)
    others[[at for at in range(end) if chr(text[0, at]).isdigit()]] = False
    if not (text[:, others] == text[0, others]).all() or (digits[:, ~others[:end]] > 9).any():
        return None
    clock = seconds_of_day(digits)
    if clock is None:
        return None
    fraction = number_at(digits, match.start(4), end) * 10 ** (9 - (end - match.start(4))) if match.group(4) else 0
    try:
        times = days_ns(text) + clock * NANOSECONDS + fraction - zone_ns(match.group(5))
    except ValueError:
        return None
    return (times, match.group(5) is not None) if int(np.abs(times).max()) < FURTHEST_NS else None


def seconds_of_day(digits: NDArray[np.uint8]) -> Int64 | None:
    hours, minutes, seconds = (number_at(digits, at, at + 2) for at in (11, 14, 17))
    if int(hours.max()) > 23 or int(minutes.max()) > 59 or int(seconds.max()) > 59:
        return None
    return hours * 3_600 + minutes * 60 + seconds


def number_at(digits: NDArray[np.uint8], start: int, end: int) -> Int64:
    powers = 10 ** np.arange(end - start - 1, -1, -1, dtype=np.int64)
    number: Int64 = digits[:, start:end].astype(np.int64) @ powers
    return number


def days_ns(text: NDArray[np.uint8]) -> Int64:
    """Nanoseconds from 1970 to the day; raises ValueError for a day that never was or is out of range."""
    days, which = np.unique(np.ascontiguousarray(text[:, :10]).view("S10")[:, 0], return_inverse=True)
    since = [date.fromisoformat(day.decode()).toordinal() - EPOCH for day in days.tolist()]
    if any(abs(one) * DAY_NS >= FURTHEST_NS for one in since):
        raise ValueError("out of range")
    known: Int64 = np.array(since, dtype=np.int64)[which] * DAY_NS
    return known
