"""Capacity by a ladder of rates: which rate an arm is shown to carry, and how many replicas a peak takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadtests.statistics.shares import ShareLimit, share_limit


@dataclass(frozen=True)
class Rung:
    """One rate of the ladder in requests per second; per boot the requests that were late, and those judged."""

    rate: float
    late: Sequence[int]
    requests: Sequence[int]


@dataclass(frozen=True)
class Capacity:
    """``shown``: the highest rate that is shown to hold, None where not even the lowest is; ``censored``: the top rung
    holds, so that the true capacity may lie anywhere above. ``stopped_at`` is the first rate that wasn't shown.

    ``above``: the lowest rate shown not to hold, None where not even the top rung is. Rates in requests per second.
    """

    shown: float | None
    censored: bool
    stopped_at: float | None
    above: float | None


def ladder(rungs: Sequence[Rung]) -> list[Rung]:
    """The rungs from the lowest rate up. Raises ValueError for none, equal rates, or a rate that isn't positive."""
    found = sorted(rungs, key=lambda one: one.rate)
    if not found or found[0].rate <= 0:
        raise ValueError("a ladder needs rates above zero")
    if any(low.rate == high.rate for low, high in pairwise(found)):
        raise ValueError("two rungs have the same rate")
    return found


def rung_test(rung: Rung, *, target: float, alpha: float) -> ShareLimit:
    """The test of "attainment is at least ``target``" at one rung, by the share of late requests (``share_limit``)."""
    return share_limit(rung.late, rung.requests, limit=1 - target, alpha=alpha, with_fewer=True)


def capacity(rungs: Sequence[Rung], *, target: float, alpha: float) -> Capacity:
    """What a ladder shows: attainment ≥ ``target`` (a share of 1) at which rates, each way at confidence 1 − alpha.

    Rates are tested in fixed order from the lowest, each at the full alpha, until the first that isn't shown to hold;
    and from the highest down, until the first that isn't shown to break. The order is fixed before the data, so neither
    needs a correction. It is taken for granted that an arm which holds a rate holds every lower one. Raises ValueError
    for a target outside (0, 1), and as ``ladder`` and ``share_limit`` do.
    Source: a-priori ordered hypotheses (Maurer, Hothorn & Lehmacher, 1995); Hsu & Berger, "Stepwise confidence
    intervals without multiplicity adjustment for dose-response and toxicity studies", JASA 94 (1999) 468-482.
    """
    if not 0 < target < 1:
        raise ValueError(f"a target attainment lies in (0, 1), not at {target}")
    ordered = ladder(rungs)
    tests = [(one.rate, rung_test(one, target=target, alpha=alpha)) for one in ordered]
    shown, stopped_at = None, None
    for rate, test in tests:
        if test.p_holds > alpha:
            stopped_at = rate
            break
        shown = rate
    above = None
    for rate, test in reversed(tests):
        if test.p_broken > alpha:
            break
        above = rate
    return Capacity(shown, shown is not None and stopped_at is None, stopped_at, above)


def replicas_needed(rate: float, carried: float) -> int:
    """Fewest replicas that carry ``rate`` where one is shown to carry ``carried``, both in requests per second, > 0.

    It takes for granted that a balancer splits the load evenly. Raises ValueError for rates that aren't positive.
    Source: the definition, ⌈rate ÷ carried⌉; a quotient that is whole but for the last binary digits counts as whole.
    """
    if not (rate > 0 and carried > 0 and math.isfinite(rate / carried)):
        raise ValueError(f"no replicas for {rate} requests/s at {carried} requests/s each")
    return math.ceil(rate / carried - 1e-9)
