import json
from datetime import UTC, datetime

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from decisions import ledger
from decisions.models import Event
from loadtests.canonical import canonical, digest

pytestmark = pytest.mark.django_db


def append(count: int) -> list[Event]:
    with transaction.atomic():
        return [
            ledger.append("tested", subject=f"subject {number}", actor="engineer", details={"number": number})
            for number in range(count)
        ]


def drop_triggers() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ALTER TABLE decisions_event DISABLE TRIGGER USER")
            return
        cursor.execute("DROP TRIGGER ledger_no_update")
        cursor.execute("DROP TRIGGER ledger_no_delete")


def execute(sql: str, *parameters: str | bytes) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


def test_events_follow_each_other() -> None:
    first, second = append(2)
    assert (first.sequence, first.previous) == (1, ledger.GENESIS)
    assert (second.sequence, second.previous) == (2, first.hash)
    stated = json.loads(bytes(second.content))
    assert stated["details"] == {"number": 1}
    assert stated["at"] == ledger.timestamp(second.at)
    assert ledger.verify() == ledger.Verified(2, None)


def test_a_time_is_written_in_utc_to_the_microsecond() -> None:
    assert ledger.timestamp(datetime(2026, 11, 29, 8, 5, tzinfo=UTC)) == "2026-11-29T08:05:00.000000Z"


@pytest.mark.parametrize("statement", ["UPDATE decisions_event SET actor = 'nobody'", "DELETE FROM decisions_event"])
def test_the_database_refuses_to_change_the_ledger(statement: str) -> None:
    append(2)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        execute(statement)
    assert ledger.verify() == ledger.Verified(2, None)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("actor", "nobody", "its columns actor differ from its bytes"),
        ("content", b"{}", "its bytes do not give its hash"),
        ("hash", "f" * 64, "its bytes do not give its hash"),
    ],
)
def test_a_row_edited_past_the_triggers_is_named(column: str, value: str | bytes, reason: str) -> None:
    append(3)
    drop_triggers()
    execute(f"UPDATE decisions_event SET {column} = %s WHERE sequence = 2", value)
    assert str(ledger.verify()) == f"broken at event 2: {reason}"


def test_a_missing_row_is_named() -> None:
    append(3)
    drop_triggers()
    execute("DELETE FROM decisions_event WHERE sequence = 2")
    assert str(ledger.verify()) == "broken at event 3: event 2 is missing"


def test_a_rewritten_row_breaks_the_one_after_it() -> None:
    append(3)
    drop_triggers()
    event = Event.objects.get(sequence=2)
    stated = json.loads(bytes(event.content)) | {"actor": "nobody"}
    content = canonical(stated)
    execute(
        "UPDATE decisions_event SET actor = 'nobody', content = %s, hash = %s WHERE sequence = 2",
        content,
        digest(content),
    )
    assert str(ledger.verify()) == "broken at event 3: it does not follow the event before it"


def test_the_command_says_ok_or_names_the_broken_event(capsys: pytest.CaptureFixture[str]) -> None:
    append(2)
    call_command("verify_ledger")
    assert capsys.readouterr().out.startswith("ok 2 events, from event 1 of ")
    drop_triggers()
    execute("UPDATE decisions_event SET subject = 'other' WHERE sequence = 1")
    with pytest.raises(SystemExit) as ended:
        call_command("verify_ledger")
    assert ended.value.code == 1
    assert capsys.readouterr().out == "broken at event 1: its columns subject differ from its bytes\n"


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_a_transaction_is_refused() -> None:
    with pytest.raises(transaction.TransactionManagementError, match="in the transaction of its act"):
        ledger.append("tested", subject="subject", actor="engineer", details={})
    assert Event.objects.count() == 0
