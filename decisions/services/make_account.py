import secrets
from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from decisions import ledger
from decisions.models import Account
from decisions.rules.who_may import ROLES, may_make_account
from decisions.services.people import person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act

PASSWORD_BYTES = 12
LONGEST_USERNAME = 150


@dataclass(frozen=True)
class NewAccount:
    """``password`` is told once; "" where the account signs in by single sign-on alone."""

    account: Account
    password: str


def make_account(
    *,
    username: str,
    roles: Collection[str],
    by: Account | str,
    name: str = "",
    email: str = "",
    single_sign_on: bool = False,
) -> NewAccount:
    """``by``: an operator, or who ran the command. The password has to be changed at the first sign-in."""
    actor = by if isinstance(by, str) else by.username
    if isinstance(by, Account) and (refusal := may_make_account(person(by))):
        refuse("account-make", refusal, subject="accounts", actor=actor)
    username, name, email = username.strip(), name.strip(), email.strip()
    check_words(username, name, email, roles, single_sign_on)
    password = "" if single_sign_on else new_password()
    with act():
        check_free(username, email)
        account = Account(username=username, first_name=name, email=email, must_change_password=bool(password))
        account.set_password(password or None)
        account.save()
        account.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
        ledger.append(
            "account-made",
            subject=f"account {username}",
            actor=actor,
            details={"name": name, "roles": sorted(roles), "single_sign_on": single_sign_on},
        )
    return NewAccount(account, password)


def new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def check_words(username: str, name: str, email: str, roles: Collection[str], single_sign_on: bool) -> None:
    try:
        UnicodeUsernameValidator()(username)
        if email:
            validate_email(email)
    except ValidationError as error:
        raise Refused(error.messages[0].rstrip(".")) from None
    if len(username) > LONGEST_USERNAME or len(name) > LONGEST_USERNAME or len(email) > LONGEST_USERNAME:
        raise Refused(f"names and addresses have at most {LONGEST_USERNAME} characters")
    if not username.strip("."):
        raise Refused("a username of dots alone is no address of a page: browsers leave them out")
    if not name.isprintable():
        raise Refused("a name stands on one line")
    if unknown := sorted(set(roles) - set(ROLES)):
        raise Refused(f"there is no role {unknown[0]}; there are {', '.join(ROLES)}")
    if single_sign_on and not email:
        raise Refused("whoever signs in by single sign-on alone needs an e-mail address: they are found by it")


def check_free(username: str, email: str) -> None:
    """Within the act. A name that only capitals tell from another is taken for it in the history."""
    if Account.objects.filter(username__iexact=username).exists():
        raise Refused(f"there is an account {username} already: a username is never used again")
    check_free_address(email)


def check_free_address(email: str) -> None:
    if email and Account.objects.filter(email__iexact=email).exists():
        raise Refused(f"another account has the e-mail address {email}: the single sign-on finds people by it")
