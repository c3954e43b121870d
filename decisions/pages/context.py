from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from decisions.selectors.inbox import waiting_count

# url name, what it says, the url names of the pages that belong to it
SECTIONS = (
    ("inbox", "Inbox", {"inbox"}),
    ("services", "Services", {"services", "service", "route", "revoke"}),
    ("briefs", "Briefs", {"briefs"}),
    ("traffic", "Traffic", {"traffic"}),
    ("runs", "Runs", {"runs", "boot", "declare-fault"}),
    ("ledger", "History", set[str]()),
)

# Their pages are many, and all of one section.
BY_FIRST_WORD = {
    "brief": "briefs",
    "demonstration": "services",
    "demonstrations": "services",
    "endpoint": "services",
    "endpoints": "services",
    "ledger": "ledger",
    "preflight": "briefs",
    "service": "services",
    "traffic": "traffic",
}


def section_of(url_name: str) -> str:
    first = url_name.split("-")[0]
    if first in BY_FIRST_WORD:
        return BY_FIRST_WORD[first]
    return next((name for name, _, members in SECTIONS if url_name in members), "")


def navigation(request: HttpRequest) -> dict[str, Any]:
    """The main navigation; parts of pages never use it, so its count is taken only where it is shown."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    here = section_of(getattr(request.resolver_match, "url_name", "") or "")
    return {
        "sections": [{"name": name, "label": label, "here": name == here} for name, label, _ in SECTIONS],
        "waiting_count": SimpleLazyObject(lambda: waiting_count(user)),
    }
