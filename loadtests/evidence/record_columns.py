"""A trial's records as numpy columns, for what is held against each other over a million of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.evidence.summary import MISSING

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TIMES = ("planned_ns", "due_ns", "sent_ns", "first_token_ns", "last_token_ns", "ended_ns", "give_up_ns")
COUNTS = ("row", "prompt_tokens", "output_tokens", "chunks", "rounds", "draft_tokens", "accepted_tokens")
NUMBERS = (*TIMES, *COUNTS)
SERVER_MS = ("server_queue_ms", "server_prefill_ms", "server_decode_ms")
TEXTS = ("request_id", "class", "level", "status", "finish_reason", "fingerprint", "error")
# What is read of the records beside what the caller reads.
CHECKED = (*NUMBERS, *SERVER_MS, *TEXTS, "accepted_histogram", "warm_up")


@dataclass(frozen=True)
class Histograms:
    """Over the requests that tell one: how many rounds it counts, and how many drafts they accepted."""

    told: Bools
    rounds: Integers
    accepted: Integers


@dataclass(frozen=True)
class Records:
    """The columns of a records file; integers with −1 for missing and floats with NaN, statuses by their place in
    ``names``."""

    numbers: Mapping[str, Integers]
    known: Mapping[str, Bools]
    server_ms: Mapping[str, Floats]
    names: list[str]
    statuses: Integers
    has_finish_reason: Bools
    has_error: Bools
    warm_up: Bools
    histograms: Histograms

    def of_status(self, status: str) -> Bools:
        place = self.names.index(status) if status in self.names else -1
        return np.asarray(self.statuses == place, dtype=bool)

    def status(self, place: int) -> str:
        return self.names[int(self.statuses[place])]

    def sum_of(self, name: str) -> int:
        """Of what is told."""
        return int(self.numbers[name][self.known[name]].sum())


@dataclass(frozen=True)
class Contradiction:
    """``wrong`` marks the requests; ``said`` names columns in braces, for their values."""

    wrong: Bools
    said: str


def records_in(table: pa.Table) -> Records:
    numbers = {name: integers_of(table.column(name)) for name in NUMBERS}
    encoded = pc.fill_null(table.column("status"), "").combine_chunks().dictionary_encode()
    return Records(
        numbers=numbers,
        known={name: one != MISSING for name, one in numbers.items()},
        server_ms={name: floats_of(table.column(name)) for name in SERVER_MS},
        names=encoded.dictionary.to_pylist(),
        statuses=np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64),
        has_finish_reason=told(table.column("finish_reason")),
        has_error=told(table.column("error")),
        warm_up=np.asarray(table.column("warm_up").to_numpy(), dtype=bool),
        histograms=histograms_of(table.column("accepted_histogram").combine_chunks()),
    )


def told(column: pa.ChunkedArray) -> Bools:
    return np.asarray(column.is_valid().to_numpy(), dtype=bool)


def integers_of(column: pa.ChunkedArray) -> Integers:
    """With −1 for missing; where nothing is, there is nothing to copy."""
    filled = pc.fill_null(column.cast(pa.int64()), MISSING) if column.null_count else column
    return np.asarray(filled.to_numpy(), dtype=np.int64)


def floats_of(column: pa.ChunkedArray) -> Floats:
    filled = pc.fill_null(column, np.nan) if column.null_count else column
    return np.asarray(filled.to_numpy(), dtype=np.float64)


def histograms_of(column: pa.ListArray) -> Histograms:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0).to_numpy(), dtype=np.int64)
    counts = np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    at = np.arange(len(counts)) - np.repeat(starts, lengths)
    return Histograms(
        told=lengths > 0, rounds=added(counts, starts, lengths), accepted=added(at * counts, starts, lengths)
    )


def added(values: Integers, starts: Integers, lengths: Integers) -> Integers:
    sums = np.concatenate(([0], np.cumsum(values)))
    return np.asarray(sums[starts + lengths] - sums[starts], dtype=np.int64)
