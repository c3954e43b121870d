"""What a set or a part of it looks like, in figures that a page can draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtests.traffic.columns import Columns, Int64
from loadtests.traffic.division import Stretches
from loadtests.traffic.rows import NANOSECONDS
from loadtests.traffic.spread import spread

DISPERSION_WINDOW_S = 10
# What a gateway gets within a millisecond reaches the server's scheduler together.
TOGETHER_S = 0.001
MOST_BUCKETS = 180
MICROSECOND = 1_000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """A set or a part of it. ``prompts`` are the lengths of the whole set's prompts in ``unit``, ``rows`` marks those
    that are its own, and ``stretches`` are its own time."""

    columns: Columns
    prompts: Int64
    unit: str
    stretches: Stretches
    timed: bool
    rows: NDArray[np.bool_]

    @property
    def arrivals_ns(self) -> Int64:
        return self.columns.arrivals_ns[self.rows]

    @property
    def prompt_lengths(self) -> Int64:
        return self.prompts[self.rows]

    @property
    def output_limits(self) -> Int64:
        return self.columns.output_limits[self.rows]

    @property
    def classes(self) -> dict[str, int]:
        counts = np.bincount(self.columns.classes[self.rows], minlength=len(self.columns.class_names)).tolist()
        return {name: count for name, count in sorted(zip(self.columns.class_names, counts, strict=True)) if count}

    @property
    def gaps_s(self) -> Floats:
        """Seconds between arrivals that follow each other within one stretch."""
        return gaps_s(self.arrivals_ns, self.stretches) if self.timed else np.empty(0)


def gaps_s(arrivals_ns: Int64, stretches: Stretches) -> Floats:
    before, after = followers(arrivals_ns, stretches)
    found: Floats = (arrivals_ns[after] - arrivals_ns[before]) / NANOSECONDS
    return found


def followers(arrivals_ns: Int64, stretches: Stretches) -> tuple[Int64, Int64]:
    """The places of requests that follow each other within one stretch: of the first, and of the next, of each two."""
    stretch = stretch_of(arrivals_ns, stretches)
    inside = np.flatnonzero(stretch >= 0)
    together = np.diff(stretch[inside]) == 0
    return inside[:-1][together], inside[1:][together]


def stretch_of(arrivals_ns: Int64, stretches: Stretches) -> Int64:
    """The number of the stretch that each time lies in; −1 in none."""
    starts, ends = np.array(stretches, dtype=np.int64).T
    at = np.searchsorted(starts, arrivals_ns, side="right") - 1
    return np.where((at >= 0) & (arrivals_ns < ends[at]), at, -1)


def part_statistics(side: Side) -> dict[str, Any]:
    """Counts, lengths and times in JSON types.

    Lengths of prompts are in ``prompt.unit``, output limits in tokens. ``duration_s`` is the time of the stretches,
    in whole microseconds. Times of day (``busiest_second``, ``arrivals``) count from the set's start, so that parts
    can be laid over each other. ``dispersion_10s`` is the index of dispersion (variance ÷ mean) of the arrivals per
    10 s: 1 for a Poisson process, above 1 for bursts, None for fewer than two windows; ``dispersion_1s`` is that per
    second. ``together`` is the share of requests that arrive within a millisecond of the one before. These and the
    gaps leave out requests that arrive in another part's time. Percentiles are values that occur (the smallest with at
    least that share at or below it); a histogram's bin holds what is at or above its first edge and below its second.
    """
    timed = side.timed
    last_ns = side.columns.end_ns - 1
    bucket_s = bucket_width_s(last_ns)
    return {
        "count": len(side.arrivals_ns),
        "classes": side.classes,
        "conversations": int(np.count_nonzero(np.bincount(side.columns.conversations[side.rows]))),
        "duration_s": duration_s(side.stretches),
        "prompt": {"unit": side.unit, **lengths(side.prompt_lengths, side.prompts)},
        "max_tokens": lengths(side.output_limits, side.columns.output_limits),
        "gaps_s": gaps(side.gaps_s) if timed else None,
        "dispersion_10s": dispersion(side.arrivals_ns, side.stretches, window_s=DISPERSION_WINDOW_S) if timed else None,
        "dispersion_1s": dispersion(side.arrivals_ns, side.stretches, window_s=1) if timed else None,
        "together": together(side) if timed else None,
        "busiest_second": busiest_second(side.arrivals_ns) if timed else None,
        "bucket_s": bucket_s,
        "arrivals": per_bucket(side.arrivals_ns, bucket_s=bucket_s, last_ns=last_ns),
        "timed": timed,
    }


def together(side: Side) -> float:
    inside = int(np.count_nonzero(stretch_of(side.arrivals_ns, side.stretches) >= 0))
    return int(np.count_nonzero(side.gaps_s <= TOGETHER_S)) / max(1, inside)


def duration_s(stretches: Stretches) -> float:
    # The last stretch ends a nanosecond after the set's last request, for whom no duration is meant.
    return sum(end - start for start, end in stretches) // MICROSECOND / 1_000_000


def lengths(values: Int64, all_values: Int64) -> dict[str, Any]:
    """``all_values`` are the whole set's: they give the edges, so that parts can be laid over each other."""
    return {**spread(values), "histogram": histogram(values, octave_edges(all_values))}


def histogram(values: NDArray[Any], edges: Sequence[float]) -> dict[str, Any]:
    bins = np.searchsorted(np.array(edges), values, side="right") - 1
    return {"edges": list(edges), "counts": np.bincount(bins, minlength=len(edges) - 1).tolist()}


def octave_edges(values: Int64) -> list[int]:
    """Two bins per doubling, whole numbers: lengths spread over orders of magnitude. They reach around the values."""
    least, most = max(0, int(values.min())), int(values.max())
    ladder = [0, 1, 2, 3]
    while ladder[-1] <= most:
        ladder.append(2 * ladder[-2])
    first = int(np.searchsorted(ladder, least, side="right")) - 1
    last = int(np.searchsorted(ladder, most, side="right"))
    return ladder[first : last + 1]


def gaps(values: Floats) -> dict[str, Any] | None:
    """None where no two requests follow each other."""
    return {**spread(values), "histogram": histogram(values, gap_edges(float(values.max())))} if len(values) else None


def gap_edges(longest_s: float) -> list[float]:
    """0, then 1, 2 and 5 times the powers of ten from a millisecond on, to beyond the longest gap."""
    edges, power = [0.0], -3
    while edges[-1] <= longest_s:
        edges += [float(f"{step}e{power}") for step in (1, 2, 5)]
        power += 1
    return edges[: next(at for at, edge in enumerate(edges) if edge > longest_s) + 1]


def dispersion(arrivals_ns: Int64, stretches: Stretches, *, window_s: int) -> float | None:
    """Sample variance ÷ mean of the counts per window. Windows are laid from the start of each stretch on, and count
    where they lie within it whole; silent ones count without being listed."""
    width = window_s * NANOSECONDS
    starts, ends = np.array(stretches, dtype=np.int64).T
    held = (ends - starts) // width
    windows = int(held.sum())
    at = stretch_of(arrivals_ns, stretches)
    inside, at = arrivals_ns[at >= 0], at[at >= 0]
    number = (inside - starts[at]) // width
    whole = number < held[at]
    if windows < 2 or not whole.any():
        return None
    _, counts = np.unique((np.cumsum(held) - held)[at[whole]] + number[whole], return_counts=True)
    mean = int(counts.sum()) / windows
    squares = float(((counts - mean) ** 2).sum()) + (windows - len(counts)) * mean**2
    return squares / (windows - 1) / mean


def busiest_second(arrivals_ns: Int64) -> dict[str, Any]:
    """The second with the most requests, which begins with one of them; of equals the earliest."""
    counts = np.searchsorted(arrivals_ns, arrivals_ns + NANOSECONDS) - np.arange(len(arrivals_ns))
    busiest = int(counts.argmax())
    return {"at_s": int(arrivals_ns[busiest]) / NANOSECONDS, "count": int(counts[busiest])}


def bucket_width_s(span_ns: int) -> int:
    """The smallest multiple of 10 s that keeps the chart at or below 180 bars."""
    tens = span_ns // (MOST_BUCKETS * DISPERSION_WINDOW_S * NANOSECONDS) + 1
    return tens * DISPERSION_WINDOW_S


def per_bucket(arrivals_ns: Int64, *, bucket_s: int, last_ns: int) -> list[int]:
    width = bucket_s * NANOSECONDS
    counts: list[int] = np.bincount(arrivals_ns // width, minlength=last_ns // width + 1).tolist()
    return counts
