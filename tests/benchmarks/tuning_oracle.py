"""What is true of every configuration: by simulation of boots without luck, over traffic that no race saw."""

import math
import statistics
from collections.abc import Iterable, Mapping

import numpy as np

from loadtests.simulator.acceptance import ClassAcceptance
from loadtests.simulator.costs import Costs
from loadtests.tuning.acceptance import ClassKept, Kept
from loadtests.tuning.cost_model import CostModel, drafter_of
from loadtests.tuning.propose import propose_schedule
from loadtests.tuning.race import NONE
from loadtests.tuning.schedule import Schedule
from tests.benchmarks.tuning_race import GOALS, Race, name_of, setting_named, worth_of
from tests.benchmarks.tuning_world import DRAFT_LENGTHS, IMPROVE, LEVELS, Truth, outcomes, run_boot, traffic

# Segments of every level: all configurations get the same, which no race got.
SEGMENTS = 4
# Whoever lies so far behind the best on the first segment, in its score or at peak, isn't followed to the others.
HOPELESS = 0.3
# Of the quadrature over texts.
POINTS = 24


def effects_of(truth: Truth, names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Mean effect of each configuration at each level, against no speculation on the same segments. The same drafts are
    kept in all of them, as far as they are drafted, so that what tells them apart isn't chance."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for segment in range(SEGMENTS):
        told = traffic(truth, "oracle", segment)
        base = outcomes(run_boot(truth, 0.0, None, told, "oracle", segment))
        for name in contenders(found) if segment else list(found):
            mine = outcomes(run_boot(truth, 0.0, setting_named(truth, 0.0, name), told, "oracle", segment))
            found[name].append({level: max(-3.0, math.log(base[level]) - math.log(mine[level])) for level in LEVELS})
    return {
        name: {level: statistics.fmean(one[level] for one in several) for level in LEVELS}
        for name, several in found.items()
    }


def contenders(found: Mapping[str, list[dict[str, float]]]) -> list[str]:
    best = max(0.0, *(worth_of(several[0]) for several in found.values()))
    limit = min(goal.limit for goal in GOALS)
    return [
        name
        for name, (first, *_) in found.items()
        if min(first[level] for level in IMPROVE) > best - HOPELESS and first["peak"] > limit - HOPELESS
    ]


def worths_of(effects: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {NONE: 0.0} | {name: worth_of(one) for name, one in effects.items()}


def true_model(truth: Truth) -> CostModel:
    """The costs and the acceptance as they are, texts' own effects averaged out."""
    model = truth.model(0.0)
    drafter = model.drafters[truth.shape.method]
    who = drafter_of(truth.fixed(1))
    return CostModel(
        costs=Costs(round=model.round, drafters={who: drafter.cost}),
        acceptance={who: Kept(ClassKept(averaged(drafter.acceptance.default), drafter.acceptance.default.proposes))},
        measured={who: DRAFT_LENGTHS},
        boots={},
        boot_sd=None,
        most_checked=math.inf,
        assumptions=(),
    )


def averaged(acceptance: ClassAcceptance) -> tuple[float, ...]:
    """P(draft is kept | all before it were) over all texts, by Gauss–Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(POINTS)
    each = np.stack([acceptance.survival(max(DRAFT_LENGTHS), float(one)) for one in points])
    kept = weights @ each / weights.sum()
    return tuple(float(one) for one in kept / np.concatenate([[1.0], kept[:-1]]))


def ideal_schedule(truth: Truth) -> Schedule | None:
    """What the true costs propose for the loads as the baseline has them."""
    race = Race(truth, 0.0)
    race.baseline[1] = [run_boot(truth, 0.0, None, traffic(truth, "oracle", 0), "oracle", 0)]
    return propose_schedule(
        true_model(truth),
        drafter_of(truth.fixed(1)),
        list(race.loads()),
        draft_lengths=DRAFT_LENGTHS,
        max_num_seqs=truth.model(0.0).max_num_seqs,
        margin=0.0,
    ).schedule


def names_of(schedules: Iterable[str | None]) -> list[str]:
    return [*map(name_of, DRAFT_LENGTHS), *sorted({one for one in schedules if one})]
