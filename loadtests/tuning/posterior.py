"""What boots and predictions together tell of one goal: every runner's effect, and how sure that is.

One linear model for each goal: the effect of a boot = its round's error (the luck of the baseline boots that it was
compared with) + its runner's effect + the boot's own luck. Predictions are a first opinion of the runners' effects,
wrong by an amount that all runners of a family share and by one that is each one's own. How much boots differ and how
wrong predictions are is not known either: the answer is averaged over a grid of both, each weighed by how well it
explains the boots (and the noise floor, where one was measured). Two boots thus never look surer than two boots are,
and predictions that the boots contradict soon count for little.
Source: the mixed model is Henderson's (Biometrics 31 (1975) 423-447); averaging over its variances as in Box & Tiao,
"Bayesian inference in statistical analysis" (1973), chapter 5.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Standard deviations, in units of the effect (log ratio, or share of 1): of a boot's luck, of a prediction's own error.
# Both are half-Cauchy before anything is seen, which rules out little; these are the medians. Source: Gelman, "Prior
# distributions for variance parameters in hierarchical models", Bayesian Analysis 1 (2006) 515-533.
SPREADS = tuple(float(one) for one in np.geomspace(0.005, 0.4, 14))
ERRORS = tuple(float(one) for one in np.geomspace(0.005, 0.32, 7))
TYPICAL_SPREAD, TYPICAL_ERROR = 0.08, 0.03
# What all predictions of a family have in common may be so many times as wrong as what tells its runners apart.
SHARED = 3.0
# As good as nothing known: a factor of e either way.
WIDE = 1.0
# An effect beyond this (a factor of 20) tells no more than that it is large.
LARGEST = 3.0


@dataclass(frozen=True)
class Boot:
    """One boot's effect: its round, the place of its runner among the runners (None: a baseline boot)."""

    round: int
    runner: int | None
    effect: float


@dataclass(frozen=True)
class Posterior:
    """Of n runners: ``mean`` (n,) and ``covariance`` (n, n) of their effects; ``spread``: the standard deviation of one
    boot's effect; ``prediction_error``: that of a prediction's own error. All in the unit of the effects."""

    mean: Floats
    covariance: Floats
    spread: float
    prediction_error: float


def posterior(
    boots: Iterable[Boot],
    predicted: Sequence[float | None],
    families: Sequence[str],
    *,
    relative: bool,
    floor: tuple[float, int] | None = None,
) -> Posterior:
    """``predicted`` and ``families`` have one entry for each runner; an effect that isn't finite is left out, and a
    prediction that it never gets there (−inf) counts as −LARGEST.
    ``relative``: effects are against the baseline, which has 0 itself and luck that its round shares; otherwise they
    are the boot's own. ``floor``: (spread of one boot, degrees of freedom) of a noise floor."""
    told = sorted(
        (one for one in boots if math.isfinite(one.effect)),
        key=lambda one: (one.round, -1 if one.runner is None else one.runner, one.effect),
    )
    opinions = [bounded(one) for one in predicted]
    problem = problem_of(told, opinions, families, relative=relative)
    grid = list(product(SPREADS, ERRORS))
    solved = [problem.solved(spread, error) for spread, error in grid]
    before = [
        half_cauchy(spread, TYPICAL_SPREAD) + half_cauchy(error, TYPICAL_ERROR) + floor_evidence(floor, spread)
        for spread, error in grid
    ]
    weights = normalised(np.array([one.evidence for one in solved]) + before)
    mean = averaged(weights, [one.mean for one in solved])
    within = averaged(weights, [one.covariance for one in solved])
    between = averaged(weights, [np.outer(one.mean - mean, one.mean - mean) for one in solved])
    spread, error = np.exp(weights @ np.log(np.array(grid)))
    return Posterior(mean, within + between, float(spread), float(error))


@dataclass(frozen=True)
class Solved:
    """At one spread and error: ``evidence`` is the logarithm of the boots' density."""

    evidence: float
    mean: Floats
    covariance: Floats


@dataclass(frozen=True)
class Problem:
    """``of`` (boots, runners): whose boot it is. ``shared`` (boots, boots): covariance of what boots have in common
    beside their runners. ``opinion`` (runners,): predictions, 0 where there are none; ``wide`` and ``wrong`` (runners,
    runners): covariance of the opinions' errors, of those without a prediction and (times the error's square) with."""

    effects: Floats
    of: Floats
    shared: Floats
    opinion: Floats
    wide: Floats
    wrong: Floats

    def solved(self, spread: float, error: float) -> Solved:
        prior = self.wide + error**2 * self.wrong
        if not len(self.effects):
            return Solved(0.0, self.opinion, prior)
        covariance = self.of @ prior @ self.of.T + self.shared + spread**2 * np.eye(len(self.effects))
        rest = self.effects - self.of @ self.opinion
        lower = np.linalg.cholesky(covariance)
        # numpy's, not scipy's for triangles: that starts threads for every few numbers.
        white = np.linalg.solve(lower, np.column_stack([rest, self.of @ prior]))
        evidence = -0.5 * float(white[:, 0] @ white[:, 0]) - float(np.log(np.diag(lower)).sum())
        gain = white[:, 1:]
        return Solved(evidence, self.opinion + gain.T @ white[:, 0], prior - gain.T @ gain)


def problem_of(
    boots: Sequence[Boot], predicted: Sequence[float | None], families: Sequence[str], *, relative: bool
) -> Problem:
    count = len(families)
    known = np.array([one is not None for one in predicted], bool)
    alike = np.array([[left == right for right in families] for left in families], bool).reshape(count, count)
    of = np.zeros((len(boots), count))
    for row, one in enumerate(boots):
        if one.runner is not None:
            of[row, one.runner] = 1.0
    return Problem(
        effects=np.clip(np.array([one.effect for one in boots], np.float64), -LARGEST, LARGEST),
        of=of,
        shared=WIDE**2 * in_common(boots, relative=relative),
        opinion=np.array([0.0 if one is None else one for one in predicted], np.float64),
        wide=WIDE**2 * np.diag(~known).astype(np.float64),
        wrong=(SHARED**2 * alike + np.eye(count)) * np.outer(known, known),
    )


def bounded(predicted: float | None) -> float | None:
    """Within ±LARGEST; None where nothing is known."""
    return None if predicted is None or math.isnan(predicted) else max(-LARGEST, min(LARGEST, predicted))


def in_common(boots: Sequence[Boot], *, relative: bool) -> Floats:
    """Which boots share something beside a runner, shape (boots, boots): relative effects the error of their round, the
    baseline's own figures what is the baseline's."""
    rounds = np.array([one.round for one in boots])
    baseline = np.array([one.runner is None for one in boots], bool)
    same = rounds[:, None] == rounds[None, :] if relative else np.outer(baseline, baseline)
    return np.asarray(same, np.float64)


def half_cauchy(deviation: float, median: float) -> float:
    """Logarithm of the density at ``deviation``, per unit of its logarithm, as the grids are spaced."""
    return math.log(deviation) - math.log1p((deviation / median) ** 2)


def floor_evidence(floor: tuple[float, int] | None, spread: float) -> float:
    """Logarithm of the density of a noise floor's variance where the true spread is ``spread`` (chi-square)."""
    if floor is None or floor[1] < 1:
        return 0.0
    found, degrees = floor
    return -degrees * (math.log(spread) + 0.5 * (found / spread) ** 2)


def normalised(evidence: Floats) -> Floats:
    weights = np.exp(evidence - evidence.max())
    return np.asarray(weights / weights.sum(), np.float64)


def averaged(weights: Floats, things: Sequence[Floats]) -> Floats:
    return np.asarray(np.tensordot(weights, np.stack(things), axes=1), np.float64)
