"""The pictures of tuning, from the trials that have finished so far. Exploratory: nothing is decided on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from decisions.charts.acceptance import Kept, acceptance_by_position
from decisions.charts.figure import Chart
from decisions.charts.heat_map import HeatCell, HeatRow, Kind, speed_up_heat_map
from decisions.charts.rate_curves import Curve, Point, goodput_over_rate
from decisions.charts.running_batch import Batch, running_batches
from decisions.rules.brief import Brief
from decisions.rules.measures import Measure, trial_measure
from decisions.rules.race import Aim, aims
from decisions.rules.speed_up import NONE, Reading, over_its_limit, speed_ups
from decisions.rules.trial_figures import MEDIAN, TrialFigures
from decisions.selectors.tuning_model import predictions
from decisions.selectors.tuning_rounds import RoundsRow, over_trials, rounds_row
from decisions.selectors.tuning_trials import TuningTrial, tuning_trials
from loadtests.configurations import Speculative
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.models import Campaign
from loadtests.traffic.levels import Level
from loadtests.tuning.economics import RoundEconomics

NO_SPECULATION = "no speculation"
ASKED = "What the brief asks about. Tuning is exploratory: these figures choose, and prove nothing."
REPORTED = "The time that half of all requests take at most. It chooses nothing."
# As many as can be looked through; the table of rounds has all of them.
MOST_ACCEPTANCE = 6
# Up to here candidates that nobody measured have their empty row too.
MOST_EMPTY_ROWS = 12


@dataclass(frozen=True)
class HeatMap:
    heading: str
    said: str
    chart: Chart


@dataclass(frozen=True)
class TuningPictures:
    heat_maps: list[HeatMap] = field(default_factory=list)
    curves: Chart | None = None
    rounds: list[RoundsRow] = field(default_factory=list)
    acceptance: list[Chart] = field(default_factory=list)
    # Whether there is a model, and its pictures are asked for by themselves.
    model_to_come: bool = False
    prediction: Chart | None = None
    batches: Chart | None = None
    # What can't be shown, and why.
    notes: list[str] = field(default_factory=list)

    @property
    def drawn(self) -> bool:
        return bool(self.heat_maps)


@dataclass(frozen=True)
class Runner:
    """One configuration of the race, by the candidate's name; ``speculative`` None is no speculation."""

    name: str
    speculative: Speculative | None

    @property
    def label(self) -> str:
        return self.name or NO_SPECULATION

    @property
    def setting(self) -> str:
        return self.speculative.label if self.speculative else ""

    @property
    def kind(self) -> Kind:
        if self.speculative is None:
            return "none"
        return "schedule" if self.speculative.num_speculative_tokens_per_batch_size else "length"

    @property
    def order(self) -> tuple[int, str, int, str]:
        """No speculation, the draft lengths of each way of drafting, the schedules."""
        if self.speculative is None:
            return 0, "", 0, ""
        place = 1 if self.kind == "length" else 2
        return place, self.speculative.method, self.speculative.num_speculative_tokens, self.name


def runners_of(document: Brief, names: Iterable[str]) -> list[Runner]:
    """In the order in which pages list them, no speculation first."""
    found = [Runner(name, document.candidate(name).speculative) for name in dict.fromkeys(names) if name != NONE]
    return sorted([Runner(NONE, None), *found], key=lambda one: one.order)


def tuning_pictures(
    document: Brief, campaigns: Sequence[Campaign], *, nominee: str = "", model: bool = False
) -> TuningPictures:
    """Empty where no trial of tuning has finished; a note where the evidence is not to be had. ``model``: with the cost
    model's predictions, which take seconds."""
    try:
        trials = tuning_trials(document, campaigns)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return TuningPictures(notes=[f"The pictures can’t be drawn: {error}."])
    if not trials:
        return TuningPictures()
    runners = runners_of(document, shown_names(document, trials))
    foremost = sorted(runners, key=lambda one: importance(one, nominee, trials))
    return TuningPictures(
        heat_maps=heat_maps(document, runners, trials),
        curves=goodput_curves(document, foremost, trials),
        rounds=rounds_rows(document, runners, trials),
        acceptance=acceptance(runners, trials),
        model_to_come=not model and any(one.read.observed is not None for one in trials),
        prediction=prediction(runners, trials) if model else None,
        batches=batches(foremost, trials),
        notes=notes(document, trials),
    )


def importance(runner: Runner, nominee: str, trials: Sequence[TuningTrial]) -> tuple[int, int]:
    """No speculation, the nominee, and then whoever the race gave most to: pictures have room for a few."""
    if runner.name in (NONE, nominee):
        return (0, 0) if runner.name == NONE else (1, 0)
    return 2, -sum(one.runner == runner.name for one in trials)


def shown_names(document: Brief, trials: Iterable[TuningTrial]) -> list[str]:
    measured = [one.runner for one in trials]
    named = [one.name for one in document.all_candidates]
    return [*measured, *named] if len({*measured, *named}) <= MOST_EMPTY_ROWS else measured


def heat_maps(document: Brief, runners: Sequence[Runner], trials: Sequence[TuningTrial]) -> list[HeatMap]:
    """Of what the brief asks about and, where that is no time of completion, of the time that users feel."""
    outcome = trial_measure(document.outcome)
    found = [HeatMap("Draft length × load", ASKED, heat_map(document, outcome, runners, trials))]
    if outcome.metric != MEDIAN.metric:
        found.append(HeatMap("Median completion", REPORTED, heat_map(document, MEDIAN, runners, trials)))
    return found


def heat_map(document: Brief, measure: Measure, runners: Sequence[Runner], trials: Sequence[TuningTrial]) -> Chart:
    levels = [level.name for level in document.levels]
    cells = {
        level: cells_at(
            document, measure, level, [one for one in trials if one.level == level], limits=measure is not MEDIAN
        )
        for level in levels
    }
    rows = [
        HeatRow(
            one.label,
            one.kind,
            {level: cells[level][one.name] for level in levels if one.name in cells[level]},
            one.setting,
        )
        for one in runners
    ]
    return speed_up_heat_map(rows, levels, measure=measure.said)


def cells_at(
    document: Brief, measure: Measure, level: str, trials: Sequence[TuningTrial], *, limits: bool
) -> dict[str, HeatCell]:
    """By runner; of no speculation how far its own boots lie apart, of a candidate what it breaks."""
    found = speed_ups(measure, readings(trials, lambda one: one.median if measure is MEDIAN else one.outcome))
    return {
        runner: HeatCell(
            one.mean,
            one.boots,
            limits_broken(document, runner, level, trials) if limits and runner != NONE else (),
            (one.low, one.high) if one.boots > 1 and one.low is not None and one.high is not None else None,
        )
        for runner, one in found.items()
    }


def readings(trials: Iterable[TuningTrial], number: Callable[[TrialFigures], float | None]) -> list[Reading]:
    return [
        Reading(one.campaign, one.runner, found) for one in trials if (found := number(one.read.figures)) is not None
    ]


def limits_broken(document: Brief, runner: str, level: str, trials: Sequence[TuningTrial]) -> tuple[str, ...]:
    """Guardrails by id, and the margin within which the outcome must be no worse."""
    rails = {rail.id for rail in document.guardrails}
    holds = [aim for aim in aims(document) if aim.kind == "hold" and aim.cell.level == level]
    broken = [aim for aim in holds if over_its_limit(aim, readings(trials, figure_of(aim)), runner)]
    return tuple(dict.fromkeys(aim.name if aim.name in rails else "non-inferiority margin" for aim in broken))


def figure_of(aim: Aim) -> Callable[[TrialFigures], float | None]:
    return lambda figures: figures.aims.get(aim.name)


def goodput_curves(document: Brief, runners: Sequence[Runner], trials: Sequence[TuningTrial]) -> Chart | None:
    """None where no class has a deadline."""
    at = {level.name: [one for one in trials if one.level == level.name] for level in document.levels}
    curves = [
        Curve(
            one.label,
            sorted(
                (point for level in document.levels if (point := point_of(one, level, at[level.name])) is not None),
                key=lambda point: point.rate,
            ),
        )
        for one in runners
    ]
    if not any(curve.points for curve in curves):
        return None
    reference, *others = curves
    return goodput_over_rate(reference, [one for one in others if one.points])


def point_of(runner: Runner, level: Level, trials: Sequence[TuningTrial]) -> Point | None:
    """At the mean rate of all trials of the level. Rounds have different requests, so a candidate's share within
    deadline is no speculation's over all rounds, plus what its boots are better by than those beside them."""
    told = [one for one in trials if one.read.figures.attainment is not None]
    ours = [share_of(one) for one in told if one.runner == NONE]
    if not ours:
        return None
    reference = fmean(ours)
    beside = {
        campaign: fmean(share_of(one) for one in told if one.runner == NONE and one.campaign == campaign)
        for campaign in {one.campaign for one in told if one.runner == NONE}
    }
    shares = [
        reference + share_of(one) - beside[one.campaign]
        for one in told
        if one.runner == runner.name and one.campaign in beside
    ]
    if not shares:
        return None
    rate = fmean(one.read.figures.planned_per_s for one in trials)
    mean, low, high = (rate * min(1.0, max(0.0, one)) for one in (fmean(shares), min(shares), max(shares)))
    return Point(level.name, rate, mean, low, high, len(shares), 1 / level.duration_s)


def share_of(trial: TuningTrial) -> float:
    return trial.read.figures.attainment or 0.0


def rounds_rows(document: Brief, runners: Sequence[Runner], trials: Sequence[TuningTrial]) -> list[RoundsRow]:
    return [
        rounds_row(one.label, level.name, found, reference=one.speculative is None)
        for one in runners
        for level in document.levels
        if (found := over_trials(economics_of(trials, one, level.name))) is not None
    ]


def economics_of(trials: Iterable[TuningTrial], runner: Runner, level: str | None = None) -> list[RoundEconomics]:
    return [one.read.economics for one in trials if one.runner == runner.name and level in (None, one.level)]


def acceptance(runners: Sequence[Runner], trials: Sequence[TuningTrial]) -> list[Chart]:
    """Of the first candidates that drafted more than one token at a time, over all levels and boots."""
    found = []
    for one in runners:
        own = over_trials(economics_of(trials, one))
        if one.speculative is not None and own is not None and own.acceptance and len(own.acceptance.kept) > 1:
            classes = {name: Kept(curve.kept, curve.rounds) for name, curve in own.by_class.items()}
            found.append(acceptance_by_position(one.label, Kept(own.acceptance.kept, own.acceptance.rounds), classes))
    return found[:MOST_ACCEPTANCE]


def prediction(runners: Sequence[Runner], trials: Sequence[TuningTrial]) -> Chart | None:
    observed = [one.read.observed for one in trials if one.read.observed is not None]
    return predictions({one.speculative: one.label for one in runners}, observed)


def batches(runners: Sequence[Runner], trials: Sequence[TuningTrial]) -> Chart | None:
    """None where the engine tells no running batch, as a remote one may."""
    found = [
        Batch(
            one.label,
            level,
            fmean(own.read.figures.planned_per_s for own in here),
            fmean(running.mean for running in told),
            fmean(running.p95 for running in told),
            mean_of(running.in_flight for running in told),
            fmean(running.idle_share for running in told),
        )
        for one in runners
        for level in dict.fromkeys(trial.level for trial in trials)
        if (here := [own for own in trials if own.runner == one.name and own.level == level])
        and (told := [own.read.economics.running for own in here if own.read.economics.running is not None])
    ]
    return running_batches(found) if found else None


def mean_of(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return fmean(known) if known else None


def notes(document: Brief, trials: Sequence[TuningTrial]) -> list[str]:
    """What a reader would miss, and why it isn't there."""
    said = []
    if not any(one.runner == NONE for one in trials):
        said.append("No boot without speculation has finished yet: there is nothing to compare with.")
    if len(document.levels) == 1:
        said.append("The brief has one load level: where no speculation overtakes a candidate can’t be seen.")
    if not any(one.read.economics.rounds is not None for one in trials if one.runner != NONE):
        said.append(
            "The engine tells nothing of the candidates’ rounds: their time and what became of drafts stay unknown."
        )
    if not any(one.read.figures.goodput_per_s is not None for one in trials):
        said.append("No class has a deadline: there is no SLO goodput to draw.")
    return said
