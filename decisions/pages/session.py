"""Signing in and out: allauth's views under our addresses, with our templates."""

from __future__ import annotations

import json
from typing import Any

from allauth.account.internal.flows.logout import logout
from allauth.account.views import LoginView
from allauth.mfa.base.views import AuthenticateView
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST
from django_htmx.http import HttpResponseClientRefresh

from decisions.selectors.identity import means_of
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

    def form_invalid(self, form: Any) -> HttpResponse:
        record_refused_sign_in(person=self.stage.login.user, reason="the second factor is wrong")
        answer: HttpResponse = super().form_invalid(form)
        return answer

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().get_context_data(**more)
        means = means_of(self.stage.login.user)
        options = json.dumps(found["js_data"]["request_options"]) if means.passkey else ""
        return found | {"means": means, "options": options}


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Also in the middle of signing in."""
    logout(request, show_message=False)
    return redirect("sign-in")
