"""Arrival processes: when the requests of a window leave, in integer nanoseconds from its start."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from json.encoder import encode_basestring_ascii

import numpy as np
from numpy.random import PCG64, Generator

from loadtests.traffic.levels import Arrival, Patience, article
from loadtests.traffic.rows import NANOSECONDS

# A level of this many requests no longer fits in a generator's memory; it is a slip in the rate.
MOST_ARRIVALS = 5_000_000
DRAWN_AT_ONCE = 1_024


def label_bytes(*labels: str | int) -> bytes:
    """SHA-256 of the labels; JSON keeps ("a", "bc") and ("ab", "c") apart. Put together here, since a simulated trial
    asks for some hundred and ``json.dumps`` takes four times as long."""
    said = ", ".join([encode_basestring_ascii(one) if isinstance(one, str) else str(one) for one in labels])
    return hashlib.sha256(f"[{said}]".encode()).digest()


def derived_seed(*labels: str | int) -> int:
    """A seed of 48 bits, so that it also survives a JSON number (RFC 8785 stops at 2⁵³)."""
    return int.from_bytes(label_bytes(*labels)[:6], "big")


def generator_for(*labels: str | int) -> Generator:
    return Generator(PCG64(int.from_bytes(label_bytes(*labels), "big")))


def exact(number: float) -> Fraction:
    """The decimal number someone wrote (0.1 is 1/10), not the nearest binary one."""
    return Fraction(str(number))


def arrival_times_ns(
    arrival: Arrival, *, duration_s: float, seed: int, recorded_ns: Sequence[int], warm_up_s: float = 0.0
) -> list[int]:
    """Planned times in [0, warm-up + duration), ascending, in integer nanoseconds from the start of the warm-up.

    ``recorded_ns`` (ascending) matters to a replay alone: rebased to its first time, scaled, cut at the end.
    Raises ValueError when no request would fall into the window, which begins after the warm-up.
    """
    begin = math.ceil(exact(warm_up_s) * NANOSECONDS)
    end = math.ceil((exact(warm_up_s) + exact(duration_s)) * NANOSECONDS)
    if arrival.process == "replay":
        times = replayed(recorded_ns, scale=exact(arrival.time_scale or 1), end=end)
    else:
        times = generated(arrival, begin=begin, end=end, seed=seed)
    if not times or times[-1] < begin:
        raise ValueError(
            f"no request falls into the window of {duration_s:g} s with {described(arrival)}: "
            "lengthen the window or raise the rate"
        )
    return times


def described(arrival: Arrival) -> str:
    if arrival.rate is None:
        return "a replay of no recorded requests"
    return f"{article(arrival.process)} process of {arrival.rate:g} requests/s"


def replayed(recorded_ns: Sequence[int], *, scale: Fraction, end: int) -> list[int]:
    if any(later < earlier for earlier, later in pairwise(recorded_ns)):
        raise ValueError("recorded times go backwards: a replay needs its requests in order of arrival")
    times = (int((recorded - recorded_ns[0]) * scale) for recorded in recorded_ns)
    return [time for time in times if time < end]


def generated(arrival: Arrival, *, begin: int, end: int, seed: int) -> list[int]:
    rate = arrival.rate or 0.0
    # A ramp keeps its first rate while it warms up.
    rates = [arrival.mean_rate or 0.0, rate if arrival.process == "ramp" else 0.0]
    if max(rates) * end / NANOSECONDS > MOST_ARRIVALS:
        raise ValueError(f"{described(arrival)} plans over {MOST_ARRIVALS:,} requests: lower the rate or the window")
    if arrival.process == "constant":
        return constant_times(exact(rate), end=end)
    rng = generator_for("arrivals", arrival.process, seed)
    if arrival.process == "on-off":
        return list(inverted_times(rng, on_off_inverse(arrival, phase=float(rng.random())), end=end))
    if arrival.process == "ramp":
        return list(inverted_times(rng, ramp_inverse(arrival, begin=begin, end=end), end=end))
    cv = 1.0 if arrival.process == "poisson" else arrival.cv or 1.0
    return gamma_times(rng, rate=rate, cv=cv, end=end)


def constant_times(rate: Fraction, *, end: int) -> list[int]:
    count = math.ceil(rate * end / NANOSECONDS)
    # In whole numbers: a Fraction for every request takes fifty times as long.
    step = NANOSECONDS * rate.denominator
    return [number * step // rate.numerator for number in range(count)]


def gamma_times(rng: Generator, *, rate: float, cv: float, end: int) -> list[int]:
    """Gaps with mean 1 / rate and coefficient of variation cv: shape 1 / cv², scale cv² / rate. Poisson is cv = 1."""
    shape, scale = cv**-2, cv**2 / rate
    now, drawn, found = 0.0, 0, []
    # A huge cv draws gaps of zero for ever: the count ends what the clock would not.
    while drawn < MOST_ARRIVALS:
        # One after another, as a loop would add them: what was planned so once is planned so for ever.
        moments = np.cumsum(np.concatenate(([now], rng.gamma(shape, scale, DRAWN_AT_ONCE))))[1:]
        within = moments[: int(np.searchsorted(moments * NANOSECONDS, end))]
        found.extend((within * NANOSECONDS).astype(np.int64).tolist())
        if len(within) < DRAWN_AT_ONCE:
            return found
        now, drawn = float(moments[-1]), drawn + DRAWN_AT_ONCE
    raise ValueError(f"the gaps of cv {cv:g} are too uneven: over {MOST_ARRIVALS:,} requests in one window")


def inverted_times(rng: Generator, inverse: Callable[[float], float], *, end: int) -> Iterator[int]:
    """A Poisson process whose rate changes with time: Λ⁻¹ of the arrivals of a Poisson process of rate 1, where Λ(t)
    is the mean number of arrivals until t. ``inverse`` gives seconds, +inf where Λ never gets there.

    Source: Çinlar, Introduction to Stochastic Processes (1975), section 4.7.
    """
    mass = 0.0
    while True:
        for gap in rng.exponential(1.0, DRAWN_AT_ONCE):
            mass += float(gap)
            time = inverse(mass) * NANOSECONDS
            if time >= end:
                return
            yield int(time)


def give_up_times_ns(patience: Patience | None, planned_ns: Sequence[int], *, seed: int) -> list[int | None]:
    """When each request's user gives up, in ns from the trial's start; None for those who wait for ever.

    Who gives up is drawn independently with probability ``share``. Exponential patience is that of the Erlang-A model
    of a queue (Garnett, Mandelbaum & Reiman, "Designing a call center with impatient customers", M&SOM 4 (2002)).
    """
    if patience is None:
        return [None] * len(planned_ns)
    gives_up = generator_for("patience", seed).random(len(planned_ns)) < patience.share
    after_ns = [int(exact(patience.after_s) * NANOSECONDS)] * len(planned_ns)
    if patience.spread == "exponential":
        drawn = generator_for("patience", "spread", seed).exponential(patience.after_s * NANOSECONDS, len(planned_ns))
        after_ns = [int(one) for one in drawn]
    return [
        planned + max(1, after) if one else None
        for planned, after, one in zip(planned_ns, after_ns, gives_up.tolist(), strict=True)
    ]


def on_off_inverse(arrival: Arrival, *, phase: float) -> Callable[[float], float]:
    """Λ⁻¹ of bursts: λ = ``rate`` for ``on_s``, then ``rate_off`` for ``off_s``, again and again.

    The window begins ``phase`` (a share of 1) into a cycle, so that bursts don't all begin with their window. A
    Poisson process modulated by a fixed cycle; with ``rate_off`` 0, an interrupted one (Kuczura, "The interrupted
    Poisson process as an overflow process", Bell System Technical Journal 52 (1973), whose periods are random).
    """
    on_s, off_s, rate, rate_off = arrival.on_s or 0.0, arrival.off_s or 0.0, arrival.rate or 0.0, arrival.rate_off
    burst, cycle = rate * on_s, rate * on_s + rate_off * off_s
    ahead_s = phase * (on_s + off_s)
    ahead = rate * min(ahead_s, on_s) + rate_off * max(0.0, ahead_s - on_s)

    def inverse(mass: float) -> float:
        cycles, rest = divmod(ahead + mass, cycle)
        within = rest / rate if rest <= burst else on_s + (rest - burst) / rate_off
        return max(0.0, cycles * (on_s + off_s) + within - ahead_s)

    return inverse


def ramp_inverse(arrival: Arrival, *, begin: int, end: int) -> Callable[[float], float]:
    """Λ⁻¹ of a ramp: λ = ``rate`` while warming up, then linear to ``rate_to`` at the end of the window.

    After t seconds of a window of d seconds Λ = rate·t + slope·t²/2 with slope = (rate_to − rate)/d; its root is
    written so that nothing cancels: t = 2Λ / (rate + √(rate² + 2·slope·Λ)).
    """
    rate, rate_to = arrival.rate or 0.0, arrival.rate_to or 0.0
    warm_s = begin / NANOSECONDS
    slope = (rate_to - rate) / ((end - begin) / NANOSECONDS)

    def inverse(mass: float) -> float:
        rest = mass - rate * warm_s
        if rest <= 0:
            return mass / rate
        square = rate**2 + 2 * slope * rest
        return warm_s + 2 * rest / (rate + math.sqrt(square)) if square >= 0 else math.inf

    return inverse
