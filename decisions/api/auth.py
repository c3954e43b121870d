"""Who may call an endpoint. A session is no credential here, so no page of another site can act with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from allauth.core.internal.ratelimit import consume, get_ip
from django.core.cache import caches
from django.http import HttpRequest
from ninja.errors import AuthorizationError
from ninja.security import HttpBearer
from ninja.throttling import AuthRateThrottle

from decisions.api.problems import FailedTooOften
from decisions.models import Account, ApiToken
from decisions.pages.access import Rule, has_a_role
from decisions.rules.tokens import READ, lacks_scope
from decisions.services.people import person
from decisions.services.use_token import record_refused_use, use_token

# Per token and web process: a loop that forgot to wait is stopped before it fills the database's queue.
RATE = "600/min"
# Per client address, over all processes.
MOST_FAILURES, FAILURES_WITHIN_S = 60, 60
FAILURES = {"token": f"{MOST_FAILURES}/{FAILURES_WITHIN_S}s/key"}


class Token(HttpBearer):
    """Anonymous, an unknown, expired or revoked token, or the account isn't active: 401, and 429 where that comes too
    often from one address. The token lacks the scope, or its person the role that ``rule`` asks for: 403, and an event
    where it was an act."""

    def __init__(self, scope: str | None = READ, rule: Rule = has_a_role) -> None:
        super().__init__()
        self.scope, self.rule = scope, rule

    def __call__(self, request: HttpRequest) -> ApiToken | None:
        found: ApiToken | None = super().__call__(request)
        if found is None:
            count_failure(request)
        return found

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        found = use_token(secret=token)
        if found is None:
            return None
        refusal = (lacks_scope(self.scope, found.scopes) if self.scope else None) or self.rule(person(found.person))
        if refusal:
            if request.method not in ("GET", "HEAD"):
                record_refused_use(token=found, asked=f"{request.method} {request.path}", sentence=refusal)
            raise AuthorizationError(403, refusal)
        return found


def count_failure(request: HttpRequest) -> None:
    """Raises FailedTooOften. A token that is valid is let in all the same: whoever is behind one address with a program
    that lost its token still gets an answer."""
    if consume(request, app="", action="token", config=FAILURES, key=get_ip(request), limit_get=True) is None:
        raise FailedTooOften(FAILURES_WITHIN_S)


class Throttle(AuthRateThrottle):
    """Counts in the process, not in the cache that all share: an API call is no write."""

    cache = caches["process"]


def access(scope: str | None = READ, rule: Rule = has_a_role) -> Mapping[str, Any]:
    """For the decorator of an endpoint: who is let in, and how often."""
    return {"auth": Token(scope, rule), "throttle": Throttle(RATE)}


def token_of(request: HttpRequest) -> ApiToken:
    return cast(ApiToken, cast(Any, request).auth)


def account_of(request: HttpRequest) -> Account:
    """The person that the token acts for."""
    return token_of(request).person
