from allauth.socialaccount.models import SocialAccount

from decisions import ledger
from decisions.models import Account
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.services.end_sessions import end_all
from decisions.services.refused import Refused
from loadtests.journal import act


def reset_single_sign_on(*, account: Account, reason: str, by: str) -> None:
    """By whoever runs the machine, where the provider knows somebody under another name now: the next who comes with
    the account's verified e-mail address is linked."""
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        if not SocialAccount.objects.filter(user=account).delete()[0]:
            raise Refused("they are not linked to the single sign-on")
        ledger.append(
            "single-sign-on-reset",
            subject=f"account {account.username}",
            actor=by,
            details={"reason": reason.strip(), "sessions": end_all(account)},
        )
