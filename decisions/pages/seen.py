"""What every page asks of a session: when it was last seen, and whether its person has a password of their own."""

from __future__ import annotations

import time
from collections.abc import Callable

from allauth.usersessions.models import UserSession
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django_htmx.http import HttpResponseClientRefresh

SEEN = "seen"
# Seconds. Noted at each page, a page would be a write.
NOTED_EVERY_S = 300


class Seen:
    """Whoever was given a password by somebody else sees nothing before they have changed it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # The API knows no sessions, and what stands under /static/ is everybody's.
        if request.path.startswith(("/api/", "/static/")) or not request.user.is_authenticated:
            return self.get_response(request)
        note(request)
        open_to_all = (reverse("password"), reverse("sign-out"), reverse("passkey-challenge"))
        if request.user.must_change_password and request.path not in open_to_all:
            # A part of a page that refreshes itself would show the form within it.
            return HttpResponseClientRefresh() if request.headers.get("HX-Request") else redirect("password")
        return self.get_response(request)


def note(request: HttpRequest) -> None:
    now = int(time.time())
    if now - request.session.get(SEEN, 0) < NOTED_EVERY_S:
        return
    request.session[SEEN] = now
    UserSession.objects.create_from_request(request)
