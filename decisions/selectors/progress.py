"""How far a measuring brief is, and how long it will still take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Prefetch
from django.utils import timezone

from decisions.models import BriefRevision
from decisions.rules.brief import Brief
from loadtests.models import Boot, Campaign, Trial
from loadtests.models.campaign import latest_attempts

# Until a boot of the brief has finished: starting the engine, warming up, draining and stopping, in seconds.
ASSUMED_OVERHEAD_S = 55.0
# What the preserved-behaviour suite takes of one server, in seconds: all of it, or each case that is chosen.
ASSUMED_SUITE_S, ASSUMED_CASE_S = 150.0, 5.0

MEASURED = ("noise-floor", "tuning", "held-out", "behaviour", "fallback")
LABELS = {
    "noise-floor": "Noise floor",
    "tuning": "Tuning",
    "nomination": "Nomination",
    "held-out": "Held-out",
    "behaviour": "Behaviour",
    "fallback": "Fallback",
    "verdict": "Verdict",
    "review": "Review",
}
ORDER = tuple(LABELS)


@dataclass(frozen=True)
class Stage:
    name: str
    # over, now, held, ahead or left-out
    state: str
    done: int = 0
    total: int = 0
    seconds_left: float = 0.0
    repeated: int = 0
    running: Boot | None = None
    # Boots that a look made needless, and the engine time that they would have taken, by the mean of those that ran.
    spared: int = 0
    spared_minutes: float = 0.0

    @property
    def label(self) -> str:
        return LABELS[self.name]


@dataclass(frozen=True)
class Progress:
    stages: list[Stage]
    engine_minutes: float
    budget: float

    @property
    def done(self) -> int:
        return sum(stage.done for stage in self.stages)

    @property
    def total(self) -> int:
        return sum(stage.total for stage in self.stages)

    @property
    def seconds_left(self) -> float:
        return sum(stage.seconds_left for stage in self.stages)

    @property
    def running(self) -> Boot | None:
        return next((stage.running for stage in self.stages if stage.running), None)

    @property
    def current(self) -> Stage | None:
        return next((stage for stage in self.stages if stage.state in ("now", "held")), None)

    @property
    def held_out(self) -> Stage:
        return next(stage for stage in self.stages if stage.name == "held-out")


def last_campaign(revision: BriefRevision, purpose: str) -> Campaign | None:
    """The revision's latest campaign of the purpose: the one that counts."""
    return Campaign.objects.filter(brief_campaign__revision=revision, purpose=purpose).order_by("-pk").first()


def campaigns_of(revision: BriefRevision) -> list[Campaign]:
    """The revision's campaigns with boots and trials, without their plans and logs: three queries."""
    trials = Trial.objects.only("boot_id", "level", "state", "position", "planned", "progress", "summary")
    boots = (
        Boot.objects.defer("log_tail")
        .select_related("configuration")
        .prefetch_related(Prefetch("trials", queryset=trials))
    )
    return list(
        Campaign.objects.filter(brief_campaign__revision=revision)
        .defer("plan")
        .prefetch_related(Prefetch("boots", queryset=boots))
        .order_by("pk")
    )


def progress_of(
    revision: BriefRevision, document: Brief, campaigns: Sequence[Campaign], *, now: datetime | None = None
) -> Progress:
    at = now or timezone.now()
    last = {campaign.purpose: campaign for campaign in campaigns}
    boots = [boot for campaign in campaigns for boot in campaign.boots.all()]
    overhead = overhead_s(boots, document)
    measured = {name: measured_stage(name, revision, document, last.get(name), overhead, at) for name in MEASURED}
    if document.races:
        rounds = [one for one in campaigns if one.purpose == Campaign.Purpose.TUNING]
        measured["tuning"] = raced_stage(revision, document, rounds, overhead, at)
    everything = {**measured, **unmeasured(revision, measured)}
    return Progress(
        marked_now([everything[name] for name in ORDER], revision),
        sum(boot.engine_minutes for boot in boots),
        document.budget_engine_minutes,
    )


def unmeasured(revision: BriefRevision, measured: dict[str, Stage]) -> dict[str, Stage]:
    """The stages that run no engine."""
    nominated = revision.nomination is not None
    past_verdict = revision.state in ("in-review", "approved", "rejected", "changes-requested")
    signed = revision.state in ("approved", "rejected", "changes-requested")
    return {
        "nomination": Stage("nomination", "over" if nominated else "ahead"),
        "verdict": Stage("verdict", "over" if past_verdict else "ahead"),
        "review": Stage("review", "over" if signed else "ahead"),
    }


def marked_now(stages: list[Stage], revision: BriefRevision) -> list[Stage]:
    """The first stage that is not over is the one that is on, while the brief measures or waits for its owner."""
    if revision.state not in ("measuring", "in-review"):
        return stages
    on = "held" if revision.halted or revision.state == "in-review" else "now"
    first = next((stage for stage in stages if stage.state == "ahead"), None)
    return [replace(stage, state=on) if stage is first else stage for stage in stages]


def measured_stage(
    name: str, revision: BriefRevision, document: Brief, campaign: Campaign | None, overhead: float, at: datetime
) -> Stage:
    if is_left_out(name, revision, document):
        return Stage(name, "left-out")
    if campaign is None:
        total = planned_boots(name, document)
        return Stage(name, "ahead", 0, total, total * (window_s(name, document) + overhead))
    boots = latest_attempts(campaign.boots.all())
    finished = [boot for boot in boots if boot.state == Boot.State.FINISHED]
    running = next((boot for boot in boots if boot.state == Boot.State.RUNNING), None)
    over = campaign.state == Campaign.State.DONE
    left = 0.0 if over else sum(seconds_left(boot, document, overhead, at) for boot in boots)
    repeated = len(campaign.boots.all()) - len(boots)
    spared = [boot for boot in boots if over and boot.state == Boot.State.CANCELLED]
    return Stage(
        name,
        "over" if over else "ahead",
        len(finished),
        len(boots) - len(spared),
        left,
        repeated,
        running,
        len(spared),
        minutes_spared(spared, finished),
    )


def is_left_out(name: str, revision: BriefRevision, document: Brief) -> bool:
    """What is about the nominee alone, where nobody was nominated; and the suite where nothing rests on it."""
    if name == "behaviour" and document.suite is None:
        return True
    return name in ("held-out", "behaviour") and revision.nomination is not None and not revision.nominee


def raced_stage(
    revision: BriefRevision, document: Brief, rounds: Sequence[Campaign], overhead: float, at: datetime
) -> Stage:
    """All rounds so far; how many are still to come only the race will tell."""
    if not rounds:
        total = planned_boots("tuning", document)
        return Stage("tuning", "ahead", 0, total, total * (window_s("tuning", document) + overhead))
    every = [boot for one in rounds for boot in one.boots.all()]
    boots = latest_attempts(every)
    over = revision.nomination is not None
    return Stage(
        "tuning",
        "over" if over else "ahead",
        sum(boot.state == Boot.State.FINISHED for boot in boots),
        len(boots),
        0.0 if over else sum(seconds_left(boot, document, overhead, at) for boot in boots),
        len(every) - len(boots),
        next((boot for boot in boots if boot.state == Boot.State.RUNNING), None),
    )


def minutes_spared(spared: Sequence[Boot], finished: Sequence[Boot]) -> float:
    """What one that was running when the look decided had taken by then is no saving."""
    if not finished:
        return 0.0
    mean = sum(boot.engine_minutes for boot in finished) / len(finished)
    return sum(max(0.0, mean - boot.engine_minutes) for boot in spared)


def planned_boots(name: str, document: Brief) -> int:
    """As loadtests.planning lays them out: baselines stand around the candidates and, from four on, between them. Of a
    race its first round."""
    candidates = len(document.all_candidates)
    return {
        "noise-floor": 2 * document.rule.noise_floor_pairs,
        "tuning": first_round(document) if document.races else candidates + (3 if candidates > 3 else 2),
        "held-out": 2 * document.rule.pairs,
        "behaviour": 3,
        "fallback": 1,
    }[name]


def first_round(document: Brief) -> int:
    """Of each family as many candidates as begin, and a baseline boot between every two of them."""
    begin = sum(min(document.race.first, len(family.draft_lengths)) for family in document.search)
    begin += len(document.candidates)
    return begin + -(-begin // 2)


def window_s(name: str, document: Brief) -> float:
    if name == "behaviour":
        return suite_s(document)
    levels = [document.level(document.peak)] if name == "fallback" else document.levels
    return sum(level.span_s for level in levels)


def suite_s(document: Brief) -> float:
    only = document.suite.only if document.suite else ()
    return ASSUMED_CASE_S * len(only) if only else ASSUMED_SUITE_S


def overhead_s(boots: Iterable[Boot], document: Brief) -> float:
    """What a boot has taken besides its levels' windows, on the average of those that finished."""
    took = [
        (boot.stopped_at - boot.started_at).total_seconds() - windows_of(boot, document)
        for boot in boots
        if boot.state == Boot.State.FINISHED and boot.started_at and boot.stopped_at and not boot.died
        # How long the suite takes is a guess, and would make one of everything else.
        if boot.campaign.purpose != Campaign.Purpose.BEHAVIOUR
    ]
    return max(0.0, sum(took) / len(took)) if took else ASSUMED_OVERHEAD_S


def windows_of(boot: Boot, document: Brief) -> float:
    if boot.campaign.purpose == Campaign.Purpose.BEHAVIOUR:
        return suite_s(document)
    return sum(document.level(trial.level).span_s for trial in boot.trials.all())


def seconds_left(boot: Boot, document: Brief, overhead: float, at: datetime) -> float:
    if boot.state not in (Boot.State.WAITING, Boot.State.RUNNING):
        return 0.0
    whole = windows_of(boot, document) + overhead
    spent = (at - boot.started_at).total_seconds() if boot.started_at else 0.0
    return max(5.0, whole - spent)
