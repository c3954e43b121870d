"""Absolute limits on a share, and through it on a percentile (design §6): requests and boots must both agree."""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

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
    boot, None below two boots. ``p_holds`` and ``p_broken`` are the larger of the two tests' p-values each way.
    """

    counted: int
    requests: int
    limit: float
    low: float
    high: float
    boots: Bounds | None
    p_holds: float
    p_broken: float


def share_limit(counted: Sequence[int], requests: Sequence[int], *, limit: float, alpha: float) -> ShareLimit:
    """Test "the expected share over boots is at most ``limit``" both ways.

    ``counted[i]`` of ``requests[i]`` (≥ 1) in boot i. A percentile limit is this with limit = 1 − quantile and
    the requests slower than the limit counted. Both an exact one-sided binomial test over all requests and a one-sided
    t bound over the boots' shares must agree, because requests of one boot aren't independent.
    Raises ValueError for no boots, lengths that differ or impossible counts. Source: design §6.
    """
    if len(counted) != len(requests) or not counted:
        raise ValueError("one count of requests per boot, and at least one boot")
    over, total = sum(counted), sum(requests)
    low, high = binomial_bounds(over, total, alpha=alpha)
    boots = None
    if len(counted) > 1:
        shares = [part / whole for part, whole in zip(counted, requests, strict=True)]
        boots = t_bounds(shares, alpha=alpha, smallest_se=share_se(over, total))
    few_over = float(stats.binom.cdf(over, total, limit))
    many_over = float(stats.binom.sf(over - 1, total, limit))
    holds = max(few_over, boots.p_below(limit)) if boots else 1.0
    broken = max(many_over, boots.p_above(limit)) if boots else 1.0
    return ShareLimit(over, total, limit, low, high, boots, holds, broken)
