"""Signing in and out: allauth's views under our addresses, with our templates."""

from __future__ import annotations

import json
from typing import Any

from allauth.account.internal.flows.logout import logout
from allauth.account.internal.stagekit import clear_login, get_pending_stage
from allauth.account.views import LoginView
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.webauthn.internal import auth as passkeys
from allauth.mfa.webauthn.views import LoginWebAuthnView
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_POST
from django_htmx.http import HttpResponseClientRefresh

from decisions.models import Account
from decisions.pages.adapters import BEGUN_BY, WRONG_SECOND_FACTOR
from decisions.pages.credentials import answer_in
from decisions.selectors.identity import means_of
from decisions.services.reauthenticate import MALFORMED
from decisions.services.record_refused_sign_in import record_refused_sign_in


class SignIn(LoginView):  # type: ignore[misc] # allauth ships no types
    template_name = "sign_in.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # A part of a page that refreshes itself outlives its session: reload the page, which then asks to sign in.
        if request.headers.get("HX-Request"):
            return HttpResponseClientRefresh()
        answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return answer

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().get_context_data(**more)
        name = settings.SINGLE_SIGN_ON_NAME if settings.SINGLE_SIGN_ON_ISSUER else ""
        return found | {"next": self.request.GET.get("next") or self.request.POST.get("next", ""), "sso": name}


class SecondFactor(AuthenticateView):  # type: ignore[misc] # allauth ships no types
    """The second step, for whoever has one."""

    template_name = "second_factor.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        stage = get_pending_stage(request)
        if stage and is_over(request, stage.login.user):
            clear_login(request)
            messages.error(request, "Something of your account has changed meanwhile. Sign in anew.")
            return redirect("sign-in")
        if not is_readable(request):
            messages.error(request, WRONG_SECOND_FACTOR)
            return redirect("mfa_authenticate")
        answer: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        return answer

    def form_invalid(self, form: Any) -> HttpResponse:
        record_refused_sign_in(person=self.stage.login.user, reason="the second factor is wrong")
        answer: HttpResponse = super().form_invalid(form)
        return answer

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().get_context_data(**more)
        means = means_of(self.stage.login.user)
        options = json.dumps(found["js_data"]["request_options"]) if means.passkey else ""
        return found | {"means": means, "options": options}


def is_over(request: HttpRequest, person: Account) -> bool:
    """Whether a sign-in that waits for its second step can't go on: the password it was begun by was changed, the
    account was deactivated, or there is no second factor any more."""
    begun_by, means = request.session.get(BEGUN_BY, ""), means_of(person)
    is_the_same = constant_time_compare(begun_by, person.get_session_auth_hash())
    return not (is_the_same and person.is_active and means.second_factor)


class PasskeySignIn(LoginWebAuthnView):  # type: ignore[misc] # allauth ships no types
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not is_readable(request):
            messages.error(request, WRONG_SECOND_FACTOR)
            return redirect("sign-in")
        answer: HttpResponseBase = super().post(request, *args, **kwargs)
        return answer


def is_readable(request: HttpRequest) -> bool:
    """Whether what a browser says of a passkey has the form of it: allauth takes that for granted."""
    answer = answer_in(request, "credential")
    try:
        if answer is not None:
            passkeys.parse_authentication_response(answer)
    except MALFORMED:
        return False
    return True


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Also in the middle of signing in."""
    logout(request, show_message=False)
    return redirect("sign-in")
