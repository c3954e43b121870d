"""How django-allauth does here what it would do otherwise: no sign-up, no words of its own, secrets encrypted."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, NoReturn

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.core.internal.httpkit import clean_client_ip, get_client_ip
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.totp.internal.auth import generate_totp_secret
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from decisions.at_rest import Unreadable, decrypted, encrypted
from decisions.models import Account
from decisions.pages.credentials import FRESH
from decisions.services.keep_fresh_sign_in import keep_fresh_sign_in
from decisions.services.link_single_sign_on import link_single_sign_on
from decisions.services.record_refused_sign_in import record_refused_sign_in
from decisions.services.refused import Refused

logger = logging.getLogger(__name__)

# Where nobody says where from: what is counted there is counted together.
NOWHERE = "0.0.0.0"  # noqa: S104

BEGUN, BEGUN_BY = "fresh-sign-in-begun", "sign-in-begun-by"
WRONG_SECOND_FACTOR = "The code or passkey is wrong, or was used already: every code counts once."
TOO_MANY = "Too many failed tries to sign in. Wait five minutes and try again."


class Accounts(DefaultAccountAdapter):  # type: ignore[misc] # allauth ships no types
    error_messages = DefaultAccountAdapter.error_messages | {
        "too_many_login_attempts": TOO_MANY,
        "username_password_mismatch": "That name and password don’t go together. Capitals count in a password.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        """Whatever proxies say, or leave out, a request has an address: where theirs can't be believed, that of who is
        connected. IPv4 within IPv6 is IPv4, or all of it would be counted as one network."""
        try:
            found = get_client_ip(request)
        except ImproperlyConfigured:  # fewer addresses than proxies of ours
            found = None
        address = found or clean_client_ip(request.META.get("REMOTE_ADDR", "")) or NOWHERE
        return str(getattr(ip_address(address), "ipv4_mapped", None) or address)

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        message_context: dict[str, Any] | None = None,
        extra_tags: str = "",
        message: str | None = None,
    ) -> None:
        if message:
            messages.add_message(request, level, message, extra_tags=extra_tags)

    def send_notification_mail(self, *args: Any, **more: Any) -> None:
        """Events tell it."""

    def pre_login(self, request: HttpRequest, user: Account, **more: Any) -> HttpResponse | None:
        """A sign-in that waits for its second step knows by which password it was begun."""
        request.session[BEGUN_BY] = user.get_session_auth_hash()
        answer: HttpResponse | None = super().pre_login(request, user, **more)
        return answer

    def respond_user_inactive(self, request: HttpRequest, user: Account) -> HttpResponse:
        messages.error(request, "This account is not active. An operator can say why.")
        return redirect("sign-in")

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        try:
            super().pre_authenticate(request, **credentials)
        except ValidationError:
            person = Account.objects.filter(username__iexact=credentials.get("username", "")).first()
            if person:
                record_refused_sign_in(person=person, reason="too many failed tries")
            raise


class SecondFactors(DefaultMFAAdapter):  # type: ignore[misc] # allauth ships no types
    error_messages = DefaultMFAAdapter.error_messages | {"incorrect_code": WRONG_SECOND_FACTOR}

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        host: str = super().get_public_key_credential_rp_entity()["id"]
        return {"id": host, "name": "Draftproof"}

    def encrypt(self, text: str) -> str:
        """So that a copy of the database alone opens nothing."""
        return encrypted(text)

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return decrypted(encrypted_text)
        except Unreadable as error:
            logger.warning("a second factor can't be read: %s", error)
            # A secret that nobody knows: no code matches it.
            return str(generate_totp_secret())


class SingleSignOn(DefaultSocialAccountAdapter):  # type: ignore[misc] # allauth ships no types
    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return False

    def send_notification_mail(self, *args: Any, **more: Any) -> None:
        """Events tell it."""

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        if sociallogin.state.get("process") == AuthProcess.REDIRECT:
            keep_proof(request, sociallogin)
        elif not sociallogin.is_existing:
            try:
                link_single_sign_on(request=request, login=sociallogin)
            except Refused as refusal:
                leave(request, str(refusal), "sign-in")

    def on_authentication_error(self, request: HttpRequest, *args: Any, **more: Any) -> None:
        where = "inbox" if request.user.is_authenticated else "sign-in"
        leave(request, f"The sign-in at {settings.SINGLE_SIGN_ON_NAME} didn’t come about. Try it again.", where)


def keep_proof(request: HttpRequest, login: SocialLogin) -> None:
    """The person of this session signed in anew, because an act of theirs asks for it."""
    begun_at = request.session.pop(BEGUN, None)
    if begun_at is None or request.user != login.user:
        leave(request, "That was somebody else’s sign-in. Sign in anew as yourself.", "inbox")
    said = login.account.extra_data.get("id_token", {})
    try:
        kept = keep_fresh_sign_in(
            person=login.user, auth_time=said.get("auth_time"), begun_at=datetime.fromtimestamp(begun_at, UTC)
        )
    except Refused as refusal:
        messages.error(request, str(refusal))
        return
    request.session[FRESH] = kept.pk


def leave(request: HttpRequest, sentence: str, where: str) -> NoReturn:
    messages.error(request, sentence)
    raise ImmediateHttpResponse(redirect(where))
