"""Where a person makes and revokes tokens, and the command that does the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions import ledger
from decisions.models import Account, ApiToken, Event
from decisions.services.make_token import make_token
from decisions.services.refused import Refused
from decisions.services.revoke_token import revoke_token
from loadtests.canonical import digest
from tests.conftest import PASSWORD

pytestmark = pytest.mark.django_db

TYPED = {"name": "the pipeline", "days": "30", "scopes": ["read", "submit"], "password": PASSWORD}


def made_on(client: Client, **changes: object) -> tuple[int, str]:
    answer = client.post(reverse("tokens"), TYPED | changes)
    return answer.status_code, answer.content.decode()


def test_a_token_is_shown_once_and_its_digest_kept(client: Client, engineer: Account) -> None:
    client.force_login(engineer)
    status, page = made_on(client)
    assert status == 200
    (secret,) = re.findall(r"dp_[\w-]{43}", page)
    token = ApiToken.objects.get()
    assert (token.digest, token.prefix, token.scopes) == (digest(secret.encode()), secret[:9], ["read", "submit"])
    assert timedelta(days=29) < token.expires_at - timezone.now() <= timedelta(days=30)
    again = client.get(reverse("tokens"))
    assert secret not in again.content.decode()
    assert token.prefix in again.content.decode()
    assert "no-store" in again["Cache-Control"]
    event = Event.objects.get(kind="token-made")
    assert (event.actor, event.subject, event.details["prefix"]) == ("engineer", "account engineer", token.prefix)
    assert secret not in bytes(event.content).decode()
    assert ledger.verify().broken is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": " "}, "Say what the token is for"),
        ({"name": "x" * 81}, "in at most 80 characters"),
        ({"scopes": []}, "Choose at least one scope of read, submit, worker"),
        ({"scopes": ["sign"]}, "There is no scope sign; there are read, submit, worker"),
        ({"days": "366"}, "A token lasts from 1 to 365 days, not 366"),
        ({"days": "9" * 30}, "A token lasts from 1 to 365 days"),
        ({"days": "x"}, "A token lasts from 1 to 365 days"),
    ],
)
def test_what_is_no_token_is_said(client: Client, engineer: Account, changes: dict[str, object], said: str) -> None:
    client.force_login(engineer)
    status, page = made_on(client, **changes)
    assert (status, said in page, ApiToken.objects.exists()) == (422, True, False)


def test_who_sees_and_ends_which(
    client: Client, engineer: Account, owner: Account, stranger: Account, account: Callable[..., Account]
) -> None:
    token = make_token(person=engineer, name="night runs", scopes=["read"], days=1, by="engineer").token
    for method in (client.get, client.post):
        assert method(reverse("tokens")).status_code == 302
    assert client.post(reverse("token-revoke"), {"token": token.pk}).status_code == 302
    client.force_login(stranger)
    assert client.get(reverse("tokens")).status_code == 403
    client.force_login(owner)
    assert "night runs" not in client.get(reverse("tokens")).content.decode()
    refused = client.post(reverse("token-revoke"), {"token": token.pk}, follow=True).content.decode()
    assert "Only its own person or someone in the group operator can revoke a token." in refused
    assert Event.objects.get(kind="token-revoke-refused").actor == "owner"
    token.refresh_from_db()
    assert token.revoked_at is None
    client.force_login(account("operator", "operator"))
    assert "night runs" in client.get(reverse("tokens")).content.decode()
    client.post(reverse("token-revoke"), {"token": token.pk})
    assert ApiToken.objects.exclude(revoked_at=None).get() == token
    assert Event.objects.get(kind="token-revoked").actor == "operator"
    for unknown in ("999", "x", ""):
        assert client.post(reverse("token-revoke"), {"token": unknown}).status_code == 404


def test_its_own_person_ends_it_once(engineer: Account) -> None:
    token = make_token(person=engineer, name="night runs", scopes=["read"], days=1, by="engineer").token
    revoke_token(token=token, by=engineer)
    with pytest.raises(Refused, match="has been revoked already"):
        revoke_token(token=token, by=engineer)


def test_nobody_makes_one_for_an_account_that_is_not_active(engineer: Account) -> None:
    engineer.is_active = False
    engineer.save()
    with pytest.raises(Refused, match="not active"):
        make_token(person=engineer, name="night runs", scopes=["read"], days=1, by="engineer")
    assert Event.objects.get(kind="token-make-refused").subject == "account engineer"


def test_the_command_makes_one(engineer: Account, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("make_token", "engineer", name="CI", scope=["submit", "read"], days=7)
    secret = capsys.readouterr().out.split()[0]
    token = ApiToken.objects.get(digest=digest(secret.encode()))
    assert (token.person, token.scopes) == (engineer, ["read", "submit"])
    assert Event.objects.get(kind="token-made").actor.endswith(" (make_token)")
    call_command("make_token", "engineer", name="CI")
    assert ApiToken.objects.latest("pk").scopes == ["read"]
    with pytest.raises(CommandError, match="there is no account nobody"):
        call_command("make_token", "nobody", name="CI")
    with pytest.raises(CommandError, match="a token lasts from 1 to 365 days, not 0"):
        call_command("make_token", "engineer", name="CI", days=0)
