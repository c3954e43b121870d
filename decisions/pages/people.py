"""People and their roles, for operators. Accounts are made here and by manage.py, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, Service
from decisions.pages.access import posted_from, require
from decisions.rules.who_may import ROLES, may_change_account, may_make_account
from decisions.selectors import identity
from decisions.services.deactivate_account import deactivate_account, reactivate_account
from decisions.services.make_account import make_account
from decisions.services.people import person as person_of
from decisions.services.refused import Refused
from decisions.services.reset_password import reset_password
from decisions.services.reset_second_factor import reset_second_factor
from decisions.services.set_email import set_email
from decisions.services.set_roles import set_roles

ROLES_SAID = {
    "engineer": "writes briefs, starts runs",
    "owner": "signs for the services it owns",
    "auditor": "reads everything",
    "operator": "runs the hosts, sets policies, makes accounts",
}


@dataclass(frozen=True)
class AccountForm:
    username: str = ""
    name: str = ""
    email: str = ""
    roles: tuple[str, ...] = ()
    single_sign_on: bool = False


@require_safe
@login_required
def people(request: HttpRequest) -> HttpResponse:
    require(request, may_make_account)
    return render(request, "people/list.html", {"people": identity.people()})


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def new(request: HttpRequest) -> HttpResponse:
    operator = require(request, may_make_account)
    if request.method != "POST":
        return render_new(request, AccountForm())
    sent = request.POST
    form = AccountForm(
        sent.get("username", ""),
        sent.get("name", ""),
        sent.get("email", ""),
        tuple(sent.getlist("roles")),
        "single_sign_on" in sent,
    )
    try:
        made = make_account(
            username=form.username,
            name=form.name,
            email=form.email,
            roles=form.roles,
            single_sign_on=form.single_sign_on,
            by=operator,
        )
    except Refused as refusal:
        return render_new(request, form, refusal=str(refusal), status=422)
    # Not led elsewhere: the password is shown in this answer and never again.
    return render_person(request, operator, made.account, password=made.password, made=True)


def render_new(request: HttpRequest, form: AccountForm, *, refusal: str = "", status: int = 200) -> HttpResponse:
    choices = [(role, said, role in form.roles) for role, said in ROLES_SAID.items()]
    context = {"form": form, "roles": choices, "refusal": refusal, "sso": bool(settings.SINGLE_SIGN_ON_ISSUER)}
    return render(request, "people/new.html", context, status=status)


@require_safe
@never_cache
@login_required
def person(request: HttpRequest, username: str) -> HttpResponse:
    operator = require(request, may_make_account)
    return render_person(request, operator, get_object_or_404(Account, username=username))


@posted_from("person", "username")
@never_cache
@login_required
def act(request: HttpRequest, username: str, act: str) -> HttpResponse:
    operator = require(request, may_make_account)
    account = get_object_or_404(Account, username=username)
    reason = request.POST.get("reason", "")
    password = ""
    try:
        if act == "roles":
            roles, services = request.POST.getlist("roles"), request.POST.getlist("services")
            set_roles(account=account, roles=roles, services=services, by=operator)
        elif act == "email":
            set_email(account=account, email=request.POST.get("email", ""), by=operator)
        elif act == "deactivate":
            deactivate_account(account=account, reason=reason, by=operator)
        elif act == "reactivate":
            reactivate_account(account=account, reason=reason, by=operator)
        elif act == "second-factor":
            reset_second_factor(account=account, reason=reason, by=operator)
        elif act == "password":
            password = reset_password(account=account, reason=reason, by=operator)
        else:
            raise Http404(f"there is no act {act}")
    except Refused as refusal:
        return render_person(request, operator, account, refusal=str(refusal), act=act, reason=reason, status=422)
    if password:
        return render_person(request, operator, account, password=password)
    messages.success(request, DONE[act].format(account.username))
    return redirect("person", account.username)


DONE = {
    "roles": "The roles of {} are set.",
    "email": "The e-mail address of {} is set.",
    "deactivate": "{} is deactivated: sessions, tokens and feeds have ended.",
    "reactivate": "{} is active again.",
    "second-factor": "{} has no second factor any more, and can’t sign for 24 hours.",
}


def render_person(
    request: HttpRequest,
    operator: Account,
    account: Account,
    *,
    refusal: str = "",
    act: str = "",
    reason: str = "",
    password: str = "",
    made: bool = False,
    status: int = 200,
) -> HttpResponse:
    account = Account.objects.get(pk=account.pk)
    owned = set(account.owned_services.values_list("slug", flat=True))
    context = {
        "account": account,
        "roles": [(role, ROLES_SAID[role], role in account.group_names) for role in ROLES],
        "services": [(one, one.slug in owned) for one in Service.objects.all()],
        "means": identity.means_of(account),
        "factors": identity.second_factors_of(account),
        "why_not": may_change_account(person_of(operator), person_of(account)),
        "refusal": refusal,
        "act": act,
        "reason": reason,
        "password": password,
        "made": made,
    }
    return render(request, "people/person.html", context, status=status)
