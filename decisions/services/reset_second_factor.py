from allauth.mfa.models import Authenticator

from decisions import ledger
from decisions.models import Account
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.selectors.identity import second_factors_of
from decisions.services.changed_by import changed_by
from decisions.services.end_sessions import end_all
from decisions.services.refused import Refused
from loadtests.journal import act


def reset_second_factor(*, account: Account, reason: str, by: Account | str) -> None:
    """For whoever has lost theirs, recovery codes too: an operator takes all of them off."""
    actor = changed_by(by, account, "second-factor-reset")
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    with act():
        factors = [one.name for one in second_factors_of(account)]
        if not factors:
            raise Refused("they have no second factor")
        Authenticator.objects.filter(user=account).delete()
        ledger.append(
            "second-factor-reset",
            subject=f"account {account.username}",
            actor=actor,
            details={"factors": factors, "reason": reason.strip(), "sessions": end_all(account)},
        )
