"""What may be known of a part without opening it: when its requests arrive, and the hash of each prompt.

Whether a plan fits can then be told before anyone reads a row, and whether a prompt was seen in another set too.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pyarrow
import pyarrow.parquet as pq
from numpy.typing import NDArray

from loadtests.traffic.columns import Int64
from loadtests.traffic.near_duplicates import messages_in

UInt64 = NDArray[np.uint64]
SCHEMA = b"draftproof.part-index/1"
# 64 bits: among ten million prompts the chance that two different ones meet is 3 in a million.
HASH_BYTES = 8
# Times are kept as seconds in a double, which is exact to well below this.
SAME_SHIFT_NS = 1_000_000


@dataclass(frozen=True)
class PartIndex:
    """One value per row, in the part's order. ``prompts`` are the first 8 bytes of the SHA-256 that records name a
    prompt by; None where the rows are lengths without text."""

    arrivals_ns: Int64
    prompts: UInt64 | None


def prompt_hashes(lines: Iterable[bytes]) -> UInt64:
    """Of canonical lines with text."""
    hashed = (int.from_bytes(sha256(messages_in(line)).digest()[:HASH_BYTES], "big") for line in lines)
    return np.fromiter(hashed, dtype=np.uint64)


def index_content(index: PartIndex) -> bytes:
    prompts = pyarrow.nulls(len(index.arrivals_ns), pyarrow.uint64()) if index.prompts is None else index.prompts
    table = pyarrow.table({"arrival_ns": index.arrivals_ns, "prompt": prompts})
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({b"schema": SCHEMA}), sink, compression="zstd")
    return sink.getvalue()


def read_index(content: bytes) -> PartIndex:
    table = pq.read_table(pyarrow.BufferReader(content))
    prompts = table["prompt"]
    return PartIndex(table["arrival_ns"].to_numpy(), None if prompts.null_count else prompts.to_numpy())


def seen_in(one: PartIndex, other: PartIndex, *, timed: bool = True) -> int:
    """How many rows of ``one`` are rows of ``other`` too, as far as hashes and times tell.

    People ask the same again week after week, so an equal prompt alone proves nothing. What two cuts of one recording
    share are prompts at times that are all shifted alike, because each import counts from its own first request; so
    the most frequent shift is counted, over prompts that stand once in either. Where half of the rows hold the other's
    prompts, or one of the two has no times, equal prompts are enough; and so they are where ``timed`` is False, since
    the times tell nothing of the prompts.
    """
    if one.prompts is None or other.prompts is None:
        return 0
    mine, theirs = lone_rows(one.prompts), lone_rows(other.prompts)
    _, left, right = np.intersect1d(one.prompts[mine], other.prompts[theirs], return_indices=True)
    shifts = one.arrivals_ns[mine[left]] - other.arrivals_ns[theirs[right]]
    alike = int(np.isin(one.prompts, other.prompts).sum())
    if not timed or 2 * alike >= len(one.prompts) or not (one.arrivals_ns.any() and other.arrivals_ns.any()):
        return alike
    return int(np.unique(np.round(shifts / SAME_SHIFT_NS), return_counts=True)[1].max(initial=0))


def lone_rows(prompts: UInt64) -> NDArray[np.intp]:
    """The rows whose prompt stands in no other row."""
    _, first, counts = np.unique(prompts, return_index=True, return_counts=True)
    return np.asarray(first[counts == 1])
