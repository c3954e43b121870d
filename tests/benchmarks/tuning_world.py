"""The simulated services that the tuning benchmark tunes: sixty truths, their engines and traffic, and one boot."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from loadtests.configurations import Speculative
from loadtests.evidence.records import RequestRecord, records_table
from loadtests.simulator import Boot, EngineModel, SimulatedTrial, preset
from loadtests.simulator.model import changed
from loadtests.statistics.quantiles import quantile
from loadtests.traffic.arrivals import derived_seed, generator_for
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row

EngineKind = Literal["gpu", "cpu"]
LEVELS = ("quiet", "ordinary", "peak")
# The brief: completion, at this quantile, improves at quiet and at ordinary, and at peak is no worse than by so much.
IMPROVE = ("quiet", "ordinary")
QUANTILE = 0.9
MARGIN = 0.05
DRAFT_LENGTHS = (1, 2, 3, 4, 5, 6, 8)
# What starting the engine takes, in seconds.
START_S = {"gpu": 90.0, "cpu": 40.0}
ROWS = 1_200


@dataclass(frozen=True)
class Shape:
    """An engine with its drafter. ``accepted`` {level of acceptance: chance of each position}. ``prompts`` {context:
    (median words, longest)}, ``answers`` {context: median tokens}. ``rates`` {context: requests per second at quiet,
    ordinary and peak}; ``windows``: seconds of each."""

    preset: str
    method: Literal["eagle3", "dflash"]
    accepted: Mapping[str, tuple[float, ...]]
    prompts: Mapping[str, tuple[float, int]]
    answers: Mapping[str, float]
    rates: Mapping[str, tuple[tuple[float, float, float], ...]]
    windows: tuple[float, float, float]


SHAPES: dict[EngineKind, Shape] = {
    "gpu": Shape(
        preset="gpu-8b",
        method="eagle3",
        accepted={
            "low": (0.55, 0.50, 0.45, 0.42),
            "middle": (0.75, 0.72, 0.70, 0.68),
            "high": (0.88, 0.86, 0.85, 0.84),
        },
        prompts={"short": (60, 400), "long": (1_800, 4_000)},
        answers={"short": 150, "long": 200},
        rates={
            "short": ((1, 4, 16), (1, 8, 24), (2, 10, 20), (0.8, 2, 8), (3, 12, 26)),
            "long": ((0.5, 1, 3), (0.8, 2, 5), (1, 3, 6), (0.5, 1.5, 4), (1, 2.5, 5.5)),
        },
        windows=(60, 30, 20),
    ),
    "cpu": Shape(
        preset="cpu-2core",
        method="dflash",
        accepted={
            "low": (0.39, 0.25, 0.15, 0.10),
            "middle": (0.60, 0.50, 0.42, 0.36),
            "high": (0.85, 0.80, 0.76, 0.72),
        },
        prompts={"short": (25, 120), "long": (200, 600)},
        answers={"short": 90, "long": 90},
        rates={
            "short": ((0.1, 0.4, 1.2), (0.2, 0.8, 1.5), (0.1, 0.3, 0.8), (0.3, 0.6, 1.0), (0.2, 1.0, 1.6)),
            "long": ((0.1, 0.3, 0.8), (0.15, 0.4, 0.7), (0.1, 0.2, 0.5), (0.2, 0.5, 0.9), (0.1, 0.6, 0.8)),
        },
        windows=(300, 200, 150),
    ),
}
CONTEXTS = ("short", "long")
ACCEPTANCES = ("low", "middle", "high")


@dataclass(frozen=True)
class Truth:
    engine: EngineKind
    context: str
    acceptance: str
    loads: int

    @property
    def name(self) -> str:
        return f"{self.engine}-{self.context}-{self.acceptance}-{self.loads}"

    @property
    def shape(self) -> Shape:
        return SHAPES[self.engine]

    @property
    def rates(self) -> tuple[float, float, float]:
        return self.shape.rates[self.context][self.loads]

    def model(self, spread: float) -> EngineModel:
        return engine_model(self, spread)

    def levels(self) -> dict[str, Level]:
        return {
            name: Level.model_validate(
                {
                    "name": name,
                    "arrival": {"process": "poisson", "rate": rate},
                    "duration_s": window,
                    "drain_s": 30 if self.engine == "gpu" else 60,
                }
            )
            for name, rate, window in zip(LEVELS, self.rates, self.shape.windows, strict=True)
        }

    def fixed(self, k: int) -> Speculative:
        return Speculative(method=self.shape.method, num_speculative_tokens=k)


TRUTHS = {
    one.name: one
    for one in (
        Truth(engine, context, acceptance, loads)
        for engine, context, acceptance, loads in product(SHAPES, CONTEXTS, ACCEPTANCES, range(5))
    )
}


@lru_cache(256)
def engine_model(truth: Truth, spread: float) -> EngineModel:
    """The preset's costs. Its boots differ by ``spread``, and drift and pause as there; none of it where it is 0."""
    shape = truth.shape
    base = preset(shape.preset)
    drafter = base.drafters[shape.method].model_dump()
    drafter["acceptance"] = {"default": {"positions": shape.accepted[truth.acceptance], "spread": 0.5}}
    nuisances = base.nuisances.model_dump() | {"boot_sd": spread} if spread else {}
    fields: dict[str, Any] = {
        "drafters": {shape.method: drafter},
        "nuisances": nuisances,
        "lengths": {"default": {"median": shape.answers[truth.context], "sigma": 0.6}},
    }
    return changed(base, fields)


@cache
def rows(engine: EngineKind, context: str) -> tuple[tuple[int, Row], ...]:
    median, longest = SHAPES[engine].prompts[context]
    rng = generator_for("tuning benchmark", "rows", engine, context)
    lengths = np.clip(rng.lognormal(float(np.log(median)), 0.5, ROWS), 5, longest).astype(int)
    limit = 512 if engine == "gpu" else 300
    return tuple((number, a_row(number, int(words), limit)) for number, words in enumerate(lengths))


def a_row(number: int, words: int, limit: int) -> Row:
    return Row.model_validate(
        {
            "id": f"r{number}",
            "conversation": f"c{number}",
            "arrival_s": number,
            "class": "chat",
            "messages": [{"role": "user", "content": f"{number}:" + " word" * words}],
            "max_tokens": limit,
        }
    )


@dataclass(frozen=True)
class Traffic:
    """What all boots of a round share: the segments, and (by ``seed``) what their texts are like."""

    seed: int
    planned: Mapping[str, list[PlannedRequest]]


@lru_cache(8)
def traffic(truth: Truth, *labels: str | int) -> Traffic:
    """The same for every acceptance, spread and candidate of a truth."""
    seed = derived_seed("tuning traffic", truth.engine, truth.context, truth.loads, *labels)
    pool = rows(truth.engine, truth.context)
    planned = {}
    for place, (name, level) in enumerate(truth.levels().items()):
        start = (seed + place * ROWS // 3) % ROWS
        planned[name] = plan_level(pool[start:] + pool[:start], level, seed=seed + place, prefix=name)
    return Traffic(seed, planned)


@dataclass(frozen=True, eq=False)
class BootRun:
    """Trials by level, what the boot took in seconds with its start, and its KV cache in tokens."""

    trials: Mapping[str, SimulatedTrial]
    seconds: float
    kv_tokens: int


def run_boot(
    truth: Truth,
    spread: float,
    speculative: Speculative | None,
    traffic_: Traffic,
    *labels: str | int,
    order: tuple[str, ...] = LEVELS,
) -> BootRun:
    """A fresh boot that runs every level in ``order``; ``labels`` draw its luck."""
    model = truth.model(spread)
    seed = derived_seed("tuning boot", truth.name, *labels)
    boot = Boot(model, speculative, seed=seed, content_seed=traffic_.seed)
    levels = truth.levels()
    trials = {
        name: boot.run_trial(
            traffic_.planned[name], level=name, window_s=levels[name].duration_s, drain_s=levels[name].drain_s
        )
        for name in order
    }
    seconds = START_S[truth.engine] + boot.engine.now
    return BootRun(trials, seconds, boot.engine.capacity * model.block_size)


def outcome(records: list[RequestRecord]) -> float:
    """Completion in seconds from the planned arrival, at QUANTILE of the planned requests."""
    ended = [
        (one.last_token_ns - one.planned_ns) / NANOSECONDS
        if one.status == "completed" and one.last_token_ns is not None
        else float("inf")
        for one in records
    ]
    return quantile(ended, QUANTILE)


def outcomes(run: BootRun) -> dict[str, float]:
    return {name: outcome(one.records) for name, one in run.trials.items()}


def table_of(trial: SimulatedTrial) -> pa.Table:
    return records_table(trial.records)


def every_truth(names: list[str] | None = None) -> Iterator[Truth]:
    yield from (TRUTHS[one] for one in names) if names else TRUTHS.values()
