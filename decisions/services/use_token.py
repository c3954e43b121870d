"""Whom a token lets in."""

from datetime import timedelta

from django.utils import timezone

from decisions import ledger
from decisions.models import ApiToken
from loadtests.canonical import digest
from loadtests.journal import act

# Written at most so often: a gateway that asks every second would write every second.
NOTED_EVERY = timedelta(minutes=1)


def use_token(*, secret: str) -> ApiToken | None:
    """None for one that is unknown, expired or revoked, or whose person's account is not active."""
    now = timezone.now()
    found = ApiToken.objects.valid(now).filter(digest=digest(secret.encode())).select_related("person").first()
    if found and (found.last_used_at is None or found.last_used_at <= now - NOTED_EVERY):
        ApiToken.objects.filter(pk=found.pk).update(last_used_at=now)
    return found


def record_refused_use(*, token: ApiToken, asked: str, sentence: str) -> None:
    """An act that was tried with a token and that its scopes or its person's roles don't allow."""
    with act():
        ledger.append(
            "api-refused",
            subject=f"account {token.person.username}",
            actor=token.person.username,
            details={"token": token.pk, "prefix": token.prefix, "asked": asked, "reason": sentence},
        )
