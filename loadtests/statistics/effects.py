"""The noise floor: what a number of pairs can show, given how far two boots of one configuration lie apart."""

import math

from scipy import optimize, stats

POWER = 0.8
SPREAD_CONFIDENCE = 0.8
FEWEST_PAIRS = 4
MOST_PAIRS = 10_000


def spread_upper(spread: float, pairs: int, *, confidence: float = SPREAD_CONFIDENCE) -> float:
    """Upper confidence limit of a standard deviation estimated from ``pairs`` (≥ 2) pairs; in the spread's unit.

    spread · sqrt((m − 1) / χ²(1 − confidence; m − 1)). Raises ValueError for a negative spread or fewer than 2 pairs.
    Source: the chi-square distribution of a normal sample's variance; its use before sizing a study: Browne,
    "On the use of a pilot sample for sample size determination", Statistics in Medicine 14 (1995) 1933-1940.
    """
    if spread < 0 or pairs < 2:
        raise ValueError(f"no spread {spread} from {pairs} pairs")
    degrees = pairs - 1
    return spread * math.sqrt(degrees / float(stats.chi2.ppf(1 - confidence, degrees)))


def power_of(effect: float, spread: float, pairs: int, *, alpha: float) -> float:
    """Chance that a one-sided paired t test at ``alpha`` shows a true mean ``effect``; both in one unit, spread > 0.

    Source: the noncentral t distribution (Johnson, Kotz & Balakrishnan, Continuous Univariate Distributions 2, ch. 31).
    """
    shift = effect / spread * math.sqrt(pairs)
    critical = float(stats.t.isf(alpha, pairs - 1))
    if shift > 10 * critical + 40:  # the noncentral t loses its digits there, and the power is 1 to all of ours
        return 1.0
    return float(stats.nct.sf(critical, pairs - 1, shift))


def smallest_detectable_effect(spread: float, pairs: int, *, alpha: float, power: float = POWER) -> float:
    """The mean difference that ``pairs`` (≥ 2) show with chance ``power`` by a one-sided t test at ``alpha``.

    ``spread`` is the standard deviation between pairs; the result has its unit. Raises ValueError for a negative spread
    or fewer than 2 pairs. Source: as ``power_of``, solved for the effect.
    """
    if spread < 0 or pairs < 2:
        raise ValueError(f"no effect for spread {spread} and {pairs} pairs")
    if spread == 0:
        return 0.0
    critical = float(stats.t.isf(alpha, pairs - 1))
    # Where the shift equals the critical value the power is near one half; three times both ends bracket it.
    shift = optimize.brentq(
        lambda one: float(stats.nct.sf(critical, pairs - 1, one)) - power, 0.0, 3 * critical + 10, xtol=1e-10
    )
    return float(shift) * spread / math.sqrt(pairs)


def pairs_needed(spread: float, effect: float, *, alpha: float, power: float = POWER) -> int | None:
    """Fewest pairs, even and at least 4, that show ``effect`` (> 0) with chance ``power``; None beyond 10,000.

    ``spread`` and ``effect`` in one unit. Raises ValueError for an effect that isn't positive or a negative spread.
    Source: as ``power_of``, solved for the number of pairs (for effect/spread = 0.5, alpha 5 %: 27, so 28).
    """
    if effect <= 0 or spread < 0:
        raise ValueError(f"no number of pairs for effect {effect} and spread {spread}")
    if spread == 0 or power_of(effect, spread, FEWEST_PAIRS, alpha=alpha) >= power:
        return FEWEST_PAIRS
    low, high = FEWEST_PAIRS, 2 * FEWEST_PAIRS
    while power_of(effect, spread, high, alpha=alpha) < power:
        low, high = high, 2 * high
        if low > MOST_PAIRS:
            return None
    while high - low > 2:
        middle = (low + high) // 4 * 2
        enough = power_of(effect, spread, middle, alpha=alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high if high <= MOST_PAIRS else None


def pairs_to_bound(distance: float, spread: float, *, alpha: float) -> int | None:
    """About the fewest pairs, even and at least 4, whose one-sided bound lies ``distance`` from an unchanged mean.

    To within a tenth the smallest m with t(1 − alpha; m − 1) · spread / √m ≤ distance, all in one unit; None where the
    distance isn't positive or it takes more than 10,000. Source: the width of Student's interval.
    """
    if distance <= 0:
        return None
    pairs = FEWEST_PAIRS
    while float(stats.t.isf(alpha, pairs - 1)) * spread / math.sqrt(pairs) > distance:
        pairs = max(pairs + 2, pairs * 11 // 20 * 2)
        if pairs > MOST_PAIRS:
            return None
    return pairs
