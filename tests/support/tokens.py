"""Clients of the API with a token, as programs have one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.test import Client

from decisions.models import Account
from decisions.rules.tokens import SCOPES
from decisions.services.make_token import make_token


def secret_of(person: Account, scopes: Collection[str] = SCOPES) -> str:
    return make_token(person=person, name="a test", scopes=scopes, days=1, by=person.username).secret


class Caller:
    """Calls one server with one token, or with none."""

    def __init__(self, secret: str = "", client: Client | None = None) -> None:
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self.client = client or Client(enforce_csrf_checks=True)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        more: dict[str, Any] = {"data": body or {}, "content_type": "application/json"} if method != "GET" else {}
        call = getattr(self.client, method.lower())
        return call(f"/api/v1{path}", headers={**self.headers, **headers}, **more)


def caller(person: Account, *scopes: str) -> Caller:
    return Caller(secret_of(person, scopes or SCOPES))
