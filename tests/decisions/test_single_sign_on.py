"""Single sign-on against a provider over HTTP, and signatures by people of every kind of identity."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from config import settings as house
from decisions import ledger
from decisions.models import Account, Event, FreshSignIn, Release, Signature
from decisions.rules.identity import NO_PROOF, NO_SECOND_FACTOR_GIVEN, SIGN_IN_ANEW, WRONG_SECOND_FACTOR
from decisions.selectors.identity import recent_reset
from decisions.services.make_account import make_account
from decisions.services.reauthenticate import Credentials, reauthenticate
from decisions.services.refused import Refused
from decisions.services.reset_password import reset_password
from decisions.services.reset_second_factor import reset_second_factor
from decisions.services.revoke_release import revoke_release
from decisions.services.set_email import set_email
from decisions.services.sign_decision import sign_decision
from tests.conftest import PASSWORD
from tests.support.passkey import SoftwarePasskey, a_browser
from tests.support.provider import CLIENT, KEY, Provider, running_provider
from tests.support.reviewed import Reviewed, build_reviewed

pytestmark = pytest.mark.django_db

REASON = "The evidence settles it."
MAIL = "olga@house.example"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """It vouches for Olga."""
    named = {"ISSUER": running.issuer, "CLIENT": CLIENT, "SECRET": "a secret", "NAME": "the house"}
    for name, value in named.items():
        monkeypatch.setattr(house, f"SINGLE_SIGN_ON_{name}", value)
        setattr(settings, f"SINGLE_SIGN_ON_{name}", value)
    settings.SOCIALACCOUNT_PROVIDERS = house.single_sign_on()
    monkeypatch.setattr(running, "claims", {"email": MAIL, "email_verified": True})
    running.asked.clear()
    cache.clear()
    return running


@pytest.fixture
def browser() -> Client:
    return a_browser()


@pytest.fixture
def olga(db: None) -> Account:
    return make_account(username="olga", roles=["owner"], by="a test", email=MAIL, single_sign_on=True).account


def come_by(browser: Client, provider: Provider, address: str = "/sign-in/sso/begin/") -> Any:
    """The way through the provider and back."""
    sent = browser.get(address)
    assert sent.status_code == 302, sent.content.decode()
    assert sent["Location"].startswith(provider.issuer), sent["Location"]
    return browser.get(provider.visit(sent["Location"]))


def tab(case: Reviewed) -> str:
    return reverse("brief-sign-off", args=[case.revision.brief_id, case.revision.number])


def is_in(browser: Client) -> bool:
    return "_auth_user_id" in browser.session


def told(browser: Client, answer: Any) -> str:
    return browser.get(answer["Location"]).content.decode()


class TestSigningIn:
    def test_the_account_with_the_verified_address_is_linked_once(
        self, browser: Client, provider: Provider, olga: Account
    ) -> None:
        assert 'href="/sign-in/sso/begin/"' in browser.get("/sign-in/").content.decode()
        assert come_by(browser, provider)["Location"] == "/"
        assert is_in(browser)
        asked = provider.asked[0]
        assert (asked["client_id"], asked["code_challenge_method"]) == (CLIENT, "S256")
        assert asked["redirect_uri"] == "http://localhost/sign-in/sso/back/"
        event = Event.objects.get(kind="single-sign-on-linked")
        assert (event.subject, event.details["subject"]) == ("account olga", "4711")
        # From here on they are known by the provider's name for them, whatever the address.
        provider.claims = {"email": "other@house.example", "email_verified": True}
        again = a_browser()
        come_by(again, provider)
        assert again.session["_auth_user_id"] == str(olga.pk)
        assert SocialAccount.objects.count() == 1

    @pytest.mark.parametrize(
        ("claims", "said"),
        [
            ({"email": MAIL, "email_verified": False}, "no verified e-mail address"),
            ({"email": MAIL}, "no verified e-mail address"),
            ({"email": MAIL, "email_verified": "true"}, "no verified e-mail address"),
            ({}, "no verified e-mail address"),
            ({"email": "nobody@house.example", "email_verified": True}, "No account here has"),
        ],
    )
    def test_nobody_else_gets_in_or_an_account(
        self, browser: Client, provider: Provider, olga: Account, claims: dict[str, Any], said: str
    ) -> None:
        provider.claims, before = claims, Account.objects.count()
        answer = come_by(browser, provider)
        assert (answer["Location"], is_in(browser)) == ("/sign-in/", False)
        assert said in told(browser, answer)
        assert (Account.objects.count(), SocialAccount.objects.count()) == (before, 0)

    @pytest.mark.parametrize(
        "claims",
        [
            {"iss": "https://elsewhere.example"},
            {"aud": "another client"},
            {"exp": 1_700_000_000},
            {"exp": "soon"},
            {"nbf": 4_000_000_000},
        ],
    )
    def test_a_token_that_is_not_for_this_site_lets_nobody_in(
        self, browser: Client, provider: Provider, olga: Account, claims: dict[str, Any]
    ) -> None:
        provider.claims |= claims
        answer = come_by(browser, provider)
        assert (answer["Location"], is_in(browser)) == ("/sign-in/", False)
        assert "didn’t come about" in told(browser, answer)

    def test_a_token_signed_with_another_key_lets_nobody_in(
        self, browser: Client, provider: Provider, olga: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(provider, "key", rsa.generate_private_key(public_exponent=65537, key_size=2048))
        assert come_by(browser, provider)["Location"] == "/sign-in/"
        assert not is_in(browser)

    def test_a_token_without_an_end_or_of_another_form_lets_nobody_in(
        self, browser: Client, provider: Provider, olga: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usual = {"iss": provider.issuer, "aud": CLIENT, "sub": "4711"} | provider.claims
        header, body = ({"alg": "none", "kid": "one"}, usual | {"exp": int(time.time()) + 300})
        unsigned = ".".join([*(urlsafe_b64encode(json.dumps(one).encode()).decode() for one in (header, body)), ""])
        by_no_key = jwt.encode(body, "a secret that is long enough for it", algorithm="HS256", headers={"kid": "one"})
        endless = jwt.encode(usual, KEY, algorithm="RS256", headers={"kid": "one"})
        for token in (unsigned, by_no_key, endless, "", "a.b.c", "é.é.é", 7, None):
            answer = {"access_token": "one", "token_type": "Bearer", "id_token": token}
            monkeypatch.setattr(provider, "token", lambda answer=answer: answer)
            assert (come_by(browser, provider)["Location"], is_in(browser)) == ("/sign-in/", False), token

    @pytest.mark.parametrize(
        "claims",
        [{"sub": None}, {"sub": ""}, {"sub": "x" * 400}, {"email": 7}, {"email": [MAIL]}, {"email": "x" * 400}],
    )
    def test_claims_of_another_form_let_nobody_in(
        self, browser: Client, provider: Provider, olga: Account, claims: dict[str, Any]
    ) -> None:
        provider.claims |= claims
        assert (come_by(browser, provider)["Location"], is_in(browser)) == ("/sign-in/", False)

    @pytest.mark.parametrize("keys", [[], {}, {"keys": 7}, {"keys": [{}]}, {"keys": [{"kid": "one", "alg": "none"}]}])
    def test_a_provider_without_keys_lets_nobody_in(
        self, browser: Client, provider: Provider, olga: Account, monkeypatch: pytest.MonkeyPatch, keys: Any
    ) -> None:
        monkeypatch.setattr(provider, "jwks", lambda: keys)
        assert (come_by(browser, provider)["Location"], is_in(browser)) == ("/sign-in/", False)

    @pytest.mark.parametrize("configuration", [[], {}, "none", {"issuer": 7}])
    def test_a_provider_without_a_configuration_is_said(
        self, browser: Client, provider: Provider, monkeypatch: pytest.MonkeyPatch, configuration: Any
    ) -> None:
        monkeypatch.setattr(provider, "configuration", lambda: configuration)
        answer = browser.get("/sign-in/sso/begin/")
        assert (answer["Location"], "can’t be asked now" in told(browser, answer)) == ("/sign-in/", True)

    def test_an_address_that_was_given_to_somebody_else_there_opens_nothing(
        self, browser: Client, provider: Provider, olga: Account
    ) -> None:
        """The one who had it before them is linked."""
        come_by(browser, provider)
        provider.claims |= {"sub": "a newcomer"}
        other = a_browser()
        answer = come_by(other, provider)
        assert (answer["Location"], is_in(other)) == ("/sign-in/", False)
        assert "belongs to another sign-in there" in told(other, answer)
        # Where both are the same person, whoever runs the machine cuts the link, and that stands in the history.
        call_command("reset_account", "olga", single_sign_on=True, reason="The provider was set up anew")
        assert browser.get("/account/").status_code == 302
        come_by(other, provider)
        assert other.session["_auth_user_id"] == str(olga.pk)
        event = Event.objects.get(kind="single-sign-on-reset")
        assert event.details == {"reason": "The provider was set up anew", "sessions": 1}
        with pytest.raises(CommandError, match="say why"):
            call_command("reset_account", "olga", single_sign_on=True, reason="short")

    def test_what_came_back_once_lets_nobody_in_again(self, browser: Client, provider: Provider, olga: Account) -> None:
        back = provider.visit(browser.get("/sign-in/sso/begin/")["Location"])
        browser.get(back)
        assert is_in(browser)
        browser.post("/sign-out/")
        for one in (browser, a_browser()):
            assert (one.get(back)["Location"], is_in(one)) == ("/sign-in/", False)

    def test_a_state_that_is_not_ours_lets_nobody_in(self, browser: Client, provider: Provider, olga: Account) -> None:
        answer = browser.get("/sign-in/sso/back/", {"code": "a code", "state": "made up"})
        assert (answer["Location"], is_in(browser)) == ("/sign-in/", False)

    def test_a_second_factor_is_asked_for_here_too(self, browser: Client, provider: Provider, olga: Account) -> None:
        totp.TOTP.activate(olga, SECRET)
        assert come_by(browser, provider)["Location"] == "/sign-in/second-factor/"
        assert not is_in(browser)

    def test_whoever_is_deactivated_stays_out(self, browser: Client, provider: Provider, olga: Account) -> None:
        come_by(browser, provider)
        Account.objects.filter(pk=olga.pk).update(is_active=False)
        other = a_browser()
        answer = come_by(other, provider)
        assert (answer["Location"], is_in(other)) == ("/sign-in/", False)
        assert browser.get("/account/").status_code == 302

    def test_a_provider_that_does_not_answer_is_said(self, browser: Client, provider: Provider, settings: Any) -> None:
        settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["server_url"] = "http://127.0.0.1:9"
        answer = browser.get("/sign-in/sso/begin/")
        assert answer["Location"] == "/sign-in/"
        assert "can’t be asked now" in told(browser, answer)

    def test_an_issuer_without_a_client_is_no_configuration(
        self, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(house, "SINGLE_SIGN_ON_CLIENT", "")
        with pytest.raises(ImproperlyConfigured, match="set DRAFTPROOF_OIDC_CLIENT as well"):
            house.single_sign_on()

    def test_without_an_issuer_there_is_none(self, browser: Client) -> None:
        assert "sso" not in browser.get("/sign-in/").content.decode()
        for address in ("/sign-in/sso/begin/", "/sign-in/sso/back/"):
            assert browser.get(address).status_code == 404


class TestSigningInAnew:
    """``auth_time``: when they proved who they are, there."""

    def anew(self, browser: Client, provider: Provider, **claims: Any) -> Any:
        provider.claims |= claims
        return come_by(browser, provider, f"{reverse('sign-in-anew')}?next=/account/tokens/")

    def proof(self, browser: Client, person: Account) -> str:
        return reauthenticate(person, Credentials(fresh_sign_in=browser.session.get("fresh-sign-in"))).method

    def test_counts_for_one_act(self, browser: Client, provider: Provider, olga: Account) -> None:
        come_by(browser, provider)
        assert self.anew(browser, provider)["Location"] == "/account/tokens/"
        assert (provider.asked[-1]["prompt"], provider.asked[-1]["max_age"]) == ("login", "0")
        kept = FreshSignIn.objects.get()
        assert abs(kept.auth_time.timestamp() - time.time()) < 60
        page = browser.get("/account/tokens/").content.decode()
        assert "it counts for one act" in page
        form = {"name": "CI", "days": "30", "scopes": ["read"]}
        assert browser.post("/account/tokens/", form).status_code == 200
        refused = browser.post("/account/tokens/", form)
        assert (refused.status_code, "nothing shows that it is you" in refused.content.decode()) == (422, True)

    def test_an_auth_time_that_was_used_is_no_other_one(
        self, browser: Client, provider: Provider, olga: Account
    ) -> None:
        come_by(browser, provider)
        at = int(time.time())
        self.anew(browser, provider, auth_time=at)
        assert self.proof(browser, olga) == "single sign-on"
        assert "used already" in told(browser, self.anew(browser, provider, auth_time=at))
        assert self.proof(browser, olga) == ""

    @pytest.mark.parametrize(
        ("auth_time", "said"),
        [
            (lambda: int(time.time()) - 120, "without asking who you are"),
            (lambda: int(time.time()) + 86_400, "yet to come"),
            (lambda: 10**12, "doesn’t say when"),
            (lambda: 10**20, "doesn’t say when"),
            (lambda: -(10**20), "doesn’t say when"),
            (lambda: 1.5, "doesn’t say when"),
            (lambda: None, "doesn’t say when"),
            (lambda: True, "doesn’t say when"),
            (lambda: "now", "doesn’t say when"),
        ],
    )
    def test_what_is_not_fresh_proves_nothing(
        self, browser: Client, provider: Provider, olga: Account, auth_time: Callable[[], Any], said: str
    ) -> None:
        come_by(browser, provider)
        assert said in told(browser, self.anew(browser, provider, auth_time=auth_time()))
        assert (self.proof(browser, olga), FreshSignIn.objects.exists()) == ("", False)

    def test_it_ages(self, browser: Client, provider: Provider, olga: Account) -> None:
        come_by(browser, provider)
        self.anew(browser, provider)
        kept = FreshSignIn.objects.get()
        FreshSignIn.objects.update(auth_time=kept.auth_time - timedelta(minutes=6))
        assert self.proof(browser, olga) == ""

    def test_somebody_elses_proves_nothing(
        self, browser: Client, provider: Provider, olga: Account, account: Callable[..., Account]
    ) -> None:
        come_by(browser, provider)
        other = account("other", "owner", email="other@house.example")
        answer = self.anew(browser, provider, sub="12", email="other@house.example")
        assert "somebody else’s" in told(browser, answer)
        self.anew(browser, provider, sub="4711", email=MAIL)
        assert not reauthenticate(other, Credentials(PASSWORD[:3], fresh_sign_in=FreshSignIn.objects.get().pk)).method
        assert browser.session["_auth_user_id"] == str(olga.pk)

    def test_an_ordinary_sign_in_is_no_such_proof(self, browser: Client, provider: Provider, olga: Account) -> None:
        come_by(browser, provider)
        assert (self.proof(browser, olga), FreshSignIn.objects.exists()) == ("", False)

    @pytest.mark.parametrize("more", ["process=redirect", "process=connect", "auth_params=prompt%3Dnone", "scope=all"])
    def test_an_address_asks_for_nothing_else(self, browser: Client, provider: Provider, more: str) -> None:
        assert browser.get(f"/sign-in/sso/begin/?next=/account/&{more}").status_code == 404

    def test_nobody_is_led_to_another_site(self, browser: Client, provider: Provider, olga: Account) -> None:
        come_by(browser, provider)
        for there in ("https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)"):
            answer = come_by(browser, provider, f"{reverse('sign-in-anew')}?next={there}")
            assert urlsplit(answer["Location"]).netloc in ("", "localhost")

    def test_anonymous_signs_in_first(self, browser: Client, provider: Provider) -> None:
        assert browser.get(reverse("sign-in-anew"))["Location"].startswith("/sign-in/")

    def test_a_first_passkey_is_added_by_it(self, browser: Client, provider: Provider, olga: Account) -> None:
        come_by(browser, provider)
        passkey = SoftwarePasskey()
        made = passkey.make(browser.get(reverse("passkey-options")).json())
        assert browser.post(reverse("passkey-new"), {"name": "key", "made": made}).status_code == 422
        self.anew(browser, provider)
        made = SoftwarePasskey().make(browser.get(reverse("passkey-options")).json())
        assert browser.post(reverse("passkey-new"), {"name": "key", "made": made}).status_code == 200


@pytest.fixture(scope="module")
def built(module_evidence: Path) -> tuple[Reviewed, Path]:
    return build_reviewed(PASSWORD), module_evidence


class TestSigning:
    """The owner of a PASS that waits for a signature, as each kind of identity."""

    @pytest.fixture
    def case(self, built: tuple[Reviewed, Path], db: None, settings: Any) -> Reviewed:
        settings.EVIDENCE_DIR = built[1]
        cache.clear()
        return built[0]

    @pytest.fixture
    def owner(self, case: Reviewed, provider: Provider) -> Iterator[Account]:
        """By single sign-on alone, and linked."""
        kept = case.people["owner"]
        owner = Account.objects.get(pk=kept.pk)
        owner.set_password(None)
        owner.email = MAIL
        owner.save()
        case.people["owner"] = owner
        yield owner
        case.people["owner"] = kept

    def sign(self, case: Reviewed, owner: Account, **credentials: Any) -> Signature:
        return sign_decision(
            verdict=case.verdict, by=owner, credentials=Credentials(**credentials), meaning="approve", reason=REASON
        )

    def refused(self, case: Reviewed, owner: Account, **credentials: Any) -> str:
        with pytest.raises(Refused) as refusal:
            self.sign(case, owner, **credentials)
        event = Event.objects.filter(kind="sign-refused").latest("sequence")
        assert (event.actor, event.details["reason"]) == (owner.username, refusal.value.sentence)
        assert not Signature.objects.exists()
        return refusal.value.sentence

    def form(self, case: Reviewed, browser: Client, **more: str) -> Any:
        revision = case.revision
        place = [revision.brief_id, revision.number]
        shown = browser.get(reverse("brief-statement", args=place), {"meaning": "approve", "reason": REASON})
        digest = shown.content.decode().split('name="shown" value="')[1].split('"')[0]
        form = {"meaning": "approve", "reason": REASON, "shown": digest} | more
        return browser.post(reverse("brief-sign", args=place), form)

    def test_single_sign_on_without_a_second_factor_does_not_sign(
        self, case: Reviewed, owner: Account, browser: Client, provider: Provider
    ) -> None:
        come_by(browser, provider)
        assert is_in(browser)
        answer = self.form(case, browser)
        assert answer.status_code == 422
        assert "add a passkey or an authenticator app under Account" in answer.content.decode()
        assert self.refused(case, owner) == NO_PROOF
        assert self.refused(case, owner, password=PASSWORD, code="123456") == NO_PROOF
        assert not Release.objects.exists()

    def test_it_signs_with_a_fresh_sign_in_once(
        self, case: Reviewed, owner: Account, browser: Client, provider: Provider
    ) -> None:
        come_by(browser, provider)
        come_by(browser, provider, f"{reverse('sign-in-anew')}?next=/")
        assert self.form(case, browser).status_code == 302
        signature = Signature.objects.get()
        assert signature.authentication == "single sign-on"
        page = browser.get(reverse("brief-sign-off", args=[case.revision.brief_id, case.revision.number]))
        assert "by single sign-on" in page.content.decode()
        with pytest.raises(Refused, match="nothing shows that it is you"):
            revoke_release(
                release=Release.objects.get(),
                by=owner,
                credentials=Credentials(fresh_sign_in=browser.session["fresh-sign-in"]),
                reason="An incident was reported",
            )
        assert ledger.verify().broken is None

    def test_it_signs_with_an_app(
        self, case: Reviewed, owner: Account, browser: Client, provider: Provider, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        come_by(browser, provider)
        totp.TOTP.activate(owner, SECRET)
        monkeypatch.setattr(totp, "yield_hotp_counters_from_time", lambda: [7])
        assert self.refused(case, owner) == SIGN_IN_ANEW
        assert self.refused(case, owner, code="000000") == WRONG_SECOND_FACTOR
        code = totp.format_hotp_value(totp.hotp_value(SECRET, 7))
        assert self.sign(case, owner, code=code).authentication == "TOTP"

    def test_it_signs_with_a_passkey_on_the_page(
        self, case: Reviewed, owner: Account, browser: Client, provider: Provider
    ) -> None:
        come_by(browser, provider)
        come_by(browser, provider, f"{reverse('sign-in-anew')}?next=/")
        passkey = SoftwarePasskey()
        made = passkey.make(browser.get(reverse("passkey-options")).json())
        assert browser.post(reverse("passkey-new"), {"name": "key", "made": made}).status_code == 200
        assert self.form(case, browser).status_code == 422
        answer = passkey.answer(browser.get(reverse("passkey-challenge")).json())
        assert self.form(case, browser, passkey=answer).status_code == 302
        assert Signature.objects.get().authentication == "passkey"

    @pytest.mark.parametrize("kind", ["password", "second factor", "address"])
    def test_nobody_signs_for_a_day_after_somebody_elses_reset(
        self, case: Reviewed, browser: Client, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """Or whoever can set a password could sign as anybody."""
        owner, reason = Account.objects.get(pk=case.people["owner"].pk), "They asked me on the telephone"
        password = PASSWORD
        if kind == "password":
            password = reset_password(account=owner, reason=reason, by="opal (reset_account)")
        elif kind == "second factor":
            totp.TOTP.activate(owner, SECRET)
            reset_second_factor(account=owner, reason=reason, by="opal (reset_account)")
        else:
            # It says who comes in where there is no password.
            set_email(account=owner, email=MAIL, by=case.people["operator"])
            assert recent_reset(owner) is None
            owner.set_password(None)
            owner.save()
        said = self.refused(case, owner, password=password)
        assert "nobody can sign as you before" in said
        browser.force_login(owner)
        Account.objects.filter(pk=owner.pk).update(must_change_password=False)
        for address in (reverse("account"), tab(case)):
            assert "obody can sign as you before" in browser.get(address).content.decode(), address
        later = timezone.now() + timedelta(hours=24)
        monkeypatch.setattr(timezone, "now", lambda: later)
        assert recent_reset(owner) is None

    def test_a_route_falls_back_after_a_reset_too(self, case: Reviewed) -> None:
        """Falling back is always safe."""
        owner = Account.objects.get(pk=case.people["owner"].pk)
        self.sign(case, owner, password=PASSWORD)
        password = reset_password(account=owner, reason="They have forgotten it", by="opal (reset_account)")
        release = Release.objects.get()
        revoke_release(release=release, by=owner, credentials=Credentials(password), reason="An incident was reported")
        assert release.revoked_by == "owner"

    def test_a_password_alone_signs_no_more_once_there_is_a_factor(
        self, case: Reviewed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = case.people["owner"]
        totp.TOTP.activate(owner, SECRET)
        monkeypatch.setattr(totp, "yield_hotp_counters_from_time", lambda: [7])
        assert self.refused(case, owner, password=PASSWORD) == NO_SECOND_FACTOR_GIVEN
        code = totp.format_hotp_value(totp.hotp_value(SECRET, 7))
        signature = self.sign(case, owner, password=PASSWORD, code=code)
        assert signature.authentication == "password + TOTP"
        release = Release.objects.get()
        with pytest.raises(Refused, match="used already"):
            revoke_release(
                release=release, by=owner, credentials=Credentials(PASSWORD, code), reason="An incident was reported"
            )
        assert Authenticator.objects.get().last_used_at is not None
