"""Intervals within one trial, for display: nothing gates on them, since the requests of one boot share its luck."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadtests.statistics.quantiles import quantile

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Values = Sequence[float] | Floats | Bools

DRAWS = 400
CONFIDENCE = 0.9


class Interval(NamedTuple):
    low: float
    high: float


def block_length(count: int) -> int:
    """How many neighbours stay together: the cube root of ``count`` (≥ 1) requests, rounded up.

    Source: the order n^(1/3) of Hall, Horowitz & Jing, "On blocking rules for the bootstrap with dependent data",
    Biometrika 82 (1995) 561-574.
    """
    if count < 1:
        raise ValueError("no values")
    # Rounded first, so that a cube's root is itself whatever the last binary digit says.
    return math.ceil(round(math.cbrt(count), 9))


def block_bootstrap_means(values: Values, *, block: int | None = None, draws: int = DRAWS, seed: int = 0) -> Floats:
    """Means of ``draws`` resamples by moving blocks, shape (draws,), in the unit of the values.

    ``values`` has shape (n,), n ≥ 1, finite, in the order of planned arrival, so that what happened together stays
    together; ``block`` (1 to n) neighbours are drawn at a time, by default ``block_length(n)``. Each resample has as
    many whole blocks as fit n, at least one. The same seed gives the same resamples on every machine. Raises ValueError
    for no values, one that isn't finite, or a block that doesn't fit.
    Source: Künsch, "The jackknife and the bootstrap for general stationary observations", Ann. Statist. 17 (1989)
    1217-1241.
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise ValueError("a bootstrap needs finite values, and at least one")
    length = block_length(len(found)) if block is None else block
    if not 1 <= length <= len(found) or draws < 1:
        raise ValueError(f"no blocks of {length} in {len(found)} values, or no draws")
    ends = np.concatenate([[0.0], np.cumsum(found)])
    sums = ends[length:] - ends[:-length]
    blocks = len(found) // length
    picked = places(draws, blocks, len(sums), seed)
    return np.asarray(sums[picked].sum(axis=1) / (blocks * length), dtype=np.float64)


@lru_cache(maxsize=1)
def places(draws: int, blocks: int, among: int, seed: int) -> Integers:
    """Where each draw's blocks begin, shape (draws, blocks); the intervals of one trial share them."""
    # raw PCG64 words are the same on every platform and numpy version
    words = np.random.PCG64(seed).random_raw(draws * blocks)
    return (words % np.uint64(among)).astype(np.int64).reshape(draws, blocks)


def share_interval(counted: Bools, *, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """Two-sided percentile interval of a share within one trial, shares of 1, by moving blocks.

    ``counted`` has shape (n,), n ≥ 1, in the order of planned arrival. Errors as in ``block_bootstrap_means``, and
    ValueError for a confidence outside (0, 1). Source: as there; the percentile interval of Efron (1979).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies in (0, 1), not at {confidence}")
    means = block_bootstrap_means(counted, seed=seed)
    # Of very few requests whole blocks leave some out: the trial's own share lies in its interval all the same.
    share, tail = float(np.mean(counted)), (1 - confidence) / 2
    return Interval(min(share, quantile(means, tail)), max(share, quantile(means, 1 - tail)))


def quantile_interval(values: Floats, share: float, *, confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """Two-sided interval of a trial's quantile: the values at the ends of the interval of the share below it.

    ``values`` has shape (n,), n ≥ 1, in the order of planned arrival and in any unit, which the result has too; +inf is
    allowed and means that it never came. Errors as in ``quantile`` and ``share_interval``.
    Source: Woodruff, JASA 47 (1952) 635-646, with the share's interval by moving blocks (Künsch, as above).
    """
    middle = quantile(values, share)
    within = share_interval(np.asarray(values) <= middle, confidence=confidence, seed=seed)
    # The share at or below the quantile is a little above ``share`` in a sample; what counts is how far it moves.
    at = float((np.asarray(values) <= middle).mean())
    low, high = max(0.0, share - (at - within.low)), min(1.0, share + (within.high - at))
    return Interval(quantile(values, low), quantile(values, high))
