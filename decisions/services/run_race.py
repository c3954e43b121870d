from __future__ import annotations

from typing import Any

from decisions import ledger
from decisions.models import BriefRevision
from decisions.rules.race import State, newly_fallen, next_step, nominate, step_document
from decisions.selectors.evidence import judged_boots
from decisions.selectors.race import EXPLORED, RaceSoFar, race_state, raced_campaigns
from decisions.services.move_revision import subject
from decisions.services.record_nomination import record_nomination
from decisions.services.start_campaign import ACTOR, start_campaign
from loadtests.planning import TuningRound
from loadtests.tuning.race import NONE, Ended, Round


def run_race(*, revision: BriefRevision, seen: RaceSoFar | None) -> None:
    """Starts the next round of a race, or ends it with the nomination. Everything is computed from the database and the
    evidence, so it goes on after any fall where it was. ``seen`` was read before the act; where it isn't what counts
    now, the next call reads it again."""
    if seen is None or seen.boots != {boot.pk for boot in judged_boots(revision, purposes=EXPLORED)}:
        return
    document, rounds = revision.document, raced_campaigns(revision)
    state = race_state(revision, rounds, seen)
    step = next_step(document, state, seen.trials)
    fell = dict(newly_fallen(step, rounds[-1].race if rounds else None))
    if isinstance(step, Round):
        start_round(revision, state, step, fell)
    elif rounds:
        end_race(revision, state, step, fell)
        record_nomination(revision=revision, nomination=nominate(document, state, step, seen.trials), by=ACTOR)
    else:
        # Nothing was measured: to nominate nobody would answer a question that was never asked.
        raise ValueError(f"tuning can't begin: {step.reason}")


def start_round(revision: BriefRevision, state: State, step: Round, fell: dict[str, str]) -> None:
    campaign = start_campaign(
        revision=revision,
        purpose="tuning",
        candidates=sorted(set(step.boots) - {NONE}),
        most_minutes=max(0.0, state.rules.budget.engine_minutes - state.spent.engine_minutes),
        tuning_round=TuningRound(step.number, step.boots),
        race=step_document(state, step),
    )
    details = {"round": step.number, "campaign": campaign.pk, "boots": list(step.boots), "fell": fell}
    record("race-round", revision, step, details)


def end_race(revision: BriefRevision, state: State, end: Ended, fell: dict[str, str]) -> None:
    spent = {"engine_minutes": round(state.spent.engine_minutes, 3), "boots": state.spent.boots}
    record("race-ended", revision, end, {"why": end.why, **spent, "fell": fell})


def record(kind: str, revision: BriefRevision, step: Round | Ended, details: dict[str, Any]) -> None:
    ledger.append(kind, subject=subject(revision), actor=ACTOR, details={**details, "reason": step.reason})
