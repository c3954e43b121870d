"""The race: which boots tuning makes next, which runners fall and why, and when it is over.

Everything here is a pure function of its arguments: a worker that was killed goes on where it was, and an auditor
computes every step again. The race goes in rounds. A round is a small campaign of boots, baseline boots between the
runners' own; each boot runs every load level, in a rotated order, over segments that all boots of the round share. Each
boot gives one effect for each goal: the improvement over the baseline boots of its round, on the brief's scale (a
difference of shares, or a log ratio; positive is better).

    race = next_round(rules, runners, observations, spent, predictions)     # Round: run its boots, observe, ask again
                                                                            # Ended: nominate(...)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadtests.tuning.field import (
    NONE,
    Amount,
    Estimate,
    Field,
    Goal,
    Observation,
    Predictions,
    Rules,
    Runner,
    Standing,
    called,
)

__all__ = [
    "NONE",
    "Amount",
    "Ended",
    "Estimate",
    "Goal",
    "Observation",
    "Predictions",
    "Round",
    "Rules",
    "Runner",
    "Standing",
    "level_orders",
    "next_round",
    "standings",
]


@dataclass(frozen=True)
class Round:
    """Boots to make next, in their order, by runner (``NONE`` is a baseline boot). ``reason``: why these."""

    number: int
    boots: tuple[str, ...]
    standings: tuple[Standing, ...]
    reason: str


@dataclass(frozen=True)
class Ended:
    """The race is over. ``why``: ``one left``, ``tied`` (what is left lies within ``same`` or can't be told apart for
    what it is worth), ``none left`` (nobody can beat no speculation), ``budget``."""

    why: Literal["one left", "tied", "none left", "budget"]
    standings: tuple[Standing, ...]
    reason: str


def next_round(
    rules: Rules,
    runners: Sequence[Runner],
    observations: Iterable[Observation],
    spent: Amount,
    predictions: Predictions,
) -> Round | Ended:
    """What comes next, from everything seen so far; the same for the same arguments, in any order of observations.

    ``runners`` may grow between two calls (a proposed schedule joins them and is a runner like any other); none may be
    called ``NONE``. ``predictions`` may be empty; they put runners in order, let hopeless ones fall unrun, and make
    what is measured of one draft length tell of its neighbours. A round that would exceed any part of the budget isn't
    started. Raises ValueError for equal names, an observation of an unknown runner or goal, or no improve goal.
    """
    seen = list(observations)
    field = Field(rules, runners, seen, predictions)
    number = 1 + max((one.round for one in seen), default=0)
    if number == 1:
        return started(field, starters(rules, runners), number, spent, "the race begins with draft lengths far apart")
    over = ended(field)
    if over is None:
        wanted = field.next_runners()
        return started(field, wanted, number, spent, field.why_these(wanted))
    untried = field.untried() if over.why == "none left" else []
    if not untried:
        return over
    return started(field, untried, number, spent, "as predicted nobody can win, and before nobody does the nearest run")


def standings(
    rules: Rules, runners: Sequence[Runner], observations: Iterable[Observation], predictions: Predictions
) -> tuple[Standing, ...]:
    """Every runner's, the best score first, those that fell last. Errors as in ``next_round``."""
    return Field(rules, runners, list(observations), predictions).standings


def level_orders(levels: Sequence[str], boots: int) -> list[tuple[str, ...]]:
    """The levels in the order each boot of a round runs them: rotated by one from boot to boot, so that a boot's
    warming up weighs on no level alone."""
    shifts = [boot % len(levels) if levels else 0 for boot in range(boots)]
    return [(*levels[shift:], *levels[:shift]) for shift in shifts]


def starters(rules: Rules, runners: Sequence[Runner]) -> list[str]:
    """Of each family ``first`` draft lengths, and as many of its schedules: whoever wrote one down asked to see it."""
    found: list[str] = []
    for family in dict.fromkeys(one.family for one in runners):
        of_it = sorted((one for one in runners if one.family == family), key=by_length)
        found += far_apart([one.name for one in of_it if not one.schedule], rules.first)
        found += far_apart([one.name for one in of_it if one.schedule], rules.first)
    return found


def far_apart(names: Sequence[str], most: int) -> list[str]:
    """They are cut into ``most`` equal parts; the middle of each."""
    parts = min(most, len(names))
    middles = (np.arange(parts) + 0.5) * len(names) / max(1, parts) - 0.5
    return [names[round(float(middle))] for middle in middles]


def by_length(one: Runner) -> tuple[float, int, str]:
    return one.mean_k, one.most, one.name


def started(field: Field, wanted: Sequence[str], number: int, spent: Amount, why: str) -> Round | Ended:
    """The round, with as many of the wanted runners as the budget has room for, the first ones first."""
    rules = field.rules
    beyond = None
    for count in range(len(wanted), 0, -1):
        chosen = wanted[:count]
        for baselines in sorted({(count + 1) // 2, max(1, count // 2)}, reverse=True):
            boots = interleaved(chosen if number % 2 else chosen[::-1], baselines)
            beyond = spent.plus_boots(len(boots), rules.boot_minutes).beyond(rules.budget)
            if beyond is None:
                return Round(number, boots, field.standings, f"Round {number} runs {', '.join(chosen)}: {why}.")
    said = f"Another round would make it {beyond}" if beyond else "There is no candidate to run"
    return Ended("budget" if beyond else "none left", field.standings, f"{said}. {field.leads}")


def interleaved(wanted: Sequence[str], baselines: int) -> tuple[str, ...]:
    """Baseline boots between the runners', after the first and then after every second one."""
    boots: list[str] = []
    for place, name in enumerate(wanted):
        boots.append(name)
        if place % 2 == 0 and place // 2 < baselines:
            boots.append(NONE)
    return tuple(boots)


def ended(field: Field) -> Ended | None:
    """None where more boots may still be worth their while."""
    leader, rules = field.leader, field.rules
    if not field.alive:
        return Ended("none left", field.standings, f"Nobody can beat no speculation any more. {field.leads}")
    if leader != NONE and field.boots.get(leader, 0) < rules.confirmed:
        return None
    rest = [one for one in (*field.alive, NONE) if one != leader]
    if rest == [NONE] and field.gain(NONE) <= rules.same:
        return Ended("one left", field.standings, f"Nobody else can still win. {field.leads}")
    nearest = max(rest, key=lambda one: (field.gain(one), one))
    if field.gain(nearest) > rules.same:
        return None
    said = f"More boots are expected to gain no more than {field.told(field.gain(nearest))}, by {called(nearest)}"
    return Ended("tied", field.standings, f"{said}. {field.leads}")
