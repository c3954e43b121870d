"""How far the chain is verified: what is kept of it, what is found, and what pages say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions import history, ledger
from decisions.models import Account, ChainCheck, Event
from decisions.services import check_chain as service
from decisions.services.check_chain import begin_whole_walk, check_chain, lately_checked
from decisions.services.make_checkpoint import make_checkpoint
from decisions.tasks import verify_chain
from loadtests.canonical import digest
from tests.conftest import without_triggers

pytestmark = pytest.mark.django_db


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a history of ten events is a long one."""
    monkeypatch.setattr(service, "EVENTS_A_TURN", 3)


def append(count: int) -> None:
    with transaction.atomic():
        for number in range(count):
            ledger.append("tested", subject=f"subject {number}", actor="engineer", details={"number": number})


def change(sql: str, *parameters: str | int) -> None:
    with without_triggers(), connection.cursor() as cursor:
        cursor.execute(sql, parameters)


def rename(sequence: int) -> None:
    change("UPDATE decisions_event SET actor = 'nobody' WHERE sequence = %s", sequence)


def told(check: ChainCheck) -> tuple[int, str, int | None]:
    return check.verified_to, check.fault, check.fault_event


def test_it_is_verified_to_the_end_and_goes_on_from_there(short_turns: None) -> None:
    append(10)
    first = check_chain(seconds=9)
    assert told(first) == (10, "", None)
    assert first.head == Event.objects.get(sequence=10).hash
    assert first.whole_at is not None
    append(4)
    second = check_chain(seconds=9)
    assert told(second) == (14, "", None)
    assert second.whole_at == first.whole_at


def test_a_turn_is_kept_and_whoever_comes_next_goes_on(short_turns: None) -> None:
    append(10)
    for walked in (3, 6, 9):
        check = check_chain(seconds=0)
        assert (check.walked_to, check.verified_to, check.whole_at) == (walked, 0, None)
    check = check_chain(seconds=0)
    assert (check.walk_began_at, told(check)) == (None, (10, "", None))


def test_a_change_behind_it_is_found_by_the_walk_from_the_first_on(short_turns: None) -> None:
    append(10)
    check_chain(seconds=9)
    rename(4)
    assert told(check_chain(seconds=9)) == (10, "", None)
    begin_whole_walk()
    found = check_chain(seconds=9)
    assert told(found) == (10, "broken at event 4: its columns actor differ from its bytes", 4)
    # It stands until a whole walk finds none, whatever follows.
    append(2)
    assert told(check_chain(seconds=9)) == told(found)
    change("UPDATE decisions_event SET actor = 'engineer' WHERE sequence = 4")
    begin_whole_walk()
    assert told(check_chain(seconds=9)) == (12, "", None)


def test_a_walk_is_due_after_a_day(short_turns: None) -> None:
    append(10)
    check_chain(seconds=9)
    rename(4)
    ChainCheck.objects.update(whole_at=timezone.now() - timedelta(hours=25))
    assert check_chain(seconds=9).fault_event == 4


def test_a_new_event_that_doesn_t_hold_is_found_at_once(short_turns: None) -> None:
    append(10)
    check_chain(seconds=9)
    append(3)
    rename(12)
    assert told(check_chain(seconds=9)) == (10, "broken at event 12: its columns actor differ from its bytes", 12)


@pytest.mark.parametrize("whole", [True, False])
def test_an_end_that_was_cut_off_is_found(short_turns: None, whole: bool) -> None:
    append(10)
    check_chain(seconds=9)
    change("DELETE FROM decisions_event WHERE sequence > 8")
    if whole:
        begin_whole_walk()
    assert told(check_chain(seconds=9)) == (10, "broken at event 10: it is gone, and was verified before", 10)


def test_a_chain_that_was_written_anew_is_found_by_what_was_verified_before(short_turns: None) -> None:
    append(10)
    check_chain(seconds=9)
    change("DELETE FROM decisions_event WHERE sequence > 4")
    append(9)
    assert ledger.verify().broken is None
    begin_whole_walk()
    assert check_chain(seconds=9).fault == "broken at event 10: it is another one than was verified before"


def test_checkpoints_are_held_against_it(short_turns: None) -> None:
    append(5)
    make_checkpoint()
    check = check_chain(seconds=9)
    assert (check.fault, check.checkpoint > 0) == ("", True)
    change("UPDATE decisions_checkpoint SET head = %s", "f" * 64)
    begin_whole_walk()
    fault = check_chain(seconds=9).fault
    assert fault.endswith("its columns differ from what was signed")
    assert fault.startswith("broken at the checkpoint over event ")


def test_a_short_history_is_walked_whole_each_time() -> None:
    append(4)
    check_chain(seconds=0)
    rename(2)
    assert check_chain(seconds=0).fault_event == 2


def test_the_background_task_verifies_and_a_page_only_where_nobody_lately_did() -> None:
    append(4)
    verify_chain()
    rename(2)
    assert lately_checked().fault == ""
    ChainCheck.objects.update(verified_at=timezone.now() - timedelta(minutes=2))
    assert lately_checked().fault_event == 2


def test_two_that_verify_at_once_leave_what_one_would(short_turns: None) -> None:
    append(10)
    slower = service.the_check()
    begin_whole_walk()
    slower.refresh_from_db()
    check_chain(seconds=0)
    service.walk(slower)
    assert service.the_check().walked_to == 3


def test_a_broken_chain_stands_on_every_audit_page(client: Client, auditor: Account) -> None:
    client.force_login(auditor)
    append(4)
    for address in (reverse("ledger"), reverse("ledger-event", args=[3])):
        assert "verified to <a" in client.get(address).content.decode()
    rename(2)
    ChainCheck.objects.update(verified_at=timezone.now() - timedelta(minutes=2))
    for address in (
        reverse("ledger"),
        reverse("ledger-event", args=[2]),
        reverse("ledger-event", args=[4]),
        reverse("ledger-verify"),
    ):
        page = client.get(address).content.decode()
        assert "The history is broken at event 2: its columns actor differ from its bytes." in page
        assert reverse("ledger-event", args=[2]) in page
    assert (
        "This event doesn’t hold: its columns actor" in client.get(reverse("ledger-event", args=[2])).content.decode()
    )


def test_the_button_walks_it_all_with_progress(
    client: Client, auditor: Account, short_turns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decisions.pages.ledger.TURN_S", 0)
    append(7)
    client.force_login(auditor)
    address = reverse("ledger-verify")
    before = Event.objects.count()
    page = client.post(address, follow=True).content.decode()
    assert "Verified 3 of 7 events" in page
    part: Any = client.post(address, {"on": "1"}, headers={"HX-Request": "true"}).content.decode()
    assert ("Verified 6 of 7 events" in part, "<html" in part) == (True, False)
    part = client.post(address, {"on": "1"}, headers={"HX-Request": "true"}).content.decode()
    assert ("verified to <a" in part, "progress" in part) == (True, False)
    assert Event.objects.count() == before


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b'{"details": 5}'])
def test_bytes_that_are_no_event_are_named_on_every_page(client: Client, auditor: Account, content: bytes) -> None:
    append(3)
    with without_triggers():
        Event.objects.filter(sequence=2).update(content=content, hash=digest(content))
    check = check_chain(seconds=9)
    assert check.fault_event == 2
    assert str(ledger.verify()).startswith("broken at event 2: its ")
    client.force_login(auditor)
    for address in (reverse("ledger"), reverse("ledger-event", args=[2])):
        assert "The history is broken at event 2" in client.get(address).content.decode()
    for form in ("csv", "jsonl"):
        answer: Any = client.post(reverse("ledger-export", args=[form]))
        assert b"subject 2" in b"".join(answer.streaming_content)


def test_one_that_is_slower_takes_back_no_fault(short_turns: None) -> None:
    append(10)
    check_chain(seconds=9)
    slower = service.the_check()
    rename(4)
    begin_whole_walk()
    assert check_chain(seconds=9).fault_event == 4
    service.follow(slower)
    assert service.the_check().fault_event == 4


def test_a_checkpoint_that_is_made_meanwhile_is_no_fault(short_turns: None, monkeypatch: pytest.MonkeyPatch) -> None:
    append(4)
    kept, went_on = history.faults, list[bool]()

    def between_two_reads(*read: Any) -> Any:
        if not went_on:
            went_on.append(True)
            append(1)
            make_checkpoint()
        return kept(*read)

    monkeypatch.setattr(history, "faults", between_two_reads)
    assert (check_chain(seconds=9).fault, went_on) == ("", [True])
