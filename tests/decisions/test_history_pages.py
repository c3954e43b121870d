"""The history as auditors read it: filtered, a page at a time, an event by itself, and as a file."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as property_settings
from hypothesis import strategies as st

from decisions import ledger
from decisions.models import Account, Brief, BriefRevision, Event, Route
from decisions.rules.history import Filter
from decisions.selectors.events import EventPage, distinct, event_actors, events, page_of_events
from decisions.services.add_route import add_route
from loadtests.canonical import digest
from loadtests.models import TrafficSet
from tests.conftest import without_triggers

pytestmark = pytest.mark.django_db

Cast = Callable[..., Account]


def add(kind: str = "tested", subject: str = "subject", actor: str = "engineer", **details: object) -> Event:
    with transaction.atomic():
        return ledger.append(kind, subject=subject, actor=actor, details=details)


@pytest.fixture
def revision(route: Route, engineer: Account) -> BriefRevision:
    brief = Brief.objects.create(route=route, title="Prompt lookup for chat")
    return BriefRevision.objects.create(brief=brief, number=2, source="", author=engineer, state="in-review")


def subject_of(revision: BriefRevision) -> str:
    return f"brief {revision.brief_id} revision {revision.number}"


def numbers(**asked: str) -> list[int]:
    return sorted(events(Filter(**asked)).values_list("sequence", flat=True))


def page_of(client: Client, **asked: str | int) -> str:
    return client.get(reverse("ledger"), asked).content.decode()


def rows_in(page: str) -> list[int]:
    return [int(one) for one in re.findall(r'<th scope="row"><a href="/history/(\d+)/"', page)]


# Who may


def every_page(revision: BriefRevision) -> list[tuple[str, str]]:
    return [
        ("get", reverse("ledger")),
        ("get", reverse("ledger-verify")),
        ("post", reverse("ledger-verify")),
        ("get", reverse("ledger-event", args=[1])),
        ("get", reverse("ledger-event-bytes", args=[1])),
        ("post", reverse("ledger-export", args=["csv"])),
        ("post", reverse("ledger-export", args=["jsonl"])),
        ("get", reverse("brief-could-sign", args=[revision.brief_id, revision.number])),
    ]


def test_every_page_sends_someone_unknown_to_sign_in(client: Client, revision: BriefRevision) -> None:
    add()
    for method, address in every_page(revision):
        answer = getattr(client, method)(address)
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/sign-in/"), address


@pytest.mark.parametrize("role", [None, "operator"])
def test_every_page_refuses_whoever_may_not_read_the_history(
    client: Client, account: Cast, revision: BriefRevision, role: str | None
) -> None:
    add()
    client.force_login(account("somebody", *filter(None, [role])))
    for method, address in every_page(revision):
        assert getattr(client, method)(address).status_code == 403, address
    assert not Event.objects.filter(kind="history-exported").exists()


@pytest.mark.parametrize("role", ["auditor", "owner", "engineer"])
def test_every_page_opens_for_the_right_people(
    client: Client, account: Cast, revision: BriefRevision, role: str
) -> None:
    add()
    client.force_login(account("somebody", role))
    for method, address in every_page(revision):
        answer = getattr(client, method)(address, follow=True)
        assert answer.status_code == 200, address


# Where an event belongs


def test_an_event_says_which_service_and_route_it_belongs_to(revision: BriefRevision, service: Any) -> None:
    traffic = TrafficSet.objects.create(name="set", digest="1" * 64, service=service.slug, **traffic_fields())
    places = {
        subject_of(revision): ("support-assistant", "chat"),
        "route chat": ("support-assistant", "chat"),
        "service support-assistant": ("support-assistant", None),
        f"traffic set {traffic.pk}": ("support-assistant", None),
        "traffic set 999999": (None, None),
        "brief 999999 revision 1": (None, None),
        f"boot {'9' * 30}": (None, None),
        "signing key": (None, None),
    }
    for subject, place in places.items():
        event = add(subject=subject)
        stated = json.loads(bytes(event.content))
        assert (event.service, event.route) == (stated.get("service"), stated.get("route")) == place, subject
    assert (add(subject="account ada", service="support-assistant").service, ledger.verify().broken) == (
        "support-assistant",
        None,
    )


def traffic_fields() -> dict[str, Any]:
    """Of a set, the fields that a row has to have."""
    required = (field for field in TrafficSet._meta.fields if not (field.null or field.has_default() or field.blank))
    values = {"CharField": "x", "PositiveIntegerField": 1, "IntegerField": 1, "FloatField": 1.0, "JSONField": {}}
    return {
        field.name: values[field.get_internal_type()]
        for field in required
        if field.name not in ("id", "name", "digest") and field.get_internal_type() in values
    }


@pytest.mark.parametrize("column", ["service", "route"])
def test_a_column_that_says_another_place_than_the_bytes_breaks_the_chain(revision: BriefRevision, column: str) -> None:
    event = add(subject=subject_of(revision))
    with without_triggers(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE decisions_event SET {column} = NULL WHERE sequence = %s", [event.sequence])
    assert str(ledger.verify()) == f"broken at event {event.sequence}: its columns {column} differ from its bytes"


def test_old_events_get_their_place_once_and_the_ledger_refuses_changes_again(revision: BriefRevision) -> None:
    for subject in (subject_of(revision), "route chat", "service support-assistant", "boot 999999", "signing key"):
        add(subject=subject)
    with without_triggers():
        Event.objects.update(service=None, route=None)
    migration = import_module("decisions.migrations.0012_history")
    with connection.cursor() as cursor:
        migration.write_places(apps, SimpleNamespace(connection=connection, execute=cursor.execute))
    assert list(Event.objects.order_by("sequence").values_list("service", "route")) == [
        ("support-assistant", "chat"),
        ("support-assistant", "chat"),
        ("support-assistant", None),
        (None, None),
        (None, None),
    ]
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Event.objects.update(service="other")


# Filters


def test_filters_hold_together_and_stand_in_the_address(
    client: Client, auditor: Account, owner: Account, revision: BriefRevision
) -> None:
    approved = add("brief-approve", subject_of(revision), "owner", state="approved")
    add("brief-approve", "brief 99 revision 1", "owner", state="approved")
    add("brief-judge", subject_of(revision), "draftproof", state="in-review")
    add("release-in-force", "route chat", "owner")
    client.force_login(auditor)
    asked = {"actor": "owner", "service": "support-assistant", "route": "chat", "state": "approved"}
    page = page_of(client, **asked)
    assert rows_in(page) == [approved.sequence]
    assert "1 event</b> matches" in page
    for name, value in asked.items():
        assert re.search(rf'id="f-{name}".*?<option selected>{value}</option>', page, re.DOTALL), name
    assert "?actor=owner&amp;service=support-assistant&amp;route=chat&amp;state=approved" in page
    assert rows_in(page_of(client, state="in-force")) == [4]
    assert rows_in(page_of(client, subject="brief 9")) == [2]
    assert rows_in(page_of(client, kind="brief-judge", state="approved")) == []


def test_a_day_is_one_of_utc_and_counted_whole(client: Client, auditor: Account) -> None:
    times = [
        "2026-03-01T23:59:59.999+00:00",
        "2026-03-02T00:00:00+00:00",
        "2026-03-02T23:59:59+00:00",
        "2026-03-03T00:00+00:00",
    ]
    for time in times:
        event = add()
        with without_triggers():
            Event.objects.filter(pk=event.pk).update(at=datetime.fromisoformat(time).astimezone(UTC))
    assert numbers(since="2026-03-02", until="2026-03-02") == [2, 3]
    assert numbers(since="2026-03-02") == [2, 3, 4]
    assert numbers(until="2026-03-02") == [1, 2, 3]
    client.force_login(auditor)
    page = page_of(client, since="2026-03-02", until="2026-03-02")
    assert "from 2026-03-02 00:00 to the end of 2026-03-02, UTC" in page


def test_what_isn_t_understood_finds_nothing_and_says_so(client: Client, auditor: Account) -> None:
    add()
    client.force_login(auditor)
    answer = client.get(reverse("ledger"), {"since": "yesterday"})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert ("Nothing was looked for" in page, rows_in(page)) == (True, [])
    assert client.post(f"{reverse('ledger-export', args=['csv'])}?since=yesterday").status_code == 404


def test_an_empty_history_and_a_filter_without_a_match_say_which(client: Client, auditor: Account) -> None:
    client.force_login(auditor)
    assert "The history is empty" in page_of(client)
    add()
    assert "No event matches" in page_of(client, actor="nobody")
    assert "and none of them lies here" in page_of(client, actor="engineer", before="1")


def test_what_there_is_to_choose_from_is_found_step_by_step(revision: BriefRevision) -> None:
    assert event_actors() == []
    for actor in ("owner", "engineer", "owner", "Ada", "öl"):
        add(actor=actor)
    assert sorted(event_actors()) == ["Ada", "engineer", "owner", "öl"]
    assert distinct("service") == []


# Paging


def pages(asked: Filter, size: int, start: EventPage, step: str) -> list[list[int]]:
    found, page = [], start
    while True:
        found.append([one.sequence for one in page.events])
        number = page.older if step == "older" else page.newer
        if number is None:
            return found
        page = page_of_events(asked, size=size, **{"before" if step == "older" else "after": number})


@property_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(1, 7), count=st.integers(0, 25), seed=st.integers(0, 999))
def test_pages_go_both_ways_over_every_event_once(db: None, size: int, count: int, seed: int) -> None:
    draw = random.Random(seed)
    with transaction.atomic():
        for _ in range(count):
            ledger.append("tested", subject="s", actor=draw.choice(["engineer", "owner"]), details={})
        for asked in (Filter(), Filter(actor="owner")):
            expected = list(events(asked).order_by("-sequence").values_list("sequence", flat=True))
            first = page_of_events(asked, size=size)
            older = pages(asked, size, first, "older")
            assert [one for page in older for one in page] == expected
            assert first.count == len(expected)
            last = page_of_events(asked, size=size, before=older[-2][-1]) if len(older) > 1 else first
            newer = pages(asked, size, last, "newer")
            assert [one for page in reversed(newer) for one in page] == expected
        transaction.set_rollback(True)


def test_an_event_that_is_added_meanwhile_moves_no_page(client: Client, auditor: Account) -> None:
    with transaction.atomic():
        for _ in range(120):
            ledger.append("tested", subject="s", actor="engineer", details={})
    client.force_login(auditor)
    first = page_of(client)
    assert (rows_in(first)[0], rows_in(first)[-1]) == (120, 71)
    add()
    second = page_of(client, before=71)
    assert rows_in(second) == list(range(70, 20, -1))
    assert ('rel="prev"' in second, 'rel="next"' in second) == (True, True)
    assert rows_in(page_of(client, after=70)) == list(range(120, 70, -1))
    assert 'rel="next"' not in page_of(client, before=21)


def test_a_page_asks_few_queries_however_long_the_history_is(
    client: Client, auditor: Account, django_assert_max_num_queries: Any
) -> None:
    with transaction.atomic():
        for number in range(200):
            ledger.append("tested", subject=f"boot {number}", actor=f"person {number % 7}", details={})
    client.force_login(auditor)
    client.get(reverse("ledger"))
    with django_assert_max_num_queries(18):
        page_of(client, actor="person 3", before=150)


@pytest.mark.parametrize("page", ["ledger", "ledger-event", "ledger-verify", "ledger-feeds"])
def test_the_navigation_says_that_this_is_the_history(client: Client, auditor: Account, page: str) -> None:
    add()
    client.force_login(auditor)
    shown = client.get(reverse(page, args=[1] if page == "ledger-event" else [])).content.decode()
    assert re.findall(r'aria-current="page">(\w+)', shown) == ["History"]


# One event


def test_an_event_shows_its_bytes_and_its_place(client: Client, auditor: Account, revision: BriefRevision) -> None:
    first, event, last = add(), add("brief-judge", subject_of(revision), "draftproof", state="in-review"), add()
    client.force_login(auditor)
    page = client.get(reverse("ledger-event", args=[event.sequence])).content.decode()
    for said in (event.hash, first.hash, "draftproof", "support-assistant", "Prompt lookup for chat, revision 2"):
        assert said in page
    keys = [revision.brief_id, revision.number]
    for address in (
        reverse("ledger-event", args=[first.sequence]),
        reverse("ledger-event", args=[last.sequence]),
        reverse("brief-changes", args=keys),
        f"{reverse('brief-could-sign', args=keys)}?event={event.sequence}",
    ):
        assert address in page
    raw = client.get(reverse("ledger-event-bytes", args=[event.sequence]))
    assert digest(raw.content) == event.hash
    assert client.get(reverse("ledger-event", args=[99])).status_code == 404
    assert client.get(f"/history/{'9' * 40}/").status_code == 404


# Who could sign


def test_who_could_sign_is_asked_of_an_event_or_a_time(
    client: Client, auditor: Account, account: Cast, revision: BriefRevision, owner: Account, second_owner: Account
) -> None:
    add("brief-created", subject_of(revision), "engineer")
    begun = add("brief-edited", subject_of(revision), "owner")
    both = {"roles": ["owner"], "services": ["support-assistant"]}
    dropped = add("roles-set", "account second_owner", "operator", before=both, after={"roles": [], "services": []})
    client.force_login(auditor)
    address = reverse("brief-could-sign", args=[revision.brief_id, revision.number])
    page = client.get(address, {"event": begun.sequence}).content.decode()
    assert "The revision was draft then: nobody was asked" in page
    assert re.search(r"second_owner</th>.*?</svg>yes", page, re.DOTALL)
    assert "not known before" in page
    assert "Someone who edited a brief can&#x27;t sign it." in page
    assert "A superuser can&#x27;t sign a decision." in page
    later = client.get(address, {"event": dropped.sequence}).content.decode()
    assert "second_owner</th>" not in later
    now = f"{timezone.now() + timedelta(minutes=1):%Y-%m-%dT%H:%M}"
    assert "second_owner</th>" not in client.get(address, {"at": now}).content.decode()
    wrong: tuple[tuple[dict[str, str], str], ...] = (
        ({"at": "noon"}, "is no time: write it as"),
        ({"at": "1999-01-01T00:00"}, "The history begins later than that"),
        ({"event": "999"}, "There is no event 999"),
    )
    for asked, said in wrong:
        answer = client.get(address, asked)
        assert (answer.status_code, said in answer.content.decode()) == (422, True), said
    assert client.get(reverse("brief-could-sign", args=[revision.brief_id, 99])).status_code == 404


# Exports


def exported(client: Client, form: str, **asked: str) -> bytes:
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    answer: Any = client.post(f"{reverse('ledger-export', args=[form])}?{query}")
    assert f".{form}" in answer["Content-Disposition"]
    return b"".join(answer.streaming_content)


def test_a_csv_holds_what_is_filtered_with_its_hashes_and_no_formula(client: Client, auditor: Account) -> None:
    add(actor="=cmd|' /C calc'!A0", subject="@SUM(A1)")
    add(actor="owner")
    add(actor="=cmd|' /C calc'!A0", subject="+1\t", reason='a "quoted", line\r\nand another')
    client.force_login(auditor)
    rows = list(csv.DictReader(io.StringIO(exported(client, "csv", subject="").decode(), newline="")))
    assert [row["sequence"] for row in rows] == ["1", "2", "3"]
    previous = ledger.GENESIS
    for row in rows:
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row.values())
        assert digest(row["content"].encode()) == row["hash"]
        assert row["previous"] == previous
        previous = row["hash"]
    assert rows[0]["actor"] == "'=cmd|' /C calc'!A0"
    event = Event.objects.get(kind="history-exported")
    assert (event.actor, event.subject) == ("auditor", "history")
    assert event.details == {"format": "csv", "filter": {}, "up_to": 3, "events": 3}


def test_jsonl_holds_the_stored_text_of_each(client: Client, auditor: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decisions.selectors.events.EVENTS_READ_AT_ONCE", 2)
    for actor in ("owner", "engineer", "owner", "owner", "owner"):
        add(actor=actor)
    client.force_login(auditor)
    lines = [json.loads(line) for line in exported(client, "jsonl", actor="owner").splitlines()]
    assert [line["sequence"] for line in lines] == [1, 3, 4, 5]
    for line in lines:
        assert digest(line["content"].encode()) == line["hash"]
        assert json.loads(line["content"])["actor"] == line["actor"] == "owner"
    assert Event.objects.get(kind="history-exported").details["filter"] == {"actor": "owner"}


def test_only_a_press_exports(client: Client, auditor: Account) -> None:
    client.force_login(auditor)
    assert client.get(reverse("ledger-export", args=["csv"])).status_code == 405
    assert client.post(reverse("ledger-export", args=["xlsx"])).status_code == 404
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(auditor)
    assert strict.post(reverse("ledger-export", args=["csv"])).status_code == 403
    assert not Event.objects.exists()


def test_a_route_s_own_event_belongs_to_its_service(account: Cast, service: Any) -> None:
    add_route(service=service, slug="batch", name="", purpose="", by=account("operator", "operator"))
    assert numbers(service="support-assistant") == [1]
