"""Where messages are posted: endpoints of a service, and of the whole installation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, Endpoint, Service
from decisions.pages.access import posted_from, require
from decisions.rules.delivery import MOST_ATTEMPTS, WEBHOOK
from decisions.selectors import messages as selectors
from decisions.selectors import services as service_selectors
from decisions.services.add_endpoint import LONGEST_NAME, NewSecret, add_endpoint
from decisions.services.manage_endpoint import why_not_manage
from decisions.services.refused import Refused
from decisions.services.rotate_endpoint import rotate_endpoint
from decisions.services.send_again import send_again, send_test
from decisions.services.switch_endpoint import disable_endpoint, enable_endpoint


@dataclass(frozen=True)
class EndpointForm:
    kind: str = WEBHOOK
    name: str = ""
    address: str = ""


def manager(request: HttpRequest, service: Service | None) -> Account:
    account = require(request)
    refusal = why_not_manage(service, account)
    if refusal:
        raise PermissionDenied(refusal)
    return account


def managed(request: HttpRequest, pk: int) -> tuple[Account, Endpoint]:
    # A stranger isn't told which there are.
    require(request)
    found = get_object_or_404(selectors.endpoint_rows(), pk=pk)
    return manager(request, found.service), found


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def of_service(request: HttpRequest, slug: str) -> HttpResponse:
    require(request)
    return listed(request, get_object_or_404(service_selectors.services(), slug=slug))


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def of_house(request: HttpRequest) -> HttpResponse:
    return listed(request, None)


def listed(request: HttpRequest, service: Service | None) -> HttpResponse:
    account = manager(request, service)
    if request.method != "POST":
        return render_list(request, service, EndpointForm())
    sent = request.POST
    form = EndpointForm(sent.get("kind", ""), sent.get("name", ""), sent.get("address", ""))
    try:
        made = add_endpoint(service=service, kind=form.kind, name=form.name, address=form.address, by=account)
    except Refused as refusal:
        return render_list(request, service, form, refusal=str(refusal), status=422)
    # Not led elsewhere: the secret is shown in this answer and never again.
    return render_list(request, service, EndpointForm(), made=made)


def render_list(
    request: HttpRequest,
    service: Service | None,
    form: EndpointForm,
    *,
    made: NewSecret | None = None,
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "service": service,
        "endpoints": selectors.endpoints_of(service),
        "hosts": settings.NOTIFY_HOSTS,
        "kinds": [(value, label, value == form.kind) for value, label in Endpoint.Kind.choices],
        "form": form,
        "made": made,
        "refusal": refusal,
        "longest_name": LONGEST_NAME,
    }
    return render(request, "endpoints/list.html", context, status=status)


@require_safe
@never_cache
@login_required
def endpoint(request: HttpRequest, pk: int) -> HttpResponse:
    _, found = managed(request, pk)
    return render_endpoint(request, found)


def render_endpoint(request: HttpRequest, found: Endpoint, made: NewSecret | None = None) -> HttpResponse:
    return render(request, "endpoints/one.html", {**shown(found), "made": made})


def shown(found: Endpoint) -> dict[str, object]:
    sent = selectors.messages_to(found)
    return {
        "endpoint": found,
        "sent": sent,
        "goes_on": any(one.state in ("waiting", "sending") for one in sent),
        "most_attempts": MOST_ATTEMPTS,
    }


@require_safe
@never_cache
@login_required
def live(request: HttpRequest, pk: int) -> HttpResponse:
    _, found = managed(request, pk)
    return render(request, "endpoints/live.html", shown(found))


ACTS: dict[str, tuple[Callable[..., object], str]] = {
    "test": (send_test, "A test message is on its way."),
    "disable": (disable_endpoint, "Nothing more is posted there."),
    "enable": (enable_endpoint, "Messages are posted there again, from now on."),
}


@posted_from("endpoint", "pk")
@never_cache
@login_required
def act(request: HttpRequest, pk: int, act: str) -> HttpResponse:
    account, found = managed(request, pk)
    if act == "rotate":
        return rotated(request, account, found)
    if act not in ACTS:
        raise Http404("there is no such act")
    service, said = ACTS[act]
    try:
        service(endpoint=found, by=account)
    except Refused as refusal:
        messages.error(request, sentence(refusal))
    else:
        messages.success(request, said)
    return redirect("endpoint", pk)


def rotated(request: HttpRequest, account: Account, found: Endpoint) -> HttpResponse:
    try:
        made = rotate_endpoint(endpoint=found, by=account)
    except Refused as refusal:
        messages.error(request, sentence(refusal))
        return redirect("endpoint", found.pk)
    return render_endpoint(request, made.endpoint, made)


@posted_from("endpoint", "pk")
@login_required
def again(request: HttpRequest, pk: int) -> HttpResponse:
    account, found = managed(request, pk)
    named = request.POST.get("message", "")
    message = get_object_or_404(found.messages.select_related("endpoint__service"), name=named)
    try:
        send_again(message=message, by=account)
    except Refused as refusal:
        messages.error(request, sentence(refusal))
    else:
        messages.success(request, "The message is on its way again, under its own name.")
    return redirect("endpoint", pk)


def sentence(refusal: Refused) -> str:
    said = str(refusal).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."
