"""Prompts are personal data: how long their text is kept, who deletes it, and what stays when it is gone."""

import errno
import html
import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions import ledger
from decisions.models import Account, Event, Route, Service
from decisions.services.cancel_brief import cancel_brief
from decisions.services.delete_expired_text import delete_expired_text
from decisions.services.delete_text import delete_text, delete_unless_measuring
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.set_privacy import set_privacy
from decisions.services.sign_decision import sign_decision
from decisions.tasks import delete_text_past_its_retention
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.store import EvidenceMissing, EvidenceStore
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.trial import prepared
from loadtests.models import TrafficPart, TrafficSet, Trial
from loadtests.services import delete_text as deleting
from loadtests.services.import_traffic import import_traffic
from loadtests.services.read_part import read_part
from loadtests.services.remove_unwanted import still_kept
from loadtests.services.sweep_evidence import sweep_evidence
from loadtests.traffic.rows import Row, rows_of
from tests.conftest import PASSWORD
from tests.support.play import play, started_brief

pytestmark = pytest.mark.django_db

REASON = "Asked for by a customer."


@pytest.fixture
def operator(account: Callable[..., Account]) -> Account:
    return account("operator", "operator")


@pytest.fixture
def store(settings: Any) -> EvidenceStore:
    return EvidenceStore(settings.EVIDENCE_DIR)


@pytest.fixture
def traffic(service: Service) -> TrafficSet:
    return imported(service)


def imported(service: Service, seed: int = 7, name: str = "demo") -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name=name, by="engineer", service=service.slug, seed=seed)


def rows_by_part(traffic: TrafficSet, store: EvidenceStore) -> dict[str, list[Row]]:
    return {part.kind: rows_of(store.get(part.digest)) for part in traffic.parts.all()}


def outlines(traffic: TrafficSet, store: EvidenceStore) -> dict[str, list[dict[str, Any]]]:
    return {
        part.kind: [json.loads(line) for line in store.get(part.outline_digest).splitlines()]
        for part in traffic.parts.all()
    }


# Deleting


def test_the_rows_go_and_an_outline_stays(traffic: TrafficSet, owner: Account, store: EvidenceStore) -> None:
    rows = rows_by_part(traffic, store)
    delete_text(traffic_set=traffic, by=owner, reason=REASON)
    assert traffic.text_deleted_at is not None
    assert (traffic.text_deleted_by, still_kept(traffic)) == ("owner", [])
    kept = outlines(traffic, store)
    for part in traffic.parts.all():
        with pytest.raises(EvidenceMissing):
            store.get(part.digest)
        assert len(kept[part.kind]) == part.rows
        for line, row in zip(kept[part.kind], rows[part.kind], strict=True):
            assert line == {
                "id": row.id,
                "conversation": row.conversation,
                "turn": row.turn,
                "arrival_s": row.arrival_s,
                "class": row.class_,
                "max_tokens": row.max_tokens,
                "sampling": row.sampling.model_dump(include={"temperature", "top_p", "seed"}),
                "prompt_characters": sum(len(message.content) for message in row.messages),
                "prompt_sha256": prepared(row, Endpoint("http://any", "any"))[1],
                "row_sha256": line["row_sha256"],
            }
    held_out = traffic.parts.get(kind="held-out")
    event = Event.objects.get(kind="traffic-text-deleted")
    assert (event.actor, event.subject) == ("owner", f"traffic set {traffic.pk}")
    assert event.details["reason"] == REASON
    assert event.details["parts"]["held-out"] == {
        "rows": held_out.digest,
        "outline": held_out.outline_digest,
        "shared": False,
    }
    with pytest.raises(Refused, match=r"deleted on .* by owner already"):
        delete_text(traffic_set=traffic, by=owner, reason=REASON)
    tuning = traffic.parts.get(kind="tuning")
    with pytest.raises(Refused, match=r"deleted on .* by owner: import fresh traffic"):
        read_part(part=tuning, purpose="tuning", brief_digest="c" * 64, reader="boot 1", actor="worker")


def test_an_outline_holds_no_word_of_a_prompt(traffic: TrafficSet, owner: Account, store: EvidenceStore) -> None:
    prompts = [
        message.content for rows in rows_by_part(traffic, store).values() for row in rows for message in row.messages
    ]
    delete_text(traffic_set=traffic, by=owner, reason=REASON)
    kept = b"".join(store.get(part.outline_digest) for part in traffic.parts.all()).decode()
    assert not [prompt for prompt in prompts if prompt in kept]


def test_a_decision_stands_and_is_verified_without_the_text(
    route: Route, engineer: Account, owner: Account, store: EvidenceStore
) -> None:
    revision = started_brief(route, engineer)
    assert revision.traffic_set
    play(revision)
    delete_text(traffic_set=revision.traffic_set, by=owner, reason=REASON)
    kept = outlines(revision.traffic_set, store)
    for trial in Trial.objects.select_related("boot__campaign__part"):
        lines = kept[trial.boot.campaign.part.kind]
        requests = json.loads(store.get(trial.plan_digest))["requests"]
        assert [(row, digest) for _, row, digest, *_ in requests] == [
            (row, lines[row]["row_sha256"]) for row in trial.segment["rows"]
        ]
    verdict = revision.verdicts.get()
    sign_decision(
        verdict=verdict,
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="approve",
        reason="The evidence settles it.",
    )
    assert ledger.verify().broken is None


def test_traffic_in_use_keeps_its_text(
    route: Route, engineer: Account, operator: Account, store: EvidenceStore
) -> None:
    revision = started_brief(route, engineer)
    traffic = revision.traffic_set
    assert traffic
    with pytest.raises(Refused, match="revision 1 is measuring on this traffic: cancel it, or wait for its verdict"):
        delete_text(traffic_set=traffic, by=operator, reason=REASON)
    with pytest.raises(Refused, match=r"noise-floor campaign .* on demo is queued: cancel it"):
        deleting.delete_text(traffic_set=traffic, by="operator", reason=REASON)
    assert all(store.has(part.digest) for part in traffic.parts.all())
    cancel_brief(revision=revision, by=engineer, reason="no longer wanted")
    delete_text(traffic_set=traffic, by=operator, reason=REASON)
    assert not any(store.has(part.digest) for part in traffic.parts.all())


def test_a_part_that_another_set_shares_stays_until_that_one_lets_go_too(
    traffic: TrafficSet, operator: Account, store: EvidenceStore
) -> None:
    part = traffic.parts.get(kind="tuning")
    other = TrafficSet.objects.create(name="other", digest="e" * 64, rows=part.rows, source="", created_by="engineer")
    TrafficPart.objects.create(set=other, kind="tuning", digest=part.digest, rows=part.rows)
    delete_text(traffic_set=traffic, by=operator, reason=REASON)
    assert Event.objects.get(kind="traffic-text-deleted").details["parts"]["tuning"]["shared"] is True
    assert store.has(part.digest)
    with pytest.raises(Refused, match="deleted on"):
        read_part(part=part, purpose="tuning", brief_digest="c" * 64, reader="boot 1", actor="worker")
    assert told_removed() == []
    delete_text(traffic_set=other, by=operator, reason=REASON)
    assert not store.has(part.digest)
    assert told_removed() == [f"traffic set {traffic.pk}", f"traffic set {other.pk}"]


def told_removed() -> list[str]:
    events = Event.objects.filter(kind="traffic-text-removed").order_by("pk")
    return [one.subject for one in events]


def test_lengths_have_no_text_to_delete(traffic: TrafficSet, operator: Account) -> None:
    traffic.imported = {"acceptance": {"usable": False, "why": "lengths"}}
    traffic.save()
    with pytest.raises(Refused, match="demo holds lengths and no text: there is nothing to delete"):
        delete_text(traffic_set=traffic, by=operator, reason=REASON)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_crash_before_a_file_is_removed_is_made_good_by_the_next_sweep(
    traffic: TrafficSet, operator: Account, store: EvidenceStore, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    forget, gone = EvidenceStore.forget, list[str]()

    def crashing(self: EvidenceStore, wanted: str) -> None:
        if len(gone) == after:
            raise KeyboardInterrupt
        forget(self, wanted)
        gone.append(wanted)

    monkeypatch.setattr(EvidenceStore, "forget", crashing)
    with pytest.raises(KeyboardInterrupt) if after < 3 else nullcontext():
        delete_text(traffic_set=traffic, by=operator, reason=REASON)
    traffic.refresh_from_db()
    assert traffic.text_deleted_by == "operator"
    assert len(still_kept(traffic)) == 3 - after
    assert Event.objects.filter(kind="traffic-text-removed").exists() == (after == 3)
    monkeypatch.setattr(EvidenceStore, "forget", forget)
    sweep_evidence()
    assert still_kept(traffic) == []
    assert Event.objects.filter(kind="traffic-text-removed").count() == 1
    assert {kind: len(lines) for kind, lines in outlines(traffic, store).items()} == {
        part.kind: part.rows for part in traffic.parts.all()
    }
    assert not any(store.has(part.digest) for part in traffic.parts.all())


def test_rows_that_are_damaged_are_not_outlined_and_not_removed(
    traffic: TrafficSet, operator: Account, store: EvidenceStore
) -> None:
    path = store.path(traffic.parts.get(kind="tuning").digest)
    path.chmod(0o644)
    path.write_bytes(b"{}\n")
    with pytest.raises(Refused, match=r"the rows of demo / tuning can't be outlined: evidence .* is damaged"):
        delete_text(traffic_set=traffic, by=operator, reason=REASON)
    assert store.has(traffic.parts.get(kind="held-out").digest)


def failing(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_takes_no_outline_is_named_and_nothing_is_deleted(
    client: Client, traffic: TrafficSet, operator: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EvidenceStore, "put_file", failing)
    client.force_login(operator)
    response = client.post(reverse("traffic-delete-text", args=[traffic.pk]), {"sure": "yes", "reason": REASON})
    assert response.status_code == 422
    refusal = "can't be outlined: the disk failed, No space left on device"
    assert refusal in html.unescape(response.content.decode()).replace("\u2019", "'")
    traffic.refresh_from_db()
    assert traffic.text_deleted_at is None


def test_a_disk_that_gives_no_row_up_is_named_and_tried_again(
    client: Client, traffic: TrafficSet, operator: Account, store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(operator)
    with monkeypatch.context() as patched:
        patched.setattr(EvidenceStore, "forget", failing)
        said = {"sure": "yes", "reason": REASON}
        response = client.post(reverse("traffic-delete-text", args=[traffic.pk]), said, follow=True)
    assert "still lies in the evidence store: the disk failed, No space left on device" in response.content.decode()
    traffic.refresh_from_db()
    assert len(still_kept(traffic)) == 3
    assert all(store.has(part.digest) for part in traffic.parts.all())
    sweep_evidence()
    assert still_kept(traffic) == []
    assert not any(store.has(part.digest) for part in traffic.parts.all())


@pytest.mark.parametrize("who", ["engineer", "second_owner", "auditor", "stranger"])
def test_others_may_not_delete(traffic: TrafficSet, request: pytest.FixtureRequest, service: Service, who: str) -> None:
    person = request.getfixturevalue(who)
    service.owners.remove(person)
    with pytest.raises(Refused, match="Only an owner of this service or someone in the group operator"):
        delete_text(traffic_set=traffic, by=person, reason=REASON)
    assert Event.objects.get(kind="traffic-text-delete-refused").actor == who


def test_traffic_of_no_service_is_for_operators(traffic: TrafficSet, owner: Account, operator: Account) -> None:
    TrafficSet.objects.update(service="")
    traffic.refresh_from_db()
    with pytest.raises(Refused, match="someone in the group operator"):
        delete_text(traffic_set=traffic, by=owner, reason=REASON)
    with pytest.raises(Refused, match="at least 10 characters"):
        delete_text(traffic_set=traffic, by=operator, reason="why not")
    delete_text(traffic_set=traffic, by=operator, reason=REASON)


# Retention


def aged(traffic: TrafficSet, days: float) -> TrafficSet:
    TrafficSet.objects.filter(pk=traffic.pk).update(created_at=timezone.now() - timedelta(days=days))
    return traffic


def deleted_by(traffic: TrafficSet) -> str:
    traffic.refresh_from_db()
    return traffic.text_deleted_by


def test_text_is_deleted_when_its_retention_is_past_and_not_before(service: Service, operator: Account) -> None:
    old, young = aged(imported(service, seed=7), 30.1), aged(imported(service, seed=8), 29.9)
    keeps = Service.objects.create(slug="keeps", name="Keeps", purpose="Keeps all", target="m", pool="cpu")
    other = aged(imported(keeps, seed=9), 4000)
    delete_expired_text()
    assert not Event.objects.filter(kind="traffic-text-deleted").exists()
    set_privacy(service=service, retention_days=30, redactions=[], by=operator)
    delete_text_past_its_retention()
    delete_text_past_its_retention()
    assert [deleted_by(one) for one in (old, young, other)] == ["draftproof", "", ""]
    assert Event.objects.get(kind="traffic-text-deleted").details["reason"] == "retention of 30 days"


def test_a_set_that_fails_or_is_in_use_does_not_keep_the_others(
    service: Service, route: Route, engineer: Account, operator: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_privacy(service=service, retention_days=1, redactions=[], by=operator)
    measured = started_brief(route, engineer).traffic_set
    assert measured
    fails, last = imported(service, seed=8), imported(service, seed=9)
    for one in (measured, fails, last):
        aged(one, 3)

    def failing_once(whole: list[TrafficSet], **options: Any) -> None:
        if whole == [fails]:
            raise OSError("the disk failed")
        delete_unless_measuring(whole, **options)

    monkeypatch.setattr("decisions.services.delete_expired_text.delete_unless_measuring", failing_once)
    delete_expired_text()
    assert [deleted_by(one) for one in (measured, fails, last)] == ["", "", "draftproof"]


def test_lengths_are_passed_over(service: Service, operator: Account, caplog: pytest.LogCaptureFixture) -> None:
    set_privacy(service=service, retention_days=1, redactions=[], by=operator)
    traffic = aged(imported(service), 3)
    TrafficSet.objects.filter(pk=traffic.pk).update(imported={"acceptance": {"usable": False, "why": "lengths"}})
    delete_expired_text()
    assert (deleted_by(traffic), caplog.records) == ("", [])


# What a service says


def test_a_change_is_one_event_with_what_was_and_is(service: Service, owner: Account) -> None:
    redactions = [{"pattern": r"\S+@\S+", "replacement": "[mail]"}]
    set_privacy(service=service, retention_days=90, redactions=redactions, by=owner)
    set_privacy(service=service, retention_days=90, redactions=redactions, by=owner)
    assert (service.retention_days, service.redactions) == (90, redactions)
    assert Event.objects.get(kind="privacy-set").details == {
        "before": {"retention_days": None, "redactions": []},
        "after": {"retention_days": 90, "redactions": redactions},
    }


@pytest.mark.parametrize(
    ("days", "patterns", "said"),
    [
        (0, [], "retention is 1 to 36,500 days, or empty: 0 is neither"),
        (36_501, [], "36501 is neither"),
        (None, [("ok", ""), ("(a", "")], r"line 2: '\(a' is no regular expression: missing \)"),
        (None, [("a" * 501, "")], "line 1: longer than 500 characters"),
        (None, [("a", "")] * 51, "51 regular expressions: 50 are the most"),
    ],
)
def test_what_cannot_be_used_is_refused(
    service: Service, owner: Account, days: int | None, patterns: list[tuple[str, str]], said: str
) -> None:
    redactions = [{"pattern": pattern, "replacement": replacement} for pattern, replacement in patterns]
    with pytest.raises(Refused, match=said):
        set_privacy(service=service, retention_days=days, redactions=redactions, by=owner)
    assert not Event.objects.exists()


def test_others_may_not_say_how_text_is_kept(service: Service, engineer: Account) -> None:
    with pytest.raises(Refused, match="Only an owner of this service"):
        set_privacy(service=service, retention_days=1, redactions=[], by=engineer)
    assert Event.objects.get().kind == "privacy-refused"


# The commands


def test_an_operator_says_it_all_in_the_shell(
    traffic: TrafficSet, service: Service, operator: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("set_privacy", service.slug, by="operator", retention_days=90, redact=[r"\d{5,}=><number>"])
    assert capsys.readouterr().out == "service support-assistant: text is kept 90 days, redactions: 1\n"
    service.refresh_from_db()
    assert service.redactions == [{"pattern": r"\d{5,}", "replacement": "<number>"}]
    call_command("delete_text", str(traffic.pk), by="operator", reason=REASON)
    assert deleted_by(traffic) == "operator"


@pytest.mark.parametrize(
    ("command", "arguments", "options", "said"),
    [
        ("delete_text", ["4711"], {"by": "operator", "reason": REASON}, "there is no traffic set 4711"),
        ("set_privacy", ["none"], {"by": "operator"}, "there is no service none"),
        ("set_privacy", ["support-assistant"], {"by": "nobody"}, "there is no account nobody"),
        ("set_privacy", ["support-assistant"], {"by": "operator", "redact": ["("]}, "no regular expression"),
    ],
)
def test_the_shell_says_what_is_wrong(
    service: Service, operator: Account, command: str, arguments: list[str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(CommandError, match=said):
        call_command(command, *arguments, **options)
