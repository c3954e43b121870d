"""The simulated service that the decision benchmark decides about: its traffic, its engine, its brief, one trial."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from decisions.rules.brief import Brief, parse_brief
from decisions.rules.evidence import COLUMNS, DIGESTS, MISSING, Array, Purpose, TrialEvidence, objects
from loadtests.configurations import Speculative
from loadtests.evidence.records import ATTRIBUTES, SCHEMA, RequestRecord
from loadtests.simulator import Boot, EngineModel, SimulatedTrial, preset
from loadtests.simulator.model import changed
from loadtests.simulator.trial import Readings
from loadtests.statistics.order import A_A_ARMS, ARMS, arm_orders
from loadtests.traffic.arrivals import derived_seed, generator_for
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import Row

Arm = Literal["baseline", "control", "candidate"]
METHOD = "dflash"
# The grid of draft lengths, and the one whose truth is calibrated: the longest is the best in this world.
GRID = (1, 2, 4)
NOMINEE = 4
# Between-boot spreads (standard deviation of the log of a boot's time factor), and the pairs planned for each: as many
# as it takes for the noise floor to lie below the minimum in 19 of 20 decisions.
PAIRS = {0.03: 6, 0.06: 8, 0.12: 18}
TUNING_RUNS = 3
ROWS = 2_000
# More than a trial ever draws at this rate.
MOST_REQUESTS = 400
CLASSES = {"chat": 0.6, "code": 0.2, "translate": 0.2}
LENGTHS = {
    "chat": {"median": 130, "sigma": 0.6},
    "code": {"median": 130, "sigma": 0.6},
    "translate": {"median": 160, "sigma": 0.5},
}
LEVEL = {"name": "peak", "arrival": {"process": "poisson", "rate": 6.0}, "duration_s": 36.0, "drain_s": 30.0}
DEADLINES = {
    "default": {"first_token_s": 1.0, "completion_s": 1.5},
    "translate": {"first_token_s": 2.0, "completion_s": 5.0},
}
MINIMUM = 0.10
FIRST_TOKEN, LATE, COMPLETION = "first-token", "late-code", "completion"
COMPLETION_S = 2.35
RAILS: list[dict[str, Any]] = [
    {
        "id": FIRST_TOKEN,
        "metric": "first_token_quantile",
        "kind": "relative",
        "cell": {"level": "peak"},
        "limit": 0.6,
        "quantile": 0.9,
    },
    {
        "id": LATE,
        "metric": "late_share",
        "kind": "relative",
        "cell": {"level": "peak", "class": "code"},
        "limit": 0.02,
    },
    {
        "id": COMPLETION,
        "metric": "completion_quantile",
        "kind": "absolute",
        "cell": {"level": "peak", "class": "translate"},
        "limit": COMPLETION_S,
        "quantile": 0.8,
    },
]


# Name, attribute and type of each column that the rules read.
READ = [
    (one.name, attribute, one.type) for one, attribute in zip(SCHEMA, ATTRIBUTES, strict=True) if one.name in COLUMNS
]


@dataclass(frozen=True)
class Drafter:
    """What decides how good the candidate truly is: the chance that a draft is kept, by class, and the seconds that
    drafting adds to a step."""

    chat: float
    code: float
    translate: float
    step_s: float

    @property
    def document(self) -> dict[str, Any]:
        positions = {name: {"positions": [getattr(self, name)], "spread": 0.5} for name in CLASSES}
        return {
            "cost": {"fixed_s": self.step_s, "per_draft_token_s": 1e-5, "idle_s": self.step_s},
            "acceptance": {"default": positions["chat"], "classes": positions},
        }

    def with_(self, **knobs: float) -> "Drafter":
        return Drafter(**(asdict(self) | knobs))


@lru_cache(64)
def engine_model(spread: float, drafter: Drafter | None) -> EngineModel:
    """The preset's shape. Its boots differ by ``spread``, and drift and pause as there."""
    shape = preset("gpu-8b")
    fields: dict[str, Any] = {
        "nuisances": shape.nuisances.model_dump() | {"boot_sd": spread},
        "lengths": {"default": LENGTHS["chat"], "classes": LENGTHS},
        "drafters": {METHOD: drafter.document} if drafter else {},
    }
    return changed(shape, fields)


def speculative(k: int) -> Speculative:
    return Speculative(method=METHOD, num_speculative_tokens=k)


@cache
def level() -> Level:
    return Level.model_validate(LEVEL)


@cache
def rows() -> tuple[tuple[int, Row], ...]:
    """Prompts of different lengths, by class as the service gets them. What a text's answer is like belongs to the
    content seed, so that every pair has texts of its own."""
    rng = generator_for("decision benchmark", "rows")
    names = rng.choice(list(CLASSES), ROWS, p=list(CLASSES.values()))
    lengths = np.clip(rng.lognormal(4.0, 0.6, ROWS), 5, 400).astype(int)
    return tuple(
        (number, a_row(number, str(name), int(length)))
        for number, (name, length) in enumerate(zip(names, lengths, strict=True))
    )


def a_row(number: int, class_: str, words: int) -> Row:
    prompt = f"{class_} {number}:" + " word" * words
    return Row.model_validate(
        {
            "id": f"r{number}",
            "conversation": f"c{number}",
            "arrival_s": number,
            "class": class_,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": 768,
        }
    )


@cache
def brief(spread: float) -> Brief:
    """One brief for all spreads but for the pairs, which a plan chooses by the noise floor."""
    model = engine_model(spread, None)
    return parse_brief(
        {
            "schema": "draftproof.brief/1",
            "title": "Decision benchmark",
            "service": "simulated",
            "route": "chat",
            "question": "Does speculation bring the minimum improvement at peak?",
            "population": "Requests that the simulator draws",
            "decision_owner": "owner",
            "baseline": {
                "runtime": {"engine": "simulated", "distribution": "draftproof", "version": "simulated-1"},
                "target": {"name": model.name, "weights_sha256": model.digest, "tokenizer_sha256": model.digest},
                "arguments": {"max_model_len": model.max_model_len, "enable_prefix_caching": False},
                "hardware": {"pool": "simulated", "accelerator": "simulated"},
            },
            "candidates": [
                {"name": f"k{k}", "speculative": speculative(k).model_dump(mode="json", exclude_none=True)}
                for k in GRID
            ],
            "traffic": {"name": "simulated", "set": "1" * 64, "tuning": "2" * 64, "held_out": "3" * 64},
            "levels": [LEVEL],
            "peak": "peak",
            "deadlines": DEADLINES,
            "outcome": {
                "metric": "attainment",
                "improve_in": [{"level": "peak"}],
                "minimum_improvement": MINIMUM,
                "non_inferiority_margin": 0.02,
            },
            "guardrails": RAILS,
            "rule": {"seed": 1, "pairs": PAIRS[spread], "noise_floor_pairs": PAIRS[spread]},
            "budget_engine_minutes": 600,
            "fallback_plan": "Requests queue at peak; admission is reduced.",
        }
    )


@cache
def orders(spread: float, purpose: Purpose) -> list[tuple[str, str]]:
    rule = brief(spread).rule
    return arm_orders(rule.pairs, rule.seed, arms=A_A_ARMS if purpose == "noise-floor" else ARMS)


@dataclass(frozen=True)
class Place:
    """One trial's place in one decision (or, with another ``family``, in a calibration)."""

    family: str
    number: int
    purpose: Purpose
    pair: int
    arm: Arm
    k: int | None = None

    @property
    def texts(self) -> tuple[str, int, str, int]:
        """What both arms of a pair have in common."""
        return self.family, self.number, self.purpose, self.pair

    def seed(self, what: str, *more: str | int) -> int:
        return derived_seed(what, *self.texts, *more)

    @property
    def boot_seed(self) -> int:
        return self.seed("boot", self.arm, self.k or 0)


@lru_cache(128)
def planned(family: str, number: int, purpose: Purpose, pair: int) -> tuple[list[PlannedRequest], Readings]:
    """What every arm of a pair gets, with the readings of it: the same for all drafters."""
    place = Place(family, number, purpose, pair, "baseline")
    start = place.seed("rows") % ROWS
    pool = (rows()[start:] + rows()[:start])[:MOST_REQUESTS]
    # Another content seed makes other texts of them: in the part they would be other rows.
    own = [(pair * ROWS + number, row) for number, row in pool]
    return plan_level(own, level(), seed=place.seed("segment"), prefix=f"p{pair}"), {}


def run_boot(spread: float, place: Place, drafter: Drafter | None) -> tuple[Boot, SimulatedTrial]:
    """A fresh boot and its one trial."""
    requests, readings = planned(*place.texts)
    boot = Boot(
        engine_model(spread, drafter),
        speculative(place.k) if place.k else None,
        seed=place.boot_seed,
        content_seed=place.seed("texts"),
        fingerprint=configuration_of(spread, place.k),
        readings=readings,
    )
    at = level()
    return boot, boot.run_trial(requests, level=at.name, window_s=at.duration_s, drain_s=at.drain_s)


@cache
def configuration_of(spread: float, k: int | None) -> str:
    return brief(spread).configuration(f"k{k}" if k else "baseline").digest


def trial(spread: float, place: Place, drafter: Drafter | None) -> tuple[TrialEvidence, float]:
    """The evidence of one boot with one trial, and the logarithm of the boot's time factor in units of its spread."""
    boot, run = run_boot(spread, place, drafter)
    luck = float(np.log(boot.engine.pace.factor)) / spread if spread else 0.0
    columns = columns_from(run.records)
    return evidence(spread, place, columns, run.counters, boot.engine.capacity * boot.model.block_size), luck


def columns_from(records: Sequence[RequestRecord]) -> dict[str, Array]:
    """What ``columns_of`` gives of the records' table for the rules, without the table."""
    columns = {name: column_of(list(map(attrgetter(attribute), records)), kind) for name, attribute, kind in READ}
    return columns | {DIGESTS: columns[DIGESTS].astype(np.bytes_)}


def column_of(values: list[Any], kind: pa.DataType) -> Array:
    if pa.types.is_integer(kind):
        return np.array([MISSING if one is None else one for one in values], np.int64)
    if pa.types.is_floating(kind):
        return np.array(values, np.float64)
    return np.array(values, bool) if pa.types.is_boolean(kind) else objects(values)


def evidence(
    spread: float,
    place: Place,
    columns: Mapping[str, Array],
    counters: Mapping[str, float],
    kv_tokens: int,
) -> TrialEvidence:
    """As ``draftproof compare`` reads it from a directory; boots in virtual time count as run in the drawn order."""
    boot = f"{place.purpose}-{place.pair + 1}-{place.arm}"
    turn = 2 * place.pair
    if place.purpose != "tuning":
        turn += orders(spread, place.purpose)[place.pair].index(place.arm)
    return TrialEvidence(
        trial=f"{boot}/peak",
        boot=boot,
        server=f"simulated-{place.boot_seed:012x}",
        purpose=place.purpose,
        pair=place.pair,
        arm=place.arm,
        candidate=f"k{place.k}" if place.k else None,
        level="peak",
        evidence_class="simulated",
        configuration=configuration_of(spread, place.k),
        planned=len(columns["row"]),
        window_s=level().duration_s,
        columns=columns,
        engine_tokens=round(counters["vllm:generation_tokens_total"]),
        prefix_queries=0,
        prefix_hits=0,
        kv_cache_tokens=kv_tokens,
        boot_started_ns=turn * 10**15,
        boot_stopped_ns=turn * 10**15 + 10**14,
        neighbour_cpu_share=0.0,
        warm_up_planned=0,
        warm_up_completed=0,
        died=False,
        preemptions=round(counters["vllm:num_preemptions_total"]),
    )
