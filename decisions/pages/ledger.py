from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from decisions.pages.access import require
from decisions.rules.who_may import may_read_ledger
from decisions.selectors import events as selectors

EVENTS_A_PAGE = 50


@require_safe
@login_required
def ledger(request: HttpRequest) -> HttpResponse:
    require(request, may_read_ledger)
    asked = {name: request.GET.get(name, "").strip() for name in ("kind", "actor", "subject")}
    page = Paginator(selectors.events(**asked), EVENTS_A_PAGE).get_page(request.GET.get("page"))
    context = {
        "asked": asked,
        "filtered": any(asked.values()),
        "page": page,
        "kinds": selectors.event_kinds(),
        "actors": selectors.event_actors(),
        "keys": selectors.signing_keys(),
        "chain": selectors.chain_status(afresh="verify" in request.GET),
    }
    return render(request, "ledger.html", context)
