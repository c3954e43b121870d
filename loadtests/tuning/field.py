"""All runners of a race as the observations so far leave them: what each may be worth, and who may still win."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special, stats

from loadtests.tuning.posterior import Boot, Floats, Posterior, posterior

# Worlds that fit what was seen, drawn to weigh one runner against another.
WORLDS = 2_048
# The runner without speculation: the baseline itself. It runs in every round, and what can't beat it falls.
NONE = "none"


@dataclass(frozen=True)
class Goal:
    """What an effect is of: one cell (level and class) of the outcome, or one guardrail.

    ``improve``: the score is the smallest effect over these goals, since a release must improve in all of them.
    ``hold``: the effect must not be below ``limit``: −margin where the outcome must be non-inferior, −limit of a
    relative guardrail on the same scale. ``relative`` False: the effect is no comparison with the baseline but the
    distance inside an absolute limit (limit − share, or log(limit ÷ seconds)), and ``limit`` is 0.
    ``spread`` is the standard deviation of one boot's effect (not of a difference of two) as the noise floor found it
    with ``degrees`` of freedom: of the differences between A/A pairs it is their standard deviation ÷ √2, with
    pairs − 1 degrees; None where no noise floor was measured. ``scale`` is how an effect is told: a log ratio as a
    factor, a difference in points. ``label``: what the goal is called in sentences, where not by its name.
    """

    name: str
    kind: Literal["improve", "hold"]
    limit: float = 0.0
    relative: bool = True
    scale: Literal["ratio", "difference"] = "ratio"
    spread: float | None = None
    degrees: int = 0
    label: str = ""

    @property
    def said(self) -> str:
        return self.label or self.name

    def told(self, effect: float) -> str:
        return told_effect(effect, self.scale)


@dataclass(frozen=True)
class Runner:
    """One candidate. ``family`` is what runners share that differ in draft length alone (method, drafter, options).
    ``most`` is the most it drafts in a round; ``mean_k`` the mean K over the running batches that were observed, by
    which ties go to the one that drafts less: of a fixed K, K itself. ``schedule``: K depends on the running batch."""

    name: str
    family: str
    most: int
    mean_k: float
    schedule: bool = False


@dataclass(frozen=True)
class Observation:
    """One boot's effect for one goal. ``round`` counts from 1; ``boot`` is any name that is the boot's alone;
    ``runner`` is the candidate's name or ``NONE``: baseline boots are observed too, each against the middle of all
    baseline boots of its round. −inf: this boot never got there (a latency without end, a dead server); +inf: the
    baseline alone never got there; NaN: neither did, which tells nothing."""

    round: int
    boot: str
    runner: str
    goal: str
    effect: float


@dataclass(frozen=True)
class Amount:
    """What a race may use, or has used: engine minutes (boots with their start), boots, minutes of wall time."""

    engine_minutes: float
    boots: int
    wall_minutes: float

    def plus_boots(self, boots: int, minutes: float) -> "Amount":
        """With so many boots more, one after the other, of ``minutes`` each."""
        more = boots * minutes
        return Amount(self.engine_minutes + more, self.boots + boots, self.wall_minutes + more)

    def beyond(self, budget: "Amount") -> str | None:
        """Which part of the budget this exceeds, as a sentence's end; None within it."""
        for used, allowed, unit in (
            (self.engine_minutes, budget.engine_minutes, "engine minutes"),
            (self.boots, budget.boots, "boots"),
            (self.wall_minutes, budget.wall_minutes, "minutes of wall time"),
        ):
            if used > allowed:
                return f"{used:.4g} {unit}, and the budget is {allowed:.4g}"
        return None


@dataclass(frozen=True)
class Rules:
    """Fixed with the brief. ``boot_minutes`` is what one boot is expected to take with its start and all its levels
    (the caller may put in what boots took so far). ``same`` is the difference in effect not worth a boot: the race ends
    when no other runner is expected to gain more than that on the leader. ``confidence`` is one-sided: how sure the
    race must be to let a runner fall. ``first`` draft lengths of each family start, spread over its range of K, and as
    many of the schedules that are there from the beginning; later rounds have at most ``abreast`` runners. The leader
    has ``confirmed`` boots before the race ends, if the budget allows.
    """

    goals: tuple[Goal, ...]
    budget: Amount
    boot_minutes: float
    confidence: float = 0.95
    same: float = 0.01
    first: int = 3
    abreast: int = 3
    confirmed: int = 2

    @property
    def improve(self) -> tuple[Goal, ...]:
        return tuple(one for one in self.goals if one.kind == "improve")


# runner -> goal -> effect, as the cost model predicts it from the boots so far; runners or goals may be missing.
Predictions = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Estimate:
    """An effect as measured boots and predictions tell it together, with its one-sided bounds at ``Rules.confidence``.
    ``boots``: how many of the runner's own stand behind it (0: predicted alone)."""

    mean: float
    se: float
    low: float
    high: float
    boots: int


@dataclass(frozen=True)
class Standing:
    """Where one runner stands after the observations so far. ``score`` is the estimate of its smallest improve goal;
    ``goals`` has every goal's; ``predicted`` the score by the cost model alone. ``state``: ``runs`` (may still win),
    ``fell``, or ``waits`` (not yet run, and not yet known to lose). ``reason`` is one sentence with its figures."""

    runner: str
    state: Literal["runs", "fell", "waits"]
    boots: int
    score: Estimate | None
    predicted: float | None
    goals: Mapping[str, Estimate]
    reason: str


class Field:
    """All runners as the observations so far leave them.

    ``scores`` (worlds, runners): the smallest improve goal of each in many worlds that fit what was seen. ``worth``, of
    the same shape: what nominating it would be worth there: its score, and 0 (no speculation) where it breaks a hold
    goal, since it then isn't released. ``breaks``: the share of worlds in which it does.
    """

    def __init__(
        self, rules: Rules, runners: Sequence[Runner], observations: Sequence[Observation], predictions: Predictions
    ) -> None:
        check(rules, runners, observations)
        self.rules, self.runners = rules, tuple(runners)
        self.place = {one.name: at for at, one in enumerate(self.runners)}
        self.observations, self.predictions = tuple(observations), predictions
        self.posteriors = {goal.name: self.told_of(goal) for goal in rules.goals}
        normals = standard_normals(WORLDS, len(self.runners))
        # One boot's luck is the same at all its levels: goals share the draws.
        effects = {name: in_worlds(one, normals) for name, one in self.posteriors.items()}
        self.scores = np.min([effects[goal.name] for goal in rules.improve], axis=0)
        broken = np.zeros(self.scores.shape, bool)
        for goal in rules.goals:
            if goal.kind == "hold":
                broken |= effects[goal.name] < goal.limit
        self.breaks = broken.mean(axis=0)
        self.worth = np.where(broken, 0.0, self.scores)
        self.boots = self.boots_of_each()
        self.lost = self.never_there()
        self.leader = self.best([one.name for one in self.runners])

    def told_of(self, goal: Goal) -> Posterior:
        boots = [
            Boot(one.round, self.place.get(one.runner), one.effect)
            for one in self.observations
            if one.goal == goal.name
        ]
        predicted = [self.predictions.get(one.name, {}).get(goal.name) for one in self.runners]
        floor = None if goal.spread is None else (goal.spread, goal.degrees)
        families = [one.family for one in self.runners]
        return posterior(boots, predicted, families, relative=goal.relative, floor=floor)

    def boots_of_each(self) -> dict[str, int]:
        boots: dict[str, set[tuple[int, str]]] = {}
        for one in self.observations:
            boots.setdefault(one.runner, set()).add((one.round, one.boot))
        return {name: len(found) for name, found in boots.items()}

    def never_there(self) -> dict[str, Observation]:
        """Runners with a boot that never got there in some goal, with what was seen of it."""
        lost = [one for one in self.observations if one.effect == -math.inf and one.runner != NONE]
        return {one.runner: one for one in sorted(lost, key=lambda one: (one.round, one.boot, one.goal), reverse=True)}

    def best(self, names: Sequence[str]) -> str:
        """The one of them that is worth most to nominate, of those that anything is known of; ``NONE`` where none is
        worth more than nothing."""
        able = [one for one in names if self.may_run(one) and self.known(one)]
        found = max(able, key=lambda one: (self.expected(one), -self.runner(one).mean_k), default=NONE)
        return found if found != NONE and self.expected(found) > 0 else NONE

    def runner(self, name: str) -> Runner:
        return self.runners[self.place[name]]

    def goal(self, name: str) -> Goal:
        return next(one for one in self.rules.goals if one.name == name)

    def worths(self, name: str) -> Floats:
        """In each world, shape (worlds,)."""
        return np.zeros(WORLDS) if name == NONE else np.asarray(self.worth[:, self.place[name]])

    def expected(self, name: str) -> float:
        return float(self.worths(name).mean())

    def gain(self, name: str) -> float:
        """What nominating it instead of the leader is expected to win, had one but known when."""
        return float(np.maximum(self.worths(name) - self.worths(self.leader), 0).mean())

    def chance(self, name: str) -> float:
        """Share of the worlds in which it is better than the leader."""
        return float((self.worths(name) > self.worths(self.leader)).mean())

    def known(self, name: str) -> bool:
        return self.measured(name) or self.predicted(name) is not None

    def measured(self, name: str) -> bool:
        """Boots of its own told of every goal to improve: what is only believed of anybody is no figure of it."""
        told = {one.goal for one in self.observations if one.runner == name and not math.isnan(one.effect)}
        return all(goal.name in told for goal in self.rules.improve)

    def may_run(self, name: str) -> bool:
        """Every boot got there, and no goal is shown to be broken."""
        return name not in self.lost and bool(self.breaks[self.place[name]] <= self.rules.confidence)

    def fell(self, name: str) -> bool:
        if not self.may_run(name):
            return True
        return name != self.leader and self.chance(name) < 1 - self.rules.confidence

    @property
    def alive(self) -> list[str]:
        """Who may still win, the most worth first."""
        return sorted((one.name for one in self.runners if not self.fell(one.name)), key=self.rank)

    def rank(self, name: str) -> tuple[float, float, str]:
        return -self.expected(name), self.runner(name).mean_k, name

    def next_runners(self) -> list[str]:
        """The leader, to be sure of it, and those with the most to gain on it."""
        rest = sorted((one for one in self.alive if one != self.leader), key=lambda one: (-self.gain(one), one))
        leading = [] if self.leader == NONE else [self.leader]
        worthwhile = [one for one in rest if self.gain(one) > self.rules.same / 4]
        return [*leading, *worthwhile][: self.rules.abreast]

    def untried(self) -> list[str]:
        """Of the ``confirmed`` runners that are nearest to winning, those without a boot. Where a queue is about to
        build up predictions are at their worst: they alone don't decide that nobody wins."""
        able = [one.name for one in self.runners if one.name not in self.lost]
        nearest = sorted(able, key=lambda one: (self.missing(one), self.rank(one)))[: self.rules.confirmed]
        return [one for one in nearest if not self.boots.get(one)]

    def missing(self, name: str) -> float:
        """By how much its worst goal misses what it takes; an improve goal takes more than 0."""
        limits = [(goal, 0.0 if goal.kind == "improve" else goal.limit) for goal in self.rules.goals]
        return max(limit - self.estimate(goal, name).mean for goal, limit in limits)

    def told(self, effect: float) -> str:
        return self.rules.improve[0].told(effect)

    def estimate(self, goal: Goal, name: str) -> Estimate:
        at, told = self.place[name], self.posteriors[goal.name]
        mean, se = float(told.mean[at]), math.sqrt(float(told.covariance[at, at]))
        half = float(stats.norm.ppf(self.rules.confidence)) * se
        return Estimate(mean, se, mean - half, mean + half, self.boots.get(name, 0))

    def score(self, name: str) -> Estimate:
        scores = self.scores[:, self.place[name]]
        low, high = np.quantile(scores, [1 - self.rules.confidence, self.rules.confidence])
        return Estimate(float(scores.mean()), float(scores.std()), float(low), float(high), self.boots.get(name, 0))

    def predicted(self, name: str) -> float | None:
        found = [self.predictions.get(name, {}).get(goal.name) for goal in self.rules.improve]
        known = [one for one in found if one is not None]
        return min(known) if len(known) == len(found) else None

    @property
    def standings(self) -> tuple[Standing, ...]:
        order = [*self.alive, *sorted((one.name for one in self.runners if self.fell(one.name)), key=self.rank)]
        return tuple(self.standing(name) for name in order)

    def standing(self, name: str) -> Standing:
        boots = self.boots.get(name, 0)
        return Standing(
            runner=name,
            state="fell" if self.fell(name) else "runs" if boots else "waits",
            boots=boots,
            score=self.score(name),
            predicted=self.predicted(name),
            goals={goal.name: self.estimate(goal, name) for goal in self.rules.goals},
            reason=self.why(name),
        )

    @property
    def leads(self) -> str:
        return "No speculation leads." if self.leader == NONE else f"{self.leader} leads, {self.figures(self.leader)}."

    def figures(self, name: str) -> str:
        one = self.score(name)
        if not self.known(name):
            boots = self.boots.get(name)
            return (
                f"not told of by its {boots} boot{'' if boots == 1 else 's'}" if boots else "neither run nor predicted"
            )
        behind = (
            f"over {one.boots} boot{'' if one.boots == 1 else 's'}" if one.boots else "as predicted, without a boot"
        )
        return f"{self.told(one.mean)} ({self.told(one.low)} to {self.told(one.high)}) {behind}"

    def why(self, name: str) -> str:
        """Its state in one sentence."""
        if name in self.lost:
            seen = self.lost[name]
            where = f"its boot {seen.boot} in round {seen.round}"
            return f"{name} is out: {where} never got there in {self.goal(seen.goal).said}."
        if self.breaks[self.place[name]] > self.rules.confidence:
            return f"{name} is out: it breaks {self.worst_hold(name)}."
        if name == self.leader:
            return self.leads
        against = f"no speculation ({self.told(0)})" if self.leader == NONE else self.leader
        told = f"{self.figures(name)}, better than {against} with a chance of {100 * self.chance(name):.1f} %"
        if not self.fell(name):
            return f"{name} may still win: {told}."
        return f"{name} is out: {told}, and {100 * (1 - self.rules.confidence):.3g} % keep it in."

    def worst_hold(self, name: str) -> str:
        holds = [goal for goal in self.rules.goals if goal.kind == "hold"]
        goal = min(holds, key=lambda one: self.estimate(one, name).high - one.limit)
        one = self.estimate(goal, name)
        allowed = f"and {goal.told(goal.limit)} is allowed"
        return f"{goal.said}: {goal.told(one.mean)} (at most {goal.told(one.high)}), {allowed}"

    def why_these(self, wanted: Sequence[str]) -> str:
        said = f"{called(self.leader)} leads"
        rest = [one for one in wanted if one != self.leader]
        if not rest:
            return f"{said} and is measured"
        gains = ", ".join(f"{one} by {self.told(self.gain(one))}" for one in rest)
        return f"{said}; expected to gain on it: {gains}"


def told_effect(effect: float, scale: Literal["ratio", "difference"]) -> str:
    """Better above ×1.00, or above 0 points."""
    return f"×{math.exp(effect):.2f}" if scale == "ratio" else f"{100 * effect:+.1f} points".replace("-", "−")


def in_worlds(one: Posterior, normals: Floats) -> Floats:
    """Effects in each world, shape (worlds, runners)."""
    lower = np.linalg.cholesky(one.covariance + 1e-12 * np.eye(len(one.mean)))
    return np.asarray(one.mean + normals @ lower.T)


def standard_normals(rows: int, columns: int) -> Floats:
    """The same numbers at every call: raw PCG64 words are alike on every platform and numpy version."""
    words = np.random.PCG64(0).random_raw(rows * columns).astype(np.uint64) >> np.uint64(11)
    return np.asarray(special.ndtri((words + 0.5) / 2.0**53).reshape(rows, columns), np.float64)


def check(rules: Rules, runners: Sequence[Runner], observations: Sequence[Observation]) -> None:
    names = [one.name for one in runners]
    if len({*names, NONE}) != len(names) + 1:
        raise ValueError(f"two runners have the same name, or one is called {NONE}: {', '.join(names)}")
    if not rules.improve:
        raise ValueError("a race needs a goal to improve")
    goals = {one.name for one in rules.goals}
    for seen in observations:
        if seen.runner not in {*names, NONE} or seen.goal not in goals:
            raise ValueError(f"boot {seen.boot} of round {seen.round}: no runner {seen.runner} or no goal {seen.goal}")


def called(name: str) -> str:
    return "no speculation" if name == NONE else name
