"""Per-request records and their Parquet file (design §6). Missing is null, never zero."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from io import BytesIO
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

# The default one gives memory back to the system after every file and takes it again, and holds a tenth more.
pa.set_memory_pool(pa.system_memory_pool())

VERSION = "draftproof.records/2"
# Written before levels could warm up, cap what is open or let users give up; read as what it said.
FIRST_VERSION = "draftproof.records/1"
VERSION_KEY = b"draftproof.schema"
# So few that they stay in the processor's cache from column to column.
ROWS_A_TABLE = 2_048
# So many that a group compresses well.
ROWS_A_GROUP = 32_768

Status = Literal["completed", "failed", "timed_out", "cancelled", "refused", "not_sent"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What became of one planned request; times are ns from the trial's start on one monotonic clock.

    ``due_ns`` is when the client had to send it: as planned, or when a slot came free where the level caps what is
    open; None while it waits for one. ``give_up_ns`` is when its user was to give up, None for those who never do.
    Requests of the ``warm_up`` are in no number.
    """

    request_id: str
    row: int
    class_: str
    level: str
    prompt_sha256: str | None
    prompt_tokens: int | None
    planned_ns: int
    sent_ns: int | None
    first_token_ns: int | None
    last_token_ns: int | None
    ended_ns: int | None
    server_queue_ms: float | None
    server_prefill_ms: float | None
    server_decode_ms: float | None
    status: Status
    finish_reason: str | None
    output_tokens: int | None
    chunks: int | None
    rounds: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    accepted_histogram: list[int] | None
    output_sha256: str | None
    error: str | None
    fingerprint: str | None = None
    due_ns: int | None = None
    give_up_ns: int | None = None
    warm_up: bool = False

    @property
    def lag_ns(self) -> int | None:
        """The client's own: sent − due, where records without a due time were due as planned."""
        due_ns = self.planned_ns if self.due_ns is None else self.due_ns
        return None if self.sent_ns is None else self.sent_ns - due_ns

    @property
    def gave_up(self) -> bool:
        """Cancelled as planned, by a user who had waited long enough. A stopped trial cancels earlier than that."""
        planned, ended = self.give_up_ns, self.ended_ns
        return self.status == "cancelled" and planned is not None and ended is not None and ended >= planned


def column(name: str, kind: pa.DataType, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null)


FIRST_COLUMNS = [
    column("request_id", pa.string()),
    column("row", pa.int32()),
    column("class", pa.string()),
    column("level", pa.string()),
    column("prompt_sha256", pa.string()),
    column("prompt_tokens", pa.int32(), null=True),
    column("planned_ns", pa.int64()),
    column("sent_ns", pa.int64(), null=True),
    column("first_token_ns", pa.int64(), null=True),
    column("last_token_ns", pa.int64(), null=True),
    column("ended_ns", pa.int64(), null=True),
    column("server_queue_ms", pa.float64(), null=True),
    column("server_prefill_ms", pa.float64(), null=True),
    column("server_decode_ms", pa.float64(), null=True),
    column("status", pa.string()),
    column("finish_reason", pa.string(), null=True),
    column("output_tokens", pa.int32(), null=True),
    column("chunks", pa.int32()),
    column("rounds", pa.int32(), null=True),
    column("draft_tokens", pa.int32(), null=True),
    column("accepted_tokens", pa.int32(), null=True),
    column("accepted_histogram", pa.list_(pa.int32()), null=True),
    column("output_sha256", pa.string(), null=True),
    column("error", pa.string(), null=True),
    column("fingerprint", pa.string(), null=True),
]
LATER_COLUMNS = [
    column("due_ns", pa.int64(), null=True),
    column("give_up_ns", pa.int64(), null=True),
    column("warm_up", pa.bool_()),
]
# Imported evidence has neither: other tools keep no digests, and don't count the chunks of every request.
UNTOLD_COLUMNS = ("prompt_sha256", "chunks")
COLUMNS = [one.with_nullable(one.nullable or one.name in UNTOLD_COLUMNS) for one in FIRST_COLUMNS]
SCHEMA = pa.schema([*COLUMNS, *LATER_COLUMNS], metadata={VERSION_KEY: VERSION.encode()})
FIRST_SCHEMA = pa.schema(FIRST_COLUMNS, metadata={VERSION_KEY: FIRST_VERSION.encode()})
# Of few values; a dictionary of values that never come twice costs time and space.
REPEATED_COLUMNS = ["row", "class", "level", "prompt_sha256", "prompt_tokens", "status", "finish_reason", "error"]
REPEATED_COLUMNS += ["fingerprint"]
# ``class`` is a keyword of Python: the one column whose attribute has another name.
ATTRIBUTES = tuple(one.name for one in fields(RequestRecord))


class BadRecords(ValueError):
    """A file that isn't a records file of this version."""


def records_table(records: Sequence[RequestRecord]) -> pa.Table:
    columns = [
        array_of(list(map(attrgetter(attribute), records)), field.type)
        for attribute, field in zip(ATTRIBUTES, SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Most columns of texts hold one value, or none, over long stretches: told in a tenth of the time."""
    first = values[0] if values else None
    same = (first is None or isinstance(first, str | bool)) and values.count(first) == len(values)
    return pa.repeat(pa.scalar(first, kind), len(values)) if same else pa.array(values, type=kind)


def records_content(records: Sequence[RequestRecord]) -> bytes:
    """The Parquet bytes of a trial's records, in plan order. The same records give the same bytes."""
    sink = BytesIO()
    writing = pq.ParquetWriter(sink, SCHEMA, compression="zstd", use_dictionary=REPEATED_COLUMNS)
    # While one group is compressed, the next one's columns are built.
    with writing as writer, ThreadPoolExecutor(1) as behind:
        list(behind.map(writer.write_table, tables(records)))
    return sink.getvalue()


def tables(records: Sequence[RequestRecord]) -> Iterator[pa.Table]:
    """A table for each group of the file, put together from small ones."""
    for start in range(0, len(records), ROWS_A_GROUP):
        end = min(start + ROWS_A_GROUP, len(records))
        parts = range(start, end, ROWS_A_TABLE)
        yield pa.concat_tables([records_table(records[one : min(one + ROWS_A_TABLE, end)]) for one in parts])


def read_records(source: bytes | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a records file, with all columns or these alone; raises BadRecords where it is of another kind or
    version, or damaged."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    try:
        file = pq.ParquetFile(BytesIO(content))
        schema = file.schema_arrow
        check_schema(schema)
        known = None if columns is None else [one for one in columns if one in schema.names]
        table = file.read(columns=known)
        if version_of(table.schema) == VERSION:
            return table
        whole = with_later_columns(table if columns is None else file.read())
    except BadRecords:
        raise
    except (pa.ArrowException, LookupError, OSError, ValueError) as error:
        # Of bytes in memory, an error of reading is one of what they say.
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadRecords(f"not a Parquet file, or a damaged one: {first}") from None
    return whole if columns is None else whole.select(list(columns))


def version_of(schema: pa.Schema) -> str:
    said: bytes = (schema.metadata or {}).get(VERSION_KEY, b"no version")
    return said.decode(errors="replace")


def check_schema(schema: pa.Schema) -> None:
    found = version_of(schema)
    if found not in (VERSION, FIRST_VERSION):
        raise BadRecords(f"these records are {found}; this program reads {VERSION} and {FIRST_VERSION}")
    if not schema.equals(SCHEMA if found == VERSION else FIRST_SCHEMA):
        raise BadRecords(f"the columns are not those of {found}: {', '.join(schema.names)}")


def with_later_columns(table: pa.Table) -> pa.Table:
    """In the first version every request was due as planned, nobody gave up and nothing was warm-up."""
    nobody = pa.nulls(table.num_rows, pa.int64())
    measured = pa.array([False] * table.num_rows, pa.bool_())
    columns = [*table.columns, table.column("planned_ns"), nobody, measured]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def records_of(table: pa.Table) -> list[RequestRecord]:
    """The rows of a table as records (the inverse of ``records_table``)."""
    columns: list[list[Any]] = [one.to_pylist() for one in table.columns]
    return [RequestRecord(*values) for values in zip(*columns, strict=True)]


def status_counts(records: Iterable[RequestRecord]) -> dict[str, int]:
    """Every status with its count, in a fixed order; their sum is the number of requests planned."""
    counted = Counter(record.status for record in records)
    return {status: counted[status] for status in STATUSES}


def measured(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Those of the window: what numbers are made of."""
    return [record for record in records if not record.warm_up]
