"""Absolute limits on a share, and through it on a percentile (design §6): requests and boots must both agree."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from loadtests.statistics.effects import pairs_to_bound
from loadtests.statistics.pairs import Bounds, share_se, t_bounds

MOST_REQUESTS = 10_000_000


def binomial_bounds(counted: int, requests: int, *, alpha: float) -> tuple[float, float]:
    """Exact one-sided bounds on a share, (low, high), each at confidence 1 − alpha; shares of 1.

    ``counted`` of ``requests`` (≥ 1) independent requests. Raises ValueError for impossible counts.
    Source: Clopper & Pearson, "The use of confidence or fiducial limits", Biometrika 26 (1934) 404-413.
    """
    if not 0 <= counted <= requests or requests < 1:
        raise ValueError(f"{counted} of {requests} can't be")
    low = 0.0 if counted == 0 else float(stats.beta.ppf(alpha, counted, requests - counted + 1))
    high = 1.0 if counted == requests else float(stats.beta.ppf(1 - alpha, counted + 1, requests - counted))
    return low, high


def requests_needed(quantile: float, *, confidence: float, late: int) -> int:
    """Fewest requests with which ``late`` of them over the limit still show "the quantile is within the limit".

    The smallest n with P(X ≤ late) ≤ 1 − confidence for X ~ Binomial(n, 1 − quantile). For p99 at 99 % confidence:
    459, 662, 838 for 0, 1, 2 late. Raises ValueError outside 0 < quantile, confidence < 1, late ≥ 0, or beyond 10^7.
    Source: the exact binomial test; the table is that of Wilks, Ann. Math. Statist. 12 (1941) 91-96.
    """
    if not (0 < quantile < 1 and 0 < confidence < 1 and late >= 0):
        raise ValueError(f"no such rule: quantile {quantile}, confidence {confidence}, late {late}")

    def enough(requests: int) -> bool:
        return bool(stats.binom.cdf(late, requests, 1 - quantile) <= 1 - confidence)

    high = late + 1
    while not enough(high):
        high *= 2
        if high > MOST_REQUESTS:
            raise ValueError(f"more than {MOST_REQUESTS} requests")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class ShareLimit:
    """What is known about a share that must stay at or below ``limit``; every number is a share of 1.

    ``low`` and ``high`` are the exact binomial bounds over all requests; ``boots`` the t bounds over one share per
    boot, None below two boots; ``boots_high`` and ``p_boots_holds`` the upper one and its test, as used. ``p_holds``
    and ``p_broken`` are the larger of the two tests' p-values each way.
    """

    counted: int
    requests: int
    limit: float
    low: float
    high: float
    boots: Bounds | None
    boots_high: float | None
    p_boots_holds: float
    p_holds: float
    p_broken: float


def share_limit(
    counted: Sequence[int], requests: Sequence[int], *, limit: float, alpha: float, with_fewer: bool = False
) -> ShareLimit:
    """Test "the expected share over boots is at most ``limit``" both ways.

    ``counted[i]`` of ``requests[i]`` (≥ 1) in boot i. A percentile limit is this with limit = 1 − quantile and
    the requests slower than the limit counted. Both an exact one-sided binomial test over all requests and a one-sided
    t bound over the boots' shares must agree, because requests of one boot aren't independent. ``with_fewer``: the
    limit must hold for fewer counted requests, too (``bounds_with_fewer``), so that more of them never help.
    Raises ValueError for no boots, lengths that differ or impossible counts. Source: design §6.
    """
    if len(counted) != len(requests) or not counted:
        raise ValueError("one count of requests per boot, and at least one boot")
    over, total = sum(counted), sum(requests)
    low, high = binomial_bounds(over, total, alpha=alpha)
    few_over = float(stats.binom.cdf(over, total, limit))
    many_over = float(stats.binom.sf(over - 1, total, limit))
    if len(counted) < 2:
        return ShareLimit(over, total, limit, low, high, None, None, 1.0, 1.0, 1.0)
    shares = [part / whole for part, whole in zip(counted, requests, strict=True)]
    boots = t_bounds(shares, alpha=alpha, smallest_se=share_se(over, total))
    tried = [boots, *bounds_with_fewer(shares, alpha=alpha)] if with_fewer else [boots]
    p_boots = max(one.p_below(limit) for one in tried)
    holds, broken = max(few_over, p_boots), max(many_over, boots.p_above(limit))
    return ShareLimit(over, total, limit, low, high, boots, max(one.high for one in tried), p_boots, holds, broken)


def bounds_with_fewer(shares: Sequence[float], *, alpha: float) -> list[Bounds]:
    """Bounds over the boots if the one, two, … with the smallest shares had had none; shares of 1, of m ≥ 2 boots.

    More counted requests in a good boot make the boots more alike, and with it Student's upper bound smaller. The
    largest of these bounds and that of ``shares`` themselves is the largest over all boots with as many or fewer
    counted, so it only ever grows: the bound is convex in each share, hence largest where each is as it is or 0; and
    where keeping a boot's share makes it larger, keeping a larger share does too.
    Source: Bauer's maximum principle for convex functions (Arch. Math. 9 (1958) 389-393) and that argument.
    """
    ordered = sorted(shares)
    return [t_bounds([0.0] * one + ordered[one:], alpha=alpha) for one in range(1, len(ordered))]


@dataclass(frozen=True)
class Needed:
    """What is still missing to show a share to be at or below its limit; None where no number would do."""

    requests: int | None
    boots: int | None


def still_needed(result: ShareLimit, *, alpha: float) -> Needed:
    """How many more requests, and how many more boots, show the limit to hold; 0 where there are enough.

    Requests: with no more of them over the limit (``requests_needed``). Boots: about, if their mean and spread stay as
    they are (``pairs_to_bound``); where there is one boot alone nothing is known of a spread, and two are the fewest.
    None where the share itself is at or above the limit, or it takes more than 10^7 requests or 10^4 boots.
    Source: the two tests of ``share_limit``, each solved for the number.
    """
    return Needed(more_requests(result, alpha), more_boots(result, alpha))


def more_requests(result: ShareLimit, alpha: float) -> int | None:
    if result.limit <= 0 or result.counted >= result.limit * result.requests:
        return None
    try:
        needed = requests_needed(1 - result.limit, confidence=1 - alpha, late=result.counted)
    except ValueError:
        return None
    return max(0, needed - result.requests)


def more_boots(result: ShareLimit, alpha: float) -> int | None:
    boots = result.boots
    if boots is None:
        return 1
    if result.p_boots_holds <= alpha:
        return 0
    needed = pairs_to_bound(result.limit - boots.mean, boots.se * math.sqrt(boots.count), alpha=alpha)
    return None if needed is None else max(1, needed - boots.count)
