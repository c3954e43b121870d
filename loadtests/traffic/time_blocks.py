"""Blocks of time that no burst is cut by, and the stretches that they make up."""

import math

import numpy as np

from loadtests.traffic.columns import Int64
from loadtests.traffic.rows import NANOSECONDS

MOST_BLOCKS = 100_000
# What a gateway gets within less arrives together, and a split must not cut it.
SHORTEST_BLOCK_S = 0.001
LONGEST_BLOCK_NS = 2**60


def block_starts(arrivals_ns: Int64, *, block_s: float) -> Int64:
    """When each block starts, in nanoseconds; a block lasts until the next one, ``block_s`` more or less.

    A block's end is moved from its nominal place to the end of the longest silence between half and one and a half
    block lengths after its start, of equals the nearest, then the earliest. So a burst that is shorter than a block,
    with longer silences around it than inside, stays whole. ``arrivals_ns`` ascend. Raises ValueError.
    """
    width = width_ns(block_s)
    times = arrivals_ns[np.append(True, np.diff(arrivals_ns) > 0)]
    silences = np.diff(times)
    starts, at = [int(times[0])], 0
    while int(times[-1]) > starts[-1] + width + width // 2:
        at = next_start(times, silences, at, width)
        starts.append(int(times[at]))
        if len(starts) > MOST_BLOCKS:
            raise ValueError(f"block_s: over {MOST_BLOCKS:,} time blocks of {block_s:g} s: choose longer blocks")
    return np.array(starts, dtype=np.int64)


def width_ns(block_s: float) -> int:
    if not block_s >= SHORTEST_BLOCK_S or math.isinf(block_s):
        raise ValueError(f"block_s: a time block lasts {SHORTEST_BLOCK_S:g} s at least and ends, not {block_s:g} s")
    return min(round(block_s * NANOSECONDS), LONGEST_BLOCK_NS)


def next_start(times: Int64, silences: Int64, at: int, width: int) -> int:
    """Where in ``times`` the next block starts; the silence ``n`` lies between the times ``n`` and ``n + 1``."""
    start = int(times[at])
    first = max(at, int(np.searchsorted(times, start + width // 2)) - 1)
    last = int(np.searchsorted(times, start + width + width // 2, side="right"))
    within = silences[first:last]
    longest = first + 1 + np.flatnonzero(within == within.max())
    return int(longest[np.argmin(np.abs(times[longest] - (start + width)))])


def blocks_of(arrivals_ns: Int64, starts: Int64) -> Int64:
    """The number of the block that each time lies in."""
    blocks: Int64 = np.searchsorted(starts, arrivals_ns, side="right") - 1
    return blocks


def stretches_of(starts: Int64, owned: np.ndarray, end_ns: int) -> list[list[int]]:
    """[start, end) of each run of blocks that are ``owned`` (a flag per block)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], owned.astype(np.int8), [0]])))
    times = np.append(starts, end_ns)[edges]
    return times.reshape(-1, 2).tolist()
