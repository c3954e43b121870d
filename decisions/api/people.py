from __future__ import annotations

from datetime import datetime

from django.http import HttpRequest
from ninja import Router, Schema

from decisions.api.auth import access, token_of

router = Router(tags=["token"])


class TokenOut(Schema):
    username: str
    roles: list[str]
    name: str
    prefix: str
    scopes: list[str]
    expires_at: datetime


@router.get("", response=TokenOut, summary="Whose token this is, and what it may", **access(scope=None))
def read_own_token(request: HttpRequest) -> TokenOut:
    """With any scope."""
    token = token_of(request)
    return TokenOut(
        username=token.person.username,
        roles=sorted(token.person.group_names),
        name=token.name,
        prefix=token.prefix,
        scopes=token.scopes,
        expires_at=token.expires_at,
    )
