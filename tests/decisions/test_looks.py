"""Looks on the way, taken by the held-out stage itself: once each, by their own share of alpha, and sealed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from config.demo import brief_document
from decisions import ledger
from decisions.models import Account, BriefRevision, Event, Release, Route, TakenLook
from decisions.rules.looks import decides, due
from decisions.rules.power import looks_taken
from decisions.selectors.runs import is_sealed
from decisions.services import take_looks
from decisions.services.advance_brief import advance_brief
from decisions.services.compute_verdict import content_by
from decisions.services.create_brief import create_brief
from decisions.services.declare_fault import declare_fault
from decisions.services.freeze_brief import freeze_brief
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.sign_decision import sign_decision
from decisions.services.start_brief import start_brief
from decisions.services.take_looks import content_again
from loadtests.canonical import digest, digest_of
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.models import Boot, Campaign, Trial
from loadtests.services.beat import beat
from loadtests.services.claim_boot import claim_boot
from loadtests.services.import_traffic import import_traffic
from tests.conftest import PASSWORD
from tests.support.judged import SEED, a_brief
from tests.support.play import TARGET, Speed, changes_nothing, harms_at_peak, helps_when_quiet, play, run
from workers.boots import leave

LATENCY = re.compile(r"\b\d+(\.\d+)?\s*(ms|s)\b")
PLANNED = {"pairs": 6, "looks": 2, "interim": [{"pairs": 4, "alpha": 0.02}], "seed": SEED}


def test_a_look_on_the_way_is_due_once_its_pairs_are_complete_and_once_only() -> None:
    rule = PLANNED | {"pairs": 8, "looks": 3, "interim": [{"pairs": 4, "alpha": 0.01}, {"pairs": 6, "alpha": 0.01}]}
    brief = a_brief(rule=rule)
    assert [[one.number for one in due(brief, pairs, {})] for pairs in (3, 4, 5, 6, 8)] == [
        [],
        [1],
        [1],
        [1, 2],
        [1, 2],
    ]
    assert [one.number for one in due(brief, 8, {1})] == [2]
    assert due(a_brief(), 4, {}) == []
    assert [one for one in ("PASS", "FAIL", "INCONCLUSIVE", "INVALID") if decides(one)] == ["PASS", "FAIL"]


def test_what_is_said_of_a_look_before_and_after_the_verdict() -> None:
    brief = a_brief(rule=PLANNED)
    before = [looks_taken(brief, None, taken) for taken in ({}, {1: "INVALID"}, {1: "FAIL"})]
    assert [[one.state for one in looks] for looks in before] == [
        ["planned", "planned"],
        ["goes on", "planned"],
        ["decides", "not needed"],
    ]
    early, late = {"look": {"number": 1}}, {"look": {"number": 2}}
    assert [one.state for one in looks_taken(brief, early, {1: "PASS"})] == ["this verdict", "not needed"]
    assert [one.state for one in looks_taken(brief, late, {1: "INCONCLUSIVE"})] == [
        "goes on: INCONCLUSIVE",
        "this verdict",
    ]


@pytest.fixture
def revision(route: Route, engineer: Account) -> BriefRevision:
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service="support-assistant", seed=7)
    document = brief_document(TARGET, traffic)
    document["rule"] |= PLANNED | {"seed": document["rule"]["seed"]}
    # So wide that four pairs can show every one of them to hold.
    document["guardrails"] = [document["guardrails"][0] | {"limit": 0.2}, document["guardrails"][3]]
    found = create_brief(route=route, source=json.dumps(document), by=engineer)
    freeze_brief(revision=found, by=engineer)
    start_brief(revision=found, by=engineer)
    return found


def boots_of(revision: BriefRevision) -> Iterator[Boot]:
    """The boots in their order, claimed one by one as a worker claims them."""
    while revision.state == "measuring" and not revision.halted:
        boot = claim_boot(pool="cpu", worker="worker", host="host")
        if boot is None:
            advance_brief(revision=revision)
        else:
            yield boot


def reach_the_look(revision: BriefRevision, speed: Speed) -> Boot:
    """Four pairs are complete, nobody has looked yet, and the fifth pair's first boot is running."""
    draw = random.Random(1)
    for boot in boots_of(revision):
        if boot.campaign.purpose == "held-out" and boot.pair == 4:
            Boot.objects.filter(pk=boot.pk).update(started_at=timezone.now())
            return boot
        run(boot, speed, 1 + draw.gauss(0, 0.002), draw)
        if boot.campaign.purpose == "held-out":
            began = timezone.now() - timedelta(days=1) + boot.position * timedelta(minutes=3)
            Boot.objects.filter(pk=boot.pk).update(started_at=began, stopped_at=began + timedelta(minutes=2))
    raise AssertionError("the brief never came so far")


def page(who: Account, revision: BriefRevision, tab: str = "brief-progress") -> str:
    client = Client()
    client.force_login(who)
    found = client.get(reverse(tab, args=[revision.brief_id, revision.number])).content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", found.replace("\u202f", " ").replace("\u00a0", " ")))


@pytest.mark.django_db
def test_a_look_that_passes_ends_the_held_out_stage(revision: BriefRevision, owner: Account, engineer: Account) -> None:
    running = reach_the_look(revision, helps_when_quiet)
    assert "Look 1 of 2 after 4 pairs: planned · Look 2 of 2 after 6 pairs: planned" in page(owner, revision)
    advance_brief(revision=revision)

    look = TakenLook.objects.get()
    assert (look.number, look.pairs, look.result) == (1, 4, "PASS"), look.document["sentence"]
    assert look.document["look"] == {"number": 1, "of": 2, "pairs": 4, "alpha": 0.02}
    event = Event.objects.get(kind="brief-look")
    assert (event.details["decides"], event.details["digest"]) == (True, look.digest)
    assert "PASS" not in str(event.details)
    campaign = Campaign.objects.get(purpose="held-out")
    reason = "look 1 of 2, after 4 pairs, decided: 4 boots of the plan won't be needed"
    assert (campaign.state, campaign.reason) == ("done", reason)
    assert campaign.boots.filter(state="cancelled", reason=reason).count() == 3

    # The worker of the boot that is running learns of it at its next beat, and lets the boot go.
    assert not beat(boot=running, trial=None, progress=None)
    leave(running, "its campaign has ended")
    running.refresh_from_db()
    assert (running.state, running.reason) == ("cancelled", reason)
    said = page(owner, revision)
    assert "Look 1 of 2 after 4 pairs: decides · Look 2 of 2 after 6 pairs: not needed. 4 boots not needed" in said
    assert "8 of 8 boots, 4 not needed" in said
    # Less what the running one had taken by then, which is this machine's own time.
    assert re.search(r"about (8|7\.\d) min of engine time saved", said)

    boot = Boot.objects.filter(campaign=campaign, state="finished").latest("pk")
    with pytest.raises(Refused, match="look 1 has decided on these pairs"):
        declare_fault(boot=boot, by=engineer, reason="The host was rebooted for maintenance")

    play(revision, helps_when_quiet)
    verdict = revision.verdicts.get()
    assert (revision.state, verdict.result) == ("in-review", "PASS")
    assert verdict.document["look"] == look.document["look"]
    assert verdict.document["outcome"] == look.document["outcome"]
    assert [one["pair"] for one in verdict.document["pairs"]] == [0, 1, 2, 3]
    assert content_by(revision=revision) == bytes(verdict.content)
    assert TakenLook.objects.count() == 1
    shown = page(owner, revision, "brief-sign-off")
    saved = r"Look 1 of 2, after 4 pairs, 4 boots not needed: about (8|7\.\d) min of engine time saved"
    assert re.search(saved, shown)
    assert "not needed" in page(owner, revision, "brief-health")

    sign_decision(
        verdict=verdict,
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="approve",
        reason="The evidence settles it.",
    )
    assert Release.objects.get().tested_range["levels"]
    assert ledger.verify().broken is None


@pytest.mark.django_db
def test_a_look_that_goes_on_is_told_and_shows_nothing(revision: BriefRevision, owner: Account) -> None:
    running = reach_the_look(revision, lambda boot, level: 0.95 if boot.candidate and level == "quiet" else 1.0)
    advance_brief(revision=revision)
    look = TakenLook.objects.get()
    assert look.result == "INCONCLUSIVE", look.document["sentence"]
    running.refresh_from_db()
    assert (running.state, running.campaign.state) == ("running", "running")
    said = page(owner, revision)
    assert "Look 1 of 2 after 4 pairs: goes on · Look 2 of 2 after 6 pairs: planned" in said
    held_out = page(owner, revision, "brief-held-out")
    assert "How long requests took is not shown" in held_out
    assert not LATENCY.search(held_out.split("Pairs campaign")[1])
    assert is_sealed(running, revision)

    run(running, helps_when_quiet, 1.0, random.Random(2))
    play(revision, helps_when_quiet)
    verdict = revision.verdicts.get()
    assert verdict.document["look"]["number"] == 2
    assert [one.state for one in looks_taken(revision.document, verdict.document, {1: look.result})] == [
        "goes on: INCONCLUSIVE",
        "this verdict",
    ]
    assert TakenLook.objects.count() == Event.objects.filter(kind="brief-look").count() == 1


@pytest.mark.django_db
def test_a_look_that_fails_ends_the_held_out_stage_too(revision: BriefRevision) -> None:
    reach_the_look(revision, lambda boot, level: 1.3 if boot.candidate else 1.0)
    advance_brief(revision=revision)
    assert TakenLook.objects.get().result == "FAIL"
    assert Campaign.objects.get(purpose="held-out").state == "done"


@pytest.mark.django_db
def test_a_worker_that_is_killed_at_a_look_neither_loses_nor_repeats_it(
    revision: BriefRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach_the_look(revision, helps_when_quiet)

    def killed(**_: Any) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as patched:
        patched.setattr(take_looks, "end_campaign", killed)
        with pytest.raises(SystemExit):
            advance_brief(revision=revision)
    assert not TakenLook.objects.exists()
    assert not Event.objects.filter(kind="brief-look").exists()
    for _ in range(3):
        advance_brief(revision=revision)
    assert TakenLook.objects.get().result == "PASS"
    assert Event.objects.filter(kind="brief-look").count() == 1


@pytest.mark.django_db
def test_a_look_is_computed_anew_from_the_evidence_it_names(revision: BriefRevision, engineer: Account) -> None:
    """One of its pairs is run again, and the fallback after it: neither was there when the look was taken."""
    running = reach_the_look(revision, lambda boot, level: 0.95 if boot.candidate and level == "quiet" else 1.0)
    advance_brief(revision=revision)
    look = TakenLook.objects.get()
    assert look.result == "INCONCLUSIVE"
    assert content_again(look=look) == content_by(revision=revision, pairs=4) == bytes(look.content)
    assert look.evidence_digest == digest_of(look.document["evidence"])

    run(running, helps_when_quiet, 1.0, random.Random(2))
    faulty = Boot.objects.get(campaign__purpose="held-out", pair=1, arm="candidate")
    declare_fault(boot=faulty, by=engineer, reason="The host was rebooted for maintenance")
    play(revision, helps_when_quiet)
    assert revision.verdicts.exists()
    assert content_by(revision=revision, pairs=4) != bytes(look.content)
    assert content_again(look=look) == bytes(look.content)
    assert digest(content_again(look=look)) == Event.objects.get(kind="brief-look").details["digest"]


@pytest.mark.django_db
def test_a_look_whose_trials_are_gone_says_which(revision: BriefRevision) -> None:
    reach_the_look(revision, helps_when_quiet)
    advance_brief(revision=revision)
    look = TakenLook.objects.get()
    gone = look.document["evidence"][0]
    Trial.objects.filter(manifest_digest=gone).update(manifest_digest="")
    with pytest.raises(ValueError, match=f"has no trial of the manifests {gone}"):
        content_again(look=look)


@pytest.mark.django_db
def test_a_look_that_comes_late_judges_its_own_pairs_alone(revision: BriefRevision) -> None:
    """Nobody looked before all six pairs were complete: what a look says doesn't depend on when it is taken."""
    play(revision, helps_when_quiet, spread=0.002)
    look, verdict = TakenLook.objects.get(), revision.verdicts.get()
    assert (look.result, verdict.result) == ("PASS", "PASS")
    assert Boot.objects.filter(campaign__purpose="held-out", state="finished").count() == 12
    assert verdict.document["look"]["pairs"] == len(verdict.document["pairs"]) == 4
    assert content_by(revision=revision) == bytes(verdict.content)


@pytest.mark.django_db
@pytest.mark.parametrize("speed", [changes_nothing, harms_at_peak])
def test_a_candidate_that_must_not_pass_passes_at_no_look(revision: BriefRevision, speed: Speed) -> None:
    play(revision, speed)
    assert "PASS" not in {revision.verdicts.get().result, *TakenLook.objects.values_list("result", flat=True)}
