"""What may not change or carry a decision: used traffic, late faults, other words, lost files, a dead fallback."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, transaction

from decisions.models import Account, BriefRevision, Event, Release, Route, Verdict
from decisions.services import advance_brief as advancing
from decisions.services.advance_brief import advance_brief
from decisions.services.create_brief import create_brief
from decisions.services.declare_fault import declare_fault
from decisions.services.edit_brief import edit_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.revise_brief import revise_brief
from decisions.services.sign_decision import sign_decision
from decisions.services.start_brief import start_brief
from loadtests.journal import act
from loadtests.models import Boot, Campaign
from loadtests.services.claim_boot import claim_boot
from tests.conftest import PASSWORD
from tests.support.play import helps_when_quiet, play, run, started_brief

pytestmark = pytest.mark.django_db

REASON = "The evidence settles it."


@pytest.fixture
def revision(route: Route, engineer: Account) -> BriefRevision:
    return started_brief(route, engineer)


def last_verdict(revision: BriefRevision) -> Verdict:
    verdict = revision.verdicts.last()
    assert verdict is not None
    return verdict


def approve(revision: BriefRevision, by: Account) -> None:
    verdict = last_verdict(revision)
    assert verdict.result == "PASS"
    sign_decision(verdict=verdict, by=by, credentials=Credentials(PASSWORD), meaning="approve", reason=REASON)


def refused_approval(revision: BriefRevision, by: Account) -> str:
    with pytest.raises(Refused) as refusal:
        approve(revision, by)
    assert Event.objects.filter(kind="sign-refused").latest("sequence").details["reason"] == refusal.value.sentence
    assert not Release.objects.filter(revision=revision).exists()
    return refusal.value.sentence


def play_until(revision: BriefRevision, purpose: str) -> Boot:
    """Plays until a boot of this purpose has finished, and returns it."""
    draw = random.Random(1)
    while True:
        boot = claim_boot(pool="cpu", worker="player", host="host")
        if boot is None:
            advance_brief(revision=revision)
            continue
        run(boot, helps_when_quiet, 1 + draw.gauss(0, 0.003), draw)
        if boot.campaign.purpose == purpose:
            boot.refresh_from_db()
            return boot


def test_traffic_that_was_read_before_cannot_carry_an_approval(
    revision: BriefRevision, route: Route, engineer: Account, owner: Account
) -> None:
    play(revision)
    sign_decision(
        verdict=last_verdict(revision),
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="request-changes",
        reason=REASON,
    )
    again = revise_brief(revision=revision, by=engineer)
    freeze_brief(revision=again, by=engineer)
    start_brief(revision=again, by=engineer)
    play(again)
    assert "only unused traffic can carry an approval" in refused_approval(again, owner)


def test_a_deleted_file_of_any_stage_is_noticed(revision: BriefRevision, owner: Account, settings: Any) -> None:
    play(revision)
    trial = Boot.objects.filter(campaign__purpose="tuning").earliest("pk").trials.get(position=0)
    shelf = Path(settings.EVIDENCE_DIR) / "sha256" / trial.records_digest[:2]
    shutil.rmtree(shelf)
    assert "evidence is missing or damaged" in refused_approval(revision, owner)


def test_a_fallback_that_died_cannot_carry_an_approval(revision: BriefRevision, owner: Account) -> None:
    play(revision)
    Boot.objects.filter(campaign__purpose="fallback").update(died=True)
    assert "did not survive its test at peak" in refused_approval(revision, owner)


def test_evidence_that_changed_after_the_verdict_cannot_carry_an_approval(
    revision: BriefRevision, owner: Account
) -> None:
    play(revision)
    Campaign.objects.filter(purpose="held-out").update(state="running")
    assert "no longer what the verdict was computed from" in refused_approval(revision, owner)


def test_whoever_had_a_hand_cannot_sign(route: Route, owner: Account, second_owner: Account, engineer: Account) -> None:
    """The one who froze, the one who declared a fault, and the one whose words a colleague took over."""
    owner.groups.add(Group.objects.get(name="engineer"))
    first = started_brief(route, engineer)
    boot = play_until(first, "noise-floor")
    declare_fault(boot=boot, by=owner, reason="The host was rebooted for maintenance")
    play(first)
    assert "started its runs" in refused_approval(first, owner)

    theirs = create_brief(route=route, source=first.source, by=engineer)
    freeze_brief(revision=theirs, by=owner)
    assert owner in theirs.editors.all()
    copied = revise_brief(revision=theirs, by=owner)
    assert set(copied.editors.all()) == {owner, engineer}


def test_a_fault_cannot_be_declared_where_something_rests_on_the_boot(
    revision: BriefRevision, engineer: Account
) -> None:
    play_until(revision, "held-out")
    tuned = Boot.objects.filter(campaign__purpose="tuning", state="finished").earliest("pk")
    with pytest.raises(Refused, match="the nomination rests on this boot"):
        declare_fault(boot=tuned, by=engineer, reason="Too late for this one")


def test_a_fault_beyond_the_attempts_is_refused_and_destroys_nothing(
    revision: BriefRevision, engineer: Account
) -> None:
    boot = play_until(revision, "noise-floor")
    Campaign.objects.update(max_reattempts=0)
    boot.campaign.refresh_from_db()
    with pytest.raises(Refused, match="they are used up"):
        declare_fault(boot=boot, by=engineer, reason="The host was rebooted for maintenance")
    boot.refresh_from_db()
    assert (boot.state, boot.campaign.state) == ("finished", "running")


def test_what_is_frozen_is_what_was_read(route: Route, engineer: Account) -> None:
    draft = create_brief(route=route, source=started_brief(route, engineer).source, by=engineer)
    theirs = BriefRevision.objects.get(pk=draft.pk)
    changed = json.loads(draft.source) | {"release_days": 7}
    edit_brief(revision=theirs, source=json.dumps(changed), by=engineer)
    with pytest.raises(Refused, match="has changed meanwhile"):
        freeze_brief(revision=draft, by=engineer)
    draft.refresh_from_db()
    assert draft.state == "draft"


@pytest.mark.parametrize("error", [RuntimeError("out of ideas"), KeyError("level"), ZeroDivisionError()])
def test_a_stage_that_fails_halts_the_brief_and_says_why(
    revision: BriefRevision, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(advancing, "step", fail)
    advance_brief(revision=revision)
    assert revision.halted == (str(error) or type(error).__name__)
    assert Event.objects.get(kind="brief-halted").details["reason"] == revision.halted


def test_both_arms_of_a_pair_run_on_one_host(revision: BriefRevision) -> None:
    first = claim_boot(pool="cpu", worker="one", host="host-1")
    assert first is not None
    run(first, helps_when_quiet, 1.0, random.Random(1))
    assert claim_boot(pool="cpu", worker="two", host="host-2") is None
    second = claim_boot(pool="cpu", worker="one", host="host-1")
    assert second is not None
    assert second.pair == first.pair


def test_replacing_a_ledger_row_is_refused(revision: BriefRevision) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("REPLACE is SQLite's")
    replace = (
        "INSERT OR REPLACE INTO decisions_event (sequence, kind, actor, subject, at, content, previous, hash) "
        "SELECT sequence, kind, 'nobody', subject, at, content, previous, hash FROM decisions_event WHERE sequence = 1"
    )
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(replace)


def test_acts_may_lie_within_each_other() -> None:
    with act(), act():
        pass
