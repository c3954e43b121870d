from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from decisions.pages.access import require
from decisions.selectors import traffic as selectors
from decisions.selectors.pictures import arrivals_chart


@require_GET
@login_required
def traffic(request: HttpRequest) -> HttpResponse:
    require(request)
    return render(request, "traffic/list.html", {"sets": selectors.traffic_sets()})


@require_GET
@login_required
def traffic_set(request: HttpRequest, pk: int) -> HttpResponse:
    require(request)
    found = get_object_or_404(selectors.traffic_sets(), pk=pk)
    parts = [(part, selectors.class_shares(part.statistics)) for part in found.parts.all()]
    context = {
        "set": found,
        "parts": sorted(parts, key=lambda one: PART_ORDER.index(one[0].kind)),
        "classes": selectors.class_shares(found.statistics),
        "chart": arrivals_chart(found.statistics),
        "briefs": selectors.briefs_on(found),
    }
    return render(request, "traffic/set.html", context)


PART_ORDER = ("tuning", "held-out", "evaluation")
