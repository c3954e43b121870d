"""Who somebody is, and with what they can prove it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from decisions.models import Account, Event, FreshSignIn
from decisions.rules.identity import RESET_SETTLES, RESETS, Means, Reset
from decisions.rules.signing import REAUTHENTICATION_S

SSO = "sso"


@dataclass(frozen=True)
class SecondFactor:
    pk: int
    type: str
    name: str
    added_at: datetime
    last_used_at: datetime | None


def means_of(person: Account) -> Means:
    types = set(Authenticator.objects.filter(user=person).values_list("type", flat=True))
    return Means(
        password=person.has_usable_password(),
        totp=Authenticator.Type.TOTP in types,
        passkey=Authenticator.Type.WEBAUTHN in types,
        single_sign_on=bool(settings.SINGLE_SIGN_ON_ISSUER)
        and SocialAccount.objects.filter(user=person, provider=SSO).exists(),
    )


def second_factors_of(person: Account) -> list[SecondFactor]:
    """Without the recovery codes, which stand in for them."""
    rows = Authenticator.objects.filter(user=person).exclude(type=Authenticator.Type.RECOVERY_CODES).order_by("pk")
    return [SecondFactor(row.pk, row.type, name_of(row), row.created_at, row.last_used_at) for row in rows]


def name_of(row: Authenticator) -> str:
    return f"passkey {row.wrap().name}" if row.type == Authenticator.Type.WEBAUTHN else "authenticator app"


def codes_left(person: Account) -> int | None:
    """None where there are no recovery codes at all."""
    row = Authenticator.objects.filter(user=person, type=Authenticator.Type.RECOVERY_CODES).first()
    return len(row.wrap().get_unused_codes()) if row else None


def sessions_of(person: Account) -> list[UserSession]:
    """Those that still let somebody in, the latest first."""
    return sorted(UserSession.objects.purge_and_list(person), key=lambda one: one.last_seen_at, reverse=True)


def fresh_until(person: Account, pk: int | None) -> datetime | None:
    """Until when a fresh sign-in is good for an act; None where it isn't."""
    found = FreshSignIn.objects.filter(pk=pk, person=person, used_at=None).first() if pk else None
    until = found.auth_time + timedelta(seconds=REAUTHENTICATION_S) if found else None
    return until if until and until > timezone.now() else None


def recent_reset(person: Account) -> Reset | None:
    """The last one that a signature still waits for. The history is asked: nobody can take it out of there."""
    # A password stands before whatever the single sign-on says.
    kinds = [kind for kind in RESETS if kind != "email-set" or not person.has_usable_password()]
    found = Event.objects.filter(
        subject=f"account {person.username}", kind__in=kinds, at__gt=timezone.now() - RESET_SETTLES
    ).last()
    return Reset(found.kind, found.actor, found.at) if found else None


def people() -> QuerySet[Account]:
    return Account.objects.prefetch_related("groups", "owned_services").order_by("-is_active", "username")
