"""Trials of a simulated engine as tuning sees them, and what is true of that engine."""

from collections.abc import Mapping
from functools import cache

import numpy as np

from loadtests.configurations import Speculative
from loadtests.evidence.records import records_table
from loadtests.simulator import Boot, EngineModel, SimulatedTrial, preset
from loadtests.simulator.acceptance import ClassAcceptance, shifted
from loadtests.simulator.model import changed
from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.levels import Level
from loadtests.traffic.plan import plan_level
from loadtests.traffic.rows import Row
from loadtests.tuning.cost_model import MeasuredTrial

# Requests per second, from hardly anything to do to more than some K can carry.
RATES = {
    "gpu-8b": {"quiet": 1.5, "ordinary": 8.0, "peak": 18.0},
    "cpu-2core": {"quiet": 0.15, "ordinary": 0.6, "peak": 1.2},
}
REQUESTS = 160
# Context of a running sequence in these trials, about.
CONTEXT = {"gpu-8b": 300.0, "cpu-2core": 250.0}


@cache
def rows() -> tuple[tuple[int, Row], ...]:
    words = generator_for("tuning", "words").integers(5, 400, 2 * REQUESTS)
    return tuple((number, a_row(number, int(count))) for number, count in enumerate(words))


def a_row(number: int, words: int) -> Row:
    prompt = f"question {number}" + " word" * words
    class_ = ("chat", "code")[number % 2]
    fields = {"id": f"r{number}", "conversation": f"c{number}", "arrival_s": number, "class": class_, "max_tokens": 400}
    return Row.model_validate(fields | {"messages": [{"role": "user", "content": prompt}]})


def level_of(name: str, rate: float) -> Level:
    arrival = {"process": "poisson", "rate": rate}
    return Level.model_validate({"name": name, "arrival": arrival, "duration_s": REQUESTS / rate, "drain_s": 300})


def simulated(
    model: EngineModel, speculative: Speculative | None, *, seed: int, rates: Mapping[str, float] | None = None
) -> dict[str, SimulatedTrial]:
    """The trials of one boot, by level."""
    boot = Boot(model, speculative, seed=seed)
    found = {}
    for number, (name, rate) in enumerate((rates or RATES[model.name]).items()):
        level = level_of(name, rate)
        planned = plan_level(rows(), level, seed=100 * seed + number, prefix=name)
        found[name] = boot.run_trial(planned, level=name, window_s=level.duration_s, drain_s=level.drain_s)
    return found


def measured(
    model: EngineModel, speculative: Speculative | None, *, seed: int, rates: Mapping[str, float] | None = None
) -> list[MeasuredTrial]:
    trials = simulated(model, speculative, seed=seed, rates=rates)
    return [
        MeasuredTrial(f"boot {seed}", name, speculative, records_table(one.records)) for name, one in trials.items()
    ]


def speculative(method: str, k: int) -> Speculative:
    return Speculative.model_validate({"method": method, "num_speculative_tokens": k})


def tuned(name: str, method: str, lengths: tuple[int, ...], *, baselines: int = 2) -> list[MeasuredTrial]:
    """Boots of the baseline, then one of each draft length, every one with its own luck."""
    model = preset(name)
    found = [one for seed in range(baselines) for one in measured(model, None, seed=seed)]
    for number, k in enumerate(lengths):
        found += measured(model, speculative(method, k), seed=baselines + number)
    return found


def without_nuisances(name: str) -> EngineModel:
    return changed(preset(name), {"nuisances": {}})


def true_round_s(model: EngineModel, method: str | None, batch: int, k: int, context: float) -> float:
    """Of a round of the simulated engine at the speed of a typical boot."""
    drafted = batch * k * true_proposes(model, method) if method else 0.0
    seconds = float(model.round.seconds(batch, batch + drafted, batch * context))
    return seconds + (float(model.drafters[method].cost.seconds(drafted, k)) if method else 0.0)


def true_tokens(model: EngineModel, method: str, k: int) -> float:
    """Verified tokens of a round, over requests of equal length: easy ones take fewer rounds."""
    acceptance = model.drafters[method].acceptance.default
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    each = [tokens_at(acceptance, k, float(effect)) for effect in nodes]
    return float(1 / (weights @ (1 / np.array(each)) / weights.sum()))


def tokens_at(acceptance: ClassAcceptance, k: int, effect: float) -> float:
    proposes = shifted(acceptance.proposes, acceptance.spread * effect)
    return 1 + proposes * float(np.sum(acceptance.survival(k, effect)))


def true_proposes(model: EngineModel, method: str) -> float:
    acceptance = model.drafters[method].acceptance.default
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    each = [shifted(acceptance.proposes, acceptance.spread * float(effect)) for effect in nodes]
    return float(weights @ np.array(each) / weights.sum())


def true_speed(model: EngineModel, method: str | None, batch: int, k: int, context: float) -> float:
    """Tokens per second of the whole engine."""
    tokens = true_tokens(model, method, k) if method and k else 1.0
    return batch * tokens / true_round_s(model, method, batch, k, context)
