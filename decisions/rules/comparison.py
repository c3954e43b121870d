"""Candidate against baseline in one cell: one number per pair, bounds over the pairs, tests both ways."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from decisions.rules.brief import Brief, Cell
from decisions.rules.evidence import ByRow, TrialEvidence, by_row, in_class, matched, with_status
from decisions.rules.measures import Measure, effect, latency, share_masks, value
from loadtests.statistics.pairs import Bounds, count_rate_se, matched_share_se, sign_flip_p_value, t_bounds
from loadtests.statistics.quantiles import quantile_log_se

# Below six pairs the smallest sign-flip p-value is above 5 %, or hardly below: it is reported and doesn't gate.
SIGN_FLIP_GATES_FROM = 6
# Pairs whose log ratios agree to a ten-thousandth agree by accident or by a frozen clock.
AGREEING = 1e-4
SMALLEST_RATIO_SE = 1e-6


@dataclass(frozen=True, eq=False)
class Pair:
    """The two trials of a pair at one level; ``other`` is the candidate's, or in A/A the control's."""

    number: int
    baseline: TrialEvidence
    other: TrialEvidence


@dataclass(frozen=True)
class PairValue:
    pair: int
    baseline: float
    candidate: float
    effect: float


@dataclass(frozen=True)
class Comparison:
    """``low`` and ``high`` bound the mean effect (positive is better), each at confidence 1 − alpha.

    They are infinite where a pair has no finite effect: a candidate that never got there in some pairs can't be
    shown to hold; one that never did in any pair, while the baseline always did, is shown to be worse by any amount.
    """

    measure: Measure
    cell: Cell
    values: tuple[PairValue, ...]
    bounds: Bounds | None
    low: float
    high: float

    @property
    def effects(self) -> list[float]:
        return [one.effect for one in self.values]

    @property
    def mean(self) -> float:
        if self.bounds:
            return self.bounds.mean
        return self.low if self.low == self.high else math.nan

    def p_above(self, threshold: float) -> float:
        """Against "the effect is at most ``threshold``"; from six pairs on the sign-flip test must agree."""
        if self.bounds is None:
            return 0.0 if self.low > threshold else 1.0
        return max(self.bounds.p_above(threshold), self.flipped(threshold, 1) if self.sign_flip_gates else 0.0)

    def p_below(self, threshold: float) -> float:
        if self.bounds is None:
            return 0.0 if self.high < threshold else 1.0
        return max(self.bounds.p_below(threshold), self.flipped(threshold, -1) if self.sign_flip_gates else 0.0)

    @property
    def sign_flip_gates(self) -> bool:
        return len(self.values) >= SIGN_FLIP_GATES_FROM

    def flipped(self, threshold: float, side: int) -> float:
        return sign_flip_p_value([side * one for one in self.effects], limit=side * threshold)


def pairs_at(trials: Iterable[TrialEvidence], level: str, *, other: str) -> list[Pair]:
    """The pairs with both arms' trial at ``level``, by number; a second trial of one place is left out here and
    found by the validity check on pairs."""
    found: dict[int, dict[str, TrialEvidence]] = {}
    for trial in sorted(trials, key=lambda one: one.order):
        if trial.level == level and trial.pair is not None:
            found.setdefault(trial.pair, {}).setdefault(trial.arm, trial)
    return [
        Pair(number, arms["baseline"], arms[other])
        for number, arms in sorted(found.items())
        if "baseline" in arms and other in arms
    ]


def compare(brief: Brief, pairs: Sequence[Pair], measure: Measure, cell: Cell, *, alpha: float) -> Comparison:
    kept = [(pair, found) for pair in pairs if (found := pair_value(brief, pair, measure, cell)) is not None]
    values = tuple(found for _, found in kept)
    effects = [found.effect for found in values]
    if len(effects) < 2:
        return Comparison(measure, cell, values, None, -math.inf, math.inf)
    if not np.isfinite(effects).all():
        return Comparison(measure, cell, values, None, *unbounded(effects))
    floor = smallest_se(brief, [pair for pair, _ in kept], measure, cell, effects)
    bounds = t_bounds(effects, alpha=alpha, smallest_se=floor)
    return Comparison(measure, cell, values, bounds, bounds.low, bounds.high)


def pair_value(brief: Brief, pair: Pair, measure: Measure, cell: Cell) -> PairValue | None:
    baseline = value(measure, pair.baseline, cell.class_, brief)
    candidate = value(measure, pair.other, cell.class_, brief)
    if baseline is None or candidate is None:
        return None
    return PairValue(pair.number, baseline, candidate, effect(measure, baseline, candidate))


def unbounded(effects: Sequence[float]) -> tuple[float, float]:
    if all(one == math.inf for one in effects):
        return math.inf, math.inf
    if all(one == -math.inf for one in effects):
        return -math.inf, -math.inf
    return -math.inf, math.inf


def smallest_se(brief: Brief, pairs: Sequence[Pair], measure: Measure, cell: Cell, effects: Sequence[float]) -> float:
    """The sampling standard error of the mean effect within pairs: always a floor for shares and counts, which come in
    steps and easily agree; for other ratios only where the pairs agree, since their spread already carries it."""
    if measure.metric == "preemptions":
        return preemptions_floor(pairs)
    if measure.scale == "difference":
        return share_floor(brief, pairs, measure, cell)
    if measure.metric == "slo_goodput":
        return goodput_floor(brief, pairs, cell)
    if float(np.std(effects, ddof=1)) >= AGREEING:
        return 0.0
    if measure.quantile is None:
        return max(SMALLEST_RATIO_SE, tokens_floor(pairs, cell))
    return max(SMALLEST_RATIO_SE, quantile_floor(pairs, measure, cell))


def share_floor(brief: Brief, pairs: Sequence[Pair], measure: Measure, cell: Cell) -> float:
    gained = lost = requests = 0
    for pair in pairs:
        before, after = matched(*(counted_by_row(brief, one, measure, cell) for one in (pair.baseline, pair.other)))
        gained += int((after & ~before).sum())
        lost += int((before & ~after).sum())
        # Arms that got different requests are INVALID; their unmatched requests must not break the arithmetic.
        requests += max(1, len(before))
    return matched_share_se(gained, lost, requests)


def goodput_floor(brief: Brief, pairs: Sequence[Pair], cell: Cell) -> float:
    """A goodput is an attainment times a rate of arrival that both arms share, so its logarithm varies as the share
    does, relative to it (the delta method, at the smaller of both arms' shares)."""
    measure = Measure("attainment")
    arms = zip(*arms_of(pairs), strict=True)
    means = [statistics.fmean(value(measure, one, cell.class_, brief) or 0.0 for one in arm) for arm in arms]
    return share_floor(brief, pairs, measure, cell) / min(means)


def preemptions_floor(pairs: Sequence[Pair]) -> float:
    first, second = (sum(one.preemptions or 0 for one in arm) for arm in zip(*arms_of(pairs), strict=True))
    requests = sum(len(pair.baseline.with_warm_up("row")) for pair in pairs)
    return count_rate_se(first, second, max(1, requests))


def arms_of(pairs: Sequence[Pair]) -> list[tuple[TrialEvidence, TrialEvidence]]:
    return [(pair.baseline, pair.other) for pair in pairs]


def counted_by_row(brief: Brief, trial: TrialEvidence, measure: Measure, cell: Cell) -> ByRow:
    counted, judged = share_masks(measure, trial, brief)
    judged &= in_class(trial, cell.class_)
    return by_row(trial, counted, judged)


def quantile_floor(pairs: Sequence[Pair], measure: Measure, cell: Cell) -> float:
    if measure.quantile is None:
        return 0.0
    variance = 0.0
    for trial in (arm for pair in pairs for arm in (pair.baseline, pair.other)):
        variance += quantile_log_se(latency(measure, trial)[in_class(trial, cell.class_)], measure.quantile) ** 2
    return math.sqrt(variance) / len(pairs)


def tokens_floor(pairs: Sequence[Pair], cell: Cell) -> float:
    """A rate over a fixed window varies at least as the share of requests that completed: relative, both arms."""
    done = planned = 0
    for trial in (arm for pair in pairs for arm in (pair.baseline, pair.other)):
        chosen = in_class(trial, cell.class_)
        done += int((with_status(trial, "completed") & chosen).sum())
        planned += int(chosen.sum())
    share = (done + 1) / (planned + 2)
    return 2 * math.sqrt((1 - share) / (share * planned))
