"""The timeline of a trial: engine, client and machine in every second of its clock, as a Parquet file.

Missing is null, never zero. Counters of the engine count from its start; shares are of 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loadtests.evidence.records import VERSION_KEY, RequestRecord
from loadtests.traffic.rows import NANOSECONDS

VERSION = "draftproof.timeline/1"

# The engine's own gauges and counters, by column.
ENGINE = (
    "running",
    "waiting",
    "kv_cache_use",
    "preemptions",
    "generation_tokens",
    "prompt_tokens",
    "draft_tokens",
    "accepted_tokens",
    "prefix_queries",
    "prefix_hits",
)
# Of the machine that the client runs on, and of the engine's processes where they run there too. CPU is the share of
# all cores since the sample before; the engine's memory is its processes' resident sets, shared pages counted in each.
MACHINE = ("host_cpu", "host_memory_bytes", "engine_cpu", "engine_memory_bytes")
# Over all accelerators: mean of how busy, sums of memory in use and power.
ACCELERATOR = ("accelerator_use", "accelerator_memory_bytes", "accelerator_power_w")
SAMPLED = (*ENGINE, *MACHINE, *ACCELERATOR)
CLIENT = ("sent", "ended", "in_flight")

SCHEMA = pa.schema(
    [
        pa.field("at_ns", pa.int64(), nullable=False),
        pa.field("read_ns", pa.int64()),
        *(pa.field(name, pa.int32(), nullable=False) for name in CLIENT),
        *(pa.field(name, pa.float64()) for name in SAMPLED),
    ],
    metadata={VERSION_KEY: VERSION.encode()},
)


class BadTimeline(ValueError):
    """A file that isn't a timeline of this version."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read at one moment, by column; what nobody told is not in it. Times are ns of the trial's clock: when
    the reading began, and when it was there."""

    asked_ns: int
    read_ns: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Gaps:
    """Of how many seconds the timeline lacks the sample, and of how many the engine's word."""

    seconds: int
    samples: int
    engine: int

    @property
    def sentences(self) -> list[str]:
        said = [(self.samples, "no sample was taken in time"), (self.engine, "the engine did not tell its state")]
        return [f"timeline: in {count} of {self.seconds} seconds {what}" for count, what in said if count]


def timeline_table(samples: Iterable[Sample], records: Sequence[RequestRecord], *, end_ns: int) -> pa.Table:
    """One row for every whole second from 0 to ``end_ns``, with the sample that was begun nearest to it.

    The client's numbers come from the records, so they hold at the very second, whatever became of the sample.
    """
    grid = np.arange(0, max(0, end_ns) + 1, NANOSECONDS, dtype=np.int64)
    taken = nearest(samples)
    found = [taken.get(second) for second in range(len(grid))]
    columns: dict[str, Any] = {"at_ns": grid, "read_ns": [one.read_ns if one else None for one in found]}
    columns |= client_counts(records, grid)
    columns |= {name: [one.values.get(name) if one else None for one in found] for name in SAMPLED}
    return pa.Table.from_arrays([pa.array(columns[one.name], type=one.type) for one in SCHEMA], schema=SCHEMA)


def nearest(samples: Iterable[Sample]) -> dict[int, Sample]:
    """By second of the grid; a sample belongs to the second it was begun at, give or take half of one."""
    found: dict[int, Sample] = {}
    for one in samples:
        second = round(one.asked_ns / NANOSECONDS)
        other = found.get(second)
        if other is None or distance(one, second) < distance(other, second):
            found[second] = one
    return found


def distance(sample: Sample, second: int) -> int:
    return abs(sample.asked_ns - second * NANOSECONDS)


def client_counts(records: Sequence[RequestRecord], grid: np.ndarray[Any, Any]) -> dict[str, Any]:
    sent = np.sort(np.array([one.sent_ns for one in records if one.sent_ns is not None], dtype=np.int64))
    ended = np.sort(np.array([one.ended_ns for one in records if one.ended_ns is not None], dtype=np.int64))
    gone = [one.ended_ns for one in records if one.sent_ns is not None and one.ended_ns is not None]
    left = np.sort(np.array(gone, dtype=np.int64))
    by_then = {name: np.searchsorted(one, grid, side="right") for name, one in (("sent", sent), ("ended", ended))}
    return by_then | {"in_flight": by_then["sent"] - np.searchsorted(left, grid, side="right")}


def timeline_content(table: pa.Table) -> bytes:
    sink = BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def read_timeline(source: bytes | Path) -> pa.Table:
    """The table of a timeline file; raises BadTimeline where it is of another kind or version."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    try:
        table = pq.read_table(BytesIO(content))
    except (pa.ArrowException, LookupError, OSError, ValueError) as error:
        raise BadTimeline(f"not a Parquet file, or a damaged one: {error}") from None
    found = (table.schema.metadata or {}).get(VERSION_KEY, b"no version").decode(errors="replace")
    if found != VERSION:
        raise BadTimeline(f"this timeline is {found}; this program reads {VERSION}")
    if not table.schema.equals(SCHEMA):
        raise BadTimeline(f"the columns are not those of {found}: {', '.join(table.schema.names)}")
    return table


def gaps(table: pa.Table) -> Gaps:
    """What the engine leaves out for ever is no gap: only seconds in which it told nothing of all it tells count."""
    missed = table["read_ns"].null_count
    told = np.zeros(table.num_rows, dtype=bool)
    for name in ENGINE:
        told |= ~np.asarray(table[name].is_null().to_numpy(zero_copy_only=False), dtype=bool)
    return Gaps(table.num_rows, missed, int((~told).sum()) - missed)
