"""One race on one truth, from its first round to the nomination; and the grid that people run today."""

import math
import statistics
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from loadtests.configurations import Speculative
from loadtests.tuning.cost_model import CostModel, MeasuredTrial, ObservedTrial, drafter_of, fit_cost_model, observe
from loadtests.tuning.nomination import Winner, nominate
from loadtests.tuning.propose import Load, propose_schedule
from loadtests.tuning.race import (
    NONE,
    Amount,
    Ended,
    Goal,
    Observation,
    Round,
    Rules,
    Runner,
    level_orders,
    next_round,
    standings,
)
from loadtests.tuning.rehearsal import Course, Limits, rehearse
from loadtests.tuning.schedule import Schedule, with_schedule
from tests.benchmarks.tuning_world import (
    DRAFT_LENGTHS,
    IMPROVE,
    LEVELS,
    MARGIN,
    START_S,
    BootRun,
    Truth,
    outcome,
    outcomes,
    run_boot,
    table_of,
    traffic,
)

SWEEP_RUNS = 3
# In an effect: nothing that boots' luck could make good in the mean of three.
FAR = 0.4
# From one round to the next the costs change, and with them what they propose.
MOST_PROPOSED = 3
# A level takes its window and about so much more, in seconds: the last answers, and a pause before the next level.
AFTER_S = {"gpu": 11.0, "cpu": 22.0}
GOALS = tuple(
    Goal(name, "improve") if name in IMPROVE else Goal(name, "hold", limit=-math.log1p(MARGIN)) for name in LEVELS
)


def name_of(k: int) -> str:
    return f"k{k}"


def trials_s(truth: Truth) -> float:
    """About what all levels of a boot take."""
    return sum(truth.shape.windows) + len(LEVELS) * AFTER_S[truth.engine]


def sweep_minutes(truth: Truth) -> float:
    """Of the grid with three runs, a boot for each level of each run."""
    each = len(LEVELS) * START_S[truth.engine] + trials_s(truth)
    return SWEEP_RUNS * (len(DRAFT_LENGTHS) + 1) * each / 60


def rules_of(truth: Truth) -> Rules:
    boot_minutes = (START_S[truth.engine] + trials_s(truth)) / 60
    # Somewhat less, as the last boots may take longer than those before them.
    third = 0.96 * sweep_minutes(truth) / 3
    return Rules(GOALS, Amount(third, 100, third), boot_minutes)


@dataclass
class Race:
    """What a race has seen so far. ``informed`` False: without predictions, and so without a proposed schedule;
    ``proposing`` False: with predictions, and fixed draft lengths alone."""

    truth: Truth
    spread: float
    informed: bool = True
    proposing: bool = True
    rules: Rules = field(init=False)
    runners: list[Runner] = field(init=False)
    settings: dict[str, Speculative] = field(init=False)
    observations: list[Observation] = field(default_factory=list)
    observed: list[ObservedTrial] = field(default_factory=list)
    spent: Amount = field(default_factory=lambda: Amount(0, 0, 0))
    predictions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    kv_tokens: dict[str, int] = field(default_factory=dict)
    baseline: dict[int, list[BootRun]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        method = self.truth.shape.method
        self.rules = rules_of(self.truth)
        self.runners = [Runner(name_of(k), method, k, float(k)) for k in DRAFT_LENGTHS]
        self.settings = {name_of(k): self.truth.fixed(k) for k in DRAFT_LENGTHS}

    @property
    def last(self) -> int:
        """The last round so far."""
        return max(self.baseline)

    @property
    def schedules(self) -> list[str]:
        return [one.name for one in self.runners if one.schedule]

    def run(self) -> Ended:
        while True:
            step = self.step()
            if isinstance(step, Ended):
                return step
            self.run_round(step)
            if self.informed:
                self.learn()

    def step(self) -> Round | Ended:
        minutes = self.spent.engine_minutes / self.spent.boots if self.spent.boots else self.rules.boot_minutes
        rules = replace(self.rules, boot_minutes=minutes)
        return next_round(rules, self.runners, self.observations, self.spent, self.predictions)

    def run_round(self, planned: Round) -> None:
        runs: list[tuple[str, str, BootRun]] = []
        for place, (name, order) in enumerate(
            zip(planned.boots, level_orders(LEVELS, len(planned.boots)), strict=True)
        ):
            labels = ("race", int(self.spread * 1000), planned.number, place)
            told = traffic(self.truth, "race", planned.number)
            run = run_boot(self.truth, self.spread, self.settings.get(name), told, *labels, order=order)
            runs.append((name, f"{planned.number}-{place}", run))
            self.spent = self.spent.plus_boots(1, run.seconds / 60)
        self.baseline[planned.number] = [run for name, _, run in runs if name == NONE]
        middle = {
            level: statistics.fmean(math.log(outcomes(run)[level]) for name, _, run in runs if name == NONE)
            for level in LEVELS
        }
        for name, boot, run in runs:
            for level, seconds in outcomes(run).items():
                effect = -math.inf if math.isinf(seconds) else middle[level] - math.log(seconds)
                self.observations.append(Observation(planned.number, boot, name, level, effect))
            self.take_notes(name, boot, run)

    def take_notes(self, name: str, boot: str, run: BootRun) -> None:
        setting = self.settings.get(name)
        self.kv_tokens[drafter_of(setting) if setting else NONE] = run.kv_tokens
        for level, trial in run.trials.items():
            # A trial with too few answers tells nothing of costs.
            with suppress(ValueError):
                self.observed.append(observe(MeasuredTrial(boot, level, setting, table_of(trial))))

    def learn(self) -> None:
        """Fit the costs again, let the schedule that they propose join, and predict everyone anew."""
        model = fit_cost_model(self.observed)
        if self.proposing and len(self.schedules) < MOST_PROPOSED:
            self.propose(model)
        self.predictions = self.predicted(model)

    def propose(self, model: CostModel) -> None:
        first = self.truth.fixed(1)
        model_ = self.truth.model(self.spread)
        found = propose_schedule(
            model,
            drafter_of(first),
            list(self.loads()),
            draft_lengths=DRAFT_LENGTHS,
            max_num_seqs=model_.max_num_seqs,
        )
        if found.schedule is not None and f"s{found.schedule}" not in self.settings:
            self.join(found.schedule)

    def join(self, schedule: Schedule) -> None:
        setting = with_schedule(
            self.truth.fixed(schedule.most), schedule, max_num_seqs=self.truth.model(self.spread).max_num_seqs
        )
        name = f"s{schedule}"
        self.settings[name] = setting
        shares = [batches_of(run, level) for run in self.baseline[self.last] for level in LEVELS]
        mean = statistics.fmean(sum(share * schedule.k_at(batch) for batch, share in one.items()) for one in shares)
        self.runners.append(Runner(name, self.truth.shape.method, schedule.most, mean, schedule=True))

    def loads(self) -> Iterator[Load]:
        """As the baseline's boots of the last round had them."""
        for level in LEVELS:
            several = [batches_of(run, level) for run in self.baseline[self.last]]
            batches = {
                batch: statistics.fmean(one.get(batch, 0.0) for one in several)
                for batch in sorted({batch for one in several for batch in one})
            }
            told = [one for run in self.baseline[self.last] for one in run.trials[level].records if one.output_tokens]
            tokens = [(one.prompt_tokens or 0) + one.output_tokens / 2 for one in told if one.output_tokens]
            yield Load(level, batches, statistics.fmean(tokens))

    def predicted(self, model: CostModel) -> dict[str, dict[str, float]]:
        """Who fell keeps the prediction that it had."""
        courses, limits = list(self.courses()), self.limits()
        plain = [math.log(outcome(one.records)) for one in rehearse(model, limits, None, courses)]
        found = {name: dict(one) for name, one in self.predictions.items()}
        told = standings(self.rules, self.runners, self.observations, self.predictions)
        out = {one.runner for one in told if one.state == "fell"}
        for one in self.runners:
            if one.name in out and one.name in found:
                continue
            trials = rehearse(model, limits, self.settings[one.name], courses)
            seconds = [outcome(trial.records) for trial in trials]
            found[one.name] = {
                level: -3.0 if math.isinf(mine) else ours - math.log(mine)
                for level, ours, mine in zip(LEVELS, plain, seconds, strict=True)
            }
        return found

    def courses(self) -> Iterator[Course]:
        levels = self.truth.levels()
        for name, planned in traffic(self.truth, "race", self.last).planned.items():
            tokens = {
                one.row: (one.prompt_tokens, one.output_tokens)
                for run in self.baseline[self.last]
                for one in run.trials[name].records
                if one.prompt_tokens is not None and one.output_tokens is not None
            }
            yield Course(name, planned, tokens, levels[name].duration_s, levels[name].drain_s)

    def limits(self) -> Limits:
        model = self.truth.model(self.spread)
        return Limits(
            max_num_seqs=model.max_num_seqs,
            max_num_batched_tokens=model.max_num_batched_tokens,
            max_model_len=model.max_model_len,
            block_size=model.block_size,
            kv_tokens=self.kv_tokens[NONE],
            kv_tokens_lost={name: self.kv_tokens[NONE] - one for name, one in self.kv_tokens.items() if name != NONE},
        )

    def winner(self) -> Winner:
        return nominate(self.rules, self.runners, self.observations, self.predictions)


def batches_of(run: BootRun, level: str) -> dict[int, float]:
    """Share of seconds at each running batch, of those with anything running."""
    running = [one.running for one in run.trials[level].timeline if one.running]
    return {batch: running.count(batch) / len(running) for batch in sorted(set(running))}


@dataclass(frozen=True)
class Sweep:
    """What the grid of today picks: the best mean of three runs, a fresh boot for each level of each run."""

    nominee: str
    engine_minutes: float
    boots: int


def sweep(truth: Truth, spread: float) -> Sweep:
    found: dict[str, dict[str, list[float]]] = {}
    minutes: dict[str, float] = {}
    for run_number in range(SWEEP_RUNS):
        for name in hopeful(found) if run_number else (NONE, *map(name_of, DRAFT_LENGTHS)):
            setting = setting_named(truth, spread, name)
            for level in LEVELS:
                labels = ("sweep", int(spread * 1000), name, run_number, level)
                run = run_boot(truth, spread, setting, traffic(truth, "race", 1), *labels, order=(level,))
                found.setdefault(name, {}).setdefault(level, []).append(outcomes(run)[level])
                minutes[name] = minutes.get(name, 0.0) + (0.0 if run_number else SWEEP_RUNS * run.seconds / 60)
    return Sweep(picked(found), sum(minutes.values()), SWEEP_RUNS * len(found) * len(LEVELS))


def hopeful(found: Mapping[str, Mapping[str, list[float]]]) -> list[str]:
    """Who after the first run isn't so far behind that two more can't make it the pick; the rest is spared, and counted
    as if it had run."""
    effects = {name: effects_in(found, name) for name in found}
    best = max(worth_of(one) for one in effects.values())
    limit = min(goal.limit for goal in GOALS)
    return [
        name
        for name, one in effects.items()
        if name == NONE or (min(one[level] for level in IMPROVE) > best - FAR and one["peak"] > limit - FAR)
    ]


def effects_in(found: Mapping[str, Mapping[str, list[float]]], name: str) -> dict[str, float]:
    """Against no speculation, by the means."""
    mean = {level: (statistics.fmean(found[NONE][level]), statistics.fmean(found[name][level])) for level in LEVELS}
    return {level: math.log(base) - math.log(mine) for level, (base, mine) in mean.items()}


def picked(found: Mapping[str, Mapping[str, list[float]]]) -> str:
    """By the means: the largest smallest improvement of those that keep the margin at peak; none where none has one."""

    def worth(name: str) -> float:
        return worth_of(effects_in(found, name))

    best = max((one for one in found if one != NONE), key=worth)
    return best if worth(best) > 0 else NONE


def worth_of(effects: Mapping[str, float]) -> float:
    """The smallest improvement; 0 where a level that must hold doesn't, as it then isn't released."""
    for goal in GOALS:
        if goal.kind == "hold" and effects[goal.name] < goal.limit:
            return 0.0
    return min(effects[goal.name] for goal in GOALS if goal.kind == "improve")


def document(race: Race) -> dict[str, Any]:
    over, winner = race.run(), race.winner()
    return {
        "nominee": winner.runner or NONE,
        "boots": race.spent.boots,
        "engine_minutes": race.spent.engine_minutes,
        "rounds": max(one.round for one in race.observations),
        "ended": over.why,
        "schedules": race.schedules,
        "score": winner.score,
        "measured": winner.measured,
        "optimism": winner.optimism,
    }


def setting_named(truth: Truth, spread: float, name: str) -> Speculative | None:
    """Of a runner's name, as races give them."""
    if name == NONE:
        return None
    if name.startswith("k"):
        return truth.fixed(int(name[1:]))
    schedule = Schedule.parse(name[1:])
    return with_schedule(truth.fixed(schedule.most), schedule, max_num_seqs=truth.model(spread).max_num_seqs)
