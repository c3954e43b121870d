"""The tables of the decision benchmark: counts, and the page that says what they mean. Pure."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy import stats

from loadtests.statistics.shares import binomial_bounds
from tests.benchmarks.decision_truths import CLEAR, FINE, NULLS, RAIL, TRUTHS, deserves, inside, regret
from tests.benchmarks.decision_world import COMPLETION_S, FIRST_TOKEN, LATE, MINIMUM, NOMINEE, PAIRS

ALPHA = 0.05
LEAST_POWER = 0.8
# On each truth at each spread; with fewer nothing is said about α.
DECISIONS = 400
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")
SAID = {
    "outcome": "improvement exactly the minimum, guardrails far inside",
    "first-token": "guardrail *first token* exactly at its limit, outcome far above",
    "late-code": "guardrail *late, class code* exactly at its limit, outcome far above",
    "completion": "guardrail *completion p80, class translate* exactly at its limit, outcome far above",
    "clear": "the minimum plus twice what the plan can detect, guardrails as far inside",
}

Rows = Sequence[Mapping[str, Any]]
Calibrations = Mapping[tuple[float, str], Mapping[str, Any]]


def most_false(decisions: int) -> int:
    """How many false PASS of so many are no evidence against α: 27 of 400 (the 95th percentile of a binomial)."""
    return int(stats.binom.ppf(0.95, decisions, ALPHA))


@dataclass(frozen=True)
class Counted:
    """What became of the decisions on one truth at one spread."""

    spread: float
    truth: str
    decisions: int
    verdicts: Mapping[str, int]
    passed_after_tuning: int
    false_after_tuning: int
    regret_after_tuning: float
    accepted_today: int
    false_today: int
    regret_today: float

    @property
    def passed(self) -> int:
        return self.verdicts["PASS"]

    @property
    def holds(self) -> bool:
        """α where the truth is a null, the power where it is clear."""
        if self.truth == CLEAR:
            return self.passed >= LEAST_POWER * self.decisions
        return self.passed <= most_false(self.decisions)

    @property
    def document(self) -> dict[str, Any]:
        low, high = binomial_bounds(self.passed, self.decisions, alpha=0.025)
        return asdict(self) | {"passed": self.passed, "pass_share_95": [low, high], "holds": self.holds}


def counted(spread: float, truth: str, rows: Rows, calibration: Mapping[str, Any]) -> Counted | None:
    """None where nothing was decided yet."""
    found = [row["truths"][truth] for row in rows if row["spread"] == spread]
    if not found:
        return None
    verdicts = Counter(one["verdict"] for one in found)
    released = [one["nominee"] if one["after_tuning"] == "PASS" else None for one in found]
    today = [one["today"] for one in found]
    return Counted(
        spread=spread,
        truth=truth,
        decisions=len(found),
        verdicts={name: verdicts[name] for name in VERDICTS},
        passed_after_tuning=sum(one is not None for one in released),
        false_after_tuning=false_releases(calibration, released),
        regret_after_tuning=statistics.fmean(regret(calibration, one) for one in released),
        accepted_today=sum(one is not None for one in today),
        false_today=false_releases(calibration, today),
        regret_today=statistics.fmean(regret(calibration, one) for one in today),
    )


def false_releases(calibration: Mapping[str, Any], released: Sequence[int | None]) -> int:
    return sum(k is not None and not deserves(calibration, k) for k in released)


def count_all(rows: Rows, calibrations: Calibrations) -> list[Counted]:
    found = [counted(spread, truth, rows, one) for (spread, truth), one in sorted(calibrations.items())]
    order = list(TRUTHS)
    return sorted((one for one in found if one), key=lambda one: (one.spread, order.index(one.truth)))


def held_up_to(counts: Sequence[Counted]) -> float | None:
    """The largest spread up to which every null kept α in all its decisions, from the smallest on."""
    held = None
    for spread in sorted(PAIRS):
        nulls = [one for one in counts if one.spread == spread and one.truth in NULLS]
        if len(nulls) < len(NULLS) or not all(one.holds and one.decisions >= DECISIONS for one in nulls):
            break
        held = spread
    return held


def document(counts: Sequence[Counted], calibrations: Calibrations, machine: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "alpha": ALPHA,
        "alpha_holds_up_to_spread": held_up_to(counts),
        "decisions": [one.document for one in counts],
        "truths": [
            {"spread": spread, "truth": name, "inside": inside(one, spread)} | dict(one)
            for (spread, name), one in sorted(calibrations.items())
        ],
    }


def page(counts: Sequence[Counted], calibrations: Calibrations, machine: Mapping[str, Any]) -> str:
    held = held_up_to(counts)
    up_to = "at no spread" if held is None else f"up to a between-boot spread of {held:.0%}"
    whole = len(counts) == len(PAIRS) * len(TRUTHS) and all(one.decisions >= DECISIONS for one in counts)
    unfinished = "" if whole else f" Unfinished: a spread without all {DECISIONS} decisions shows nothing yet."
    slower, later = (RAIL[name]["limit"] for name in (FIRST_TOKEN, LATE))
    verdicts = "\n".join(map(verdict_line, counts))
    beside = "\n".join(map(today_line, counts))
    truths = "\n".join(truth_line(spread, name, one) for (spread, name), one in sorted(calibrations.items()))
    return f"""# Decisions

Written by `make bench-decision` (`tests/benchmarks/decision.py`): whole decisions on the simulator, where the truth is
known, judged by the verdict's own rules.

**α = {ALPHA:.0%} is shown to hold {up_to}:** in each null at most {most_false(DECISIONS)} false PASS of {DECISIONS},
the 95th percentile of a binomial at 5 %.{unfinished}

Machine: {machine["processor"]}, {machine["cores"]} cores, Python {machine["python"]};
{machine["processor_hours"]:.1f} hours of one core in all. Rules: `{machine["rules"]}`.

## False PASS and power

The brief asks for {100 * MINIMUM:g} points of attainment more at peak; for first token p90 at most {slower:.0%} above
the baseline's; for at most {100 * later:g} points more of class code late; and for completion p80 of class translate
within {COMPLETION_S:g} s. What is exactly at its limit doesn't hold: every PASS of it is false. The nominee is given,
so that its truth is the one named. Spread: standard deviation of the logarithm of a boot's time factor; the pairs are
those that bring the noise floor below the minimum. About 215 requests a trial. The truths of a spread share the
baseline's boots.

| spread | pairs | what is true | PASS | asked | 95 % interval | FAIL | INCONCLUSIVE | INVALID | |
|---:|---:|---|---:|---:|---:|---:|---:|---:|---|
{verdicts}

## Beside the rule of today

Today: a grid of draft lengths, the mean of three runs, pick the best, no held-out. Accepted where the means keep the
guardrails and improve by the {100 * MINIMUM:g} points asked for. Ours: the same runs as tuning, nomination, then
held-out pairs. False: what was released doesn't truly meet the brief; as what was released, in shares of all decisions.
Regret: points of attainment beyond the minimum,
of the best draft length that keeps the guardrails less those of the one released; one that breaks a guardrail counts as
none.

| spread | what is true | ours released | of it false | regret | today released | of it false | regret |
|---:|---|---:|---:|---:|---:|---:|---:|
{beside}

## What is true

By simulation of {FINE:,} boots an arm, with the boots' luck regressed out. Inside: how far the nominee's true figure
lies inside each requirement, in units of what the plan can detect of it by its spread between these pairs; 0 is exactly
at the limit. The clear truth is set by the spread of the noise floor, baseline against baseline.

| spread | truth | knob | expected | to be | standard error | outcome inside | first token | late | completion |
|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|
{truths}
"""


def verdict_line(one: Counted) -> str:
    low, high = binomial_bounds(one.passed, one.decisions, alpha=0.025)
    asked = f"≥ {LEAST_POWER:.0%}" if one.truth == CLEAR else f"≤ {most_false(one.decisions)}"
    rest = " | ".join(str(one.verdicts[name]) for name in VERDICTS[1:])
    return (
        f"| {one.spread:.0%} | {PAIRS[one.spread]} | {SAID[one.truth]} | {one.passed} of {one.decisions} | {asked} | "
        f"{100 * low:.1f}–{100 * high:.1f} % | {rest} | {'holds' if one.holds else '**doesn’t hold**'} |"
    )


def today_line(one: Counted) -> str:
    def share(count: int) -> str:
        return f"{100 * count / one.decisions:.1f} %"

    ours = f"{share(one.passed_after_tuning)} | {share(one.false_after_tuning)} | {100 * one.regret_after_tuning:.1f}"
    today = f"{share(one.accepted_today)} | {share(one.false_today)} | {100 * one.regret_today:.1f}"
    return f"| {one.spread:.0%} | {SAID[one.truth]} | {ours} | {today} |"


def truth_line(spread: float, name: str, one: Mapping[str, Any]) -> str:
    expected = one["effects"][str(NOMINEE)][TRUTHS[name].figure]["mean"]
    far = " | ".join(f"{number:+.1f}" for number in inside(one, spread).values())
    found = f"{one['knob']:.4f} | {expected:.4f} | {one['target']:.4f} | {one['se']:.4f}"
    return f"| {spread:.0%} | {name} | {found} | {far} |"
