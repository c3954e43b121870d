"""Within deadline and attainment (design §3), over every planned request."""

import numpy as np
import numpy.typing as npt

NANOSECONDS = 1_000_000_000
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def seconds_since_planned(moment_ns: Integers, planned_ns: Integers, completed: Bools) -> Floats:
    """Latency from the planned arrival in seconds; +inf where the request didn't complete or the moment never came.

    All three have shape (n,): moments and plans in ns from the trial's start, a moment below 0 is missing.
    Raises ValueError where the shapes differ. Source: design §6, "open loop" and "denominator".
    """
    if not moment_ns.shape == planned_ns.shape == completed.shape:
        raise ValueError(f"shapes differ: {moment_ns.shape}, {planned_ns.shape}, {completed.shape}")
    latency = (moment_ns - planned_ns) / NANOSECONDS
    return np.where(completed & (moment_ns >= 0), latency, np.inf)


def within_deadline(first_s: Floats, completion_s: Floats, first_limit_s: Floats, completion_limit_s: Floats) -> Bools:
    """Which requests were within deadline: first token and completion at or before their limits.

    Shapes (n,), seconds from the planned arrival; +inf never is within. Source: design §3, "within deadline".
    """
    return (first_s <= first_limit_s) & (completion_s <= completion_limit_s) & np.isfinite(completion_s)


def attainment(within: Bools) -> float:
    """Requests within deadline ÷ requests planned, a share of 1. ``within`` has shape (n,), n ≥ 1.

    Raises ValueError where nothing was planned. Source: design §3, "attainment".
    """
    if not within.size:
        raise ValueError("nothing was planned")
    return float(within.mean())


def slo_goodput(within: Bools, window_s: float) -> float:
    """Requests within deadline per second of the window. ``within`` has shape (n,), n ≥ 0; ``window_s`` is above 0.

    Raises ValueError for a window that isn't positive. Source: design §3, "SLO goodput".
    """
    if not window_s > 0:
        raise ValueError(f"a window lasts longer than {window_s} s")
    return float(within.sum()) / window_s
