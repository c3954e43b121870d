from django.utils import timezone

from decisions import ledger
from decisions.models import Account, FeedToken
from decisions.rules.who_may import may_revoke_token
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def revoke_feed_token(*, token: FeedToken, by: Account) -> None:
    """From here on its addresses answer nobody."""
    subject = f"account {token.person.username}"
    refusal = may_revoke_token(person(by), token.person.username)
    if refusal:
        refuse("feed-token-revoke", refusal, subject=subject, actor=by.username)
    with act():
        if not FeedToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            raise Refused(f"the feed address {token.prefix}… has been revoked already")
        ledger.append(
            "feed-token-revoked",
            subject=subject,
            actor=by.username,
            details={"token": token.pk, "prefix": token.prefix},
        )
    token.refresh_from_db()
