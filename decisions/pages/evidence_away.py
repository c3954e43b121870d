"""What is answered where a page or a file needs evidence that can't be had."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable

logger = logging.getLogger(__name__)

AGAIN_S = 60
AWAY = "The evidence can’t be read now"
DAMAGED = "This evidence is damaged"
WAIT = (
    "Nothing is lost by that, and nothing was done. Try again in a while; where it stays so, tell whoever runs this "
    "installation."
)
LOST = "It is not shown, since it is not what was measured. Tell whoever runs this installation: a backup may have it."


def without_evidence(request: HttpRequest, error: EvidenceMissing | EvidenceDamaged) -> HttpResponse:
    """503 while the store can't be asked, 500 where what it has is damaged; raises Http404 where it has none."""
    if isinstance(error, EvidenceUnreachable):
        answer = told(request, error, AWAY, WAIT, status=503)
        answer["Retry-After"] = str(AGAIN_S)
        return answer
    if isinstance(error, EvidenceDamaged):
        return told(request, error, DAMAGED, LOST, status=500)
    raise Http404(str(error)) from None


def told(request: HttpRequest, error: Exception, heading: str, then: str, *, status: int) -> HttpResponse:
    logger.warning("%s: %s", request.path, error)
    return render(request, "no_evidence.html", {"heading": heading, "error": str(error), "then": then}, status=status)


class EvidenceAway:
    """For pages that say nothing of it themselves: they would be a fault of ours otherwise."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return without_evidence(request, error) if isinstance(error, EvidenceUnreachable) else None
