"""Tuning as a race, in the stages of a brief: rounds that follow each other, why each candidate fell, what a killed
worker and a used-up budget leave, and that every step can be computed again."""

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from config.demo import brief_document
from decisions import ledger
from decisions.models import Account, BriefRevision, Event, Route
from decisions.rules.race import computed_again
from decisions.selectors.evidence import evidence_of
from decisions.selectors.race import raced_campaigns
from decisions.services.advance_brief import advance_brief
from decisions.services.create_brief import create_brief
from decisions.services.declare_fault import declare_fault
from decisions.services.freeze_brief import freeze_brief
from decisions.services.refused import Refused
from decisions.services.resume_brief import resume_brief
from decisions.services.start_brief import start_brief
from loadtests.configurations import Checkpoint
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Boot, Campaign
from loadtests.services.claim_boot import claim_boot
from loadtests.services.give_up_boot import lose_silent_boots
from loadtests.services.import_traffic import import_traffic
from loadtests.simulator import EngineModel
from loadtests.simulator.acceptance import Acceptance, ClassAcceptance
from loadtests.simulator.costs import DrafterCost, RoundCost
from loadtests.simulator.model import ClassLength, Drafter, Lengths, Nuisances
from tests.support.raced import Clock, run_simulated

pytestmark = pytest.mark.django_db

# Two cores, roughly: a step has a floor that every token beyond the first few lifts, so that drafting pays alone and
# not in a crowd. Boots differ by 2 %.
ENGINE = EngineModel(
    schema="draftproof.engine-model/1",
    name="race",
    max_num_seqs=16,
    max_num_batched_tokens=2_048,
    max_model_len=2_048,
    kv_tokens=46_000,
    round=RoundCost(
        fixed_s=0.02,
        per_sequence_s=0.0005,
        weights_s=0.02,
        per_token_s=0.003,
        per_prefill_token_s=0.0005,
        per_context_token_s=0.0,
    ),
    drafters={
        "ngram": Drafter(
            cost=DrafterCost(fixed_s=0.0005),
            acceptance=Acceptance(default=ClassAcceptance(positions=(0.8, 0.7, 0.5, 0.3), spread=0.2)),
        )
    },
    nuisances=Nuisances(boot_sd=0.02),
    lengths=Lengths(default=ClassLength(median=60, sigma=0.5)),
)
LEVELS = [
    {"name": "quiet", "arrival": {"process": "constant", "rate": 0.4}, "duration_s": 45, "drain_s": 20},
    {"name": "peak", "arrival": {"process": "poisson", "rate": 4.0}, "duration_s": 9, "drain_s": 30},
]
FAMILY = {
    "name": "ngram",
    "speculative": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5},
    "draft_lengths": [1, 2, 4, 8],
    "schedules": {"propose": True},
}
SEARCH: dict[str, Any] = {"search": [FAMILY], "tuning": {"boots": 30}}


def racing(route: Route, engineer: Account, **changes: Any) -> BriefRevision:
    traffic = import_traffic(
        path=SUPPORT_ASSISTANT, name="demo", by=engineer.username, service=route.service.slug, seed=7
    )
    target = Checkpoint(name=ENGINE.name, weights_sha256=ENGINE.digest, tokenizer_sha256=ENGINE.digest)
    document = brief_document(target, traffic) | {"levels": LEVELS, "guardrails": [], "budget_engine_minutes": 600}
    del document["candidates"]
    document["baseline"] |= {
        "runtime": {"engine": "simulated", "distribution": "draftproof", "version": "simulated-1"},
        "arguments": {"max_model_len": 2_048, "max_num_seqs": 16},
        "hardware": {"pool": "cpu", "accelerator": "simulated", "count": 1},
    }
    source = json.dumps(document | SEARCH | changes)
    revision = create_brief(route=route, source=source, by=engineer)
    freeze_brief(revision=revision, by=engineer)
    start_brief(revision=revision, by=engineer)
    return revision


@pytest.fixture
def revision(route: Route, engineer: Account) -> BriefRevision:
    return racing(route, engineer)


NOISE_FLOOR_BOOTS, BOOT_MINUTES = 8, 2.0


def play(revision: BriefRevision, model: EngineModel = ENGINE, *, boots: int | None = None) -> None:
    """Runs every boot of every stage, or so many of them, until people are asked for something."""
    # Boots must not overlap those of an earlier call.
    ran, clock = 0, Clock(hours_ago=10 - 2 * BOOT_MINUTES / 60 * Boot.objects.count())
    while revision.state == "measuring" and not revision.halted and ran != boots:
        boot = claim_boot(pool="cpu", worker="virtual", host="host")
        if boot is None:
            advance_brief(revision=revision)
            continue
        run_simulated(boot, clock, model=model, seconds=60 * BOOT_MINUTES)
        ran += 1


def rounds(revision: BriefRevision) -> list[Campaign]:
    return [one.campaign for one in raced_campaigns(revision)]


def tuning_boots(revision: BriefRevision) -> list[Boot]:
    return list(
        Boot.objects.filter(campaign__brief_campaign__revision=revision, campaign__purpose="tuning")
        .order_by("campaign_id", "position", "attempt")
        .prefetch_related("trials")
    )


def steps(revision: BriefRevision) -> list[dict[str, Any]]:
    return [one.race or {} for one in raced_campaigns(revision)]


def nominated(revision: BriefRevision) -> dict[str, Any]:
    assert revision.nomination is not None
    found: dict[str, Any] = revision.nomination
    return found


def events(kind: str) -> list[Event]:
    return list(Event.objects.filter(kind=kind).order_by("sequence"))


def until_tuning(revision: BriefRevision) -> Campaign:
    """Plays the noise floor; gives the race's first round, of which nothing has run."""
    play(revision, boots=NOISE_FLOOR_BOOTS)
    for _ in range(2):
        advance_brief(revision=revision)
    (first,) = rounds(revision)
    return first


def test_a_race_goes_in_rounds_to_a_nomination_and_a_verdict(revision: BriefRevision) -> None:
    play(revision)
    check_nomination(revision)
    check_ledger(revision)
    check_segments(revision)
    check_proposed(revision)
    check_computed_again(revision)


def check_nomination(revision: BriefRevision) -> None:
    assert revision.halted == ""
    assert revision.state == "in-review"
    # What drafts least gains least where one is alone, and what drafts most loses most in the crowd.
    told = steps(revision)
    schedules = {one["name"] for one in told[-1]["state"]["runners"] if one["schedule"]}
    assert revision.nominee in {"ngram-k2", "ngram-k4"} | schedules
    assert [one["number"] for one in told] == list(range(1, len(told) + 1))
    assert len(told) >= 2
    for one, step in zip(rounds(revision), told, strict=True):
        assert one.plan["round"] == step["number"]
        planned = ["none" if boot["arm"] == "baseline" else boot["candidate"] for boot in one.plan["boots"]]
        assert planned == step["boots"]
    nomination = nominated(revision)
    assert nomination["race"]["why"] in ("one left", "tied")
    assert nomination["race"]["measured"] is not None
    assert nomination["race"]["expected_change"] is not None
    assert revision.verdicts.get().document["nominee"] == (revision.nominee or None)


def check_ledger(revision: BriefRevision) -> None:
    """Each step is an event, with who fell by it and why."""
    began = events("race-round")
    assert [one.details["round"] for one in began] == [one.plan["round"] for one in rounds(revision)]
    assert [one.details["campaign"] for one in began] == [one.pk for one in rounds(revision)]
    (ended,) = events("race-ended")
    nomination = nominated(revision)
    assert (ended.details["why"], ended.details["reason"]) == (
        nomination["race"]["why"],
        nomination["race"]["reason"],
    )
    assert ended.details["boots"] == len(tuning_boots(revision))
    assert ended.details["engine_minutes"] == pytest.approx(BOOT_MINUTES * len(tuning_boots(revision)))
    fell = {name: why for one in [*began, ended] for name, why in one.details["fell"].items()}
    assert fell.keys() >= {one["runner"] for one in nomination["race"]["standings"] if one["state"] == "fell"}
    assert all(name in why for name, why in fell.items())
    assert ledger.verify().broken is None


def check_computed_again(revision: BriefRevision) -> None:
    """Every step, and the end, from the evidence alone."""
    trials = evidence_of(revision, purposes=["noise-floor", "tuning"])
    document = revision.document
    for one in steps(revision):
        assert computed_again(document, one, trials) == one
    end = {name: nominated(revision)["race"][name] for name in ("why", "reason", "state")}
    again = computed_again(document, end, trials)
    assert {name: again[name] for name in end} == end


def check_segments(revision: BriefRevision) -> None:
    """The boots of a round share its segments, and turn the levels."""
    firsts = []
    for one in rounds(revision):
        boots = list(one.boots.prefetch_related("trials").order_by("position"))
        segments = [{trial.level: trial.segment for trial in boot.trials.all()} for boot in boots]
        assert all(segment == segments[0] for segment in segments)
        firsts.append(segments[0])
        orders = [[trial.level for trial in boot.trials.all()] for boot in boots]
        assert all(before != after for before, after in pairwise(orders))
        # Each candidate's boot has a baseline boot beside it.
        arms = "".join("b" if boot.arm == "baseline" else "c" for boot in boots)
        assert "b" in arms
        assert "ccc" not in arms
        assert not arms.startswith("cc")
        assert not arms.endswith("cc")
    assert all(before != after for before, after in pairwise(firsts))


def check_proposed(revision: BriefRevision) -> None:
    """A schedule that tuning proposed is measured like any other candidate."""
    document = revision.document
    listed = {one.name for one in document.all_candidates}
    ran = {boot.candidate for boot in tuning_boots(revision)} - {""}
    proposed = ran - listed
    assert proposed
    for name in proposed:
        assert document.has_candidate(name)
        configuration = Boot.objects.filter(candidate=name).first()
        assert configuration is not None
        assert configuration.configuration.digest == document.configuration(name).digest
    rows = {one["candidate"] for one in nominated(revision)["rows"]}
    assert rows == listed | proposed


def test_a_worker_that_is_killed_in_the_middle_costs_its_own_boot_alone(revision: BriefRevision) -> None:
    until_tuning(revision)
    play(revision, boots=2)
    killed = claim_boot(pool="cpu", worker="killed", host="host")
    assert killed is not None
    Boot.objects.filter(pk=killed.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=60))
    # Whoever advances briefs meanwhile does no harm.
    advance_brief(revision=revision)
    assert lose_silent_boots() == [killed]
    play(revision)
    assert revision.state == "in-review"
    attempts = {(boot.campaign_id, boot.position): boot.attempt for boot in tuning_boots(revision)}
    assert [place for place, attempt in attempts.items() if attempt > 1] == [(killed.campaign_id, killed.position)]
    assert [boot.state for boot in tuning_boots(revision)].count("finished") == len(attempts)
    trials = evidence_of(revision, purposes=["noise-floor", "tuning"])
    assert all(computed_again(revision.document, one, trials) == one for one in steps(revision))


def test_a_race_ends_where_its_boots_are_used_up(route: Route, engineer: Account) -> None:
    revision = racing(route, engineer, tuning={"boots": 6})
    play(revision)
    assert len(rounds(revision)) == 1
    assert len(tuning_boots(revision)) <= 6
    nomination = nominated(revision)
    assert nomination["race"]["why"] == "budget"
    assert "boots, and the budget is 6" in nomination["race"]["reason"]


def test_a_budget_that_holds_no_round_halts_the_brief_and_nominates_nobody(route: Route, engineer: Account) -> None:
    revision = racing(route, engineer, tuning={"engine_minutes": 3})
    play(revision)
    assert revision.state == "measuring"
    assert revision.halted.startswith("tuning can't begin: Another round would make it 4 engine minutes")
    assert (revision.nomination, rounds(revision)) == (None, [])


def test_an_overrun_stops_and_asks_and_what_was_measured_counts(route: Route, engineer: Account) -> None:
    """The first boots take far longer than any before: the round is stopped in its middle."""
    revision = racing(route, engineer, tuning={"engine_minutes": 14})
    first = until_tuning(revision)
    play(revision, boots=4)
    slow = first.boots.filter(state="finished").latest("position")
    assert slow.started_at is not None
    Boot.objects.filter(pk=slow.pk).update(stopped_at=slow.started_at + timedelta(minutes=30))
    play(revision)
    assert "the brief's budget of engine time is used up" in revision.halted
    assert revision.nomination is None
    before = len(tuning_boots(revision))
    resume_brief(revision=revision, by=engineer)
    play(revision)
    assert revision.state == "in-review"
    assert len(tuning_boots(revision)) == before
    assert nominated(revision)["race"]["why"] == "budget"
    measured = {one["candidate"]: one["boots"] for one in nominated(revision)["rows"]}
    assert sum(measured.values()) == first.boots.filter(arm="candidate", state="finished").count()


def test_nobody_wins_where_drafting_only_costs(route: Route, engineer: Account) -> None:
    poor = Acceptance(default=ClassAcceptance(positions=(0.05,), spread=0.0))
    drafter = Drafter(cost=DrafterCost(fixed_s=0.02), acceptance=poor)
    revision = racing(route, engineer, rule={"seed": 3, "nomination": "best-in-improve-cells"})
    play(revision, ENGINE.model_copy(update={"drafters": {"ngram": drafter}}))
    assert revision.nominee == ""
    assert nominated(revision)["race"]["why"] == "none left"
    assert revision.verdicts.get().result == "FAIL"


def test_a_fault_can_be_declared_until_the_next_round_rests_on_it(revision: BriefRevision, engineer: Account) -> None:
    first = until_tuning(revision)
    play(revision, boots=first.boots.count())
    for _ in range(2):
        advance_brief(revision=revision)
    assert len(rounds(revision)) == 2
    for purpose in ("tuning", "noise-floor"):
        boot = Boot.objects.filter(campaign__purpose=purpose, state="finished").earliest("pk")
        with pytest.raises(Refused, match="later rounds of the race rest on this boot"):
            declare_fault(boot=boot, by=engineer, reason="the host was being rebooted")
