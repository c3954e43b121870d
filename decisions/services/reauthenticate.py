"""The one place that says whether somebody is who they say, when they sign or change what they sign with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from allauth.core.internal import ratelimit
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth as passkeys
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone

from decisions.models import Account, FreshSignIn
from decisions.rules.identity import (
    MOST_TRIES,
    PASSKEY,
    RECOVERY_CODE,
    TOO_MANY_TRIES,
    TOTP,
    TRIES_WITHIN_S,
    Given,
    method,
    why_not_proven,
)
from decisions.rules.signing import REAUTHENTICATION_S
from decisions.selectors.identity import means_of

CODES = {Authenticator.Type.TOTP: TOTP, Authenticator.Type.RECOVERY_CODES: RECOVERY_CODE}
# What allauth raises of a passkey's answer that isn't one.
MALFORMED = (ValidationError, ValueError, TypeError, KeyError, AttributeError)
LIMIT = {"reauthenticate": f"{MOST_TRIES}/{TRIES_WITHIN_S}s/key"}


@dataclass(frozen=True)
class Credentials:
    """What a person gives with a signature. ``passkey``: their passkey's answer to the challenge in their session;
    ``fresh_sign_in``: which sign-in of theirs at the single sign-on."""

    password: str = ""
    code: str = ""
    passkey: Mapping[str, Any] | None = None
    fresh_sign_in: int | None = None


@dataclass(frozen=True)
class Proof:
    """``at``: when the person proved who they are; None where they didn't, and ``refusal`` says why. ``method`` is
    stored with the signature."""

    at: datetime | None
    method: str = ""
    refusal: str = ""

    def age_s(self, now: datetime) -> float | None:
        return (now - self.at).total_seconds() if self.at else None


def reauthenticate(person: Account, credentials: Credentials) -> Proof:
    """Nobody signs by a session alone. Codes, passkeys' answers and fresh sign-ins are used up by it."""
    # Counted before they are looked at, so that guesses that come at once are counted too.
    tried = ratelimit.consume(HttpRequest(), app="", action="reauthenticate", config=LIMIT, key=f"account {person.pk}")
    if tried is None:
        return Proof(None, refusal=TOO_MANY_TRIES)
    means = means_of(person)
    given = Given(password=means.password and person.check_password(credentials.password))
    # A wrong password uses nothing up.
    if given.password or not means.password:
        second = second_of(person, credentials)
        fresh = None if second or means.password else fresh_sign_in(person, credentials.fresh_sign_in)
        given = Given(given.password, second, fresh)
    refusal = why_not_proven(means, given)
    if refusal:
        return Proof(None, refusal=refusal)
    tried.rollback()
    return Proof(given.signed_in_at or timezone.now(), method(given))


def second_of(person: Account, credentials: Credentials) -> str | None:
    if credentials.passkey is not None:
        return PASSKEY if passkey_answered(person, credentials.passkey) else ""
    if not credentials.code.strip():
        return None
    # A recovery code stands beside a password: without one it would be used up for nothing.
    kinds = CODES if person.has_usable_password() else {Authenticator.Type.TOTP}
    for one in Authenticator.objects.filter(user=person, type__in=kinds).order_by("-type"):
        if one.wrap().validate_code(credentials.code):
            one.record_usage()
            return CODES[one.type]
    return ""


def passkey_answered(person: Account, answer: Mapping[str, Any]) -> bool:
    challenge = (passkeys.get_state() or {}).get("challenge")
    try:
        passkeys.parse_authentication_response(answer)
        one = passkeys.complete_authentication(person, answer)
    except MALFORMED:
        return False
    # Two requests may carry the same answer at once: the session forgets its challenge only when one has ended.
    if not cache.add(f"passkey-answered:{challenge}", True, timeout=TRIES_WITHIN_S):
        return False
    one.record_usage()
    return True


def fresh_sign_in(person: Account, pk: int | None) -> datetime | None:
    """By compare-and-swap: it is good for one act."""
    if pk is None:
        return None
    now = timezone.now()
    fresh = FreshSignIn.objects.filter(
        pk=pk, person=person, used_at=None, auth_time__gte=now - timedelta(seconds=REAUTHENTICATION_S)
    )
    if not fresh.update(used_at=now):
        return None
    return min(FreshSignIn.objects.get(pk=pk).auth_time, now)
