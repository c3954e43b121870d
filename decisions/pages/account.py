"""A person's own account: password, second factors, sessions. What changes a key asks who they are, as signing does."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.flows.logout import logout
from allauth.mfa.adapter import get_adapter
from allauth.mfa.totp.internal.auth import generate_totp_secret
from allauth.mfa.webauthn.internal import auth as passkeys
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.safestring import mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account
from decisions.pages.access import posted_from, require
from decisions.pages.credentials import answer_in, anybody, credentials_of
from decisions.rules.identity import why_not_after_reset
from decisions.rules.who_may import may_make_account
from decisions.selectors.identity import codes_left, means_of, recent_reset, second_factors_of, sessions_of
from decisions.services.change_password import change_password
from decisions.services.end_sessions import end_sessions
from decisions.services.people import person
from decisions.services.refused import Refused
from decisions.services.second_factors import (
    LONGEST_NAME,
    add_authenticator_app,
    add_passkey,
    make_recovery_codes,
    remove_second_factor,
)

form_page = require_http_methods(["GET", "HEAD", "POST"])
SECRET, CHALLENGE = "authenticator-app-secret", "new-passkey-challenge"


@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    own = require(request, anybody)
    context = {
        "means": means_of(own),
        "factors": second_factors_of(own),
        "codes_left": codes_left(own),
        "sessions": len(sessions_of(own)),
        "reset": why_not_after_reset(recent_reset(own), timezone.now()),
        "manages_people": may_make_account(person(own)) is None,
        "sso": settings.SINGLE_SIGN_ON_NAME if settings.SINGLE_SIGN_ON_ISSUER else "",
    }
    return render(request, "account/index.html", context)


@form_page
@never_cache
@login_required
def password(request: HttpRequest) -> HttpResponse:
    own = require(request, anybody)
    if request.method != "POST":
        return render(request, "account/password.html")
    new = request.POST.get("new", "")
    try:
        if new != request.POST.get("again", ""):
            raise Refused("the two new passwords differ: write the same one twice")
        change_password(person=own, credentials=credentials_of(request), new=new)
    except Refused as refusal:
        return render(request, "account/password.html", {"refusal": str(refusal)}, status=422)
    update_session_auth_hash(request, own)
    # It has another key now: under the old one nobody could end it.
    UserSession.objects.create_from_request(request)
    messages.success(request, "The password is changed. Every other session of yours has ended.")
    return redirect("account")


@form_page
@never_cache
@login_required
def authenticator_app(request: HttpRequest) -> HttpResponse:
    own = require(request, anybody)
    secret = request.session.setdefault(SECRET, generate_totp_secret())
    if request.method != "POST":
        return render_app(request, own, secret)
    try:
        codes = add_authenticator_app(
            person=own, secret=secret, code=request.POST.get("app_code", ""), credentials=credentials_of(request)
        )
    except Refused as refusal:
        return render_app(request, own, secret, refusal=str(refusal), status=422)
    del request.session[SECRET]
    return added(request, "The authenticator app is your second factor now.", codes)


def render_app(
    request: HttpRequest, own: Account, secret: str, *, refusal: str = "", status: int = 200
) -> HttpResponse:
    adapter = get_adapter()
    # The picture is drawn here, from the secret: nothing in it comes from anybody else.
    picture = mark_safe(adapter.build_totp_svg(adapter.build_totp_url(own, secret)))  # noqa: S308
    spaced = " ".join(secret[at : at + 4] for at in range(0, len(secret), 4))
    context = {"picture": picture, "secret": spaced, "refusal": refusal, "means": means_of(own)}
    return render(request, "account/authenticator_app.html", context, status=status)


@form_page
@never_cache
@login_required
def passkey(request: HttpRequest) -> HttpResponse:
    own = require(request, anybody)
    name = request.POST.get("name", "")
    if request.method != "POST":
        return render_passkey(request, name)
    try:
        codes = add_passkey(
            person=own,
            name=name,
            challenge=request.session.pop(CHALLENGE, {}),
            answer=answer_in(request, "made") or {},
            credentials=credentials_of(request),
        )
    except Refused as refusal:
        return render_passkey(request, name, refusal=str(refusal), status=422)
    return added(request, f"The passkey {name.strip()} is your second factor now.", codes)


def render_passkey(request: HttpRequest, name: str, *, refusal: str = "", status: int = 200) -> HttpResponse:
    context = {"name": name, "longest_name": LONGEST_NAME, "refusal": refusal}
    return render(request, "account/passkey.html", context, status=status)


@require_safe
@never_cache
@login_required
def passkey_options(request: HttpRequest) -> HttpResponse:
    """Apart from the challenge that another passkey may be answering on the same page."""
    own = require(request, anybody)
    asked = passkeys.get_state()
    options: dict[str, Any] = passkeys.begin_registration(own, True)
    request.session[CHALLENGE] = passkeys.get_state()
    passkeys.clear_state() if asked is None else passkeys.set_state(asked)
    return JsonResponse(options)


def added(request: HttpRequest, sentence: str, codes: list[str]) -> HttpResponse:
    """Not led elsewhere where there are codes: they are shown in this answer."""
    messages.success(request, sentence)
    if not codes:
        return redirect("account")
    return render(request, "account/recovery_codes.html", {"codes": codes})


@form_page
@never_cache
@login_required
def recovery_codes(request: HttpRequest) -> HttpResponse:
    own = require(request, anybody)
    left = codes_left(own)
    if request.method != "POST":
        return render(request, "account/recovery_codes.html", {"left": left})
    try:
        codes = make_recovery_codes(person=own, credentials=credentials_of(request))
    except Refused as refusal:
        context = {"left": left, "refusal": str(refusal)}
        return render(request, "account/recovery_codes.html", context, status=422)
    return render(request, "account/recovery_codes.html", {"codes": codes})


@form_page
@never_cache
@login_required
def remove_factor(request: HttpRequest, pk: int) -> HttpResponse:
    own = require(request, anybody)
    factors = second_factors_of(own)
    factor = next((one for one in factors if one.pk == pk), None)
    if factor is None:
        return redirect("account")
    context: dict[str, Any] = {"factor": factor, "last": len(factors) == 1, "means": means_of(own)}
    if request.method != "POST":
        return render(request, "account/remove_factor.html", context)
    try:
        name = remove_second_factor(person=own, factor=pk, credentials=credentials_of(request))
    except Refused as refusal:
        return render(request, "account/remove_factor.html", context | {"refusal": str(refusal)}, status=422)
    messages.success(request, f"Removed: {name}.")
    return redirect("account")


@require_safe
@never_cache
@login_required
def sessions(request: HttpRequest) -> HttpResponse:
    own = require(request, anybody)
    return render(request, "account/sessions.html", {"sessions": sessions_of(own)})


@posted_from("sessions")
@login_required
def end(request: HttpRequest) -> HttpResponse:
    """One, or all but this one."""
    own = require(request, anybody)
    known = sessions_of(own)
    wanted = request.POST.get("session", "")
    chosen = [one for one in known if str(one.pk) == wanted or (wanted == "others" and not one.is_current())]
    try:
        ended = end_sessions(person=own, sessions=[one.pk for one in chosen])
    except Refused as refusal:
        messages.error(request, f"{str(refusal).capitalize()}.")
        return redirect("sessions")
    if any(one.is_current() for one in chosen):
        logout(request, show_message=False)
        return redirect("sign-in")
    messages.success(request, f"{ended} session{'s' if ended != 1 else ''} ended.")
    return redirect("sessions")
