"""Errors as problem documents (RFC 9457): what is wrong, where, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI, Schema
from ninja.errors import HttpError, Throttled, ValidationError
from pydantic import Field

from decisions.pages.problems import located
from decisions.rules.brief import BadBrief
from decisions.services.answer_once import KeyUsed
from decisions.services.refused import Refused
from decisions.signing import NoSigningKey
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable

CONTENT_TYPE = "application/problem+json"
AGAIN_S = 60


class FieldProblem(Schema):
    field: str = Field(description="Dotted; empty where it is about the whole.")
    detail: str
    line: int | None = Field(None, description="Of the brief's source.")
    rule: str | None = Field(None, description="Of the preflight, where it breaks one.")


class Problem(Schema):
    """RFC 9457. Its ``type`` is about:blank: the status says which kind it is, ``detail`` says the rest."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


class FailedTooOften(Throttled):
    """From one address came too many requests without a valid token."""


class BadSource(Exception):
    """A brief that can't be used, with its words."""

    def __init__(self, bad: BadBrief, source: str) -> None:
        super().__init__(str(bad))
        self.bad, self.source = bad, source


def problem(
    status: int,
    detail: str,
    errors: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": errors or [],
    }
    content = json.dumps(document, ensure_ascii=True)
    return HttpResponse(content, status=status, content_type=CONTENT_TYPE, headers=dict(headers or {}))


def of_fields(error: ValidationError) -> HttpResponse:
    """Ninja's places begin with where the parameter was: body, query, path, header."""
    errors = [{"field": dotted(one.get("loc", ())), "detail": str(one.get("msg", ""))} for one in error.errors]
    return problem(422, "the request has fields that can't be used: see errors", errors)


def dotted(place: tuple[Any, ...] | list[Any]) -> str:
    return ".".join(str(step) for step in place if step not in ("body", "__root__"))


def of_brief(error: BadSource) -> HttpResponse:
    errors = [
        {"field": one.field, "detail": one.sentence, "line": one.line, "rule": one.rule or None}
        for one in located(error.bad.problems, error.source, error.bad.rules)
    ]
    return problem(422, "the brief can't be used as it is written: see errors", errors)


def of_http(error: HttpError) -> HttpResponse:
    if error.status_code == 401:
        detail = "send a token that is valid: Authorization: Bearer …"
        return problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="draftproof"'})
    return problem(error.status_code, str(error))


def of_throttle(error: Throttled) -> HttpResponse:
    wait = str(max(1, round(error.wait or 1)))
    what = "without a valid token from this address" if isinstance(error, FailedTooOften) else "with this token"
    return problem(429, f"too many requests {what}: ask again in {wait} s", headers={"Retry-After": wait})


def of_evidence(error: EvidenceMissing | EvidenceDamaged) -> HttpResponse:
    if isinstance(error, EvidenceUnreachable):
        return problem(503, f"the evidence can't be read now: {error}", headers={"Retry-After": str(AGAIN_S)})
    return problem(404 if isinstance(error, EvidenceMissing) else 500, str(error))


ANSWERS: Mapping[type[Exception], Callable[[Any], HttpResponse]] = {
    HttpError: of_http,
    Throttled: of_throttle,
    ValidationError: of_fields,
    Http404: lambda error: problem(404, str(error) or "there is nothing at this address"),
    Refused: lambda error: problem(409, str(error)),
    KeyUsed: lambda error: problem(422, str(error), [{"field": "Idempotency-Key", "detail": str(error)}]),
    BadSource: of_brief,
    NoSigningKey: lambda error: problem(409, str(error)),
    EvidenceMissing: of_evidence,
    EvidenceDamaged: of_evidence,
}


def answer_with_problems(api: NinjaAPI) -> None:
    for kind, answer in ANSWERS.items():
        api.add_exception_handler(kind, handler(answer))


def handler(answer: Callable[[Any], HttpResponse]) -> Callable[[HttpRequest, Any], HttpResponse]:
    return lambda request, error: answer(error)
