"""Which candidate goes to held-out traffic, by the brief's rule. Exploratory: the winner's own score is biased upwards
because it was chosen for it, and nothing here is a claim about the population (design §4)."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from decisions.rules.brief import Brief, Candidate, Cell
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import Measure, effect, shown_change, trial_measure, value
from decisions.rules.noise_floor import gating_cells, noise_floor
from decisions.rules.plain import plain
from decisions.rules.wording import change, counted

EXPLORATORY = "Tuning is exploratory: the best score of many is too good, and only held-out traffic decides."

UNPROVEN = "Tuning showed no candidate better than no speculation; the brief asks for the best one's held-out test."


@dataclass(frozen=True)
class Nomination:
    """``candidate`` None: nobody did better than no speculation. ``rows``: one per candidate and cell. ``race``: how it
    ended, where there was one."""

    candidate: str | None
    reason: str
    rows: tuple[dict[str, Any], ...]
    race: dict[str, Any] | None = None

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(
            {"candidate": self.candidate, "reason": self.reason, "rows": self.rows, "note": EXPLORATORY}
        )
        return found if self.race is None else found | {"race": self.race}


@dataclass(frozen=True)
class Score:
    """``effect``: the smallest improvement over the improve cells, since a release must improve in all of them."""

    candidate: Candidate
    effect: float
    boots: int


def nominate(brief: Brief, trials: Iterable[TrialEvidence]) -> Nomination:
    """The best in the improve cells; ties within the noise floor's spread go to the smaller draft length.

    ``trials``: those of tuning, with the noise floor's among them where it was measured; others are ignored.
    """
    trials = sorted(trials, key=lambda one: one.order)
    tuning = [one for one in trials if one.purpose == "tuning"]
    rows = tuning_rows(brief, tuning)
    scores = [score(brief, one, tuning) for one in brief.all_candidates]
    ranked = [one for one in scores if one is not None]
    anyone = brief.rule.nomination == "best-candidate"
    better = [one for one in ranked if one.effect > 0 or (anyone and math.isfinite(one.effect))]
    if not better:
        return Nomination(None, nobody(brief, ranked), rows)
    best = max(better, key=lambda one: (one.effect, -one.candidate.speculative.num_speculative_tokens))
    spread = pair_spread(brief, trials)
    tied = [one for one in better if one is best or best.effect - one.effect <= noise(spread, one, best)]
    chosen = min(tied, key=lambda one: (one.candidate.speculative.num_speculative_tokens, -one.effect))
    reason = why(brief, chosen, best, len(tied), spread)
    return Nomination(chosen.candidate.name, f"{reason} {UNPROVEN}" if best.effect <= 0 else reason, rows)


def score(brief: Brief, candidate: Candidate, tuning: Sequence[TrialEvidence]) -> Score | None:
    """None where the candidate has no figure in some improve cell."""
    measure = trial_measure(brief.outcome)
    found = [mean_effect(brief, measure, cell, candidate, tuning) for cell in brief.outcome.improve_in]
    if any(one is None for one in found):
        return None
    known = [one for one in found if one is not None]
    return Score(candidate, min(one for one, _ in known), min(boots for _, boots in known))


def mean_effect(
    brief: Brief, measure: Measure, cell: Cell, candidate: Candidate, tuning: Sequence[TrialEvidence]
) -> tuple[float, int] | None:
    """(mean effect, boots of the candidate). Boots that share a pair's number share its traffic and are compared with
    each other; the rest against the mean of all baseline boots between which they ran."""
    theirs = in_cell(brief, measure, cell, [one for one in tuning if one.candidate == candidate.name])
    ours = in_cell(brief, measure, cell, [one for one in tuning if one.arm == "baseline"])
    if not theirs or not ours:
        return None
    effects = [effect(measure, middle(measure, beside(pair, ours)), number) for pair, number in theirs]
    known = [one for one in effects if not math.isnan(one)]
    if not known:
        return None
    return (-math.inf if -math.inf in known else statistics.fmean(known)), len(known)


Numbers = Sequence[tuple[int | None, float]]


def in_cell(brief: Brief, measure: Measure, cell: Cell, trials: Sequence[TrialEvidence]) -> Numbers:
    found = [(one.pair, value(measure, one, cell.class_, brief)) for one in trials if one.level == cell.level]
    return [(pair, number) for pair, number in found if number is not None]


def beside(pair: int | None, baseline: Numbers) -> list[float]:
    same = [number for one, number in baseline if pair is not None and one == pair]
    return same or [number for _, number in baseline]


def middle(measure: Measure, numbers: Sequence[float]) -> float:
    """The mean, on the scale on which arms are compared; a baseline that never got there stays so."""
    if measure.scale == "difference":
        return statistics.fmean(numbers)
    if any(math.isinf(one) or one <= 0 for one in numbers):
        return statistics.median(numbers)
    return statistics.geometric_mean(numbers)


def pair_spread(brief: Brief, trials: Iterable[TrialEvidence]) -> float:
    """The largest spread between two baseline boots over the improve cells; 0 where no noise floor was measured."""
    cells = noise_floor(brief, trials)["cells"]
    return max((row["spread"] for row in cells if row["spread"] is not None), default=0.0)


def noise(spread: float, one: Score, best: Score) -> float:
    """The spread of a difference between two boots, for means over as many boots as the scarcer candidate had."""
    return spread / math.sqrt(min(one.boots, best.boots))


def tuning_rows(brief: Brief, tuning: Sequence[TrialEvidence]) -> tuple[dict[str, Any], ...]:
    return tuple(
        plain(tuning_row(brief, candidate, cell, tuning))
        for candidate in [*brief.all_candidates, *proposed(brief, tuning)]
        for cell in gating_cells(brief)
    )


def proposed(brief: Brief, tuning: Sequence[TrialEvidence]) -> list[Candidate]:
    """Candidates that the brief doesn't list and tuning measured all the same, within its search space."""
    listed = {one.name for one in brief.all_candidates}
    measured = {one.candidate for one in tuning if one.candidate is not None}
    return [brief.candidate(name) for name in sorted(measured - listed) if brief.has_candidate(name)]


def tuning_row(brief: Brief, candidate: Candidate, cell: Cell, tuning: Sequence[TrialEvidence]) -> dict[str, Any]:
    measure = trial_measure(brief.outcome)
    theirs = in_cell(brief, measure, cell, [one for one in tuning if one.candidate == candidate.name])
    ours = in_cell(brief, measure, cell, [one for one in tuning if one.arm == "baseline"])
    found = mean_effect(brief, measure, cell, candidate, tuning)
    return {
        "candidate": candidate.name,
        # Rows of a frozen verdict: their words don't change with the label.
        "label": f"{candidate.speculative.method} K={candidate.speculative.num_speculative_tokens}",
        "draft_length": candidate.speculative.num_speculative_tokens,
        "level": cell.level,
        "class": cell.class_,
        "measure": measure.label,
        "unit": measure.unit,
        "scale": measure.scale,
        "improves": cell in brief.outcome.improve_in,
        "boots": len(theirs),
        "baseline_boots": len(ours),
        "baseline": middle(measure, [number for _, number in ours]) if ours else None,
        "value": middle(measure, [number for _, number in theirs]) if theirs else None,
        "difference": shown_change(measure, found[0]) if found else None,
        "improvement": found[0] if found else None,
    }


def nobody(brief: Brief, ranked: Sequence[Score]) -> str:
    if not ranked:
        return f"No candidate has a tuning trial beside a baseline in every cell that must improve. {EXPLORATORY}"
    best = max(ranked, key=lambda one: one.effect)
    said = f"No candidate did better than no speculation where it must improve; {best.candidate.name} came closest"
    return f"{said} ({estimate(brief, best)}). {EXPLORATORY}"


def estimate(brief: Brief, one: Score) -> str:
    measure = trial_measure(brief.outcome)
    return f"{change(shown_change(measure, one.effect), measure.scale)} over {counted(one.boots, 'boot')}"


def why(brief: Brief, chosen: Score, best: Score, tied: int, spread: float) -> str:
    name = chosen.candidate.name
    floor = "" if spread else " No noise floor was measured, so only equal scores tie."
    if chosen is best:
        said = f"{name} did best in the cells that must improve ({estimate(brief, best)})"
        return f"{said}{', and drafts least among those within the noise' if tied > 1 else ''}.{floor} {EXPLORATORY}"
    said = f"{name} ({estimate(brief, chosen)}) is within the noise of the best, {best.candidate.name}"
    return f"{said} ({estimate(brief, best)}), and drafts less. {EXPLORATORY}"
