"""The order of a campaign: which boots, in which order, over which segments. Pure, so a plan can be rebuilt."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from loadtests.statistics.order import arm_orders, level_order
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import Segment, Stretches, segments
from loadtests.traffic.rows import Row
from loadtests.tuning.race import NONE, level_orders

SCHEMA = "draftproof.campaign/1"
Purpose = Literal["noise-floor", "tuning", "held-out", "behaviour", "fallback"]
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


@dataclass(frozen=True)
class TuningRound:
    """A round of the race: its number, from 1, and its boots in order by candidate; ``NONE`` is the baseline."""

    number: int
    boots: tuple[str, ...]


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
    stretches: Stretches | None = None,
    tuning_round: TuningRound | None = None,
) -> list[PlannedBoot]:
    """The boots of a campaign in the order in which they run.

    ``baseline`` and the values of ``candidates`` are configuration digests; ``rows`` is the part it draws from and
    ``stretches`` the unbroken times the part was cut from. ``tuning_round``: where tuning is a race. Raises ValueError
    when the part has too few requests.
    """
    own = Arm(BASELINE, "", baseline)
    match purpose:
        case "tuning" if tuning_round is not None:
            # Each round has segments of its own, which all of its boots share.
            placed = segments(rows, levels, pairs=tuning_round.number, seed=seed, wrap=True, stretches=stretches)
            here = {name: placed[tuning_round.number - 1, name] for name in (level.name for level in levels)}
            return raced_boots(baseline, candidates, here, tuning_round, seed)
        case "tuning":
            placed = segments(rows, levels, pairs=1, seed=seed, wrap=True, stretches=stretches)
            return tuning_boots(baseline, candidates, placed, [level.name for level in levels], seed)
        case "fallback":
            at_peak = [level for level in levels if level.name == peak]
            placed = segments(rows, at_peak, pairs=1, seed=seed + 1, wrap=True, stretches=stretches)
            return [PlannedBoot(0, None, BASELINE, "", baseline, (PlannedTrial(peak, placed[0, peak]),))]
        case "behaviour":
            ((name, configuration),) = candidates.items()
            return suite_boots(own, Arm("candidate", name, configuration), Arm("control", "", baseline))
        case "noise-floor":
            placed = segments(rows, levels, pairs=pairs, seed=seed, wrap=True, stretches=stretches)
            return paired_boots(own, Arm("control", "", baseline), placed, pairs, seed)
        case "held-out":
            ((name, configuration),) = candidates.items()
            placed = segments(rows, levels, pairs=pairs, seed=seed, wrap=False, stretches=stretches)
            return paired_boots(own, Arm("candidate", name, configuration), placed, pairs, seed)


def suite_boots(*arms: Arm) -> list[PlannedBoot]:
    """One boot of each, which the preserved-behaviour suite asks: no part of the traffic is sent."""
    return [
        PlannedBoot(position, None, arm.name, arm.candidate, arm.configuration, ()) for position, arm in enumerate(arms)
    ]


def paired_boots(
    first: Arm, second: Arm, placed: Mapping[tuple[int, str], Segment], pairs: int, seed: int
) -> list[PlannedBoot]:
    levels = list(dict.fromkeys(name for _, name in placed))
    boots: list[PlannedBoot] = []
    for pair, order in enumerate(arm_orders(pairs, seed)):
        trials = tuple(PlannedTrial(name, placed[pair, name]) for name in level_order(levels, seed, pair))
        for arm in (first if name == BASELINE else second for name in order):
            boots.append(PlannedBoot(len(boots), pair, arm.name, arm.candidate, arm.configuration, trials))
    return boots


def tuning_boots(
    baseline: str,
    candidates: Mapping[str, str],
    placed: Mapping[tuple[int, str], Segment],
    levels: Sequence[str],
    seed: int,
) -> list[PlannedBoot]:
    """Baseline boots stand around the candidates' and between them, since two boots of one baseline differ too."""
    drawn = list(candidates.items())
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a reproducible order, not a secret
    middle = len(drawn) // 2 if len(drawn) > 3 else len(drawn)
    ordered: list[tuple[str, str]] = [("", baseline), *drawn[:middle], ("", baseline), *drawn[middle:]]
    if middle < len(drawn):
        ordered.append(("", baseline))
    return [
        PlannedBoot(
            position,
            None,
            "candidate" if name else BASELINE,
            name,
            configuration,
            tuple(PlannedTrial(level, placed[0, level]) for level in level_order(levels, seed, position)),
        )
        for position, (name, configuration) in enumerate(ordered)
    ]


def raced_boots(
    baseline: str, candidates: Mapping[str, str], placed: Mapping[str, Segment], raced: TuningRound, seed: int
) -> list[PlannedBoot]:
    """In the order of the round. The levels' order is drawn for the round, and rotated from boot to boot."""
    orders = level_orders(level_order(list(placed), seed, raced.number), len(raced.boots))
    return [
        PlannedBoot(
            position,
            None,
            BASELINE if name == NONE else "candidate",
            "" if name == NONE else name,
            baseline if name == NONE else candidates[name],
            tuple(PlannedTrial(level, placed[level]) for level in order),
        )
        for position, (name, order) in enumerate(zip(raced.boots, orders, strict=True))
    ]


def plan_document(
    purpose: Purpose,
    *,
    brief: str,
    part: str,
    levels: Sequence[Level],
    deadlines: Mapping[str, Any],
    seed: int,
    boots: Sequence[PlannedBoot],
    max_client_lag_ms: float | None = None,
    tuning_round: TuningRound | None = None,
    suite: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The plan as it is stored and digested, and as a trial reads its level, window and deadlines from it. The limit on
    the client's lag is there for its self-test; plans made before there was one have none. A round of a race has its
    number, a behaviour campaign the plan of its suite."""
    limit = {} if max_client_lag_ms is None else {"max_client_lag_ms": max_client_lag_ms}
    raced = {} if tuning_round is None else {"round": tuning_round.number}
    asked = {} if suite is None else {"suite": dict(suite)}
    return (
        limit
        | raced
        | asked
        | {
            "schema": SCHEMA,
            "purpose": purpose,
            "brief": brief,
            "part": part,
            "seed": seed,
            "levels": [level.model_dump(mode="json") for level in levels],
            "deadlines": dict(deadlines),
            "boots": [boot_document(boot) for boot in boots],
        }
    )


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
