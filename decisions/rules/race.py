"""The race of tuning under a brief: its goals, what each boot says of them, which boots come next, and who wins.

A step is computed from a ``State`` (who races, what was spent, what the cost model expects) and the finished trials, by
pure code alone: so each stored step can be computed again from the evidence.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from decisions.rules.brief import Brief, Candidate, Cell, Guardrail
from decisions.rules.comparison import Pair, compare
from decisions.rules.evidence import TrialEvidence
from decisions.rules.measures import Measure, effect, margin_threshold, measure_of, shown_change, trial_measure, value
from decisions.rules.noise_floor import control_pairs, gating_cells
from decisions.rules.nomination import EXPLORATORY, UNPROVEN, Nomination, middle, tuning_rows
from decisions.rules.plain import plain
from loadtests.canonical import canonical
from loadtests.configurations import DraftMethod
from loadtests.tuning import nomination as tuning
from loadtests.tuning.race import NONE, Amount, Ended, Goal, Observation, Predictions, Round, Rules, Runner, Standing
from loadtests.tuning.race import next_round as next_of
from loadtests.tuning.schedule import schedule_of


@dataclass(frozen=True)
class Aim:
    """A goal of the race, and what of a trial it is measured on. ``absolute``: the limit of an absolute guardrail."""

    name: str
    measure: Measure
    cell: Cell
    kind: Literal["improve", "hold"]
    limit: float = 0.0
    absolute: float | None = None

    def effect(self, baseline: float | None, own: float) -> float:
        """Positive is better: over the baseline, or inside the absolute limit."""
        if self.absolute is None:
            return math.nan if baseline is None else effect(self.measure, baseline, own)
        if self.measure.scale == "difference":
            return self.absolute - own
        return -math.inf if math.isinf(own) else math.log(self.absolute / own)


def aims(brief: Brief) -> list[Aim]:
    """The improve cells; the other levels, which must be non-inferior; and the guardrails that a trial tells of."""
    measure, margin = trial_measure(brief.outcome), brief.outcome.non_inferiority_margin
    improve = set(brief.outcome.improve_in)
    outcome = [
        Aim(named(measure, cell), measure, cell, "improve")
        if cell in improve
        else Aim(named(measure, cell), measure, cell, "hold", margin_threshold(measure, margin))
        for cell in gating_cells(brief)
    ]
    return outcome + [rail_aim(rail) for rail in brief.guardrails if rail.metric != "behaviour"]


def named(measure: Measure, cell: Cell) -> str:
    """As the verdict names the row of this cell."""
    return f"{measure.metric}:{cell.level}:{cell.class_}"


def rail_aim(rail: Guardrail) -> Aim:
    measure = measure_of(rail)
    if rail.kind == "absolute":
        return Aim(rail.id, measure, rail.cell, "hold", 0.0, rail.limit)
    return Aim(rail.id, measure, rail.cell, "hold", margin_threshold(measure, rail.limit))


def goals(brief: Brief, trials: Iterable[TrialEvidence]) -> tuple[Goal, ...]:
    """``trials``: those of the noise floor are read, others ignored."""
    pairs = control_pairs(brief, trials)
    return tuple(goal(brief, aim, pairs.get(aim.cell.level, [])) for aim in aims(brief))


def goal(brief: Brief, aim: Aim, pairs: Sequence[Pair]) -> Goal:
    spread, degrees = spread_of(brief, aim, pairs)
    return Goal(
        aim.name,
        aim.kind,
        limit=aim.limit,
        relative=aim.absolute is None,
        scale=aim.measure.scale,
        spread=spread,
        degrees=degrees,
        label=f"{aim.measure.label}, {aim.cell.label}",
    )


def spread_of(brief: Brief, aim: Aim, pairs: Sequence[Pair]) -> tuple[float | None, int]:
    """(standard deviation of one boot's effect, degrees of freedom): of A/A differences it is theirs ÷ √2."""
    if aim.absolute is None:
        bounds = compare(brief, pairs, aim.measure, aim.cell, alpha=brief.rule.alpha).bounds
        return (None, 0) if bounds is None else (bounds.se * math.sqrt(bounds.count / 2), bounds.count - 1)
    apart = [
        one - other
        for pair in pairs
        if math.isfinite(one := distance(brief, aim, pair.other))
        and math.isfinite(other := distance(brief, aim, pair.baseline))
    ]
    if len(apart) < 2:
        return None, 0
    return statistics.stdev(apart) / math.sqrt(2), len(apart) - 1


def distance(brief: Brief, aim: Aim, trial: TrialEvidence) -> float:
    own = value(aim.measure, trial, aim.cell.class_, brief)
    return math.nan if own is None else aim.effect(None, own)


def observations(brief: Brief, trials: Iterable[TrialEvidence]) -> list[Observation]:
    """One per tuning boot and goal that it tells of. A trial's ``pair`` is its round."""
    ordered = sorted((one for one in trials if one.purpose == "tuning"), key=lambda one: one.order)
    rounds = sorted({one.pair for one in ordered if one.pair is not None})
    return [
        one
        for number in rounds
        for aim in aims(brief)
        for one in observed(brief, aim, number, [trial for trial in ordered if trial.pair == number])
    ]


def observed(brief: Brief, aim: Aim, number: int, trials: Sequence[TrialEvidence]) -> list[Observation]:
    here = [one for one in trials if one.level == aim.cell.level]
    found = [(one, own) for one in here if (own := value(aim.measure, one, aim.cell.class_, brief)) is not None]
    ours = [own for one, own in found if one.candidate is None]
    baseline = middle(aim.measure, ours) if ours else None
    return [
        Observation(number, one.boot, one.candidate or NONE, aim.name, aim.effect(baseline, own)) for one, own in found
    ]


def runner(candidate: Candidate, batches: Mapping[int, float]) -> Runner:
    """``batches``: share of time at each running batch, where that is known; else every step of a schedule counts
    alike."""
    setting = candidate.speculative
    schedule = schedule_of(setting)
    weights = batches or {step.lo: 1.0 for step in schedule.steps}
    mean = sum(schedule.k_at(batch) * share for batch, share in weights.items()) / sum(weights.values())
    return Runner(candidate.name, family_of(setting), schedule.most, mean, len(schedule.steps) > 1)


def family_of(setting: DraftMethod) -> str:
    """What differs in draft length alone has one family: its method and options."""
    options = setting.model_dump(mode="json", include={"method", *setting.options})
    return canonical(options).decode()


@dataclass(frozen=True)
class State:
    """What a step of the race is computed from, beside the trials."""

    rules: Rules
    runners: tuple[Runner, ...]
    spent: Amount
    predictions: Predictions

    @property
    def document(self) -> dict[str, Any]:
        return {
            "budget": amount_document(self.rules.budget),
            "spent": amount_document(self.spent),
            "boot_minutes": self.rules.boot_minutes,
            "runners": [asdict(one) for one in self.runners],
            "predictions": {
                name: {goal: one for goal, one in predicted.items() if math.isfinite(one)}
                for name, predicted in self.predictions.items()
            },
        }


def amount_document(amount: Amount) -> dict[str, float | None]:
    """A budget without an end has none in JSON either."""
    return {name: value if math.isfinite(value) else None for name, value in asdict(amount).items()}


def amount_of(document: Mapping[str, float | None]) -> Amount:
    minutes = {name: math.inf if value is None else value for name, value in document.items()}
    return Amount(minutes["engine_minutes"], int(minutes["boots"]), minutes["wall_minutes"])


def rules_of(brief: Brief, trials: Iterable[TrialEvidence], budget: Amount, boot_minutes: float) -> Rules:
    asked = brief.race
    return Rules(
        goals(brief, trials),
        budget,
        boot_minutes,
        confidence=asked.confidence,
        same=asked.same,
        first=asked.first,
        abreast=asked.abreast,
        confirmed=asked.confirmed,
    )


def state_of(brief: Brief, document: Mapping[str, Any], trials: Iterable[TrialEvidence]) -> State:
    """The state that a stored step was computed from; ``trials`` as ``goals`` takes them."""
    rules = rules_of(brief, trials, amount_of(document["budget"]), document["boot_minutes"])
    runners = tuple(Runner(**one) for one in document["runners"])
    return State(rules, runners, amount_of(document["spent"]), document["predictions"])


def next_step(brief: Brief, state: State, trials: Sequence[TrialEvidence]) -> Round | Ended:
    """The next round, or the end; ``trials``: those of the noise floor and of all earlier rounds."""
    # Through the stored form, so that nothing depends on digits which that doesn't keep.
    kept = state_of(brief, plain(state.document), trials)
    return next_of(kept.rules, kept.runners, observations(brief, trials), kept.spent, kept.predictions)


def step_document(state: State, step: Round | Ended) -> dict[str, Any]:
    """A step as it is stored: what it was computed from, and what came out."""
    said = {"reason": step.reason, "standings": [standing_document(one) for one in step.standings]}
    came = {"number": step.number, "boots": step.boots} if isinstance(step, Round) else {"why": step.why}
    document: dict[str, Any] = plain(came | said | {"state": state.document})
    return document


def standing_document(standing: Standing) -> dict[str, Any]:
    return asdict(standing)


def computed_again(brief: Brief, document: Mapping[str, Any], trials: Sequence[TrialEvidence]) -> dict[str, Any]:
    """The document of a stored step, from the evidence: of its round's own trials and later ones nothing is read."""
    number = document.get("number")
    before = [one for one in trials if one.purpose != "tuning" or number is None or (one.pair or 0) < number]
    state = state_of(brief, document["state"], before)
    return step_document(state, next_step(brief, state, before))


def newly_fallen(step: Round | Ended, before: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(candidate, why) of those that fell by this step, and not by the stored one before it."""
    earlier = {one["runner"] for one in (before or {}).get("standings", []) if one["state"] == "fell"}
    return [(one.runner, one.reason) for one in step.standings if one.state == "fell" and one.runner not in earlier]


def nominate(brief: Brief, state: State, end: Ended, trials: Sequence[TrialEvidence]) -> Nomination:
    """By the brief's rule over all rounds. The winner's score is kept for what tuning and held-out differ by, and is no
    evidence."""
    kept = state_of(brief, plain(state.document), trials)
    winner = tuning.nominate(
        kept.rules,
        kept.runners,
        observations(brief, trials),
        kept.predictions,
        anyone=brief.rule.nomination == "best-candidate",
    )
    rows = tuning_rows(brief, [one for one in trials if one.purpose == "tuning"])
    unproven = f" {UNPROVEN}" if winner.score is not None and winner.score <= 0 else ""
    reason = f"{winner.reason} {EXPLORATORY}{unproven}"
    return Nomination(winner.runner, reason, rows, race_document(brief, state, end, winner))


def race_document(brief: Brief, state: State, end: Ended, winner: tuning.Winner) -> dict[str, Any]:
    """The end, and the winner's figures as effects on the measure's scale. Beside the held-out result: the change that
    was ``measured_change`` in tuning, and the one ``expected_change`` once its optimism is taken off."""
    measure = trial_measure(brief.outcome)
    expected = None if winner.measured is None else winner.measured - (winner.optimism or 0.0)
    figures: dict[str, Any] = plain(
        {
            "measure": measure.label,
            "scale": measure.scale,
            "score": winner.score,
            "measured": winner.measured,
            "optimism": winner.optimism,
            "measured_change": None if winner.measured is None else shown_change(measure, winner.measured),
            "expected_change": None if expected is None else shown_change(measure, expected),
            "tied": winner.tied,
            "standings": [standing_document(one) for one in winner.standings],
        }
    )
    return step_document(state, end) | figures
