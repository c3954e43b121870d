from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from decisions import ledger
from decisions.models import Account
from decisions.services.changed_by import changed_by
from decisions.services.make_account import check_free_address
from decisions.services.refused import Refused
from loadtests.journal import act


def set_email(*, account: Account, email: str, by: Account) -> None:
    """By an operator: whoever sets it says whom the single sign-on lets in under this name. "" takes it away."""
    actor = changed_by(by, account, "email-set")
    email = email.strip()
    try:
        if email:
            validate_email(email)
    except ValidationError as error:
        raise Refused(error.messages[0].rstrip(".")) from None
    with act():
        if email == account.email:
            raise Refused("this is the address that they have already")
        check_free_address(email)
        before, account.email = account.email, email
        account.save(update_fields=["email"])
        ledger.append(
            "email-set",
            subject=f"account {account.username}",
            actor=actor,
            details={"before": before, "after": email},
        )
