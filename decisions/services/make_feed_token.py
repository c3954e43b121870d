import secrets
from dataclasses import dataclass

from django.utils import timezone

from decisions import ledger
from decisions.models import Account, FeedToken
from decisions.rules.who_may import may_read_ledger
from decisions.services.people import person as person_of
from decisions.services.refuse import refuse
from loadtests.canonical import digest
from loadtests.journal import act

# So that a secret that lies about is recognised as one, and as none of the API.
BEGINNING = "dpf_"
SECRET_BYTES = 32
PREFIX_SHOWN = 10


@dataclass(frozen=True)
class NewFeedToken:
    """``secret`` is told once: only its digest is kept."""

    token: FeedToken
    secret: str


def make_feed_token(*, person: Account) -> NewFeedToken:
    """The one address of a person's feeds: a new one ends the one before it."""
    subject = f"account {person.username}"
    refusal = may_read_ledger(person_of(person))
    if refusal:
        refuse("feed-token-make", refusal, subject=subject, actor=person.username)
    secret = BEGINNING + secrets.token_urlsafe(SECRET_BYTES)
    with act():
        replaced = list(FeedToken.objects.filter(person=person, revoked_at=None).values_list("prefix", flat=True))
        FeedToken.objects.filter(person=person, revoked_at=None).update(revoked_at=timezone.now())
        token = FeedToken.objects.create(person=person, prefix=secret[:PREFIX_SHOWN], digest=digest(secret.encode()))
        details: dict[str, object] = {"token": token.pk, "prefix": token.prefix}
        ledger.append(
            "feed-token-made",
            subject=subject,
            actor=person.username,
            details=details | ({"replaces": replaced} if replaced else {}),
        )
    return NewFeedToken(token, secret)
