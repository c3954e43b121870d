"""Single sign-on by OpenID Connect: allauth's views, and the signature of each id token is verified."""

from __future__ import annotations

import logging
import time
from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from requests import RequestException

from decisions.pages.access import require
from decisions.pages.adapters import BEGUN
from decisions.pages.credentials import anybody
from decisions.selectors.identity import SSO

logger = logging.getLogger(__name__)

# What allauth raises where a provider doesn't answer, or answers what no OpenID Connect provider does.
UNUSABLE = (
    RequestException,
    OAuth2Error,
    ImproperlyConfigured,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    NotImplementedError,
)


class VerifiedTokens(OpenIDConnectOAuth2Adapter):  # type: ignore[misc] # allauth ships no types
    """allauth trusts the connection that an id token came by. It may prove a signature, so its own is checked."""

    def _decode_id_token(self, app: SocialApp, id_token: str) -> dict[str, Any]:
        found: dict[str, Any] = jwtkit.verify_and_decode(
            credential=id_token,
            keys_url=self.openid_config["jwks_uri"],
            issuer=self.openid_config["issuer"],
            audience=app.client_id,
            lookup_kid=jwtkit.lookup_kid_jwk,
        )
        if "exp" not in found:
            raise OAuth2Error("the id token says no end")
        return found


def adapter_of(request: HttpRequest) -> VerifiedTokens:
    if not settings.SINGLE_SIGN_ON_ISSUER:
        raise Http404("no single sign-on is set up here")
    return VerifiedTokens(request, SSO)


@never_cache
@require_safe
def begin(request: HttpRequest, provider_id: str = SSO) -> HttpResponseBase:
    # allauth takes more in the address: other processes, scopes, parameters for the provider. No page here asks so.
    if not set(request.GET) <= {"next"}:
        raise Http404("a sign-in is asked for with next alone")
    return reached(request, OAuth2LoginView.adapter_view(adapter_of(request)))


@never_cache
@require_safe
def come_back(request: HttpRequest, provider_id: str = SSO) -> HttpResponseBase:
    return reached(request, OAuth2CallbackView.adapter_view(adapter_of(request)))


@never_cache
@require_safe
@login_required
def prove_anew(request: HttpRequest) -> HttpResponseBase:
    """Asks the provider to ask who they are, whatever session they have there."""
    require(request, anybody)
    provider = adapter_of(request).get_provider()
    wanted = request.GET.get("next", "")
    back = wanted if url_has_allowed_host_and_scheme(wanted, allowed_hosts=None) else "/"
    request.session[BEGUN] = time.time()
    asked = {"prompt": "login", "max_age": "0"}
    return reached(request, lambda _: provider.redirect(request, AuthProcess.REDIRECT, back, auth_params=asked))


def reached(request: HttpRequest, view: Any) -> HttpResponseBase:
    """The view's answer, or where the person came from with a sentence when the provider doesn't answer."""
    try:
        answer: HttpResponseBase = view(request)
        return answer
    except ImmediateHttpResponse as sent:
        kept: HttpResponse = sent.response
        return kept
    except UNUSABLE as error:
        logger.warning("the single sign-on answered what can't be used", exc_info=True)
        messages.error(request, f"{settings.SINGLE_SIGN_ON_NAME} can’t be asked now ({type(error).__name__}).")
        return redirect("inbox" if request.user.is_authenticated else "sign-in")
