"""Bounds over pairs: one number per pair, since boots and not requests are the statistical unit (design §2, §6)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Values = Sequence[float] | Floats

EXACT_UP_TO = 16
SAMPLED_FLIPS = 65_536
SAME = 1e-12


@dataclass(frozen=True)
class Bounds:
    """A mean over ``count`` pairs (or boots) with one-sided bounds, each at confidence 1 − alpha.

    ``low`` and ``high`` together are the two-sided interval at confidence 1 − 2·alpha. ``spread`` is the sample
    standard deviation between pairs, ``se`` the standard error that was used. All in the unit of the differences.
    """

    count: int
    mean: float
    spread: float
    se: float
    low: float
    high: float

    def p_above(self, limit: float) -> float:
        """One-sided p-value against "the true mean is at most ``limit``" (Student's t, count − 1 degrees)."""
        if self.se == 0:
            return 0.0 if self.mean > limit else 1.0
        return float(stats.t.sf((self.mean - limit) / self.se, self.count - 1))

    def p_below(self, limit: float) -> float:
        """One-sided p-value against "the true mean is at least ``limit``"."""
        if self.se == 0:
            return 0.0 if self.mean < limit else 1.0
        return float(stats.t.cdf((self.mean - limit) / self.se, self.count - 1))

    def p_differs(self, value: float) -> float:
        """Two-sided p-value against "the true mean is ``value``"."""
        return min(1.0, 2 * min(self.p_above(value), self.p_below(value)))


def t_bounds(differences: Values, *, alpha: float, smallest_se: float = 0.0) -> Bounds:
    """Mean and one-sided 1 − alpha bounds by Student's t over pairs.

    ``differences`` has shape (m,), m ≥ 2, finite, in any unit. ``smallest_se`` is the sampling standard error of the
    mean within pairs, in the same unit: the larger of it and spread/√m is used, so that pairs that happen to agree
    never give a zero-width interval. Raises ValueError for m < 2, values that aren't finite, alpha outside (0, 0.5].
    Source: Student, "The probable error of a mean", Biometrika 6 (1908) 1-25; the floor is design §6.
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError("a bound over pairs needs at least two pairs")
    if not np.isfinite(values).all():
        raise ValueError("a bound over pairs needs finite differences")
    if not 0 < alpha <= 0.5:
        raise ValueError(f"alpha lies in (0, 0.5], not at {alpha}")
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    se = max(spread / math.sqrt(len(values)), smallest_se)
    half = float(stats.t.isf(alpha, len(values) - 1)) * se
    return Bounds(len(values), mean, spread, se, mean - half, mean + half)


def log_ratios(baseline: Values, candidate: Values) -> Floats:
    """log(candidate ÷ baseline) per pair, shape (m,), no unit. exp of a mean of them is the geometric mean ratio.

    Raises ValueError where shapes differ or a value isn't positive and finite.
    Source: Fleiss, "The design and analysis of clinical experiments" (1986), ratios on the log scale.
    """
    below, above = np.asarray(baseline, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
    if below.shape != above.shape:
        raise ValueError(f"shapes differ: {below.shape}, {above.shape}")
    if not (np.isfinite(below) & np.isfinite(above) & (below > 0) & (above > 0)).all():
        raise ValueError("a log ratio needs positive finite values in both arms")
    return np.log(above) - np.log(below)


def log_ratio_bounds(baseline: Values, candidate: Values, *, alpha: float, smallest_se: float = 0.0) -> Bounds:
    """t bounds on the mean log ratio candidate ÷ baseline over pairs; take exp for the ratio.

    Shapes (m,), m ≥ 2, positive and finite. Errors as in ``log_ratios`` and ``t_bounds``.
    """
    return t_bounds(log_ratios(baseline, candidate), alpha=alpha, smallest_se=smallest_se)


def matched_share_se(gained: int, lost: int, requests: int) -> float:
    """Binomial sampling standard error of a difference of shares between arms that got the same requests.

    Of ``requests`` matched requests (all pairs together, ≥ 1), ``gained`` counted in the second arm alone and ``lost``
    in the first alone. One is added to both, so that no discordant request still leaves a width (about that of
    the rule of three). The result is a share of 1. Raises ValueError for impossible counts.
    Source: the variance of a matched difference (McNemar, Psychometrika 12 (1947) 153-157), with added counts as in
    Agresti & Min, Statistics in Medicine 24 (2005) 729-740.
    """
    if gained < 0 or lost < 0 or requests < 1 or gained + lost > requests:
        raise ValueError(f"{gained} gained and {lost} lost of {requests} can't be")
    total = requests + 4
    more, less = (gained + 1) / total, (lost + 1) / total
    return math.sqrt((more + less - (more - less) ** 2) / requests)


def share_se(counted: int, requests: int) -> float:
    """Binomial sampling standard error of one share, with one success and one failure added so it is never zero.

    Raises ValueError for impossible counts. Source: Laplace's rule of succession; Agresti & Coull (1998) for its use.
    """
    if not 0 <= counted <= requests or requests < 1:
        raise ValueError(f"{counted} of {requests} can't be")
    share = (counted + 1) / (requests + 2)
    return math.sqrt(share * (1 - share) / requests)


def count_rate_se(first: int, second: int, requests: int) -> float:
    """Sampling standard error of a difference of rates per request between two arms that count events independently.

    ``first`` and ``second`` events (≥ 0) in either arm's ``requests`` (≥ 1, over all pairs). One is added to both, so
    that no event at all still leaves a width. In events per request. Raises ValueError for impossible counts.
    Source: the variance of a Poisson count is its mean; the added counts are as in ``matched_share_se``.
    """
    if first < 0 or second < 0 or requests < 1:
        raise ValueError(f"{first} and {second} events in {requests} requests can't be")
    return math.sqrt(first + second + 2) / requests


def sign_flip_p_value(differences: Values, *, limit: float = 0.0) -> float:
    """One-sided sign-flip permutation p-value against "the differences lie symmetrically about at most ``limit``".

    ``differences`` has shape (m,), m ≥ 1, finite. All 2^m flips up to m = 16, beyond it a fixed sample of 65,536 with
    the observed one counted in. The smallest possible value is 2^−m, so it can't reach 5 % below m = 5.
    Raises ValueError for no or infinite differences. Source: Fisher, "The design of experiments" (1935) §21.
    """
    centred = np.asarray(differences, dtype=np.float64) - limit
    if centred.ndim != 1 or not len(centred) or not np.isfinite(centred).all():
        raise ValueError("a sign-flip test needs finite differences")
    flips, extra = sign_patterns(len(centred))
    observed = centred.sum()
    tolerance = SAME * max(1.0, float(np.abs(centred).sum()))
    as_large = int((flips @ centred >= observed - tolerance).sum())
    return (as_large + extra) / (len(flips) + extra)


def least_sign_flip_p_value(count: int) -> float:
    """What ``sign_flip_p_value`` can't go below with ``count`` differences (≥ 1), exact up to 16: where all lie on one
    side, no flip but the observed one is as large. Source: as there.
    """
    return 2.0**-count if count <= EXACT_UP_TO else 1 / (SAMPLED_FLIPS + 1)


# A verdict asks some ten times for the same number of pairs; up to 10 MB.
@lru_cache(1)
def sign_patterns(count: int) -> tuple[Floats, int]:
    if count <= EXACT_UP_TO:
        bits = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return (1 - 2 * bits).astype(np.float64), 0
    # raw PCG64 words are the same on every platform and numpy version
    words = np.random.PCG64(0).random_raw(SAMPLED_FLIPS * count) & np.uint64(1)
    return 1.0 - 2.0 * words.reshape(SAMPLED_FLIPS, count).astype(np.float64), 1
