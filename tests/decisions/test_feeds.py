"""Feeds of decisions and expiries, and the addresses that let programs read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import icalendar
import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions import ledger
from decisions.models import Account, Brief, BriefRevision, Event, FeedToken, Release, Route, SignatureRequest, Verdict
from decisions.models import Signature as SignatureRow
from decisions.rules.policy import DEFAULT
from decisions.services.make_feed_token import make_feed_token
from loadtests.canonical import digest
from loadtests.models import Configuration

pytestmark = pytest.mark.django_db

ATOM = "{http://www.w3.org/2005/Atom}"
Cast = Callable[..., Account]


def addresses(secret: str) -> list[str]:
    return [reverse(name, args=[secret]) for name in ("feed-decisions", "feed-expiries")]


@pytest.fixture
def secret(auditor: Account) -> str:
    return make_feed_token(person=auditor).secret


@pytest.fixture
def revision(route: Route, engineer: Account) -> BriefRevision:
    brief = Brief.objects.create(route=route, title="Prompt lookup; chat, <all>")
    return BriefRevision.objects.create(brief=brief, number=1, source="", author=engineer, state="in-review")


def decide(kind: str, subject: str, actor: str = "owner") -> None:
    with transaction.atomic():
        ledger.append(kind, subject=subject, actor=actor, details={"reason": "a secret reason"})


# The page


def test_who_makes_an_address(client: Client, auditor: Account, stranger: Account, account: Cast) -> None:
    page = reverse("ledger-feeds")
    for method in (client.get, client.post):
        answer = method(page)
        assert (answer.status_code, answer["Location"].split("?")[0]) == (302, "/sign-in/")
    for somebody in (stranger, account("operator", "operator")):
        client.force_login(somebody)
        assert (client.get(page).status_code, client.post(page).status_code) == (403, 403)
    assert not FeedToken.objects.exists()
    client.force_login(auditor)
    assert "You have no feed yet" in client.get(page).content.decode()
    made = client.post(page).content.decode()
    (atom,) = re.findall(r"http://testserver(/feeds/dpf_[\w-]{43}/decisions\.atom)", made)
    secret = atom.split("/")[2]
    token = FeedToken.objects.get()
    assert (token.person, token.digest, token.prefix) == (auditor, digest(secret.encode()), secret[:10])
    again = client.get(page)
    assert (secret in again.content.decode(), token.prefix in again.content.decode()) == (False, True)
    assert "no-store" in again["Cache-Control"]
    event = Event.objects.get(kind="feed-token-made")
    assert (event.actor, event.subject) == ("auditor", "account auditor")
    assert secret not in bytes(event.content).decode()


def test_a_new_address_ends_the_one_before_it(client: Client, auditor: Account, secret: str) -> None:
    newer = make_feed_token(person=auditor).secret
    assert [client.get(one).status_code for one in addresses(secret)] == [404, 404]
    assert [client.get(one).status_code for one in addresses(newer)] == [200, 200]
    assert Event.objects.filter(kind="feed-token-made").latest("sequence").details["replaces"] == [secret[:10]]


def test_who_revokes_it(client: Client, auditor: Account, owner: Account, account: Cast, secret: str) -> None:
    token, address = FeedToken.objects.get(), reverse("ledger-feed-revoke")
    assert client.post(address, {"token": token.pk})["Location"].startswith("/sign-in/")
    client.force_login(owner)
    refused = client.post(address, {"token": token.pk}, follow=True).content.decode()
    assert "Only its own person or someone in the group operator can revoke a token." in refused
    assert client.post(address, {"token": "999"}).status_code == 404
    assert client.get(addresses(secret)[0]).status_code == 200
    client.force_login(auditor)
    assert "answers nobody" in client.post(address, {"token": token.pk}, follow=True).content.decode()
    assert "has been revoked already" in client.post(address, {"token": token.pk}, follow=True).content.decode()
    assert [client.get(one).status_code for one in addresses(secret)] == [404, 404]
    assert [one.kind for one in Event.objects.filter(kind__startswith="feed-token-revoke").order_by("sequence")] == [
        "feed-token-revoke-refused",
        "feed-token-revoked",
    ]


def test_an_operator_who_reads_the_history_sees_everybody_s_and_ends_one(
    client: Client, account: Cast, auditor: Account, secret: str
) -> None:
    client.force_login(account("both", "operator", "auditor"))
    assert secret[:10] in client.get(reverse("ledger-feeds")).content.decode()
    client.post(reverse("ledger-feed-revoke"), {"token": FeedToken.objects.get().pk})
    assert client.get(addresses(secret)[0]).status_code == 404


# Who reads with it


def test_a_feed_answers_its_secret_alone(client: Client, secret: str) -> None:
    for wrong in ("dpf_unknown", secret[:-1], secret.upper(), "x" * 500):
        assert [client.get(one).status_code for one in addresses(wrong)] == [404, 404]
    for address in addresses(secret):
        answer = client.get(address)
        assert answer.status_code == 200
        assert "private" in answer["Cache-Control"]
        assert client.post(address).status_code == 405
    assert FeedToken.objects.get().last_used_at is not None


def test_it_ends_with_the_role_and_with_the_account(client: Client, auditor: Account, secret: str) -> None:
    auditor.groups.clear()
    assert client.get(addresses(secret)[0]).status_code == 404
    auditor.groups.create(name="reader")
    assert client.get(addresses(secret)[0]).status_code == 404


def test_it_ends_with_an_account_that_is_no_longer_active(client: Client, auditor: Account, secret: str) -> None:
    auditor.is_active = False
    auditor.save()
    assert client.get(addresses(secret)[1]).status_code == 404


# Atom


def test_an_empty_feed_is_one(client: Client, secret: str) -> None:
    feed = ElementTree.fromstring(client.get(addresses(secret)[0]).content)  # noqa: S314 - written by this house
    assert (feed.tag, feed.findall(f"{ATOM}entry")) == (f"{ATOM}feed", [])
    calendar: Any = icalendar.Calendar.from_ical(client.get(addresses(secret)[1]).content)
    assert (calendar["VERSION"], calendar.walk("VEVENT")) == ("2.0", [])


def test_decisions_are_an_atom_feed(client: Client, secret: str, revision: BriefRevision) -> None:
    subject = f"brief {revision.brief_id} revision 1"
    decide("brief-approve", subject)
    decide("brief-commented", subject)
    decide("release-revoked", "route chat")
    answer = client.get(addresses(secret)[0])
    assert answer["Content-Type"] == "application/atom+xml; charset=utf-8"
    feed = ElementTree.fromstring(answer.content)  # noqa: S314 - written by this house
    for name in ("id", "title", "updated"):
        assert feed.findtext(f"{ATOM}{name}"), name
    assert secret not in answer.content.decode()
    assert "a secret reason" not in answer.content.decode()
    entries = feed.findall(f"{ATOM}entry")
    for entry in entries:
        for name in ("id", "title", "updated", "author/{http://www.w3.org/2005/Atom}name"):
            assert entry.findtext(f"{ATOM}{name}"), name
    assert [entry.findtext(f"{ATOM}title") for entry in entries] == [
        "Revoked: route chat on support-assistant/chat",
        "Approved: Prompt lookup; chat, <all>, revision 1 on support-assistant/chat",
    ]
    assert len({entry.findtext(f"{ATOM}id") for entry in entries}) == 2
    event = Event.objects.get(kind="brief-approve")
    link = entries[1].find(f"{ATOM}link")
    assert link is not None
    assert link.attrib["href"] == f"http://testserver/history/{event.sequence}/"


# Calendar


def asked(revision: BriefRevision, **fields: Any) -> SignatureRequest:
    now = timezone.now().replace(microsecond=0)
    verdict = Verdict.objects.create(
        revision=revision,
        result="PASS",
        sentence="",
        content=b"{}",
        digest=digest(str(now).encode()),
        evidence_digest="",
    )
    return SignatureRequest.objects.create(
        revision=revision,
        verdict=verdict,
        policy_document=DEFAULT.document,
        policy_version=0,
        environment="production",
        bound="",
        opened_by="draftproof",
        opened_at=now,
        **{"expires_at": now + timedelta(days=14)} | fields,
    )


def released(request: SignatureRequest, owner: Account, meaning: str = "approve", **fields: Any) -> Release:
    now, revision = timezone.now().replace(microsecond=0), request.revision
    signature = SignatureRow.objects.create(
        revision=revision,
        verdict=request.verdict,
        request=request,
        signer=owner,
        signer_name="Owner",
        signer_username="owner",
        authentication="password",
        meaning=meaning,
        reason="a secret reason",
        statement=b"",
        digest="",
        bound="",
        signed_at=now,
    )
    engine = Configuration.objects.create(digest=digest(meaning.encode()), content=b"{}")
    return Release.objects.create(
        route=revision.brief.route,
        revision=revision,
        signature=signature,
        configuration=engine,
        fallback=engine,
        tested_range={},
        released_at=now,
        **{"expires_at": now + timedelta(days=90)} | fields,
    )


def entries(client: Client, secret: str) -> dict[str, Any]:
    answer = client.get(addresses(secret)[1])
    assert answer["Content-Type"] == "text/calendar; charset=utf-8"
    assert "a secret reason" not in answer.content.decode()
    calendar: Any = icalendar.Calendar.from_ical(answer.content)
    # What is read and written again is the same: nothing in it is out of form.
    assert icalendar.Calendar.from_ical(calendar.to_ical()) == calendar
    return {str(one["UID"]): one for one in calendar.walk("VEVENT")}


def test_what_expires_is_a_calendar(client: Client, secret: str, revision: BriefRevision, owner: Account) -> None:
    request = asked(revision)
    release = released(request, owner)
    found = entries(client, secret)
    assert set(found) == {f"release-{release.pk}@draftproof", f"request-{request.pk}@draftproof"}
    one = found[f"release-{release.pk}@draftproof"]
    assert one.decoded("DTSTART") == release.expires_at
    assert str(one["SUMMARY"]) == "Release on support-assistant/chat expires"
    assert "Prompt lookup; chat, <all>, revision 1." in str(one["DESCRIPTION"])
    assert str(one["URL"]) == "http://testserver/services/support-assistant/chat/"
    assert found[f"request-{request.pk}@draftproof"].decoded("DTSTART") == request.expires_at
    Release.objects.update(superseded_at=timezone.now())
    SignatureRequest.objects.update(closed_at=timezone.now())
    assert entries(client, secret) == {}


def test_a_broken_glass_asks_for_its_follow_up(
    client: Client, secret: str, revision: BriefRevision, owner: Account
) -> None:
    broken = timezone.now().replace(microsecond=0)
    request = asked(revision, glass_broken_at=broken)
    release = released(request, owner, "break-glass", expires_at=broken + timedelta(hours=72))
    found = entries(client, secret)
    assert set(found) == {f"release-{release.pk}@draftproof", f"follow-up-{request.pk}@draftproof"}
    follow_up = found[f"follow-up-{request.pk}@draftproof"]
    assert follow_up.decoded("DTSTART") == broken + timedelta(hours=72)
    assert str(follow_up["SUMMARY"]) == "Follow up on the broken glass on support-assistant/chat"


def test_a_title_that_xml_can_t_hold_ends_no_feed(
    client: Client, secret: str, revision: BriefRevision, owner: Account
) -> None:
    title = "a\x1bb\x0b\ufffec\r\nBEGIN:VEVENT\x85d"
    Brief.objects.filter(pk=revision.brief_id).update(title=title)
    revision.brief.refresh_from_db()
    decide("brief-approve", f"brief {revision.brief_id} revision 1")
    feed = ElementTree.fromstring(client.get(addresses(secret)[0]).content)  # noqa: S314 - written by this house
    plain = "a\ufffdb \ufffdc BEGIN:VEVENT d, revision 1"
    assert feed.findtext(f"{ATOM}entry/{ATOM}title") == f"Approved: {plain} on support-assistant/chat"
    released(asked(revision), owner)
    for one in entries(client, secret).values():
        assert str(one["DESCRIPTION"]).startswith(plain)
