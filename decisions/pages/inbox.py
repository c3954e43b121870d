from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from decisions.pages.access import require
from decisions.selectors import inbox as selectors
from decisions.selectors.kept_text import not_removed_yet


@require_safe
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    person = require(request)
    now = timezone.now()
    return render(
        request,
        "inbox.html",
        {
            "roles": sorted(person.group_names),
            "roles_shown": sorted(person.group_names - {person.get_full_name() or person.username}),
            "waiting": selectors.waiting_for(person),
            "steps": selectors.first_steps(person),
            "running": selectors.running_briefs(),
            "releases": selectors.in_force(now),
            "expires_soon": now + selectors.EXPIRES_SOON,
            "decisions": selectors.recent_decisions(),
            # For those who run the installation: they alone can mend a store.
            "not_removed": not_removed_yet() if "operator" in person.group_names else None,
        },
    )


@require_safe
@login_required
def inbox_running(request: HttpRequest) -> HttpResponse:
    require(request)
    return render(request, "parts/running.html", {"running": selectors.running_briefs()})
