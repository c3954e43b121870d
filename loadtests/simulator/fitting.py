"""A cost model from evidence: the costs of a step under which the times that the engine told come out.

Boots of one configuration differ in speed by more than most costs: each boot has a factor of its own on all its times,
drawn to 1 where nothing else tells it from a cost.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import optimize

from loadtests.simulator.costs import Costs, DrafterCost, RoundCost
from loadtests.simulator.steps import Floats, Steps, longest_draft, requests_of, steps_of, together

# Relative residuals beyond this weigh less: a pause of the engine is no cost of a step.
TYPICAL_RESIDUAL = 0.02
TARGET = ("fixed_s", "per_sequence_s", "weights_s", "per_token_s", "per_prefill_token_s", "per_context_token_s")
ROOF = ("weights_s", "per_token_s", "per_prefill_token_s")
# Drafters that draft one token after the other: where one K was measured, its cost is that of its positions.
SEQUENTIAL = ("draft_model", "eagle", "eagle3", "mtp")
# The requests of a trial share what the model lacks: together they count as so many independent ones against the
# prior of a boot's factor, whose logarithm has this standard deviation (docs/simulator.md: boots differ by 6-24 %).
INDEPENDENT = 40
# Requests of all trials without a drafter: below that the costs of a step are guessed rather than fitted.
FEWEST_PLAIN = 20
BOOT_SD = 0.08
# Shares of the steps below the knee from which a fit begins.
KNEES = (0.1, 0.5, 0.9)
MOST_ITERATIONS, TOLERANCE, LARGEST_DAMPING, MOST_OF_A_STEP = 200, 1e-6, 1e8, 0.5
# vLLM PR 52087: a step for which a schedule says K = 0 takes at least this much longer than one without a drafter.
LEAST_IDLE_SHARE = 0.06


@dataclass(frozen=True)
class Observed:
    """The steps of one trial. ``drafter`` names what drafted in it ("" for none), ``method`` the kind it is of."""

    boot: str
    drafter: str
    method: str
    steps: Steps


@dataclass(frozen=True)
class Fitted:
    """``costs`` of a typical boot; ``boots``: time factor of each; ``boot_sd``: standard deviation of their logarithms,
    None below two, and too small where boots of one kind are few. ``told``: by drafter, which of its costs the trials
    could tell."""

    costs: Costs
    boots: Mapping[str, float]
    boot_sd: float | None
    told: Mapping[str, tuple[str, ...]]

    def factor(self, boot: str) -> float:
        """1 for a boot that was not among the trials."""
        return self.boots.get(boot, 1.0)


def fit_costs(plain: Iterable[pa.Table], speculating: Iterable[pa.Table] = (), *, method: str = "") -> Costs:
    """Costs of a step from the records of trials without speculation; with trials in which ``method`` drafted also the
    drafter's, all at once: drafts are what tells the price of a checked token from that of a sequence.

    Records as ``read_records`` gives them, each of a boot of its own; K is as many drafts as a round of them kept at
    most, by the width of the histograms. Raises ValueError where too few requests have the engine's own times.
    Source and limits: ``fit``.
    """
    without = [Observed(f"plain {n}", "", "", steps_of(requests_of(one), None)) for n, one in enumerate(plain)]
    drafted = [
        Observed(f"speculating {n}", method, method, steps_of(requests_of(one), (longest_draft(one),)))
        for n, one in enumerate(speculating)
    ]
    if drafted and not method:
        raise ValueError("trials with speculation need the name of the method that drafted in them")
    return fit([*without, *drafted]).costs


def fit(observed: Sequence[Observed]) -> Fitted:
    """The costs of the target and of each drafter, and each boot's factor, from all trials at once.

    Below the knee a token's arithmetic is hidden by the weights, so only a load that gets beyond it, or prompts, tell
    the two apart. A prompt longer than one step's budget isn't modelled. Where one draft length was measured, it can't
    tell what each position costs: a drafter of SEQUENTIAL is then taken to cost the same for each, any other to cost
    the same for all. Raises ValueError where trials without a drafter have fewer than ``FEWEST_PLAIN`` requests.
    Source: the shape is that of ``RoundCost`` and ``DrafterCost``; least squares of log times with a soft L1 loss.
    """
    plain = [one.steps for one in observed if one.drafter == ""]
    if not plain:
        raise ValueError("a fit needs at least one trial without speculation")
    decodes = sum(int((steps.rounds > 0).sum()) for steps in plain)
    if decodes < FEWEST_PLAIN:
        raise ValueError(f"a fit needs {FEWEST_PLAIN} requests without speculation, and its trials have {decodes}")
    problem = Problem(observed)
    return problem.fitted(problem.solved())


def seconds_at(steps: Steps, costs: Costs, drafter: str) -> Floats:
    """Of each observation, at these costs."""
    target = costs.round.seconds(steps.sequences, steps.verified, steps.context, steps.prefill)
    each = target
    if drafter:
        cost = costs.drafters[drafter]
        each = target + cost.fixed_s * steps.drafting + cost.per_position_s * steps.k
        each = each + cost.per_draft_token_s * steps.drafted + cost.idle_s * steps.idle
    return np.asarray(np.bincount(steps.of, steps.count * each, len(steps.seconds)), np.float64)


class Problem:
    """The least-squares problem: parameters are the target's costs, the told costs of each drafter, and the logarithm
    of each boot's factor. All but the roof is linear in the costs, and summed over each observation beforehand."""

    def __init__(self, observed: Sequence[Observed]) -> None:
        self.observed = observed
        self.steps = together([one.steps for one in observed])
        sizes = [len(one.steps.seconds) for one in observed]
        self.boots = sorted({one.boot for one in observed})
        self.boot = np.repeat([self.boots.index(one.boot) for one in observed], sizes)
        self.told = told_costs(observed)
        self.names = [("", name) for name in TARGET] + [(who, name) for who, told in self.told.items() for name in told]
        self.known = self.steps.seconds > 0
        self.linear = self.sums(observed)
        self.scale = self.scales()
        counted = INDEPENDENT * len(observed)
        self.prior = TYPICAL_RESIDUAL / BOOT_SD * math.sqrt(max(1.0, float(self.known.sum()) / counted))

    def sums(self, observed: Sequence[Observed]) -> Floats:
        """Shape (observations, costs); the roof's columns are left 0."""
        steps = self.steps
        whose = np.repeat([one.drafter for one in observed], [len(one.steps.count) for one in observed])
        content = {"fixed_s": np.ones_like(steps.count), "per_sequence_s": steps.sequences}
        content |= {"per_context_token_s": steps.context}
        drafter = {
            "fixed_s": steps.drafting,
            "per_position_s": steps.k,
            "per_draft_token_s": steps.drafted,
            "idle_s": steps.idle,
        }
        columns = []
        for who, name in self.names:
            each = drafter[name] * (whose == who) if who else content.get(name, np.zeros_like(steps.count))
            columns.append(np.bincount(steps.of, steps.count * each, len(steps.seconds)))
        return np.stack(columns, axis=1)

    def scales(self) -> Floats:
        """What each cost could be at most, about, so that all parameters are of one size."""
        steps = self.steps
        counted = np.maximum(np.bincount(steps.of, steps.count, len(steps.seconds)), 1)
        least = float(np.quantile((steps.seconds / counted)[self.known], 0.05))
        tokens = max(1.0, float(np.median(steps.verified)))
        sizes = {
            "per_sequence_s": tokens,
            "per_token_s": tokens,
            "per_prefill_token_s": 500,
            "per_draft_token_s": tokens,
        }
        sizes |= {"per_context_token_s": 1e5, "per_position_s": 4}
        return np.array([least / sizes.get(name, 1) for _, name in self.names])

    def begun(self, share: float) -> Floats:
        """With the knee where this share of the steps is below it. From far above it, nothing would tell an arithmetic
        that is hidden from one that costs nothing."""
        steps = self.steps
        knee = max(1.0, float(np.quantile(steps.verified[steps.prefill == 0], share)))
        first = {"fixed_s": 0.3, "per_sequence_s": 0.02, "weights_s": 0.6, "per_prefill_token_s": 0.5}
        first |= {"per_token_s": 0.6 * max(1.0, float(np.median(steps.verified))) / knee, "per_context_token_s": 0.1}
        costs = [0.1 if who else first[name] for who, name in self.names]
        return np.array([*costs, *np.zeros(len(self.boots))])

    def seconds(self, costs: Floats) -> tuple[Floats, Floats]:
        """Of each observation before its boot's factor, and their derivatives by each cost."""
        steps, places = self.steps, [self.names.index(("", name)) for name in ROOF]
        weights, token, prefill = (costs[place] for place in places)
        arithmetic = token * steps.verified + prefill * steps.prefill
        above = arithmetic > weights
        slopes = self.linear.copy()
        for place, each in zip(places, (~above, above * steps.verified, above * steps.prefill), strict=True):
            slopes[:, place] = np.bincount(steps.of, steps.count * each, len(steps.seconds))
        # The roof is one of its two sides, each of which is linear.
        return slopes @ costs, slopes

    def off(self, point: Floats) -> tuple[Floats, Floats]:
        """Residuals of the logarithms of observed times, then of the boots' prior; and their derivatives."""
        costs, boots = np.split(point, [len(self.names)])
        found, by_cost = self.seconds(costs * self.scale)
        found = np.maximum(found[self.known], 1e-12)
        residuals = np.log(found / self.steps.seconds[self.known]) + boots[self.boot[self.known]]
        by_boot = np.equal.outer(self.boot[self.known], np.arange(len(self.boots)))
        prior = np.hstack([np.zeros((len(self.boots), len(self.names))), self.prior * np.eye(len(self.boots))])
        slopes = np.vstack([np.hstack([by_cost[self.known] * self.scale / found[:, None], by_boot]), prior])
        return np.concatenate([residuals, self.prior * boots]), slopes

    def weights(self, residuals: Floats) -> Floats:
        """How much each residual pulls, by the soft L1 loss; the prior of the boots stays a square."""
        found = (1 + (residuals / TYPICAL_RESIDUAL) ** 2) ** -0.5
        found[-len(self.boots) :] = 1.0
        return np.asarray(found, np.float64)

    def loss(self, residuals: Floats) -> float:
        squares = (residuals / TYPICAL_RESIDUAL) ** 2
        observed, prior = np.split(squares, [len(squares) - len(self.boots)])
        return float(np.sum(2 * (np.sqrt(1 + observed) - 1)) + prior.sum())

    def solved(self) -> Floats:
        """The best of what is found from several knees: a step's time is no smooth function of where it lies."""
        found = [self.nearest(self.begun(share)) for share in KNEES]
        return min(found, key=lambda one: self.loss(self.off(one)[0]))

    def nearest(self, point: Floats) -> Floats:
        """Levenberg-Marquardt on the normal equations, costs kept above 0. There are thousands of residuals and some
        ten parameters: the general solver's decompositions of so tall a matrix take most of the time."""
        damping = 1e-3
        residuals, slopes = self.off(point)
        loss = self.loss(residuals)
        for _ in range(MOST_ITERATIONS):
            nearer = point + self.step(point, residuals, slopes, damping)
            there = self.off(nearer)
            gained = loss - self.loss(there[0])
            if gained < 0:
                damping *= 10
                if damping > LARGEST_DAMPING:
                    break
                continue
            point, loss, damping = nearer, loss - gained, max(damping / 10, 1e-9)
            residuals, slopes = there
            if gained < TOLERANCE * loss:
                break
        return point

    def step(self, point: Floats, residuals: Floats, slopes: Floats, damping: float) -> Floats:
        weighed = slopes * self.weights(residuals)[:, None]
        normal = slopes.T @ weighed
        # A cost that no trial shows has no slope at all.
        normal += np.diag(damping * np.diag(normal) + 1e-12 * np.trace(normal))
        lower = np.linalg.cholesky(normal)
        # Never to 0 at once: below the roof a token that costs nothing has no slope either, and would stay there.
        lowest = np.concatenate([-MOST_OF_A_STEP * point[: len(self.names)], np.full(len(self.boots), -np.inf)])
        towards = -np.linalg.solve(lower, weighed.T @ residuals)
        return np.asarray(optimize.lsq_linear(lower.T, towards, (lowest, np.inf), method="bvls").x, np.float64)

    def fitted(self, point: Floats) -> Fitted:
        costs = point[: len(self.names)] * self.scale
        by_name = {name: float(one) for name, one in zip(self.names, costs, strict=True)}
        logs = point[len(self.names) :]
        target = RoundCost(**{name: by_name["", name] for name in TARGET})
        return Fitted(
            costs=Costs(round=target, drafters={who: self.drafter(who, by_name, target) for who in self.told}),
            boots={boot: math.exp(one) for boot, one in zip(self.boots, logs, strict=True)},
            boot_sd=float(np.std(logs, ddof=1)) if len(logs) > 1 else None,
            told=self.told,
        )

    def drafter(self, who: str, by_name: Mapping[tuple[str, str], float], target: RoundCost) -> DrafterCost:
        told = {name: by_name[who, name] for name in self.told[who]}
        if "idle_s" not in told:
            # Not seen. A step without drafts costs what a drafting one costs at least, or what was reported.
            told["idle_s"] = max(told.get("fixed_s", 0.0), LEAST_IDLE_SHARE * float(target.seconds(1, 1, 0)))
        return DrafterCost(**told)


def told_costs(observed: Sequence[Observed]) -> dict[str, tuple[str, ...]]:
    """By drafter, the costs that its trials can tell."""
    drafters = {one.drafter: one.method for one in observed if one.drafter}
    return {who: told_of([one.steps for one in observed if one.drafter == who], how) for who, how in drafters.items()}


def told_of(steps: Sequence[Steps], method: str) -> tuple[str, ...]:
    lengths = {round(float(k), 2) for one in steps for k in one.k[one.drafting > 0.99]}
    if len(lengths) > 1:
        names = ["fixed_s", "per_position_s"]
    else:
        names = ["per_position_s"] if method in SEQUENTIAL else ["fixed_s"]
    names.append("per_draft_token_s")
    if any((one.idle > 0.01).any() for one in steps):
        names.append("idle_s")
    return tuple(names)
