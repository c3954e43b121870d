"""How the race of tuning goes: its boots in order, who is still in it and why the others fell, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from decisions.charts.figure import Chart
from decisions.charts.race import BootState, Lane, RaceBoot, race_timeline
from decisions.models import BriefCampaign, BriefRevision
from decisions.rules.brief import Brief
from decisions.rules.measures import Measure, trial_measure
from decisions.rules.speed_up import NONE
from decisions.rules.wording import change, interval
from decisions.selectors.tuning import NO_SPECULATION, Runner, runners_of
from loadtests.canonical import digest_of
from loadtests.models import Boot, Campaign
from loadtests.tuning import race
from loadtests.tuning.field import told_effect

Step = Mapping[str, Any]


@dataclass(frozen=True)
class StandingRow:
    """``state``: runs, fell, waits; empty for no speculation, which runs in every round."""

    label: str
    setting: str
    state: str
    boots: int
    score: str
    bounds: str
    predicted: str
    reason: str
    nominated: bool


@dataclass(frozen=True)
class RoundShown:
    number: int
    labels: list[str]
    reason: str


@dataclass(frozen=True)
class RaceShown:
    """``names``: who has begun or has a standing, NONE among them; ``chart`` None: no boot has started; ``finished``
    boots. ``token`` changes with what the page shows, and while a boot runs once a minute."""

    names: list[str]
    chart: Chart | None
    standings: list[StandingRow]
    rounds: list[RoundShown]
    finished: int
    token: str


def race_shown(revision: BriefRevision, document: Brief, campaigns: Sequence[Campaign]) -> RaceShown:
    """``campaigns``: those of tuning, in their order."""
    steps, boots = steps_of(campaigns), in_order(campaigns)
    ended = (revision.nomination or {}).get("race")
    told = [*steps.values(), *([ended] if ended else [])]
    runners = runners_of(document, names_of(boots, told))
    settings = {one.name: one.setting for one in runners}
    numbers = {pk: step["number"] for pk, step in steps.items()}
    ran = race_boots(boots, numbers)
    said = how_it_ended(revision, ended)
    return RaceShown(
        names=[one.name for one in runners],
        chart=race_timeline(
            lanes(runners, ran, told, revision.nominee), ran, budget=budget(campaigns, told), ended=said
        )
        if ran
        else None,
        standings=[standing_row(document, settings, one, revision.nominee) for one in told[-1]["standings"]]
        if told
        else [],
        rounds=[
            RoundShown(step["number"], [runner_of(name) or NO_SPECULATION for name in step["boots"]], step["reason"])
            for step in steps.values()
        ],
        finished=sum(boot.state == Boot.State.FINISHED for boot in boots),
        token=token(boots, ran, len(told)),
    )


def runner_of(name: str) -> str:
    """Of the race's own name for no speculation, that of these pages."""
    return NONE if name == race.NONE else name


def names_of(boots: Sequence[Boot], told: Sequence[Step]) -> list[str]:
    """Whoever has a boot, and whoever the race has an opinion of."""
    standing = [runner_of(one["runner"]) for step in told for one in step["standings"]]
    return [*(boot.candidate or NONE for boot in boots), *standing]


def how_it_ended(revision: BriefRevision, ended: Step | None) -> str:
    """Empty while it goes on."""
    if ended is not None:
        return str(ended["reason"])
    if revision.nomination is not None:
        return "Every candidate has been measured."
    return "" if revision.state == "measuring" else "It was given up."


def token(boots: Sequence[Boot], ran: Sequence[RaceBoot], steps: int) -> str:
    minute = int(ran[-1].minutes) if ran and ran[-1].state == "running" else 0
    return digest_of([[[boot.pk, str(boot.state)] for boot in boots], steps, minute])


def steps_of(campaigns: Sequence[Campaign]) -> dict[int, Step]:
    """By campaign the step of the race that planned it; empty where tuning is no race."""
    found = BriefCampaign.objects.filter(campaign__in=[one.pk for one in campaigns]).order_by("campaign_id")
    return {one.campaign_id: one.race for one in found if one.race is not None}


def in_order(campaigns: Sequence[Campaign]) -> list[Boot]:
    """Every attempt that started an engine, as they ran."""
    boots = [boot for campaign in campaigns for boot in campaign.boots.all() if boot.started_at is not None]
    return sorted(boots, key=lambda boot: (boot.started_at or timezone.now(), boot.pk))


def race_boots(boots: Sequence[Boot], numbers: Mapping[int, int]) -> list[RaceBoot]:
    found: list[RaceBoot] = []
    now = timezone.now()
    for boot in boots:
        started = boot.started_at or now
        running = boot.state == Boot.State.RUNNING
        minutes = (now - started).total_seconds() / 60 if running else boot.engine_minutes
        found.append(
            RaceBoot(
                boot=str(boot.pk),
                runner=boot.candidate or NO_SPECULATION,
                round=numbers.get(boot.campaign_id),
                state=state_of(boot),
                at=found[-1].until if found else 0.0,
                minutes=minutes,
                began=clock(started),
            )
        )
    return found


def state_of(boot: Boot) -> BootState:
    if boot.state == Boot.State.FINISHED:
        return "engine died" if boot.died else "finished"
    states: dict[str, BootState] = {"running": "running", "void": "void", "cancelled": "cancelled"}
    return states.get(boot.state, "lost")


def clock(at: datetime) -> str:
    utc = at.astimezone(UTC)
    return f"{utc.day} {utc:%b %Y, %H:%M} UTC"


def lanes(runners: Sequence[Runner], boots: Sequence[RaceBoot], told: Sequence[Step], nominee: str) -> list[Lane]:
    """No speculation first, then whoever has a boot, as they began."""
    began = list(dict.fromkeys(boot.runner for boot in boots))
    by_label = {one.label: one for one in runners}
    others = [lane(by_label[label], told, nominee) for label in began if label != NO_SPECULATION]
    return [Lane(NO_SPECULATION, "reference"), *others]


def lane(runner: Runner, told: Sequence[Step], nominee: str) -> Lane:
    if nominee and runner.name == nominee:
        return Lane(runner.label, "nominated")
    out = [number for number, step in enumerate(told) if has_fallen(runner, step)]
    # What the race knows later may bring a runner back: only who is out by its last word is out.
    last = next((number for number in range(len(told)) if set(range(number, len(told))) <= set(out)), None)
    return Lane(runner.label, "runs") if last is None else Lane(runner.label, "out", last)


def has_fallen(runner: Runner, step: Step) -> bool:
    return any(one["runner"] == runner.name and one["state"] == "fell" for one in step["standings"])


def budget(campaigns: Sequence[Campaign], told: Sequence[Step]) -> float:
    """Engine minutes that tuning may spend: the race's own, or what was left of the brief's when its campaign began."""
    asked = told[-1]["state"]["budget"]["engine_minutes"] if told else None
    return float(asked if asked is not None else max((one.budget_engine_minutes for one in campaigns), default=0.0))


def standing_row(document: Brief, settings: Mapping[str, str], one: Step, nominee: str) -> StandingRow:
    measure = trial_measure(document.outcome)
    score = one["score"]
    # Before its first boot and without a prediction it is what one believes of anybody.
    known = score is not None and (one["boots"] > 0 or one["predicted"] is not None)
    ends = [score[end] for end in ("low", "high")] if score else []
    bounds = [told_effect(one, measure.scale) for one in ends if one is not None]
    return StandingRow(
        label=runner_of(one["runner"]) or NO_SPECULATION,
        setting=settings[runner_of(one["runner"])],
        state="" if one["runner"] == race.NONE else one["state"],
        boots=one["boots"],
        score=worded(measure, score["mean"] if known else None),
        bounds=" to ".join(bounds) if known and len(bounds) == 2 else "–",
        predicted=worded(measure, one["predicted"]),
        reason=one["reason"],
        nominated=bool(nominee) and one["runner"] == nominee,
    )


def worded(measure: Measure, effect: float | None) -> str:
    """As in the sentence beside it: of a time, too, above ×1.00 is better."""
    return "–" if effect is None else told_effect(effect, measure.scale)


@dataclass(frozen=True)
class ShrinkageRow:
    cell: str
    tuning: str
    held_out: str
    bounds: str
    kept: str


@dataclass(frozen=True)
class Shrinkage:
    """What was left of the winner's tuning score on held-out traffic. ``expected``: the race's own guess, with what
    choosing the best of many adds taken off; empty where tuning was no race."""

    said: str
    rows: list[ShrinkageRow]
    expected: str


def shrinkage(revision: BriefRevision, verdict: Mapping[str, Any] | None) -> Shrinkage | None:
    """None before the held-out verdict exists, where nobody was nominated, and where no cell has both figures."""
    if verdict is None or not revision.nominee:
        return None
    tuned = {
        (row["level"], row["class"]): row
        for row in (revision.nomination or {}).get("rows", [])
        if row["candidate"] == revision.nominee and row["improves"]
    }
    rows = [
        shrinkage_row(tuned[row["level"], row["class"]], row)
        for row in verdict["outcome"]
        if row["role"] == "improve" and (row["level"], row["class"]) in tuned and comparable(tuned, row)
    ]
    if not rows:
        return None
    ended = (revision.nomination or {}).get("race")
    expected = change(ended["expected"], ended["scale"]) if ended and ended["expected"] is not None else ""
    return Shrinkage(f"{'; '.join(map(shrinkage_said, rows))}.", rows, expected)


def shrinkage_said(row: ShrinkageRow) -> str:
    said = f"{row.cell}: {row.tuning} in tuning, {row.held_out} on held-out traffic"
    return f"{said}, {row.kept}" if row.kept else said


def comparable(tuned: Mapping[tuple[str, str], Step], row: Step) -> bool:
    before = tuned[row["level"], row["class"]]
    same = bool(before["scale"] == row["scale"])
    return same and before["difference"] is not None and row["difference"] is not None


def shrinkage_row(before: Step, after: Step) -> ShrinkageRow:
    gained = before["improvement"] is not None and before["improvement"] > 0 and before["difference"]
    return ShrinkageRow(
        cell=before["level"] if before["class"] == "all" else f"{before['level']}, {before['class']}",
        tuning=change(before["difference"], before["scale"]),
        held_out=change(after["difference"], after["scale"]),
        bounds=interval(after["low"], after["high"], after["scale"]),
        kept=f"{100 * after['difference'] / before['difference']:.0f} % of it is left" if gained else "",
    )
