from decisions.models import Account
from decisions.rules.who_may import may_change_account
from decisions.services.people import person
from decisions.services.refuse import refuse


def changed_by(by: Account | str, account: Account, act: str) -> str:
    """Who is named in the event of a change to an account. ``by``: an operator, or whoever ran a command: whom the
    machine lets do that may do it. Raises Refused for an operator who may not."""
    if isinstance(by, str):
        return by
    refusal = may_change_account(person(by), person(account))
    if refusal:
        refuse(act, refusal, subject=f"account {account.username}", actor=by.username)
    return by.username
