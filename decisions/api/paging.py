"""Lists in pages: a cursor names the last row seen, so rows that are added meanwhile shift nothing."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from ninja import Query, Schema
from ninja.errors import ValidationError
from pydantic import Field

T = TypeVar("T")
M = TypeVar("M", bound=Model)
BEGINNING = "after:"
LARGEST_KEY = 2**63 - 1


class Asked(Schema):
    cursor: str = Field("", max_length=60, description="`next` of the page before; none for the first page.")
    limit: int = Field(50, ge=1, le=200)


class Page(Schema, Generic[T]):
    items: list[T]
    next: str | None = Field(description="The next page's cursor; null: this is the last.")


Paging = Annotated[Asked, Query()]


def page_of(rows: QuerySet[M], asked: Asked, shown: Callable[[M], Any]) -> dict[str, Any]:
    """The newest first."""
    wanted = rows.order_by("-pk")
    if asked.cursor:
        wanted = wanted.filter(pk__lt=key_in(asked.cursor))
    found = list(wanted[: asked.limit + 1])
    listed = found[: asked.limit]
    further = cursor_after(listed[-1].pk) if len(found) > len(listed) else None
    return {"items": [shown(one) for one in listed], "next": further}


def cursor_after(key: int) -> str:
    return urlsafe_b64encode(f"{BEGINNING}{key}".encode()).decode().rstrip("=")


def key_in(cursor: str) -> int:
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError:
        text = ""
    digits = text.removeprefix(BEGINNING)
    if not text.startswith(BEGINNING) or not digits.isdecimal() or int(digits) > LARGEST_KEY:
        raise ValidationError([{"loc": ("query", "cursor"), "msg": "take it from `next` of the page before, as it is"}])
    return int(digits)
