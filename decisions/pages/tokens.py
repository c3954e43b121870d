"""A person's own tokens of the API; operators see everybody's, to end one that has leaked."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from decisions.models import Account, ApiToken
from decisions.pages.access import posted_from, require
from decisions.pages.credentials import credentials_of
from decisions.rules.tokens import LONGEST_NAME, MOST_DAYS, READ, SCOPES_SAID
from decisions.rules.who_may import OPERATOR
from decisions.selectors.tokens import tokens_of, tokens_of_others
from decisions.services.make_token import NewToken, make_own_token
from decisions.services.refused import Refused
from decisions.services.revoke_token import revoke_token

DAYS_AT_FIRST = "90"


@dataclass(frozen=True)
class TokenForm:
    name: str = ""
    days: str = DAYS_AT_FIRST
    scopes: tuple[str, ...] = (READ,)

    @property
    def choices(self) -> list[tuple[str, str, bool]]:
        return [(scope, said, scope in self.scopes) for scope, said in SCOPES_SAID.items()]


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def tokens(request: HttpRequest) -> HttpResponse:
    account = require(request)
    if request.method != "POST":
        return render_tokens(request, account, TokenForm())
    sent = request.POST
    form = TokenForm(sent.get("name", ""), sent.get("days", "").strip(), tuple(sent.getlist("scopes")))
    try:
        made = make_own_token(
            person=account,
            credentials=credentials_of(request),
            name=form.name,
            scopes=form.scopes,
            days=whole(form.days),
        )
    except Refused as refusal:
        return render_tokens(request, account, form, refusal=str(refusal), status=422)
    # Not led elsewhere: the secret is shown in this answer and never again.
    return render_tokens(request, account, TokenForm(), made=made)


def whole(text: str) -> int:
    """0, which no token lasts and no row has, where it is no number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


@posted_from("tokens")
@login_required
def revoke(request: HttpRequest) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(ApiToken.objects.select_related("person"), pk=whole(request.POST.get("token", "")))
    try:
        revoke_token(token=found, by=account)
    except Refused as refusal:
        messages.error(request, f"{str(refusal).rstrip('.').capitalize()}.")
    else:
        messages.success(request, f"The token {found.prefix}… is revoked: nobody is let in with it.")
    return redirect("tokens")


def render_tokens(
    request: HttpRequest,
    account: Account,
    form: TokenForm,
    *,
    made: NewToken | None = None,
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "form": form,
        "made": made,
        "refusal": refusal,
        "tokens": tokens_of(account),
        "others": tokens_of_others(account) if OPERATOR in account.group_names else [],
        "now": timezone.now(),
        "longest_name": LONGEST_NAME,
        "most_days": MOST_DAYS,
    }
    return render(request, "account/tokens.html", context, status=status)
