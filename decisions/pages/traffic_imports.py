"""Bringing traffic: the form, a look at the file, and an import on its way. Counts and names, never text."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRedirect, HttpResponseClientRefresh

from decisions.models import Account
from decisions.pages.access import posted_from, require
from decisions.pages.import_form import FORMAT_WORDS, LENGTHS_ONLY, ImportForm, defaults, like, said_before
from decisions.pages.traffic_asked import traffic_asked_for
from decisions.pages.uploads import NO_ROOM, path_of, too_large, trouble_of
from decisions.rules.who_may import may_import_traffic
from decisions.selectors import traffic_imports as selectors
from decisions.selectors.traffic import donor_set
from decisions.services.people import person
from decisions.services.refused import Refused
from loadtests.models import TrafficImport
from loadtests.services.cancel_import import cancel_import
from loadtests.services.request_import import request_import
from loadtests.services.retry_import import retry_import
from loadtests.traffic.importers import TARGETS
from loadtests.traffic.importers.mapped import TEXTS
from loadtests.traffic.importers.proposed import LOOK_BYTES, Look, look

State = TrafficImport.State


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    account = require(request, may_import_traffic)
    if request.method != "POST":
        again = traffic_asked_for(request.GET.get("like", ""))
        services = selectors.services_for_import()
        initial = defaults(services) | (like(again, donor_set(again.imported)) if again else {})
        return writing(request, form_for(request, initial=initial), like=again)
    form = form_for(request, bound=True, needs_file="check" not in request.POST)
    if answer := not_taken(request, form) or checked(request):
        return answer
    try:
        wanted = requested(form, account)
    except OSError:
        return writing(request, form, NO_ROOM.sentence, status=NO_ROOM.status)
    return gone_to(request, wanted)


def requested(form: ImportForm, account: Account) -> TrafficImport:
    said = form.cleaned_data
    donor = said["donor_file"] if said["donor"] == "file" else None
    return request_import(
        name=said["name"] or name_from(said["file"].name),
        service=said["service"],
        file_name=said["file"].name,
        upload=path_of(said["file"]),
        donor=path_of(donor) if donor else None,
        options=form.options,
        by=account.username,
    )


def name_from(file_name: str) -> str:
    return file_name.partition(".")[0][:120] or "traffic"


def form_for(request: HttpRequest, *, bound: bool = False, needs_file: bool = True, **more: Any) -> ImportForm:
    services = selectors.services_for_import()
    given: dict[str, Any] = {"data": request.POST, "files": request.FILES} if bound else {}
    given |= {"initial": defaults(services), **more}
    return ImportForm(services=services, donors=selectors.donor_sets(), needs_file=needs_file, **given)


def is_lengths_only(look: Look) -> bool:
    """Whether the format, or the columns as proposed, hold lengths and no text."""
    fields = {one.field for one in look.columns}
    return look.format in LENGTHS_ONLY or ("prompt_tokens" in fields and fields.isdisjoint(TEXTS))


def not_taken(request: HttpRequest, form: ImportForm, **context: Any) -> HttpResponse | None:
    """Why the form or its files can't be used, as a page, or as a part of one for our script."""
    trouble = trouble_of(request)
    if trouble:
        return writing(request, form, trouble.sentence, status=trouble.status, **context)
    return None if form.is_valid() else writing(request, form, status=422, **context)


def checked(request: HttpRequest) -> HttpResponse | None:
    """Everything but the files is in order: our script asks before it sends a large one for nothing."""
    return HttpResponse(status=204) if "check" in request.POST else None


def writing(
    request: HttpRequest, form: ImportForm, trouble: str = "", *, status: int = 200, **context: Any
) -> HttpResponse:
    context |= {
        "form": form,
        "problems": [("", trouble)] if trouble else form.problems if status != 200 else [],
        "targets": TARGETS,
        "limit": settings.UPLOAD_LIMIT_BYTES,
        "default_retention": settings.RETENTION_DAYS,
        "too_large": too_large(),
        "said": form.said,
    }
    template = "traffic/import_problems.html" if is_script(request) else "traffic/import.html"
    return render(request, template, context, status=status)


def is_script(request: HttpRequest) -> bool:
    return request.headers.get("X-Requested-With") == "XMLHttpRequest"


def gone_to(request: HttpRequest, wanted: TrafficImport) -> HttpResponse:
    address = reverse("traffic-import-job", args=[wanted.pk])
    return JsonResponse({"to": address}, status=201) if is_script(request) else redirect(address)


@posted_from("traffic-import")
@login_required
def look_at(request: HttpRequest) -> HttpResponse:
    """What the first bytes of the file say. They are read where they lie, and nothing is kept of them."""
    require(request, may_import_traffic)
    file = request.FILES.get("file")
    found = look(file.read(LOOK_BYTES)) if file and file.size else None
    context: dict[str, Any] = {
        "look": found,
        "lengths_only": found is not None and is_lengths_only(found),
        "format_words": FORMAT_WORDS.get(found.format) if found else "",
        "targets": TARGETS,
    }
    if is_script(request):
        return render(request, "traffic/import_look.html", context)
    return writing(request, form_for(request, initial=request.POST.dict()), looked=True, **context)


@require_safe
@login_required
def job(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    wanted = get_object_or_404(selectors.imports(), pk=pk)
    may_import = may_import_traffic(person(account)) is None
    if may_import and selectors.may_try_again(wanted):
        return writing(request, again_form(request, wanted), **job_context(wanted))
    return render(request, "traffic/import_job.html", {**job_context(wanted), "may_import": may_import})


def job_context(wanted: TrafficImport) -> dict[str, Any]:
    now = selectors.now_of(wanted)
    return {
        "now": now,
        "ahead": selectors.import_now(now.ahead, timezone.now()) if now.ahead else None,
        "wanted": wanted,
        "kept_until": selectors.kept_until(wanted),
    }


@require_safe
@login_required
def live(request: HttpRequest, pk: int) -> HttpResponse:
    require(request)
    wanted = get_object_or_404(selectors.imports(), pk=pk)
    if wanted.state == State.DONE and wanted.created_set_id:
        return HttpResponseClientRedirect(reverse("traffic-set", args=[wanted.created_set_id]))
    if wanted.state not in TrafficImport.OPEN:
        # The page around this part has changed with it: the reason, the form.
        return HttpResponseClientRefresh()
    return render(request, "traffic/import_live.html", {**job_context(wanted), "polled": True})


@require_safe
@login_required
def recent(request: HttpRequest) -> HttpResponse:
    """The part of the list of sets that changes while something is imported."""
    require(request)
    imports = selectors.recent_imports()
    if not any(one.is_open for one in imports):
        # The list around this part has a set more, or there is nothing to follow.
        return HttpResponseClientRefresh()
    return render(request, "traffic/imports.html", {"imports": imports})


@posted_from("traffic-import-job", "pk")
@login_required
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request, may_import_traffic)
    wanted = get_object_or_404(TrafficImport, pk=pk)
    try:
        cancel_import(wanted=wanted, by=account.username)
    except Refused as refusal:
        messages.error(request, refusal.sentence)
    return redirect("traffic-import-job", pk)


@posted_from("traffic-import-job", "pk")
@login_required
def again(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request, may_import_traffic)
    wanted = get_object_or_404(TrafficImport, pk=pk)
    form = again_form(request, wanted, bound=True)
    if answer := not_taken(request, form, **job_context(wanted)) or checked(request):
        return answer
    said = form.cleaned_data
    donor = said["donor_file"] if said["donor"] == "file" else None
    try:
        started = retry_import(
            wanted=wanted,
            name=said["name"] or wanted.name,
            service=said["service"],
            options=with_kept_donor(form.options, wanted),
            donor=path_of(donor) if donor else None,
            by=account.username,
        )
    except Refused as refusal:
        messages.error(request, refusal.sentence)
        return redirect("traffic-import-job", pk)
    except OSError:
        return writing(request, form, NO_ROOM.sentence, status=NO_ROOM.status, **job_context(wanted))
    return gone_to(request, started)


def again_form(request: HttpRequest, wanted: TrafficImport, *, bound: bool = False) -> ImportForm:
    initial = said_before(wanted.name, wanted.service, wanted.options)
    donor = selectors.kept_donor(wanted)
    return form_for(request, bound=bound, needs_file=False, initial=initial, kept_donor=donor)


def with_kept_donor(options: dict[str, Any], wanted: TrafficImport) -> dict[str, Any]:
    """A donor's file that came with the first try and wasn't chosen anew."""
    donor = options["donor"]
    if donor and "file_name" in donor and donor["file_name"] == selectors.kept_donor(wanted):
        return {**options, "donor": wanted.options["donor"]}
    return options
