"""What a round costs and brings, from measured trials: predicted tokens/s for a running batch and a draft length.

Round time is fitted over all trials at once (``loadtests.simulator.fitting``), with a speed factor for each boot, so
that a boot's luck stays out of the costs. Acceptance is by class and position. Nothing is assumed monotone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadtests.configurations import Speculative
from loadtests.simulator.costs import Costs, DrafterCost
from loadtests.simulator.fitting import SEQUENTIAL, Fitted, Observed, fit, seconds_at
from loadtests.simulator.steps import requests_of, steps_of
from loadtests.tuning.acceptance import Kept, TrialTallies, acceptance_of, tallies_of
from loadtests.tuning.schedule import Schedule, schedule_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeasuredTrial:
    """One trial to learn from. ``boot`` names its boot (trials of one boot share a speed), ``level`` the load level;
    ``speculative`` None is a server without speculation. ``records`` as ``read_records`` gives them."""

    boot: str
    level: str
    speculative: Speculative | None
    records: pa.Table


@dataclass(frozen=True, eq=False)
class ObservedTrial:
    """What a trial tells the model, worked out once by ``observe``: keep it, and fit as often as you like."""

    boot: str
    level: str
    speculative: Speculative | None
    observed: Observed
    tallies: TrialTallies | None

    @property
    def drafter(self) -> str | None:
        return None if self.speculative is None else drafter_of(self.speculative)


@dataclass(frozen=True)
class Prediction:
    """``batch`` sequences run with K = ``k``; ``round_s`` seconds a round; tokens verified per round and sequence;
    tokens per second of one sequence and of the whole engine. A round without a prompt in it. ``beyond``: more tokens
    are checked in a step than in any that was measured, so that the arithmetic's price is a guess."""

    batch: int
    k: int
    round_s: float
    tokens_per_round: float
    tokens_per_s_each: float
    tokens_per_s: float
    beyond: bool


@dataclass(frozen=True)
class RoundTime:
    """A trial's mean round time in seconds, measured and predicted without it; ``running``: mean sequences in a round
    of it."""

    boot: str
    level: str
    speculative: Speculative | None
    running: float
    measured_s: float
    predicted_s: float

    @property
    def relative_error(self) -> float:
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class PredictionErrors:
    """``median``: of |relative error| of round time over the trials; None without any."""

    round_times: tuple[RoundTime, ...]

    @property
    def median(self) -> float | None:
        errors = [abs(one.relative_error) for one in self.round_times]
        return float(np.median(errors)) if errors else None


@dataclass(frozen=True)
class CostModel:
    """``costs`` at the speed of a typical boot; its drafters, as ``measured`` {drafter: draft lengths that were
    measured}, are named as ``drafter_of`` names them. ``acceptance``: of each drafter. ``boots``: time factor of each
    boot against the typical one; ``boot_sd``: standard deviation of their logarithms (None below two boots).
    ``most_checked``: tokens in the fullest step that was measured. ``assumptions``: one sentence for each thing that
    the trials can't tell."""

    costs: Costs
    acceptance: Mapping[str, Kept]
    measured: Mapping[str, tuple[int, ...]]
    boots: Mapping[str, float]
    boot_sd: float | None
    most_checked: float
    assumptions: tuple[str, ...]

    def predict(
        self,
        batch: int,
        k: int,
        *,
        drafter: str | None,
        context_tokens: float,
        mix: Mapping[str, float] | None = None,
    ) -> Prediction:
        """With ``batch`` sequences of ``context_tokens`` each running. ``drafter`` None is a server without speculation
        (``k`` must be 0); ``k`` 0 with a drafter is a step of a schedule, at the price of the drafter's being there.
        ``mix``: share of each class in the verified tokens (None: as in the trials). ``k`` may be one that nobody
        measured. Raises ValueError for an unknown drafter, batch < 1 or k < 0."""
        if batch < 1 or k < 0 or (k > 0 and drafter is None):
            raise ValueError(f"{batch} sequences at K = {k}: at least 1 sequence, and K = 0 without a drafter")
        checked = batch * (1 + self.drafted(drafter, k, mix))
        round_s = float(self.round_seconds(np.array([batch]), k, drafter, context_tokens, mix)[0])
        tokens = self.tokens_per_round(drafter, k, mix)
        each = tokens / round_s
        return Prediction(batch, k, round_s, tokens, each, batch * each, checked > self.most_checked)

    def speed_up(
        self, batch: int, k: int, *, drafter: str, context_tokens: float, mix: Mapping[str, float] | None = None
    ) -> float:
        """Tokens/s at this batch ÷ tokens/s without speculation at the same batch."""
        return float(self.speed_ups([batch], k, drafter=drafter, context_tokens=context_tokens, mix=mix)[0])

    def speed_ups(
        self,
        batches: Sequence[int],
        k: int,
        *,
        drafter: str,
        context_tokens: float,
        mix: Mapping[str, float] | None = None,
    ) -> Floats:
        """``speed_up`` at each of several batches."""
        each = np.array(batches)
        plain = self.round_seconds(each, 0, None, context_tokens, mix)
        return (
            self.tokens_per_round(drafter, k, mix) * plain / self.round_seconds(each, k, drafter, context_tokens, mix)
        )

    def round_seconds(
        self,
        batches: NDArray[np.int64],
        k: int,
        drafter: str | None,
        context_tokens: float,
        mix: Mapping[str, float] | None,
    ) -> Floats:
        """Of a round at each batch, without a prompt in it."""
        drafted = batches * self.drafted(drafter, k, mix)
        target = self.costs.round.seconds(batches, batches + drafted, batches * context_tokens)
        return np.asarray(target + (0.0 if drafter is None else self.known(drafter).seconds(drafted, k)), np.float64)

    def tokens_per_round(self, drafter: str | None, k: int, mix: Mapping[str, float] | None = None) -> float:
        """Verified tokens that a round brings a sequence."""
        return 1.0 if drafter is None else 1 + sum(self.kept(drafter, k, mix))

    def kept(self, drafter: str, k: int, mix: Mapping[str, float] | None = None) -> tuple[float, ...]:
        """Share of rounds that keep at least 1 … k drafts, rounds without a draft counted."""
        self.known(drafter)
        return self.acceptance[drafter].kept(k, mix)

    def drafted(self, drafter: str | None, k: int, mix: Mapping[str, float] | None = None) -> float:
        """Drafts of a sequence in a round at K = ``k``, rounds without a draft counted."""
        if drafter is None:
            return 0.0
        self.known(drafter)
        return self.acceptance[drafter].drafted(k, mix)

    def known(self, drafter: str) -> DrafterCost:
        if drafter not in self.costs.drafters:
            there = ", ".join(sorted(self.costs.drafters)) or "none"
            raise ValueError(f"no trial of the drafter {drafter} was measured; there are {there}")
        return self.costs.drafters[drafter]


def drafter_of(speculative: Speculative) -> str:
    """The setting without its draft lengths, in words: settings of one name share a drafter's costs and acceptance."""
    options = {name: value for name, value in speculative.options.items() if name != "drafter"}
    words = [speculative.method, *(f"{name}={value}" for name, value in options.items())]
    if speculative.drafter is not None:
        words.append(f"{speculative.drafter.name} ({speculative.drafter.weights_sha256[:8]})")
    return " ".join(words)


def observe(trial: MeasuredTrial) -> ObservedTrial:
    """Raises ValueError where too few requests have the engine's own times."""
    requests = requests_of(trial.records)
    speculative = trial.speculative
    if speculative is None:
        steps = Observed(trial.boot, "", "", steps_of(requests, None))
        return ObservedTrial(trial.boot, trial.level, None, steps, None)
    schedule = schedule_of(speculative)
    steps = Observed(
        trial.boot, drafter_of(speculative), speculative.method, steps_of(requests, lengths_by_batch(schedule))
    )
    sure = min(k for k in schedule.draft_lengths if k)
    tallies = TrialTallies(
        tallies_of(trial.records, sure, even=True),
        k=schedule.most if len(schedule.steps) == 1 else None,
        always=0 not in schedule.draft_lengths,
    )
    return ObservedTrial(trial.boot, trial.level, speculative, steps, tallies)


def lengths_by_batch(schedule: Schedule) -> tuple[int, ...]:
    """K from 0 running sequences up; the last holds for all above."""
    return tuple(schedule.k_at(batch) for batch in range(schedule.steps[-1].lo + 1))


def fit_cost_model(trials: Sequence[ObservedTrial]) -> CostModel:
    """From trials of one target, runtime and hardware. Raises ValueError without a trial of the baseline.

    Source: SmartSpec (Liu et al., "Optimizing speculative decoding for serving large language models using goodput",
    2024) fits the round time from batch and tokens; the shape here is ``RoundCost``'s and ``DrafterCost``'s.
    """
    found = fit([one.observed for one in trials])
    drafting: dict[str, list[ObservedTrial]] = {}
    for one in trials:
        if one.drafter is not None:
            drafting.setdefault(one.drafter, []).append(one)
    return CostModel(
        costs=found.costs,
        acceptance={who: acceptance_of([one.tallies for one in mine if one.tallies]) for who, mine in drafting.items()},
        measured={who: draft_lengths(mine) for who, mine in drafting.items()},
        boots=found.boots,
        boot_sd=found.boot_sd,
        most_checked=max(float(one.observed.steps.verified.max()) for one in trials),
        assumptions=tuple(assumptions(found, drafting)),
    )


def draft_lengths(trials: Sequence[ObservedTrial]) -> tuple[int, ...]:
    every = {k for one in trials if one.speculative for k in schedule_of(one.speculative).draft_lengths}
    return tuple(sorted(every))


def assumptions(found: Fitted, drafting: Mapping[str, Sequence[ObservedTrial]]) -> list[str]:
    said = []
    for who, trials in sorted(drafting.items()):
        told, lengths = found.told[who], draft_lengths(trials)
        most = max(lengths)
        said.append(f"{who}: beyond K = {most} each draft is kept as often as the last one that was measured")
        if "per_position_s" not in told or "fixed_s" not in told:
            how = (
                "each position costs the same"
                if trials[0].observed.method in SEQUENTIAL
                else "K drafts cost as much as 1"
            )
            said.append(f"{who}: one draft length was measured, and {how}, apart from the tokens checked")
        if "idle_s" not in told:
            said.append(f"{who}: no step with K = 0 was measured; its price is taken from a drafting step or reports")
    return said


def prediction_errors(
    trials: Sequence[ObservedTrial], *, left_out: Literal["trial", "boot"] = "trial"
) -> PredictionErrors:
    """Each trial's round time predicted by a fit to all others ("trial"), or to those of other boots ("boot", where
    the boot's own speed is unknown too). Trials whose absence leaves no baseline, or nothing of their drafter, are left
    out of the answer."""
    found = []
    groups = [(one,) for one in trials] if left_out == "trial" else by_boot(trials)
    for group in groups:
        rest = [one for one in trials if all(one is not other for other in group)]
        known = {one.drafter for one in rest}
        judged = [one for one in group if one.drafter in known]
        if None in known and judged:
            fitted = fit([one.observed for one in rest])
            found += [round_time(one, fitted) for one in judged]
    return PredictionErrors(tuple(found))


def by_boot(trials: Sequence[ObservedTrial]) -> list[tuple[ObservedTrial, ...]]:
    return [tuple(one for one in trials if one.boot == boot) for boot in dict.fromkeys(one.boot for one in trials)]


def round_time(trial: ObservedTrial, fitted: Fitted) -> RoundTime:
    """Decode time ÷ rounds of the trial's requests, and what the costs make of the same rounds."""
    steps = trial.observed.steps
    decoding = steps.rounds > 0
    rounds = steps.rounds.sum()
    expected = seconds_at(steps, fitted.costs, trial.observed.drafter) * fitted.factor(trial.boot)
    of_decode = decoding[steps.of]
    weight = steps.count[of_decode]
    return RoundTime(
        boot=trial.boot,
        level=trial.level,
        speculative=trial.speculative,
        running=float(weight @ steps.sequences[of_decode] / weight.sum()),
        measured_s=float(steps.seconds[decoding].sum() / rounds),
        predicted_s=float(expected[decoding].sum() / rounds),
    )
