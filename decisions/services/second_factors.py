"""A second factor of one's own: an authenticator app or a passkey. The first one brings recovery codes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, validate_totp_code
from allauth.mfa.webauthn.internal import auth as passkeys

from decisions import ledger
from decisions.models import Account
from decisions.services.reauthenticate import MALFORMED, Credentials, reauthenticate
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act

LONGEST_NAME = 60
MOST_PASSKEYS = 10


def add_authenticator_app(*, person: Account, secret: str, code: str, credentials: Credentials) -> list[str]:
    """The recovery codes, where these are the first. ``code``: what the app shows for the secret."""
    if Authenticator.objects.filter(user=person, type=Authenticator.Type.TOTP).exists():
        raise Refused("there is an authenticator app already: remove it first")
    if not validate_totp_code(secret, code):
        raise Refused("the app’s code is wrong: scan the picture again and give the code that the app shows now")
    prove("second-factor-add", person, credentials)
    with act():
        if Authenticator.objects.filter(user=person, type=Authenticator.Type.TOTP).exists():
            raise Refused("there is an authenticator app already")
        added = TOTP.activate(person, secret)
        # The code that showed it counts once, like every other.
        added.validate_code(code)
        return record_added(person, "authenticator app")


def add_passkey(
    *, person: Account, name: str, challenge: Mapping[str, Any], answer: Mapping[str, Any], credentials: Credentials
) -> list[str]:
    """``answer``: what the browser made for the challenge."""
    name = name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise Refused(f"name the passkey in at most {LONGEST_NAME} characters: you will know it by that")
    if Authenticator.objects.filter(user=person, type=Authenticator.Type.WEBAUTHN).count() >= MOST_PASSKEYS:
        raise Refused(f"there are {MOST_PASSKEYS} passkeys already: remove one first")
    check_made(challenge, answer)
    prove("second-factor-add", person, credentials)
    with act():
        passkeys.WebAuthn.add(person, name, dict(answer))
        return record_added(person, f"passkey {name}")


def check_made(challenge: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    try:
        made = passkeys.get_server().register_complete(challenge, dict(answer))
    except MALFORMED:
        raise Refused("the browser’s answer doesn’t make a passkey for this site: try again") from None
    if not made.is_user_verified():
        raise Refused("this passkey doesn’t ask who you are: set a PIN for it, or use another one")


def remove_second_factor(*, person: Account, factor: int, credentials: Credentials) -> str:
    """What was removed. With the last one go the recovery codes."""
    prove("second-factor-remove", person, credentials)
    with act():
        one = (
            Authenticator.objects.filter(user=person, pk=factor).exclude(type=Authenticator.Type.RECOVERY_CODES).first()
        )
        if one is None:
            raise Refused("it was removed already")
        name = f"passkey {one.wrap().name}" if one.type == Authenticator.Type.WEBAUTHN else "authenticator app"
        one.delete()
        left = Authenticator.objects.filter(user=person)
        if not left.exclude(type=Authenticator.Type.RECOVERY_CODES).exists():
            left.delete()
        record("second-factor-removed", person, {"factor": name})
    return name


def make_recovery_codes(*, person: Account, credentials: Credentials) -> list[str]:
    """New ones, in place of those there are."""
    prove("recovery-codes-make", person, credentials)
    with act():
        kept = Authenticator.objects.filter(user=person)
        if not kept.exclude(type=Authenticator.Type.RECOVERY_CODES).exists():
            raise Refused("recovery codes stand in for a second factor: add one first")
        kept.filter(type=Authenticator.Type.RECOVERY_CODES).delete()
        codes: list[str] = RecoveryCodes.activate(person).generate_codes()
        record("recovery-codes-made", person, {"codes": len(codes)})
    return codes


def prove(wanted: str, person: Account, credentials: Credentials) -> None:
    proof = reauthenticate(person, credentials)
    if proof.refusal:
        refuse(wanted, proof.refusal, subject=f"account {person.username}", actor=person.username)


def record_added(person: Account, name: str) -> list[str]:
    """Within the act."""
    is_first = not Authenticator.objects.filter(user=person, type=Authenticator.Type.RECOVERY_CODES).exists()
    codes: list[str] = RecoveryCodes.activate(person).generate_codes() if is_first else []
    record("second-factor-added", person, {"factor": name, "recovery_codes": len(codes)})
    return codes


def record(kind: str, person: Account, details: dict[str, object]) -> None:
    ledger.append(kind, subject=f"account {person.username}", actor=person.username, details=details)
