"""Who may see a page: anonymous → sign in; the wrong person → a sentence; the right person → the page."""

from collections.abc import Callable
from typing import cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from decisions.models import Account
from decisions.rules.who_may import Person
from decisions.services.people import person

Rule = Callable[[Person], str | None]

ROLES = frozenset({"engineer", "owner", "auditor", "operator"})


def has_a_role(someone: Person) -> str | None:
    if someone.groups & ROLES:
        return None
    return (
        "Your account has no role here yet. Ask an administrator to add you to one of the groups "
        "engineer, owner, auditor or operator."
    )


def require(request: HttpRequest, rule: Rule = has_a_role) -> Account:
    """The person of the request, who has signed in (``login_required`` saw to that) and whom the rule lets pass."""
    account = cast(Account, request.user)
    refusal = rule(person(account))
    if refusal:
        raise PermissionDenied(refusal)
    return account
