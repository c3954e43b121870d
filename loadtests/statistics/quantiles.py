"""Quantiles and distribution points of one trial's pooled requests. Infinite means: it never happened."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Values = Sequence[float] | Floats


def quantile(values: Values, share: float) -> float:
    """The sample quantile of type 7 of Hyndman and Fan: linear between the order statistics.

    ``values`` has shape (n,), n ≥ 1, in any unit, and the result is in that unit; +inf is allowed and sorts last, so
    that a request that never finished stays in the denominator. ``share`` lies in [0, 1].
    Raises ValueError for no values, NaN, or a share outside [0, 1].
    Source: Hyndman & Fan, "Sample quantiles in statistical packages", The American Statistician 50 (1996) 361-365.
    """
    ordered = checked_sorted(values)
    if not 0 <= share <= 1:
        raise ValueError(f"a quantile lies in [0, 1], not at {share}")
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    low = float(ordered[below])
    if place == below:
        return low
    high = float(ordered[below + 1])
    return low if high == low else low + (place - below) * (high - low)


def checked_sorted(values: Values) -> Floats:
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if ordered.ndim != 1 or not len(ordered):
        raise ValueError("no values")
    if np.isnan(ordered).any():
        raise ValueError("a missing value (NaN) has no place in an order")
    return ordered


def quantile_log_se(values: Values, share: float) -> float:
    """Sampling standard error of log(quantile) within one trial, from the binomial variance of a share.

    ``values`` has shape (n,), all positive; the result has no unit. The quantiles one binomial standard error,
    sqrt(share·(1 − share)/n), below and above give the width; where the upper one is infinite, the lower side alone.
    Raises ValueError where the quantile itself is infinite or not positive.
    Source: Woodruff, "Confidence intervals for medians and other position measures", JASA 47 (1952) 635-646.
    """
    middle = quantile(values, share)
    if not 0 < middle < math.inf:
        raise ValueError(f"log needs a positive finite quantile, not {middle}")
    step = math.sqrt(share * (1 - share) / len(values))
    low = quantile(values, max(0.0, share - step))
    high = quantile(values, min(1.0, share + step))
    if low <= 0:
        raise ValueError("log needs positive values")
    return math.log(middle / low) if math.isinf(high) else math.log(high / low) / 2


def ecdf_points(values: Values, most: int) -> tuple[list[float], list[float]]:
    """Points of the empirical distribution function, thinned to at most ``most`` (≥ 2).

    ``values`` has shape (n,) in any unit. Returns (sorted finite values, share of all n at or below each), so requests
    that never finished (+inf) keep the curve below 1. The first and last finite value always stay.
    Raises ValueError for NaN, no values or ``most`` < 2. Source: the definition, F(x) = #{values ≤ x} / n.
    """
    if most < 2:
        raise ValueError("a curve needs at least two points")
    ordered = checked_sorted(values)
    finite = int(np.isfinite(ordered).sum())
    if not finite:
        return [], []
    kept = np.unique(np.round(np.linspace(0, finite - 1, min(most, finite))).astype(np.int64))
    # Of equal values only the last carries F(x).
    shares = np.searchsorted(ordered, ordered[kept], side="right") / len(ordered)
    return ordered[kept].tolist(), shares.tolist()
