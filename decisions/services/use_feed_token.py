"""Whom the secret in a feed's address lets read."""

from datetime import timedelta

from django.utils import timezone

from decisions.models import Account, FeedToken
from decisions.rules.who_may import may_read_ledger
from decisions.services.people import person
from loadtests.canonical import digest

# Written at most so often: some readers ask every minute.
NOTED_EVERY = timedelta(hours=1)


def use_feed_token(*, secret: str) -> Account | None:
    """None for one that is unknown or revoked, and for one whose person may no longer read the history: a token goes
    with the role."""
    now = timezone.now()
    found = FeedToken.objects.filter(digest=digest(secret.encode()), revoked_at=None).select_related("person").first()
    if found is None or may_read_ledger(person(found.person)):
        return None
    if found.last_used_at is None or found.last_used_at <= now - NOTED_EVERY:
        FeedToken.objects.filter(pk=found.pk).update(last_used_at=now)
    return found.person
