"""The rules of the preflight, each with its paragraph of docs/preflight.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from decisions.pages.access import require
from decisions.rules.findings import PAGE
from decisions.rules.flagged import EVERY_RULE

SECTION = re.compile(r"^### (?P<id>[a-z0-9-]+)\n+(?P<text>.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Piece:
    words: str
    code: bool


@dataclass(frozen=True)
class Paragraph:
    id: str
    severity: str
    pieces: list[Piece]


def pieces_of(text: str) -> Iterator[Piece]:
    """`code` apart from words: the only mark that these paragraphs have."""
    for place, words in enumerate(" ".join(text.split()).split("`")):
        if words:
            yield Piece(words, code=place % 2 == 1)


def paragraphs(page: str) -> list[Paragraph]:
    severities = {rule.id: rule.severity for rule in EVERY_RULE}
    return [
        Paragraph(found["id"], severities[found["id"]], list(pieces_of(found["text"])))
        for found in SECTION.finditer(page)
        if found["id"] in severities
    ]


@require_safe
@login_required
def preflight(request: HttpRequest) -> HttpResponse:
    require(request)
    path = Path(settings.BASE_DIR) / PAGE
    if not path.exists():
        raise Http404(f"{PAGE} was not installed with the program")
    return render(request, "preflight.html", {"rules": paragraphs(path.read_text(encoding="utf-8"))})
