"""A service's own cases of the preserved-behaviour suite: the version that stands, how it came to be, and the next one.

Cases hold prompts and answers: who may not read them sees who kept how many of them, and when.
"""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, Service, ServiceCases
from decisions.pages.access import require
from decisions.pages.problems import UNKNOWN, Problem
from decisions.rules.who_may import Relation, may_keep_cases, may_read_cases
from decisions.selectors import service_cases as selectors
from decisions.selectors import services
from decisions.services.keep_cases import NAME, keep_cases
from decisions.services.people import owners, person
from decisions.services.refused import Refused
from loadtests.behaviour.own_cases import BadCases

PLACED = re.compile(rf"{NAME}(?:, line (?P<line>\d+))?(?:, (?P<field>[\w.]+))?: (?P<sentence>.*)", re.DOTALL)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cases(request: HttpRequest, slug: str) -> HttpResponse:
    account = require(request)
    service = get_object_or_404(services.services(), slug=slug)
    if request.method != "POST":
        return render_cases(request, service, account)
    # A browser ends the lines of a form as a letter does.
    source = request.POST.get("source", "").replace("\r\n", "\n")
    before = selectors.latest_cases(service)
    try:
        kept = keep_cases(service=service, source=source, by=account, begun_on=begun_on(request))
    except (BadCases, Refused) as refusal:
        return render_cases(request, service, account, source=source, problem=placed(str(refusal)), status=422)
    if before is not None and kept.pk == before.pk:
        messages.info(
            request, f"These are the cases of version {kept.version} already: comments and layout make no new one."
        )
    else:
        messages.success(
            request,
            f"Kept as version {kept.version}. A brief asks them once its behaviour.cases names the digest below.",
        )
    return redirect("service-cases", slug)


def placed(said: str) -> Problem:
    found = PLACED.fullmatch(said)
    if found is None:
        return Problem("", said, None)
    sentence = "unknown field" if found["sentence"] == UNKNOWN else found["sentence"]
    return Problem(found["field"] or "", sentence, int(found["line"]) if found["line"] else None)


def begun_on(request: HttpRequest) -> int | None:
    """None where the form doesn't say it: then nothing can be overlooked that nobody looked at."""
    said = request.POST.get("begun_on", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None


@require_safe
@login_required
def version(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    account = require(request)
    found = cases_or_404(slug, version)
    why_not_read = may_read_cases(person(account), relation_of(found.service))
    context: dict[str, Any] = {
        "service": found.service,
        "cases": found,
        "why_not_read": why_not_read,
        "latest": selectors.latest_cases(found.service) == found,
    }
    if why_not_read is None:
        context["changes"] = selectors.changed_since_the_one_before(found)
    return render(request, "services/cases_version.html", context)


@require_safe
@login_required
def source(request: HttpRequest, slug: str, version: int) -> HttpResponse:
    """The words of a version as they were written, as a file."""
    account = require(request)
    found = cases_or_404(slug, version)
    refusal = may_read_cases(person(account), relation_of(found.service))
    if refusal:
        raise PermissionDenied(refusal)
    name = f"{found.service.slug}-cases-{found.version}.yaml"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(found.source, content_type="application/yaml; charset=utf-8", headers=headers)


def cases_or_404(slug: str, version: int) -> ServiceCases:
    return get_object_or_404(ServiceCases.objects.select_related("service"), service__slug=slug, version=version)


def relation_of(service: Service) -> Relation:
    return Relation(service_owners=owners(service))


def render_cases(
    request: HttpRequest,
    service: Service,
    account: Account,
    *,
    source: str | None = None,
    problem: Problem | None = None,
    status: int = 200,
) -> HttpResponse:
    relation = relation_of(service)
    why_not_read = may_read_cases(person(account), relation)
    latest = selectors.latest_cases(service)
    context: dict[str, Any] = {
        "service": service,
        "versions": selectors.versions_of(service),
        "latest": latest,
        "why_not_read": why_not_read,
        "may_keep": may_keep_cases(person(account), relation) is None,
        "problem": problem,
        "begun_on": latest.version if latest else 0,
    }
    if why_not_read is None:
        context |= {
            "source": source if source is not None else latest.source if latest else "",
            "changes": selectors.changed_since_the_one_before(latest) if latest else None,
            "example": "" if latest else render_to_string("services/cases_example.yaml"),
        }
    return render(request, "services/cases.html", context, status=status)
