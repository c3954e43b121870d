"""The order of a campaign: which boots, in which order, over which segments. Pure, so a plan can be rebuilt."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from loadtests.statistics.order import arm_orders, level_order
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import Segment, segments
from loadtests.traffic.rows import Row

SCHEMA = "draftproof.campaign/1"
Purpose = Literal["noise-floor", "tuning", "held-out", "fallback"]
BASELINE = "baseline"


@dataclass(frozen=True)
class PlannedTrial:
    level: str
    segment: Segment


@dataclass(frozen=True)
class PlannedBoot:
    position: int
    pair: int | None
    arm: str
    candidate: str
    configuration: str
    trials: tuple[PlannedTrial, ...]


@dataclass(frozen=True)
class Arm:
    name: str
    candidate: str
    configuration: str


def plan_boots(
    purpose: Purpose,
    *,
    baseline: str,
    candidates: Mapping[str, str],
    rows: Sequence[Row],
    levels: Sequence[Level],
    peak: str,
    pairs: int,
    seed: int,
) -> list[PlannedBoot]:
    """The boots of a campaign in the order in which they run.

    ``baseline`` and the values of ``candidates`` are configuration digests; ``rows`` is the part it draws from.
    Raises ValueError when the part has too few requests.
    """
    match purpose:
        case "tuning":
            return tuning_boots(baseline, candidates, rows, levels, seed)
        case "fallback":
            return fallback_boots(baseline, rows, [level for level in levels if level.name == peak], seed)
        case "noise-floor":
            second = Arm("control", "", baseline)
            return paired_boots(Arm(BASELINE, "", baseline), second, rows, levels, pairs, seed, wrap=True)
        case "held-out":
            ((name, configuration),) = candidates.items()
            second = Arm("candidate", name, configuration)
            return paired_boots(Arm(BASELINE, "", baseline), second, rows, levels, pairs, seed, wrap=False)


def paired_boots(
    first: Arm, second: Arm, rows: Sequence[Row], levels: Sequence[Level], pairs: int, seed: int, *, wrap: bool
) -> list[PlannedBoot]:
    stretches = segments(rows, levels, pairs=pairs, seed=seed, wrap=wrap)
    boots: list[PlannedBoot] = []
    for pair, order in enumerate(arm_orders(pairs, seed)):
        trials = tuple(
            PlannedTrial(name, stretches[pair, name])
            for name in level_order([level.name for level in levels], seed, pair)
        )
        for arm in (first if name == BASELINE else second for name in order):
            boots.append(PlannedBoot(len(boots), pair, arm.name, arm.candidate, arm.configuration, trials))
    return boots


def tuning_boots(
    baseline: str, candidates: Mapping[str, str], rows: Sequence[Row], levels: Sequence[Level], seed: int
) -> list[PlannedBoot]:
    """Baseline boots stand around the candidates' and between them, since two boots of one baseline differ too."""
    drawn = list(candidates.items())
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a reproducible order, not a secret
    middle = len(drawn) // 2 if len(drawn) > 3 else len(drawn)
    ordered: list[tuple[str, str]] = [("", baseline), *drawn[:middle], ("", baseline), *drawn[middle:]]
    if middle < len(drawn):
        ordered.append(("", baseline))
    stretches = segments(rows, levels, pairs=1, seed=seed, wrap=True)
    return [
        PlannedBoot(
            position,
            None,
            "candidate" if name else BASELINE,
            name,
            configuration,
            tuple(
                PlannedTrial(level, stretches[0, level])
                for level in level_order([one.name for one in levels], seed, position)
            ),
        )
        for position, (name, configuration) in enumerate(ordered)
    ]


def fallback_boots(baseline: str, rows: Sequence[Row], levels: Sequence[Level], seed: int) -> list[PlannedBoot]:
    stretches = segments(rows, levels, pairs=1, seed=seed + 1, wrap=True)
    trials = tuple(PlannedTrial(level.name, stretches[0, level.name]) for level in levels)
    return [PlannedBoot(0, None, BASELINE, "", baseline, trials)]


def plan_document(
    purpose: Purpose,
    *,
    brief: str,
    part: str,
    levels: Sequence[Level],
    deadlines: Mapping[str, Any],
    seed: int,
    boots: Sequence[PlannedBoot],
) -> dict[str, Any]:
    """The plan as it is stored and digested, and as a trial reads its level, window and deadlines from it."""
    return {
        "schema": SCHEMA,
        "purpose": purpose,
        "brief": brief,
        "part": part,
        "seed": seed,
        "levels": [level.model_dump(mode="json") for level in levels],
        "deadlines": dict(deadlines),
        "boots": [boot_document(boot) for boot in boots],
    }


def boot_document(boot: PlannedBoot) -> dict[str, Any]:
    document = asdict(boot)
    document["trials"] = [
        {
            "level": trial.level,
            "start": trial.segment.start,
            "rows": list(trial.segment.rows),
            "seed": trial.segment.seed,
        }
        for trial in boot.trials
    ]
    return document
