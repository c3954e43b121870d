"""Signing in, second factors, sessions, and what operators do with accounts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from allauth.usersessions.models import UserSession
from django.core.cache import cache, caches
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from decisions import ledger
from decisions.models import Account, ApiToken, Event, FreshSignIn, Service
from decisions.rules.identity import MOST_TRIES, TOO_MANY_TRIES, WRONG_PASSWORD, WRONG_SECOND_FACTOR
from decisions.selectors.identity import codes_left, sessions_of
from decisions.services.change_password import change_password
from decisions.services.deactivate_account import deactivate_account, reactivate_account
from decisions.services.make_account import make_account
from decisions.services.make_feed_token import make_feed_token
from decisions.services.reauthenticate import Credentials, reauthenticate
from decisions.services.refused import Refused
from decisions.services.reset_password import reset_password
from decisions.services.reset_second_factor import reset_second_factor
from decisions.services.second_factors import add_authenticator_app, make_recovery_codes
from decisions.services.set_roles import set_roles
from decisions.services.use_feed_token import use_feed_token
from tests.conftest import PASSWORD
from tests.support.passkey import SoftwarePasskey, a_browser
from tests.support.tokens import Caller, secret_of

pytestmark = pytest.mark.django_db

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
NEW = "a password that nobody guesses"


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    cache.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which codes are made: codes of the next periods, without waiting for them."""
    at = [1_800_000_000.0]
    around = (-1, 0, 1)
    monkeypatch.setattr(totp, "yield_hotp_counters_from_time", lambda: [int(at[0]) // 30 + step for step in around])
    return at


@pytest.fixture
def browser() -> Client:
    return a_browser()


@pytest.fixture
def operator(account: Callable[..., Account]) -> Account:
    return account("operator", "operator")


def code(clock: list[float]) -> str:
    """One that was not used yet."""
    clock[0] += 90
    return str(totp.format_hotp_value(totp.hotp_value(SECRET, int(clock[0]) // 30)))


def with_app(person: Account, clock: list[float]) -> list[str]:
    return add_authenticator_app(
        person=person, secret=SECRET, code=code(clock), credentials=Credentials(password=PASSWORD)
    )


def sign_in(browser: Client, who: str, password: str = PASSWORD) -> Any:
    return browser.post("/sign-in/", {"login": who, "password": password})


def is_in(browser: Client) -> bool:
    return "_auth_user_id" in browser.session


def kinds() -> list[str]:
    return list(Event.objects.order_by("sequence").values_list("kind", flat=True))


class TestSigningIn:
    def test_a_password_suffices_without_a_second_factor(self, browser: Client, owner: Account) -> None:
        assert sign_in(browser, "owner")["Location"] == "/"
        assert is_in(browser)
        (session,) = UserSession.objects.all()
        assert (session.user, session.user_agent) == (owner, "a test's browser")

    def test_with_an_app_its_code_is_asked_for(self, browser: Client, owner: Account, clock: list[float]) -> None:
        with_app(owner, clock)
        step = sign_in(browser, "owner")["Location"]
        assert (step, is_in(browser)) == ("/sign-in/second-factor/", False)
        assert browser.get("/").status_code == 302
        wrong = browser.post(step, {"code": "000000"})
        assert "wrong, or was used already" in wrong.content.decode()
        assert Event.objects.get(kind="sign-in-refused").details == {"reason": "the second factor is wrong"}
        right = code(clock)
        assert browser.post(step, {"code": right})["Location"] == "/"
        assert is_in(browser)
        # The same code opens nothing else.
        other = a_browser()
        sign_in(other, "owner")
        assert "used already" in other.post(step, {"code": right}).content.decode()
        assert reauthenticate(owner, Credentials(PASSWORD, right)).refusal == WRONG_SECOND_FACTOR

    def test_a_recovery_code_stands_in_once(self, browser: Client, owner: Account, clock: list[float]) -> None:
        recovery = with_app(owner, clock)[0]
        sign_in(browser, "owner")
        browser.post("/sign-in/second-factor/", {"code": recovery})
        assert is_in(browser)
        assert reauthenticate(owner, Credentials(PASSWORD, recovery)).refusal == WRONG_SECOND_FACTOR

    def test_whoever_guesses_is_stopped_and_noted_once(self, browser: Client, owner: Account) -> None:
        for _ in range(MOST_TRIES):
            assert "go together" in sign_in(browser, "owner", "a guess").content.decode()
        for _ in range(3):
            assert "Too many failed tries" in sign_in(browser, "owner").content.decode()
        assert not is_in(browser)
        event = Event.objects.get()
        assert (event.kind, event.subject, event.details) == (
            "sign-in-refused",
            "account owner",
            {"reason": "too many failed tries"},
        )

    def test_an_address_that_tries_many_names_is_stopped(self, browser: Client, owner: Account) -> None:
        for number in range(10):
            assert "go together" in sign_in(browser, f"guess{number}").content.decode()
        assert "Too many failed tries" in sign_in(browser, "owner").content.decode()
        assert {sign_in(browser, "owner").status_code for _ in range(20)} == {200, 429}
        assert "Too many tries" in sign_in(browser, "owner").content.decode()

    def test_one_may_begin_again_in_the_middle(self, browser: Client, owner: Account, clock: list[float]) -> None:
        with_app(owner, clock)
        sign_in(browser, "owner")
        assert browser.get("/sign-in/")["Location"] == "/sign-in/second-factor/"
        browser.post("/sign-out/")
        assert browser.get("/sign-in/").status_code == 200

    @pytest.mark.parametrize("change", ["password", "own password", "second factor", "deactivated", "and reactivated"])
    def test_a_second_step_of_what_was_changed_meanwhile_lets_nobody_in(
        self, browser: Client, owner: Account, operator: Account, clock: list[float], change: str
    ) -> None:
        with_app(owner, clock)
        step, why = sign_in(browser, "owner")["Location"], "Somebody has learned it"
        if change == "password":
            reset_password(account=owner, reason=why, by=operator)
        elif change == "own password":
            change_password(person=owner, credentials=Credentials(PASSWORD, code(clock)), new=NEW)
        elif change == "second factor":
            reset_second_factor(account=owner, reason=why, by=operator)
        else:
            deactivate_account(account=owner, reason=why, by=operator)
        answer = browser.post(step, {"code": code(clock)})
        assert (answer["Location"], is_in(browser)) == ("/sign-in/", False)
        if change == "and reactivated":
            reactivate_account(account=owner, reason=why, by=operator)
        # Not led in a circle either.
        page = browser.get("/sign-in/")
        assert (page.status_code, "has changed meanwhile" in page.content.decode()) == (200, True)
        assert browser.get("/account/").status_code == 302

    def test_nobody_signs_up(self, browser: Client) -> None:
        for address in ("/sign-up/", "/signup/", "/accounts/signup/", "/account/signup/"):
            assert browser.get(address).status_code == 404

    def test_a_part_that_refreshes_itself_reloads_the_page(self, browser: Client) -> None:
        assert browser.get("/sign-in/", headers={"HX-Request": "true"})["HX-Refresh"] == "true"


class TestPasskeys:
    def made(self, browser: Client, **changes: str) -> tuple[SoftwarePasskey, Any]:
        passkey = SoftwarePasskey()
        options = browser.get(reverse("passkey-options")).json()
        form = {"name": "work laptop", "password": PASSWORD, "made": passkey.make(options)}
        return passkey, browser.post(reverse("passkey-new"), form | changes)

    def test_added_used_and_removed(self, browser: Client, owner: Account) -> None:
        browser.force_login(owner)
        passkey, answer = self.made(browser)
        page = answer.content.decode()
        assert answer.status_code == 200
        assert len(re.findall(r"\b\d{8}\b", page)) == 10
        added = Event.objects.get(kind="second-factor-added")
        assert added.details == {"factor": "passkey work laptop", "recovery_codes": 10}
        factor = Authenticator.objects.get(type="webauthn")
        address = reverse("factor-remove", args=[factor.pk])
        refused = browser.post(address, {"password": PASSWORD})
        assert (refused.status_code, "password alone is not enough" in refused.content.decode()) == (422, True)
        challenge = browser.get(reverse("passkey-challenge")).json()
        browser.post(address, {"password": PASSWORD, "passkey": passkey.answer(challenge)})
        assert not Authenticator.objects.exists()
        assert kinds() == ["second-factor-added", "second-factor-remove-refused", "second-factor-removed"]
        assert ledger.verify().broken is None

    def test_it_signs_in_alone(self, browser: Client, owner: Account) -> None:
        browser.force_login(owner)
        passkey, _ = self.made(browser)
        other = a_browser()
        options = other.get("/sign-in/passkey/", headers={"Accept": "application/json"}).json()
        answer = passkey.answer(options["request_options"])
        assert other.post("/sign-in/passkey/", {"credential": answer})["Location"] == "/"
        assert is_in(other)
        # The same answer lets nobody else in.
        third = a_browser()
        third.get("/sign-in/passkey/", headers={"Accept": "application/json"})
        assert third.post("/sign-in/passkey/", {"credential": answer})["Location"] == "/sign-in/"
        assert not is_in(third)

    def test_it_is_the_second_step_beside_a_password(self, browser: Client, owner: Account) -> None:
        browser.force_login(owner)
        passkey, _ = self.made(browser)
        other = a_browser()
        step = sign_in(other, "owner")["Location"]
        given = re.search(r'data-given="([^"]+)"', other.get(step).content.decode())
        assert given is not None
        options = json.loads(given.group(1).replace("&quot;", '"'))
        assert other.post(step, {"credential": passkey.answer(options)})["Location"] == "/"
        assert is_in(other)

    def test_an_answer_counts_once_and_for_its_own_challenge(self, browser: Client, owner: Account) -> None:
        browser.force_login(owner)
        passkey, _ = self.made(browser)
        address = reverse("recovery-codes")
        old = passkey.answer(browser.get(reverse("passkey-challenge")).json())
        browser.get(reverse("passkey-challenge"))
        for answer in (old, "{}", "[1]", "not JSON", '{"id": 7}'):
            refused = browser.post(address, {"password": PASSWORD, "passkey": answer})
            assert refused.status_code == 422
            cache.clear()
        new = passkey.answer(browser.get(reverse("passkey-challenge")).json())
        assert browser.post(address, {"password": PASSWORD, "passkey": new}).status_code == 200
        assert browser.post(address, {"password": PASSWORD, "passkey": new}).status_code == 422

    def test_somebody_elses_passkey_proves_nothing(
        self, browser: Client, owner: Account, second_owner: Account
    ) -> None:
        browser.force_login(second_owner)
        theirs, _ = self.made(browser)
        browser = a_browser()
        browser.force_login(owner)
        self.made(browser)
        answer = theirs.answer(browser.get(reverse("passkey-challenge")).json())
        refused = browser.post(reverse("recovery-codes"), {"password": PASSWORD, "passkey": answer})
        assert refused.status_code == 422

    @pytest.mark.parametrize(
        "answer",
        [
            "",
            "[]",
            "7",
            "{}",
            '{"id": "x"}',
            '{"response": 7}',
            '{"response": {"userHandle": 7}}',
            "[" * 3000,
            "x" * 30_000,
        ],
    )
    def test_an_answer_of_another_form_signs_nobody_in(
        self, browser: Client, owner: Account, clock: list[float], answer: str
    ) -> None:
        browser.get("/sign-in/passkey/", headers={"Accept": "application/json"})
        assert browser.post("/sign-in/passkey/", {"credential": answer})["Location"] == "/sign-in/"
        with_app(owner, clock)
        step = sign_in(browser, "owner")["Location"]
        said = browser.post(step, {"credential": answer}, follow=True)
        assert (said.status_code, is_in(browser)) == (200, False)
        assert "One step more" in said.content.decode()

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"password": "a guess"}, "The password is wrong"),
            ({"name": " "}, "Name the passkey"),
            ({"made": "{}"}, "make a passkey for this site"),
            ({"made": ""}, "make a passkey for this site"),
        ],
    )
    def test_what_makes_none(self, browser: Client, owner: Account, changes: dict[str, str], said: str) -> None:
        browser.force_login(owner)
        _, answer = self.made(browser, **changes)
        assert (answer.status_code, said in answer.content.decode()) == (422, True)
        assert not Authenticator.objects.exists()

    def test_one_that_asks_for_no_pin_is_refused(self, browser: Client, owner: Account) -> None:
        browser.force_login(owner)
        passkey = SoftwarePasskey()
        passkey.verifies = False
        options = browser.get(reverse("passkey-options")).json()
        form = {"name": "an old key", "password": PASSWORD, "made": passkey.make(options)}
        assert browser.post(reverse("passkey-new"), form).status_code == 422

    def test_a_passkey_of_another_site_is_refused(self, browser: Client, owner: Account) -> None:
        browser.force_login(owner)
        elsewhere = SoftwarePasskey("https://elsewhere.example")
        options = browser.get(reverse("passkey-options")).json()
        form = {"name": "a lure", "password": PASSWORD, "made": elsewhere.make(options)}
        assert browser.post(reverse("passkey-new"), form).status_code == 422


class TestAuthenticatorApp:
    def test_added_on_its_page(self, browser: Client, owner: Account, clock: list[float]) -> None:
        browser.force_login(owner)
        address = reverse("authenticator-app")
        page = browser.get(address).content.decode()
        assert "<svg" in page
        secret = browser.session["authenticator-app-secret"]
        shown = totp.format_hotp_value(totp.hotp_value(secret, int(clock[0]) // 30))
        wrong = browser.post(address, {"app_code": "000000", "password": PASSWORD})
        assert (wrong.status_code, "code is wrong" in wrong.content.decode()) == (422, True)
        wrong = browser.post(address, {"app_code": shown, "password": "a guess"})
        assert (wrong.status_code, "password is wrong" in wrong.content.decode()) == (422, True)
        done = browser.post(address, {"app_code": shown, "password": PASSWORD})
        assert (done.status_code, "no-store" in done["Cache-Control"]) == (200, True)
        kept = Authenticator.objects.get(type="totp")
        assert secret not in json.dumps(kept.data)
        assert kept.wrap().validate_code(shown) is False
        assert kinds() == ["second-factor-add-refused", "second-factor-added"]

    def test_there_is_one(self, owner: Account, clock: list[float]) -> None:
        with_app(owner, clock)
        with pytest.raises(Refused, match="an authenticator app already"):
            with_app(owner, clock)

    def test_new_recovery_codes_take_the_place_of_the_old(self, owner: Account, clock: list[float]) -> None:
        old = with_app(owner, clock)
        new = make_recovery_codes(person=owner, credentials=Credentials(PASSWORD, code(clock)))
        assert not set(old) & set(new)
        assert reauthenticate(owner, Credentials(PASSWORD, old[0])).refusal == WRONG_SECOND_FACTOR
        assert reauthenticate(owner, Credentials(PASSWORD, new[0])).method == "password + recovery code"

    def test_under_another_secret_key_no_code_matches(self, owner: Account, clock: list[float], settings: Any) -> None:
        recovery = with_app(owner, clock)
        settings.SECRET_KEY = "another one"
        for given in (code(clock), recovery[0]):
            assert reauthenticate(owner, Credentials(PASSWORD, given)).refusal == WRONG_SECOND_FACTOR


class TestProving:
    def test_a_wrong_password_uses_no_code_up(self, owner: Account, clock: list[float]) -> None:
        with_app(owner, clock)
        given = code(clock)
        assert reauthenticate(owner, Credentials("a guess", given)).refusal == WRONG_PASSWORD
        assert reauthenticate(owner, Credentials(PASSWORD, given)).method == "password + TOTP"
        assert reauthenticate(owner, Credentials(PASSWORD, given)).refusal == WRONG_SECOND_FACTOR

    def test_without_a_password_no_recovery_code_is_used_up(self, owner: Account, clock: list[float]) -> None:
        recovery = with_app(owner, clock)[0]
        owner.set_password(None)
        owner.save()
        assert reauthenticate(owner, Credentials(code=recovery)).refusal == WRONG_SECOND_FACTOR
        assert codes_left(owner) == 10
        assert reauthenticate(owner, Credentials(code=code(clock))).method == "TOTP"

    def test_failed_tries_are_limited_and_right_ones_are_not(self, owner: Account, second_owner: Account) -> None:
        for _ in range(MOST_TRIES * 2):
            assert reauthenticate(owner, Credentials(PASSWORD)).at is not None
        for _ in range(MOST_TRIES):
            assert reauthenticate(owner, Credentials("a guess")).refusal == WRONG_PASSWORD
        assert reauthenticate(owner, Credentials(PASSWORD)).refusal == TOO_MANY_TRIES
        assert reauthenticate(second_owner, Credentials(PASSWORD)).method == "password"

    def test_the_house_counts_in_a_cache_that_every_process_sees(
        self, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        from config import settings as house

        monkeypatch.setattr(house, "TESTING", False)
        monkeypatch.setattr(house, "REDIS_URL", "")
        embedded = house.shared_cache()
        monkeypatch.setattr(house, "REDIS_URL", "redis://127.0.0.1:6379/9")
        backends = [one["BACKEND"].rpartition(".")[2] for one in (embedded, house.shared_cache())]
        assert backends == ["DatabaseCache", "RedisCache"]
        settings.CACHES = {**settings.CACHES, "embedded": embedded}
        assert caches["embedded"].add("a-code", "used", timeout=60)
        assert not caches["embedded"].add("a-code", "used", timeout=60)


def kinds_of_proof(person: Account, clock: list[float]) -> dict[str, Credentials]:
    recovery = with_app(person, clock)[0]
    return {
        "password + recovery code": Credentials(PASSWORD, recovery),
        "password + TOTP": Credentials(PASSWORD, code(clock)),
    }


@pytest.mark.django_db(transaction=True)
def test_what_counts_once_counts_once_for_many_at_once(owner: Account, clock: list[float]) -> None:
    for method, credentials in kinds_of_proof(owner, clock).items():
        assert at_once(owner, credentials) == [method]
    cache.clear()
    Authenticator.objects.all().delete()
    Account.objects.filter(pk=owner.pk).update(password="!")
    owner.refresh_from_db()
    fresh = FreshSignIn.objects.create(person=owner, auth_time=timezone.now())
    assert at_once(owner, Credentials(fresh_sign_in=fresh.pk)) == ["single sign-on"]


def at_once(person: Account, credentials: Credentials) -> list[str]:
    """How those proved it that did, of as many as may fail."""

    def prove(_: int) -> str:
        try:
            return reauthenticate(person, credentials).method
        finally:
            connection.close()

    cache.clear()
    with ThreadPoolExecutor(MOST_TRIES) as threads:
        return [one for one in threads.map(prove, range(MOST_TRIES)) if one]


class TestPasswords:
    def test_changed_and_every_other_session_ends(self, browser: Client, owner: Account) -> None:
        other = a_browser()
        for one in (browser, other):
            sign_in(one, "owner")
        form = {"password": PASSWORD, "new": NEW, "again": NEW}
        assert browser.post(reverse("password"), form)["Location"] == reverse("account")
        assert browser.get("/account/").status_code == 200
        assert other.get("/account/").status_code == 302
        assert Event.objects.get(kind="password-changed").details == {"by": "password"}
        # The one that goes on has another key, and is listed by it: so it can be ended.
        assert [one.session_key for one in sessions_of(owner)] == [browser.session.session_key]
        owner.refresh_from_db()
        assert owner.check_password(NEW)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"password": "a guess"}, "The password is wrong"),
            ({"again": "another"}, "two new passwords differ"),
            ({"new": "12345678", "again": "12345678"}, "too common"),
            ({"new": PASSWORD, "again": PASSWORD}, "is the old one"),
        ],
    )
    def test_what_changes_none(self, browser: Client, owner: Account, changes: dict[str, str], said: str) -> None:
        browser.force_login(owner)
        form = {"password": PASSWORD, "new": NEW, "again": NEW} | changes
        answer = browser.post(reverse("password"), form)
        assert (answer.status_code, said in answer.content.decode()) == (422, True)
        owner.refresh_from_db()
        assert owner.check_password(PASSWORD)

    def test_one_that_was_set_anew_meanwhile_stays(self, owner: Account) -> None:
        before = Account.objects.get(pk=owner.pk)
        made = reset_password(account=owner, reason="Somebody has learned it", by="opal")
        with pytest.raises(Refused, match="set anew meanwhile"):
            change_password(person=before, credentials=Credentials(PASSWORD), new=NEW)
        assert Account.objects.get(pk=owner.pk).check_password(made)

    def test_one_that_somebody_else_made_is_changed_first(self, browser: Client, operator: Account) -> None:
        made = make_account(username="olga", roles=["owner"], by=operator)
        sign_in(browser, "olga", made.password)
        for address in ("/", "/account/", "/account/tokens/", "/briefs/"):
            assert browser.get(address)["Location"] == reverse("password")
        assert browser.get("/running/", headers={"HX-Request": "true"})["HX-Refresh"] == "true"
        assert browser.get(reverse("password")).status_code == 200
        browser.post(reverse("password"), {"password": made.password, "new": NEW, "again": NEW})
        assert browser.get("/").status_code == 200


class TestSessions:
    def test_one_and_all_others_are_ended(self, owner: Account) -> None:
        first, second, third = (a_browser() for _ in range(3))
        for one in (first, second, third):
            sign_in(one, "owner")
        page = first.get(reverse("sessions")).content.decode()
        assert page.count("a test&#x27;s browser") == 3
        assert page.count("This one") == 1
        key = UserSession.objects.get(session_key=second.session.session_key).pk
        first.post(reverse("sessions-end"), {"session": key})
        assert [one.get("/account/").status_code for one in (first, second, third)] == [200, 302, 200]
        first.post(reverse("sessions-end"), {"session": "others"})
        assert [one.get("/account/").status_code for one in (first, third)] == [200, 302]
        assert [one.details for one in Event.objects.filter(kind="sessions-ended")] == [{"sessions": 1}] * 2

    def test_nobody_ends_another_persons(self, owner: Account, engineer: Account) -> None:
        own, other = a_browser(), a_browser()
        sign_in(own, "owner")
        sign_in(other, "engineer")
        theirs = UserSession.objects.get(user=engineer).pk
        own.post(reverse("sessions-end"), {"session": theirs})
        assert other.get("/account/").status_code == 200
        assert not Event.objects.filter(kind="sessions-ended").exists()

    def test_ending_ones_own_leads_to_the_sign_in(self, browser: Client, owner: Account) -> None:
        sign_in(browser, "owner")
        key = UserSession.objects.get().pk
        assert browser.post(reverse("sessions-end"), {"session": key})["Location"] == "/sign-in/"
        assert not is_in(browser)


class TestPeople:
    def act(self, by: Account, of: str, act: str, **form: Any) -> Any:
        client = a_browser()
        client.force_login(by)
        return client.post(reverse("person-act", args=[of, act]), form)

    def test_an_account_is_made_and_its_password_shown_once(self, browser: Client, operator: Account) -> None:
        browser.force_login(operator)
        form = {"username": "olga", "name": "Olga Ivanova", "email": "olga@house.example", "roles": ["owner"]}
        page = browser.post(reverse("person-new"), form).content.decode()
        shown = re.search(r'id="new-password">([^<]+)<', page)
        assert shown is not None
        olga = Account.objects.get(username="olga")
        assert olga.check_password(shown.group(1))
        assert (olga.must_change_password, olga.group_names, olga.get_full_name()) == (
            True,
            frozenset({"owner"}),
            "Olga Ivanova",
        )
        assert shown.group(1) not in browser.get(reverse("person", args=["olga"])).content.decode()
        event = Event.objects.get(kind="account-made")
        assert (event.actor, event.subject, event.details["roles"]) == ("operator", "account olga", ["owner"])
        assert shown.group(1) not in bytes(event.content).decode()

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"username": "Owner"}, "a username is never used again"),
            ({"username": "a b"}, "valid username"),
            ({"username": ".."}, "dots alone"),
            ({"email": "OWNER@house.example"}, "another account has the e-mail address"),
            ({"email": "nowhere"}, "valid email"),
            ({"roles": ["king"]}, "no role king"),
            ({"name": "Olga\nroot"}, "on one line"),
            ({"single_sign_on": "yes"}, "needs an e-mail address"),
        ],
    )
    def test_what_makes_none(
        self, browser: Client, operator: Account, owner: Account, changes: dict[str, Any], said: str
    ) -> None:
        Account.objects.filter(pk=owner.pk).update(email="owner@house.example")
        browser.force_login(operator)
        form = {"username": "olga", "name": "", "email": "", "roles": ["owner"]} | changes
        answer = browser.post(reverse("person-new"), form)
        assert answer.status_code == 422
        assert said.lower() in answer.content.decode().lower()
        assert Account.objects.count() == 2

    def test_roles_and_services_are_set_in_one_act(
        self, operator: Account, engineer: Account, service: Service
    ) -> None:
        self.act(operator, "engineer", "roles", roles=["owner", "auditor"], services=[service.slug])
        engineer = Account.objects.get(pk=engineer.pk)
        assert engineer.group_names == {"owner", "auditor"}
        assert service.owners.contains(engineer)
        event = Event.objects.get(kind="roles-set")
        assert event.details == {
            "before": {"roles": ["engineer"], "services": []},
            "after": {"roles": ["auditor", "owner"], "services": ["support-assistant"]},
        }
        answer = self.act(operator, "engineer", "roles", roles=["auditor"], services=[service.slug])
        assert (answer.status_code, "only someone with the role owner" in answer.content.decode().lower()) == (
            422,
            True,
        )
        answer = self.act(operator, "engineer", "roles", roles=["owner", "auditor"], services=[service.slug])
        assert "already" in answer.content.decode()

    def test_nobody_changes_their_own_roles_or_a_superuser(
        self, operator: Account, superuser: Account, owner: Account
    ) -> None:
        reason = "They asked me to do it"
        for who in ("operator", "superuser"):
            for name in ("roles", "deactivate", "second-factor", "password"):
                answer = self.act(operator, who, name, roles=["owner"], reason=reason)
                assert answer.status_code == 422, (who, name)
        assert self.act(superuser, "owner", "deactivate", reason=reason).status_code == 403
        assert {one.actor for one in Event.objects.all()} == {"operator"}
        assert set(kinds()) == {
            "roles-set-refused",
            "account-deactivate-refused",
            "second-factor-reset-refused",
            "password-reset-refused",
        }
        assert Account.objects.get(username="operator").group_names == {"operator"}

    def test_whoever_is_deactivated_is_out_at_once(self, operator: Account, owner: Account) -> None:
        browser, secret, feed = a_browser(), secret_of(owner), make_feed_token(person=owner).secret
        sign_in(browser, "owner")
        assert use_feed_token(secret=feed) == owner
        assert Caller(secret)("GET", "/token").status_code == 200
        self.act(operator, "owner", "deactivate", reason="They have left the house")
        assert browser.get("/account/").status_code == 302
        assert not UserSession.objects.filter(user=owner).exists()
        assert Caller(secret)("GET", "/token").status_code == 401
        assert ApiToken.objects.get().revoked_at is not None
        assert "not active" in browser.get(sign_in(browser, "owner")["Location"]).content.decode()
        assert not is_in(browser)
        event = Event.objects.get(kind="account-deactivated")
        assert event.details == {"reason": "They have left the house", "sessions": 1, "tokens": 1, "feeds": 1}
        self.act(operator, "owner", "reactivate", reason="They have come back")
        assert browser.get("/account/").status_code == 302
        assert Caller(secret)("GET", "/token").status_code == 401
        assert use_feed_token(secret=feed) is None
        assert sign_in(browser, "owner")["Location"] == "/"

    def test_a_lost_second_factor_is_taken_off_with_a_reason(
        self, operator: Account, owner: Account, clock: list[float]
    ) -> None:
        with_app(owner, clock)
        assert self.act(operator, "owner", "second-factor", reason="short").status_code == 422
        self.act(operator, "owner", "second-factor", reason="Their telephone was stolen")
        assert not Authenticator.objects.exists()
        details = Event.objects.get(kind="second-factor-reset").details
        assert details == {"factors": ["authenticator app"], "reason": "Their telephone was stolen", "sessions": 0}
        answer = self.act(operator, "owner", "second-factor", reason="Their telephone was stolen")
        assert "no second factor" in answer.content.decode()

    def test_a_password_is_set_anew(self, operator: Account, owner: Account) -> None:
        browser = a_browser()
        sign_in(browser, "owner")
        page = self.act(operator, "owner", "password", reason="They have forgotten it").content.decode()
        shown = re.search(r'id="new-password">([^<]+)<', page)
        assert shown is not None
        assert browser.get("/account/").status_code == 302
        sign_in(browser, "owner", shown.group(1))
        assert browser.get("/")["Location"] == reverse("password")

    def test_an_address_is_one_persons(self, operator: Account, owner: Account, engineer: Account) -> None:
        self.act(operator, "owner", "email", email="owner@house.example")
        assert Event.objects.get(kind="email-set").details == {"before": "", "after": "owner@house.example"}
        for who, email, said in (
            ("engineer", "Owner@house.example", "another account has"),
            ("engineer", "nowhere", "valid email"),
            ("owner", "owner@house.example", "have already"),
            ("operator", "operator@house.example", "nobody changes their own"),
        ):
            answer = self.act(operator, who, "email", email=email)
            assert (answer.status_code, said in answer.content.decode().lower()) == (422, True), who

    def test_an_account_is_never_deleted(self, owner: Account) -> None:
        with pytest.raises(TypeError, match="deactivated, never deleted"):
            owner.delete()

    def test_an_act_that_is_none(self, operator: Account, owner: Account) -> None:
        assert self.act(operator, "owner", "crown").status_code == 404
        assert self.act(operator, "nobody", "roles").status_code == 404


OWN_PAGES = (
    "account",
    "password",
    "authenticator-app",
    "passkey-new",
    "passkey-options",
    "passkey-challenge",
    "recovery-codes",
    "sessions",
)


class TestWhoSeesWhat:
    @pytest.mark.parametrize("page", OWN_PAGES)
    def test_a_persons_own_pages_are_theirs_whatever_their_role(
        self, browser: Client, stranger: Account, page: str
    ) -> None:
        assert browser.get(reverse(page))["Location"].startswith("/sign-in/")
        browser.force_login(stranger)
        assert browser.get(reverse(page)).status_code == 200

    def test_the_pages_of_people_are_for_operators(
        self, browser: Client, operator: Account, owner: Account, auditor: Account
    ) -> None:
        pages = [reverse("people"), reverse("person-new"), reverse("person", args=["owner"])]
        for address in pages:
            assert browser.get(address)["Location"].startswith("/sign-in/")
        act = reverse("person-act", args=["auditor", "roles"])
        assert browser.post(act).status_code == 302
        for wrong in (owner, auditor):
            browser.force_login(wrong)
            assert {browser.get(address).status_code for address in pages} == {403}
            assert browser.post(act, {"roles": ["owner"]}).status_code == 403
            assert reverse("people") not in browser.get(reverse("account")).content.decode()
        browser.force_login(operator)
        assert {browser.get(address).status_code for address in pages} == {200}
        assert reverse("people") in browser.get(reverse("account")).content.decode()

    def test_nobody_removes_another_persons_factor(
        self, browser: Client, owner: Account, engineer: Account, clock: list[float]
    ) -> None:
        with_app(owner, clock)
        factor = Authenticator.objects.get(type="totp")
        browser.force_login(engineer)
        browser.post(reverse("factor-remove", args=[factor.pk]), {"password": PASSWORD})
        assert Authenticator.objects.filter(pk=factor.pk).exists()

    def test_the_services_refuse_by_themselves(self, owner: Account, engineer: Account) -> None:
        with pytest.raises(Refused, match="group operator"):
            set_roles(account=engineer, roles=["owner"], services=[], by=owner)
        with pytest.raises(Refused, match="group operator"):
            make_account(username="olga", roles=["owner"], by=owner)
        with pytest.raises(Refused, match="password is wrong"):
            change_password(person=owner, credentials=Credentials("a guess"), new=NEW)
        assert kinds() == ["roles-set-refused", "account-make-refused", "password-change-refused"]


def test_a_token_asks_for_proof(browser: Client, engineer: Account) -> None:
    browser.force_login(engineer)
    form = {"name": "CI", "days": "30", "scopes": ["read"]}
    for given in ({}, {"password": "a guess"}):
        answer = browser.post(reverse("tokens"), form | given)
        assert (answer.status_code, "password is wrong" in answer.content.decode()) == (422, True)
    assert browser.post(reverse("tokens"), form | {"password": PASSWORD}).status_code == 200
    assert kinds() == ["token-make-refused", "token-make-refused", "token-made"]
