"""The bundle of a decision, made when it is asked for."""

from __future__ import annotations

from tempfile import TemporaryFile

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from decisions.bundle import export_bundle, file_name
from decisions.models import BriefRevision
from decisions.pages.access import posted_from, require
from decisions.pages.brief_tabs import revision_or_404
from decisions.rules.who_may import may_read_ledger
from decisions.services.refused import Refused
from decisions.signing import NoSigningKey


@posted_from("brief-sign-off", "brief", "number")
@login_required
def bundle(request: HttpRequest, brief: int, number: int) -> HttpResponseBase:
    """A part of the history is in it, so whoever may read that may have it. Making it may sign a checkpoint: no GET."""
    require(request, may_read_ledger)
    revision = revision_or_404(brief, number)
    try:
        return bundle_answer(revision)
    except (Refused, NoSigningKey) as refusal:
        messages.error(request, f"No bundle was made: {refusal}.")
        return redirect("brief-sign-off", brief, number)


def bundle_answer(revision: BriefRevision) -> FileResponse:
    """For the page and the API. Raises Refused and NoSigningKey."""
    sink = TemporaryFile()  # noqa: SIM115 - the response closes it
    try:
        export_bundle(revision=revision, sink=sink)
    except Exception:
        sink.close()
        raise
    answer = FileResponse(sink, as_attachment=True, filename=file_name(revision), content_type="application/zip")
    answer["Cache-Control"] = "private, no-store"
    return answer
