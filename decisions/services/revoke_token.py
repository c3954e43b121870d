from django.utils import timezone

from decisions import ledger
from decisions.models import Account, ApiToken
from decisions.rules.who_may import may_revoke_token
from decisions.services.make_token import told
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def revoke_token(*, token: ApiToken, by: Account) -> None:
    """From here on nobody is let in with it."""
    subject = f"account {token.person.username}"
    refusal = may_revoke_token(person(by), token.person.username)
    if refusal:
        refuse("token-revoke", refusal, subject=subject, actor=by.username)
    with act():
        if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            raise Refused(f"the token {token.prefix}… has been revoked already")
        ledger.append("token-revoked", subject=subject, actor=by.username, details=told(token))
    token.refresh_from_db()
