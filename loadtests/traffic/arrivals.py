"""Arrival processes: when the requests of a window leave, in integer nanoseconds from its start."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from numpy.random import PCG64, Generator

from loadtests.traffic.levels import Arrival
from loadtests.traffic.rows import NANOSECONDS

# A level of this many requests no longer fits in a generator's memory; it is a slip in the rate.
MOST_ARRIVALS = 5_000_000
DRAWN_AT_ONCE = 1_024


def label_bytes(*labels: str | int) -> bytes:
    """SHA-256 of the labels; JSON keeps ("a", "bc") and ("ab", "c") apart."""
    return hashlib.sha256(json.dumps(labels).encode()).digest()


def derived_seed(*labels: str | int) -> int:
    """A seed of 48 bits, so that it also survives a JSON number (RFC 8785 stops at 2⁵³)."""
    return int.from_bytes(label_bytes(*labels)[:6], "big")


def generator_for(*labels: str | int) -> Generator:
    return Generator(PCG64(int.from_bytes(label_bytes(*labels), "big")))


def exact(number: float) -> Fraction:
    """The decimal number someone wrote (0.1 is 1/10), not the nearest binary one."""
    return Fraction(str(number))


def arrival_times_ns(arrival: Arrival, *, duration_s: float, seed: int, recorded_ns: Sequence[int]) -> list[int]:
    """Planned times in [0, duration), ascending, in integer nanoseconds from the window's start.

    ``recorded_ns`` (ascending) matters to a replay alone: rebased to its first time, scaled, cut at the duration.
    ``gamma`` draws gaps with mean 1 / rate and coefficient of variation cv, that is shape 1 / cv² and scale
    cv² / rate; ``poisson`` is cv = 1. Raises ValueError when no request would fall into the window.
    """
    end = math.ceil(exact(duration_s) * NANOSECONDS)
    if arrival.process == "replay":
        times = replayed(recorded_ns, scale=exact(arrival.time_scale or 1), end=end)
    else:
        times = generated(arrival, end=end, seed=seed)
    if not times:
        raise ValueError(
            f"no request falls into the window of {duration_s:g} s with {described(arrival)}: "
            "lengthen the window or raise the rate"
        )
    return times


def described(arrival: Arrival) -> str:
    if arrival.rate is None:
        return "a replay of no recorded requests"
    return f"a {arrival.process} process of {arrival.rate:g} requests/s"


def replayed(recorded_ns: Sequence[int], *, scale: Fraction, end: int) -> list[int]:
    if any(later < earlier for earlier, later in pairwise(recorded_ns)):
        raise ValueError("recorded times go backwards: a replay needs its requests in order of arrival")
    times = (int((recorded - recorded_ns[0]) * scale) for recorded in recorded_ns)
    return [time for time in times if time < end]


def generated(arrival: Arrival, *, end: int, seed: int) -> list[int]:
    rate = arrival.rate or 0.0
    if rate * end / NANOSECONDS > MOST_ARRIVALS:
        raise ValueError(f"{described(arrival)} plans over {MOST_ARRIVALS:,} requests: lower the rate or the window")
    if arrival.process == "constant":
        return constant_times(exact(rate), end=end)
    cv = 1.0 if arrival.process == "poisson" else arrival.cv or 1.0
    rng = generator_for("arrivals", arrival.process, seed)
    return list(gamma_times(rng, rate=rate, cv=cv, end=end))


def constant_times(rate: Fraction, *, end: int) -> list[int]:
    count = math.ceil(rate * end / NANOSECONDS)
    return [int(number * NANOSECONDS / rate) for number in range(count)]


def gamma_times(rng: Generator, *, rate: float, cv: float, end: int) -> Iterator[int]:
    shape, scale = cv**-2, cv**2 / rate
    now, drawn = 0.0, 0
    # A huge cv draws gaps of zero for ever: the count ends what the clock would not.
    while drawn < MOST_ARRIVALS:
        for gap in rng.gamma(shape, scale, DRAWN_AT_ONCE):
            now += float(gap)
            if now * NANOSECONDS >= end:
                return
            yield int(now * NANOSECONDS)
        drawn += DRAWN_AT_ONCE
    raise ValueError(f"the gaps of cv {cv:g} are too uneven: over {MOST_ARRIVALS:,} requests in one window")
