"""The rows of a rows.jsonl as columns: what a split and its statistics need of a million requests, in few bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import json as arrow_json

from loadtests.traffic.rows import NANOSECONDS

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
READ_AT_ONCE = 1 << 20
FIELDS = pyarrow.schema(
    [
        ("arrival_s", pyarrow.float64()),
        ("class", pyarrow.string()),
        ("conversation", pyarrow.string()),
        ("max_tokens", pyarrow.int64()),
        ("prompt_tokens", pyarrow.int64()),
    ]
)


@dataclass(frozen=True)
class Columns:
    """One value per row, in order of arrival.

    ``arrivals_ns`` counts from the set's first request. Conversations and classes are numbered in the order in which
    they first appear. ``prompt_tokens`` is None where the rows have text. ``line_ends`` are offsets in the file: row
    ``n`` lies between ``line_ends[n]`` and ``line_ends[n + 1]``.
    """

    arrivals_ns: Int64
    conversations: Int32
    classes: Int32
    class_names: tuple[str, ...]
    output_limits: Int64
    prompt_tokens: Int64 | None
    line_ends: Int64

    def __len__(self) -> int:
        return len(self.arrivals_ns)

    @property
    def end_ns(self) -> int:
        """Just after the last arrival, since stretches end before their end."""
        return int(self.arrivals_ns[-1]) + 1

    @property
    def conversation_count(self) -> int:
        return int(self.conversations.max()) + 1


def read_columns(rows: Path) -> Columns:
    """The columns of a file of canonical lines, as an import writes it."""
    ends, tables = [np.zeros(1, dtype=np.int64)], []
    for block in whole_lines(rows):
        ends.append(np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1 + ends[-1][-1])
        tables.append(table_of(block))
    table = pyarrow.concat_tables(tables)
    conversations, classes = (table[name].dictionary_encode().combine_chunks() for name in ("conversation", "class"))
    return Columns(
        # As ``Row.arrival_ns``: the nearest nanosecond.
        arrivals_ns=np.rint(table["arrival_s"].to_numpy() * NANOSECONDS).astype(np.int64),
        conversations=conversations.indices.to_numpy(),
        classes=classes.indices.to_numpy(),
        class_names=tuple(classes.dictionary.to_pylist()),
        output_limits=table["max_tokens"].to_numpy(),
        prompt_tokens=None if table["prompt_tokens"].null_count else table["prompt_tokens"].to_numpy(),
        line_ends=np.concatenate(ends),
    )


def whole_lines(rows: Path) -> Iterator[bytes]:
    """The file in pieces that end with a line, about 1 MiB or one line each."""
    with rows.open("rb") as source:
        while block := source.read(READ_AT_ONCE):
            yield block if block.endswith(b"\n") else block + source.readline()


def table_of(block: bytes) -> pyarrow.Table:
    return arrow_json.read_json(
        pyarrow.BufferReader(block),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=FIELDS, unexpected_field_behavior="ignore"),
    ).select(FIELDS.names)
