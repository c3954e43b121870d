"""What is measured in a cell: one number per trial, in one unit, with one direction that is better."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decisions.rules.brief import OF_THE_ENGINE, Brief, Guardrail, Outcome
from decisions.rules.evidence import (
    Bools,
    Floats,
    TrialEvidence,
    completion_s,
    first_token_s,
    gave_up,
    has_deadline,
    in_class,
    with_status,
    within,
)
from loadtests.statistics.attainment import slo_goodput
from loadtests.statistics.quantiles import quantile

NANOSECONDS = 1_000_000_000

NAMES = {
    "attainment": "Attainment",
    "slo_goodput": "SLO goodput",
    "capacity": "Capacity",
    "failed_share": "Failed",
    "late_share": "Not within deadline",
    "cancelled_share": "Given up by their users",
    "first_token_quantile": "First token",
    "completion_quantile": "Completion",
    "output_tokens_per_s": "Output tokens per second",
    "kv_cache_tokens": "KV cache",
    "preemptions": "Preemptions per request",
    "behaviour": "Preserved behaviour",
}
SAID = {
    "attainment": "attainment",
    "slo_goodput": "SLO goodput",
    "capacity": "capacity",
    "failed_share": "the share of failed requests",
    "late_share": "the share of requests not within deadline",
    "cancelled_share": "the share of requests given up by their users",
    "first_token_quantile": "first token",
    "completion_quantile": "completion",
    "output_tokens_per_s": "output tokens per second",
    "kv_cache_tokens": "the KV cache",
    "preemptions": "preemptions per request",
    "behaviour": "the output",
}
UNITS = {"first_token_quantile": "s", "completion_quantile": "s", "output_tokens_per_s": "tokens/s"} | {
    "kv_cache_tokens": "tokens",
    "slo_goodput": "requests/s",
    "capacity": "requests/s",
    "behaviour": "cases",
}
HIGHER_IS_BETTER = frozenset({"attainment", "slo_goodput", "capacity", "output_tokens_per_s", "kv_cache_tokens"})
# Late is not failed: neither what was still open at the end (timed_out) nor what a user cancelled as planned. Whatever
# else didn't complete counts as failed.
FAILED = ("failed", "refused", "cancelled", "not_sent")
EXCLUDED = "timed-out not counted"


@dataclass(frozen=True)
class Measure:
    """A metric of the brief. Shares are compared as differences, everything else as ratios. Preemptions per request are
    told as a share, though a request may be preempted more than once."""

    metric: str
    quantile: float | None = None

    @property
    def label(self) -> str:
        return NAMES[self.metric] + self.percentile

    @property
    def said(self) -> str:
        """As in the middle of a sentence."""
        return SAID[self.metric] + self.percentile

    @property
    def percentile(self) -> str:
        return "" if self.quantile is None else f" p{self.quantile * 100:g}"

    @property
    def unit(self) -> str:
        return UNITS.get(self.metric, "share")

    @property
    def of_engine(self) -> bool:
        """A trial whose engine died or doesn't tell has no number of these, however bad it was."""
        return self.metric in OF_THE_ENGINE

    @property
    def scale(self) -> Literal["difference", "ratio"]:
        return "difference" if self.unit == "share" else "ratio"

    @property
    def better(self) -> int:
        return 1 if self.metric in HIGHER_IS_BETTER else -1


def measure_of(part: Outcome | Guardrail) -> Measure:
    return Measure(part.metric, part.quantile)


def trial_measure(outcome: Outcome) -> Measure:
    """What a single trial tells of the outcome: of capacity, which takes a whole ladder, its attainment."""
    return Measure("attainment") if outcome.metric == "capacity" else measure_of(outcome)


def value(measure: Measure, trial: TrialEvidence, class_: str, brief: Brief) -> float | None:
    """The trial's number in a class; None where nothing was planned or recorded to measure it on.

    A latency quantile is taken over every planned request, so it is +inf where more of them than 1 − quantile
    never completed.
    """
    if measure.metric == "kv_cache_tokens":
        return None if trial.kv_cache_tokens is None else float(trial.kv_cache_tokens)
    if measure.metric == "preemptions":
        return preemptions_per_request(trial)
    chosen = in_class(trial, class_)
    if not chosen.any():
        return None
    if measure.metric == "output_tokens_per_s":
        return tokens_per_s(trial, chosen)
    if measure.quantile is not None:
        return quantile(latency(measure, trial)[chosen], measure.quantile)
    counted, judged = share_masks(measure, trial, brief)
    judged &= chosen
    if not judged.any():
        return None
    if measure.metric == "slo_goodput":
        return slo_goodput(counted[judged], trial.window_s)
    return float(counted[judged].mean())


def preemptions_per_request(trial: TrialEvidence) -> float | None:
    """The engine counts those of the level's warm-up too."""
    sent = len(trial.with_warm_up("row"))
    return None if trial.preemptions is None or not sent else trial.preemptions / sent


def latency(measure: Measure, trial: TrialEvidence) -> Floats:
    """Seconds per planned request, never below the clock's step so that a ratio always has a number."""
    found = first_token_s(trial) if measure.metric == "first_token_quantile" else completion_s(trial)
    return np.maximum(found, 1 / NANOSECONDS)


def share_masks(measure: Measure, trial: TrialEvidence, brief: Brief) -> tuple[Bools, Bools]:
    """(which planned requests count, which are judged at all); attainment leaves out classes without a deadline."""
    if measure.metric == "failed_share":
        return with_status(trial, *FAILED) & ~gave_up(trial), np.ones(len(trial.columns["status"]), dtype=bool)
    if measure.metric == "cancelled_share":
        return gave_up(trial), np.ones(len(trial.columns["status"]), dtype=bool)
    met = within(trial, brief)
    return ~met if measure.metric == "late_share" else met, has_deadline(trial, brief)


def over_limit(measure: Measure, trial: TrialEvidence, class_: str, limit: float, brief: Brief) -> tuple[int, int]:
    """(requests over an absolute limit, requests judged): slower than ``limit`` seconds, or counted in a share."""
    chosen = in_class(trial, class_)
    if measure.quantile is not None:
        return int((latency(measure, trial)[chosen] > limit).sum()), int(chosen.sum())
    counted, judged = share_masks(measure, trial, brief)
    judged &= chosen
    return int(counted[judged].sum()), int(judged.sum())


def tokens_per_s(trial: TrialEvidence, chosen: Bools) -> float:
    """Verified output tokens over the time they took: the window, or longer where the last came in the drain."""
    tokens = trial.columns["output_tokens"][chosen]
    return float(tokens[tokens > 0].sum()) / max(trial.window_s, busy_s(trial))


def busy_s(trial: TrialEvidence) -> float:
    """From the window's start to the last token, in seconds."""
    last = trial.columns["last_token_ns"]
    return (float(last.max()) - trial.window_start_ns) / NANOSECONDS if last.size else 0.0


def effect(measure: Measure, baseline: float, candidate: float) -> float:
    """How much better the candidate is: a difference of shares, or a log ratio; positive is better.

    Where a ratio has no number the arm that never got there is the worse one without bound: a latency that is
    infinite, or no tokens at all, in the candidate alone is −inf, in the baseline alone +inf, in both NaN.
    """
    if measure.scale == "difference":
        return measure.better * (candidate - baseline)
    lost_baseline, lost_candidate = lost(baseline), lost(candidate)
    if lost_baseline or lost_candidate:
        return math.nan if lost_baseline and lost_candidate else (math.inf if lost_baseline else -math.inf)
    return measure.better * math.log(candidate / baseline)


def lost(number: float) -> bool:
    return math.isinf(number) or number <= 0


def improvement_threshold(measure: Measure, improvement: float) -> float:
    """The effect that equals "better by ``improvement``" (a share of 1, or a share of the baseline)."""
    return improvement if measure.scale == "difference" else measure.better * math.log1p(measure.better * improvement)


def margin_threshold(measure: Measure, margin: float) -> float:
    """The effect that equals "worse by ``margin``"."""
    return -margin if measure.scale == "difference" else measure.better * math.log1p(-measure.better * margin)


def shown_change(measure: Measure, one_effect: float) -> float:
    """An effect as a reader wants it: candidate − baseline in shares, or candidate ÷ baseline − 1; ±inf stays."""
    signed = measure.better * one_effect
    if measure.scale == "difference" or not math.isfinite(signed):
        return signed
    return math.expm1(signed)
