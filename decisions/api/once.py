"""Idempotency-Key: a POST that may be sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Header, Schema

from decisions.api.auth import account_of
from decisions.services.answer_once import Answer, answer_once
from loadtests.canonical import digest

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern="^[!-~]+$",
        description="One of your own for each act. The same request with it is answered again, not done again.",
    ),
]


def once(request: HttpRequest, key: str | None, act: Callable[[], Schema], *, status: int = 200) -> HttpResponse:
    def answer() -> Answer:
        return Answer(status, act().model_dump_json(by_alias=True).encode())

    if key is None:
        return sent(answer())
    asked = digest(f"{request.method} {request.get_full_path()}\n".encode() + request.body)
    return sent(answer_once(person=account_of(request), key=key, asked=asked, answer=answer))


def sent(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.content, status=answer.status, content_type="application/json")
    if answer.again:
        response["Idempotency-Replayed"] = "true"
    return response
