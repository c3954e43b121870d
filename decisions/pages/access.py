"""Who may see a page: anonymous → sign in; the wrong person → a sentence; the right person → the page."""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from decisions.models import Account
from decisions.rules.who_may import ROLES, Person
from decisions.services.people import person

Rule = Callable[[Person], str | None]
View = Callable[..., HttpResponseBase]


def has_a_role(someone: Person) -> str | None:
    if not someone.groups.isdisjoint(ROLES):
        return None
    return "Your account has no role here yet. Ask an operator to give you one: engineer, owner, auditor or operator."


def require(request: HttpRequest, rule: Rule = has_a_role) -> Account:
    """The person of the request, who has signed in (``login_required`` saw to that) and whom the rule lets pass."""
    account = cast(Account, request.user)
    refusal = rule(person(account))
    if refusal:
        raise PermissionDenied(refusal)
    return account


def posted_from(page: str, *keys: str) -> Callable[[View], View]:
    """For a view that takes POST alone. Whoever reloads the address under which a refused form was shown again is led
    back to the page of the form, which is named by ``keys`` of this one's address."""

    def decorate(view: View) -> View:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method in ("GET", "HEAD"):
                return redirect(reverse(page, kwargs={key: kwargs[key] for key in keys}))
            return view(request, *args, **kwargs)

        return require_http_methods(["GET", "HEAD", "POST"])(answer)

    return decorate
