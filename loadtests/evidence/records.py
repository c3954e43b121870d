"""Per-request records and their Parquet file (design §6). Missing is null, never zero."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

VERSION = "draftproof.records/1"
VERSION_KEY = b"draftproof.schema"

Status = Literal["completed", "failed", "timed_out", "cancelled", "refused", "not_sent"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What became of one planned request; times are ns from the trial's start on one monotonic clock."""

    request_id: str
    row: int
    class_: str
    level: str
    prompt_sha256: str
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
    chunks: int
    rounds: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    accepted_histogram: list[int] | None
    output_sha256: str | None
    error: str | None
    fingerprint: str | None = None


def column(name: str, kind: pa.DataType, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null)


SCHEMA = pa.schema(
    [
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
    ],
    metadata={VERSION_KEY: VERSION.encode()},
)
# ``class`` is a keyword of Python: the one column whose attribute has another name.
ATTRIBUTES = tuple(one.name for one in fields(RequestRecord))


class BadRecords(ValueError):
    """A file that isn't a records file of this version."""


def records_table(records: Sequence[RequestRecord]) -> pa.Table:
    columns = [
        pa.array(list(map(attrgetter(attribute), records)), type=field.type)
        for attribute, field in zip(ATTRIBUTES, SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def records_content(records: Sequence[RequestRecord]) -> bytes:
    """The Parquet bytes of a trial's records, in plan order."""
    sink = BytesIO()
    pq.write_table(records_table(records), sink, compression="zstd")
    return sink.getvalue()


def read_records(source: bytes | Path) -> pa.Table:
    """The table of a records file; raises BadRecords where the file is of another kind or version."""
    try:
        table = pq.read_table(BytesIO(source) if isinstance(source, bytes) else source)
    except pa.ArrowInvalid as error:
        raise BadRecords(f"not a Parquet file: {error}") from None
    found = (table.schema.metadata or {}).get(VERSION_KEY, b"no version").decode()
    if found != VERSION:
        raise BadRecords(f"these records are {found}; this program reads {VERSION}")
    if not table.schema.equals(SCHEMA):
        raise BadRecords(f"the columns are not those of {VERSION}: {', '.join(table.schema.names)}")
    return table


def records_of(table: pa.Table) -> list[RequestRecord]:
    """The rows of a table as records (the inverse of ``records_table``)."""
    columns: list[list[Any]] = [one.to_pylist() for one in table.columns]
    return [RequestRecord(*values) for values in zip(*columns, strict=True)]


def status_counts(records: Iterable[RequestRecord]) -> dict[str, int]:
    """Every status with its count, in a fixed order; their sum is the number of requests planned."""
    counted = Counter(record.status for record in records)
    return {status: counted[status] for status in STATUSES}
