from decisions import ledger
from decisions.models import Account
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.services.changed_by import changed_by
from decisions.services.end_sessions import end_all
from decisions.services.make_account import new_password
from decisions.services.refused import Refused
from loadtests.journal import act


def reset_password(*, account: Account, reason: str, by: Account | str) -> str:
    """The generated password, told once; it has to be changed at the next sign-in. Second factors stay."""
    actor = changed_by(by, account, "password-reset")
    if is_too_short(reason):
        raise Refused(f"say why in at least {SHORTEST_REASON} characters")
    password = new_password()
    with act():
        account.set_password(password)
        account.must_change_password = True
        account.save(update_fields=["password", "must_change_password"])
        ledger.append(
            "password-reset",
            subject=f"account {account.username}",
            actor=actor,
            details={"reason": reason.strip(), "sessions": end_all(account)},
        )
    return password
