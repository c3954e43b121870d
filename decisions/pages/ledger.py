"""The history: filtered, verified, taken away as a file."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from decisions.pages.access import require
from decisions.rules.history import STATE_KINDS, ZONE, Filter, filter_problems, read_filter
from decisions.rules.who_may import may_read_ledger
from decisions.selectors import events as selectors
from decisions.services.check_chain import begin_whole_walk, check_chain, lately_checked, the_check
from decisions.services.export_history import FORMATS, export_history

EVENTS_A_PAGE = 50
# A press on the button, and each turn of the progress that follows it, verifies for so long.
TURN_S = 1.0
EXPORTS = {"csv": "Export as CSV", "jsonl": "Export as JSONL"}


@require_safe
@login_required
def ledger(request: HttpRequest) -> HttpResponse:
    require(request, may_read_ledger)
    asked = read_filter(request.GET)
    problems = filter_problems(asked)
    context = {
        "asked": asked,
        "query": urlencode(asked.asked),
        "problems": problems,
        "page": None if problems else page(request, asked),
        "choices": choices(asked),
        "zone": ZONE,
        "forms": EXPORTS.items(),
        "keys": selectors.signing_keys(),
        "chain": selectors.chain_of(lately_checked()),
    }
    return render(request, "ledger.html", context, status=422 if problems else 200)


def page(request: HttpRequest, asked: Filter) -> selectors.EventPage:
    before, after = (number(request.GET.get(name, "")) for name in ("before", "after"))
    return selectors.page_of_events(asked, size=EVENTS_A_PAGE, before=before, after=after)


def number(typed: str) -> int | None:
    """None where it is no number that an event may have."""
    return int(typed) if typed.isascii() and typed.isdecimal() and len(typed) < 19 else None


def choices(asked: Filter) -> dict[str, list[str]]:
    """What there is to choose from, and what is asked for, be it there or not."""
    known = {
        "kind": selectors.event_kinds(),
        "actor": selectors.event_actors(),
        "service": selectors.event_services(),
        "route": selectors.event_routes(),
        "state": sorted(STATE_KINDS),
    }
    return {name: sorted({*found, *filter(None, [getattr(asked, name)])}) for name, found in known.items()}


@require_POST
@login_required
def export(request: HttpRequest, form: str) -> StreamingHttpResponse:
    """By POST: it leaves an event, which no link in a letter may do."""
    account = require(request, may_read_ledger)
    asked = read_filter(request.GET)
    if form not in FORMATS or filter_problems(asked):
        raise Http404("there is no such export")
    lines = export_history(asked=asked, form=form, by=account)
    name = f"draftproof-history-{timezone.now():%Y-%m-%dT%H%MZ}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return StreamingHttpResponse(lines, content_type=FORMATS[form], headers=headers)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def verify(request: HttpRequest) -> HttpResponse:
    """Walks the whole chain, a turn with each request: the progress goes on without a background task, and with one it
    goes on faster. Verifying changes nothing in the history and is no act of it."""
    require(request, may_read_ledger)
    if request.method == "POST":
        if "on" not in request.POST:
            begin_whole_walk()
        check_chain(seconds=TURN_S)
    context = {"chain": selectors.chain_of(the_check())}
    if request.headers.get("HX-Request"):
        return render(request, "history/walk.html", context)
    if request.method == "POST":
        return redirect("ledger-verify")
    return render(request, "history/verify.html", context)
