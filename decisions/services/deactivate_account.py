from django.utils import timezone

from decisions import ledger
from decisions.models import Account, ApiToken, FeedToken
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.services.changed_by import changed_by
from decisions.services.end_sessions import end_all
from decisions.services.refused import Refused
from loadtests.journal import act


def deactivate_account(*, account: Account, reason: str, by: Account) -> None:
    """Ends their sessions, tokens and feeds for good. What they did stays, and so does their username."""
    change(account, False, reason, by)


def reactivate_account(*, account: Account, reason: str, by: Account) -> None:
    """They sign in again as before; their tokens and feeds stay revoked."""
    change(account, True, reason, by)


def change(account: Account, active: bool, reason: str, by: Account) -> None:
    done = "reactivate" if active else "deactivate"
    subject = f"account {account.username}"
    changed_by(by, account, f"account-{done}")
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        if not Account.objects.filter(pk=account.pk, is_active=not active).update(is_active=active):
            raise Refused(f"the account was {done}d already")
        details: dict[str, object] = {"reason": reason.strip()}
        if not active:
            now, kept = timezone.now(), {"person": account, "revoked_at": None}
            tokens = ApiToken.objects.filter(**kept).update(revoked_at=now)
            feeds = FeedToken.objects.filter(**kept).update(revoked_at=now)
            details |= {"sessions": end_all(account), "tokens": tokens, "feeds": feeds}
        ledger.append(f"account-{done}d", subject=subject, actor=by.username, details=details)
    account.refresh_from_db()
