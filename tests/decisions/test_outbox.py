"""Messages are written with the event that they tell of, to the people and addresses that it is for.

The house is built once; every test's changes are rolled back.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from decisions import ledger
from decisions.models import Account, ChainCheck, Endpoint, Event, MailSwitch, Message, Release
from decisions.services.checkpoint_regularly import checkpoint_regularly
from decisions.services.reauthenticate import Credentials
from decisions.services.record_expiries import record_expiries
from decisions.services.record_trouble import record_broken_history
from decisions.services.refused import Refused
from decisions.services.revoke_release import revoke_release
from decisions.services.sign_decision import sign_decision
from decisions.services.withdraw_brief import withdraw_brief
from decisions.services.write_comment import write_comment
from loadtests.journal import act
from tests.conftest import PASSWORD
from tests.support.reviewed import Reviewed, build_reviewed

SECRET_WORDS = "My account number is 4711"


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[Reviewed, Path]:
    return build_reviewed(PASSWORD), module_evidence


@pytest.fixture
def case(built: tuple[Reviewed, Path], db: None, settings: Any) -> Reviewed:
    settings.EVIDENCE_DIR = built[1]
    settings.EMAIL_URL = "smtp://mail.house.example"
    cache.clear()
    for one in built[0].people.values():
        Account.objects.filter(pk=one.pk).update(email=f"{one.username}@house.example")
    return built[0]


def endpoint(case: Reviewed, **changes: Any) -> Endpoint:
    fields = {"service": case.service, "kind": "webhook", "name": "pipeline", "shown": "https://a.example/…"}
    return Endpoint.objects.create(**{**fields, "secret_set_at": timezone.now(), "created_by": "operator", **changes})


def mailed() -> set[str]:
    """To whom a mail waits."""
    return {one.person.username for one in Message.objects.exclude(person=None) if one.person}


def sign(case: Reviewed, who: str, meaning: str = "approve") -> None:
    sign_decision(
        verdict=case.verdict,
        by=case.people[who],
        credentials=Credentials(PASSWORD),
        meaning=meaning,
        reason="The evidence settles it.",
    )


def test_a_comment_is_told_to_the_others_without_its_words(case: Reviewed) -> None:
    write_comment(revision=case.revision, by=case.people["auditor"], text=SECRET_WORDS)
    assert mailed() == {"engineer", "owner", "second_owner", "third_owner", "superuser"}
    told = Message.objects.first()
    assert told is not None
    assert told.sentence == "auditor commented on “Prompt lookup for chat”, revision 1."
    assert told.path == reverse("brief-sign-off", args=[case.revision.brief_id, 1])
    assert (told.happening, told.kind, told.service) == ("said", "brief-commented", "support-assistant")
    assert told.event == Event.objects.latest("sequence").sequence
    assert SECRET_WORDS not in json.dumps(list(Message.objects.values()), default=str)


def test_an_approval_and_what_it_puts_in_force(case: Reviewed) -> None:
    own, house = endpoint(case), endpoint(case, service=None, name="operations")
    endpoint(case, name="old", disabled_at=timezone.now())
    sign(case, "owner")
    approved = Message.objects.filter(kind="brief-approve")
    assert {one.person.username for one in approved if one.person} == {
        "engineer",
        "second_owner",
        "third_owner",
        "superuser",
    }
    in_force = Message.objects.filter(kind="release-in-force")
    assert {one.person.username for one in in_force if one.person} == {"operator"}
    assert in_force[0].path == reverse("route", args=["support-assistant", "chat"])
    for told in (approved, in_force):
        assert {one.endpoint for one in told if one.endpoint} == {own, house}
    assert len({one.name for one in Message.objects.all()}) == Message.objects.count()


def test_what_is_rolled_back_is_told_nobody(case: Reviewed) -> None:
    with transaction.atomic():
        write_comment(revision=case.revision, by=case.people["auditor"], text="Soon gone")
        assert Message.objects.exists()
        transaction.set_rollback(True)
    assert not Message.objects.exists()


def test_a_refused_act_is_told_nobody(case: Reviewed) -> None:
    with pytest.raises(Refused):
        sign(case, "engineer")
    assert Event.objects.latest("sequence").kind == "sign-refused"
    assert not Message.objects.exists()


def test_whoever_switched_it_off_or_has_no_address_or_is_not_active_gets_no_mail(case: Reviewed) -> None:
    MailSwitch.objects.create(person=case.people["owner"], happening="said", on=False)
    MailSwitch.objects.create(person=case.people["engineer"], happening="decided", on=False)
    Account.objects.filter(username="second_owner").update(email="")
    Account.objects.filter(username="third_owner").update(is_active=False)
    write_comment(revision=case.revision, by=case.people["auditor"], text="Look at the peak")
    assert mailed() == {"engineer", "superuser"}


def test_whoever_has_no_role_any_more_gets_no_mail(case: Reviewed) -> None:
    case.people["engineer"].groups.clear()
    write_comment(revision=case.revision, by=case.people["auditor"], text="Look at the peak")
    assert mailed() == {"owner", "second_owner", "third_owner", "superuser"}


def test_where_no_mail_server_is_named_endpoints_alone_are_told(case: Reviewed, settings: Any) -> None:
    settings.EMAIL_URL = ""
    told = endpoint(case)
    write_comment(revision=case.revision, by=case.people["auditor"], text="Look at the peak")
    assert [(one.person, one.endpoint) for one in Message.objects.all()] == [(None, told)]


def test_another_service_is_told_nothing(case: Reviewed) -> None:
    other = endpoint(case, service=None)
    other.service = type(case.service).objects.create(
        slug="another", name="Another", purpose="Another", target="Another", pool="cpu"
    )
    other.save()
    write_comment(revision=case.revision, by=case.people["auditor"], text="Look at the peak")
    assert not Message.objects.filter(endpoint=other).exists()


def test_requests_withdrawals_and_what_falls_away(case: Reviewed) -> None:
    withdraw_brief(revision=case.revision, by=case.people["engineer"], reason="Another model comes soon")
    assert Message.objects.filter(kind="brief-withdraw").exists()
    assert mailed() == {"owner", "second_owner", "third_owner", "superuser"}


def test_a_verdict_waits_for_its_owners(case: Reviewed) -> None:
    revision = case.revision
    with act():
        details: dict[str, object] = {"verdict": "PASS", "request": 1}
        subject = f"brief {revision.brief_id} revision {revision.number}"
        ledger.append("brief-judge", subject=subject, actor="draftproof", details=details)
    assert mailed() == {"engineer", "owner", "second_owner", "third_owner", "superuser"}


def test_a_release_that_ends_is_told_before_once_and_when_it_has(
    case: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(case, "owner")
    release = Release.objects.get()
    record_expiries()
    assert not Message.objects.filter(kind="release-expires-soon").exists()
    for at in (release.expires_at - timedelta(days=13), release.expires_at - timedelta(days=12)):
        monkeypatch.setattr(timezone, "now", lambda at=at: at)
        record_expiries()
    event = Event.objects.get(kind="release-expires-soon")
    assert (event.subject, event.details["release"]) == ("route chat", release.pk)
    soon = Message.objects.filter(event=event.sequence)
    assert {one.person.username for one in soon if one.person} >= {"engineer", "owner", "operator"}
    monkeypatch.setattr(timezone, "now", lambda: release.expires_at + timedelta(minutes=1))
    record_expiries()
    assert Message.objects.filter(kind="release-expired").exists()
    assert ledger.verify().broken is None


def test_a_broken_glass_and_its_follow_up(case: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    case.ask_under(quorum=2)
    sign(case, "owner", "break-glass")
    assert not Message.objects.filter(kind="release-in-force").exists()
    assert set(Message.objects.values_list("happening", flat=True)) == {"glass"}
    release = Release.objects.get()
    monkeypatch.setattr(timezone, "now", lambda: release.expires_at - timedelta(hours=1))
    record_expiries()
    due = Message.objects.filter(kind="release-expires-soon")
    assert {one.happening for one in due} == {"glass"}
    assert "the owners have to decide" in due[0].sentence


def test_a_revoked_release(case: Reviewed) -> None:
    sign(case, "owner")
    Message.objects.all().delete()
    credentials = Credentials(PASSWORD)
    revoke_release(
        release=Release.objects.get(), by=case.people["owner"], credentials=credentials, reason="It went badly"
    )
    assert mailed() == {"engineer", "second_owner", "third_owner", "superuser", "operator"}
    assert "It went badly" not in {one.sentence for one in Message.objects.all()}


def test_a_finished_campaign_is_mailed_to_whoever_asked_for_it(case: Reviewed) -> None:
    campaign = case.revision.campaigns.filter(campaign__purpose="held-out").get().campaign
    MailSwitch.objects.create(person=case.people["engineer"], happening="stage", on=True)
    with act():
        ledger.append("campaign-done", subject=f"campaign {campaign.pk}", actor="reconciler", details={"reason": ""})
    assert mailed() == {"engineer"}
    assert Message.objects.get().sentence == (
        "A held-out campaign of “Prompt lookup for chat”, revision 1 has finished."
    )


@pytest.mark.parametrize("subject", ["brief 999999 revision 1", "campaign 999999", "endpoint 999999"])
def test_what_is_not_there_is_told_nobody(case: Reviewed, subject: str) -> None:
    with act():
        for kind in ("brief-approve", "campaign-done", "endpoint-given-up"):
            ledger.append(kind, subject=subject, actor="owner", details={})
    assert not Message.objects.exists()


def test_a_broken_history_is_told_once_a_day(case: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    record_broken_history()
    assert not Message.objects.exists()
    ChainCheck.objects.update_or_create(pk=1, defaults={"head": "", "fault": "broken at event 3: its bytes don't hold"})
    record_broken_history()
    record_broken_history()
    assert Event.objects.filter(kind="history-broken").count() == 1
    assert mailed() == {"operator", "auditor"}
    tomorrow = timezone.now() + timedelta(days=1, minutes=1)
    monkeypatch.setattr(timezone, "now", lambda: tomorrow)
    record_broken_history()
    assert Event.objects.filter(kind="history-broken").count() == 2


def test_a_checkpoint_that_could_not_be_sent(case: Reviewed, settings: Any, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("in the way")
    settings.CHECKPOINT_TO = tmp_path / "a-file" / "checkpoint.json"
    checkpoint_regularly()
    checkpoint_regularly()
    (event,) = Event.objects.filter(kind="checkpoint-failed")
    assert event.details["what"] == "written"
    assert mailed() == {"operator", "auditor"}
    assert Message.objects.first().sentence == "A checkpoint of the history could not be written."  # type: ignore[union-attr]


def test_a_request_that_expired(case: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    request = case.request
    monkeypatch.setattr(timezone, "now", lambda: request.expires_at + timedelta(minutes=1))
    record_expiries()
    assert {one.kind for one in Message.objects.all()} == {"request-expired"}
    assert "engineer" in mailed()
