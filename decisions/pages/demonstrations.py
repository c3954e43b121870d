"""Demonstrations of preserved behaviour: who vouches for which engine and method, on which result, and until when."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, BehaviourResult, Demonstration
from decisions.pages.access import posted_from, require
from decisions.pages.credentials import credentials_of
from decisions.pages.upload_form import UploadForm
from decisions.pages.uploads import NO_ROOM, WELCOME, trouble_of
from decisions.rules.demonstrations import MODES, Implementation
from decisions.rules.who_may import may_vouch
from decisions.selectors import demonstrations as selectors
from decisions.services.people import person
from decisions.services.refused import Refused
from decisions.services.vouch_demonstration import LONGEST_NAME, LONGEST_NOTE, File, vouch_demonstration
from decisions.services.withdraw_demonstration import withdraw_demonstration
from loadtests.configurations import METHODS
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable

FILE = "file"
ENGINES = {"vllm": "vLLM, started here or by others", "simulated": "the simulated engine"}


class VouchForm(UploadForm):
    """``source`` is a result of a brief's suite by its number, or a file, which doesn't tell what it was asked of."""

    source = forms.ChoiceField(label="What it rests on")
    file = forms.FileField(label="File", required=False, allow_empty_file=True)
    engine = forms.ChoiceField(label="Engine", choices=list(ENGINES.items()), required=False)
    distribution = forms.CharField(label="Distribution", max_length=LONGEST_NAME, required=False)
    version = forms.CharField(label="Version", max_length=LONGEST_NAME, required=False)
    method = forms.ChoiceField(label="Method", choices=[("", ""), *((one, one) for one in METHODS)], required=False)
    mode = forms.ChoiceField(label="Sampling", choices=list(MODES.items()))
    note = forms.CharField(label="Note", max_length=LONGEST_NOTE, required=False)

    def __init__(self, *args: Any, results: list[BehaviourResult], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.results = {str(one.pk): one for one in results}
        self.fields["source"].choices = [(FILE, ""), *((key, "") for key in self.results)]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or {}
        if said.get("source") == FILE:
            if not said.get("file"):
                self.add_error("file", "Choose the result.json that draftproof behaviour wrote.")
            for name in ("engine", "distribution", "version", "method"):
                if not said.get(name) and name not in self.errors:
                    self.add_error(name, "Say it: the file doesn’t tell.")
        return said

    @property
    def vouched_for(self) -> BehaviourResult | File:
        said = self.cleaned_data
        if said["source"] != FILE:
            return self.results[said["source"]]
        about = Implementation(said["engine"], said["distribution"], said["version"], said["method"])
        return File(said["file"].read(), about)


@require_safe
@login_required
def demonstrations(request: HttpRequest) -> HttpResponse:
    account = require(request)
    every = list(selectors.demonstrations())
    context = {
        "standing": [one for one in every if one.withdrawn_at is None],
        "withdrawn": [one for one in every if one.withdrawn_at is not None],
        "may_vouch": may_vouch(person(account)) is None,
    }
    return render(request, "demonstrations/list.html", context)


@require_safe
@login_required
def demonstration(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    return render_demonstration(request, demonstration_or_404(pk), account)


def demonstration_or_404(pk: int) -> Demonstration:
    return get_object_or_404(selectors.demonstrations(), pk=pk)


def render_demonstration(
    request: HttpRequest,
    found: Demonstration,
    account: Account,
    *,
    refusal: str = "",
    reason: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "one": found,
        "tiers": selectors.tiers_of(found),
        "may_withdraw": found.withdrawn_at is None and may_vouch(person(account)) is None,
        "refusal": refusal,
        "reason": reason,
    }
    return render(request, "demonstrations/one.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    account = require(request, may_vouch)
    results = selectors.results_offered()
    if request.method != "POST":
        asked = request.GET.get("result", "")
        chosen = asked if asked in {str(one.pk) for one in results} else ""
        first = chosen or (str(results[0].pk) if results else FILE)
        beginning = {"source": first, "engine": "vllm", "distribution": "vllm", "mode": "greedy"}
        return writing(request, VouchForm(results=results, initial=beginning))
    form = VouchForm(data=request.POST, files=request.FILES, results=results)
    trouble = trouble_of(request)
    if trouble:
        return writing(request, form, [("", trouble.sentence)], status=trouble.status)
    if not form.is_valid():
        return writing(request, form, form.problems, status=422)
    return vouched(request, form, account)


def vouched(request: HttpRequest, form: VouchForm, account: Account) -> HttpResponse:
    said = form.cleaned_data
    try:
        one = vouch_demonstration(
            source=form.vouched_for,
            mode=said["mode"],
            note=said["note"],
            by=account,
            credentials=credentials_of(request),
        )
    except Refused as refusal:
        return writing(request, form, [("", refusal.sentence)], status=422)
    except EvidenceUnreachable as error:
        return writing(request, form, [("", f"{error}. Nothing was kept: try again later.")], status=503)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return writing(request, form, [("", f"the result can’t be read: {error}")], status=422)
    except OSError:
        return writing(request, form, [("", NO_ROOM.sentence)], status=NO_ROOM.status)
    messages.success(request, f"You vouch for it. Briefs on {one.about.label} say so at their gates from now on.")
    return redirect("demonstration", one.pk)


def writing(
    request: HttpRequest, form: VouchForm, problems: list[tuple[str, str]] | None = None, *, status: int = 200
) -> HttpResponse:
    context = {
        "form": form,
        "said": form.said,
        "results": list(form.results.values()),
        "modes": MODES,
        "engines": ENGINES,
        "methods": METHODS,
        "problems": problems or [],
        "limit": WELCOME["demonstration-new"].most_bytes,
    }
    return render(request, "demonstrations/new.html", context, status=status)


@posted_from("demonstration", "pk")
@login_required
def withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    found = demonstration_or_404(pk)
    reason = request.POST.get("reason", "")
    try:
        withdraw_demonstration(demonstration=found, by=account, reason=reason)
    except Refused as refusal:
        return render_demonstration(request, found, account, refusal=refusal.sentence, reason=reason, status=422)
    messages.success(request, "Withdrawn. It stays here with the reason, and stands at no gate.")
    return redirect("demonstration", pk)
