"""What a form's part ``parts/credentials.html`` asks for, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from allauth.mfa.webauthn.internal import auth as passkeys
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from decisions.pages.access import require
from decisions.services.reauthenticate import Credentials

FRESH = "fresh-sign-in"
LONGEST_ANSWER = 20_000


def credentials_of(request: HttpRequest) -> Credentials:
    return Credentials(
        password=request.POST.get("password", ""),
        code=request.POST.get("code", ""),
        passkey=answer_in(request, "passkey"),
        fresh_sign_in=request.session.get(FRESH),
    )


def answer_in(request: HttpRequest, field: str) -> Mapping[str, Any] | None:
    """What the browser wrote of a passkey; None where it wrote nothing."""
    text = request.POST.get(field, "")
    if not text:
        return None
    try:
        found = json.loads(text) if len(text) <= LONGEST_ANSWER else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@require_safe
@never_cache
@login_required
def passkey_challenge(request: HttpRequest) -> HttpResponse:
    """Asked for by the script when somebody wants to prove themselves with a passkey."""
    return JsonResponse(passkeys.begin_authentication(require(request, anybody)))


def anybody(someone: object) -> None:
    """A person's own account is theirs whatever their role."""
