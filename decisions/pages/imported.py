"""Evidence that somebody else measured: brought to a brief, shown beside each other, and set aside."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from decisions.models import Account, BriefRevision, ImportedTrial
from decisions.pages.access import posted_from, require
from decisions.pages.brief_tabs import frame, revision_or_404
from decisions.pages.upload_form import UploadForm
from decisions.pages.uploads import NO_ROOM, WELCOME, path_of, result_too_large, trouble_of
from decisions.rules.imported import lacking
from decisions.rules.who_may import may_import_evidence
from decisions.rules.wording import arm_said
from decisions.selectors import imported as selectors
from decisions.services.import_evidence import OPEN, arms_of, import_evidence, read_apart
from decisions.services.people import person
from decisions.services.refused import Refused
from decisions.services.set_imported_aside import set_imported_aside
from loadtests.evidence.foreign import FORMATS
from loadtests.evidence.foreign.importing import MOST_RUNS
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable

FORMAT_WORDS = {
    "auto": "found from the file",
    "vllm-bench": "vllm bench serve",
    "aiperf": "AIPerf",
    "guidellm": "GuideLLM",
}
SPREADS = (("first_token_ms", "first token"), ("completion_ms", "completion"), ("lag_ms", "lag of the tool"))
NUMBERS_SHOWN = 300


class ResultForm(UploadForm):
    file = forms.FileField(label="File", required=False, allow_empty_file=True)
    arm = forms.ChoiceField(label="Arm")
    level = forms.ChoiceField(label="Load level")
    format = forms.ChoiceField(label="Format", choices=[(one, FORMAT_WORDS[one]) for one in FORMATS])
    run = forms.IntegerField(label="Run", min_value=1, max_value=MOST_RUNS, required=False)
    note = forms.CharField(label="Where it comes from", max_length=300, required=False)

    def __init__(self, *args: Any, arms: list[str], levels: list[str], needs_file: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.needs_file = needs_file
        for name, values in (("arm", arms), ("level", levels)):
            self.fields[name].choices = [(one, one) for one in values]  # type: ignore[attr-defined]

    def clean_file(self) -> Any:
        file = self.cleaned_data.get("file")
        if self.needs_file and not file:
            raise forms.ValidationError("Choose the result file to bring.")
        if file is not None and not file.size:
            raise forms.ValidationError("The file is empty.")
        return file


@require_safe
@login_required
def imported(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-imported", account)
    every = [selectors.row_of(one, context["document"]) for one in revision.imported_trials.all()]
    rows = [row for row in every if row.trial.set_aside_at is None]
    compared = selectors.comparisons(rows, context["document"])
    shown = {row.trial.pk for one in compared for row in one.rows}
    context |= {
        "rows": rows,
        "others": [row for row in rows if row.trial.pk not in shown],
        "set_aside": [row for row in every if row not in rows],
        "comparisons": compared,
        "unread": list(dict.fromkeys(row.unread for row in every if row.unread)),
        "lacking": lacking([row.summary for row in rows]),
        "may_import": context["document"] is not None and may_change(revision, account),
    }
    return render(request, "briefs/imported.html", context)


def may_change(revision: BriefRevision, account: Account) -> bool:
    return revision.state in OPEN and may_import_evidence(person(account)) is None


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def new(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request, may_import_evidence)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-imported", account)
    document = context["document"]
    if document is None or not may_change(revision, account):
        messages.error(request, why_closed(revision))
        return redirect("brief-imported", brief, number)
    fields = partial(ResultForm, arms=arms_of(document), levels=context["levels"])
    if request.method != "POST":
        return writing(request, context, fields(initial={"format": "auto"}))
    checking = "check" in request.POST
    form = fields(data=request.POST, files=request.FILES, needs_file=not checking)
    trouble = trouble_of(request)
    if trouble:
        return writing(request, context, form, [("", trouble.sentence)], status=trouble.status)
    if not form.is_valid():
        return writing(request, context, form, form.problems, status=422)
    if checking:
        # Everything but the file is in order: our script asks before it sends a large one for nothing.
        return HttpResponse(status=204)
    return taken(request, context, form, account)


def why_closed(revision: BriefRevision) -> str:
    if revision.state in OPEN:
        return "This draft can’t be read yet, so it has no arms and levels to bring results to. Put it right first."
    return "Imported trials come before a verdict, and this revision takes none any more. A new revision does."


def taken(request: HttpRequest, context: dict[str, Any], form: ResultForm, account: Account) -> HttpResponse:
    said = form.cleaned_data
    try:
        trial = import_evidence(
            revision=context["revision"],
            path=path_of(said["file"]),
            file_name=said["file"].name,
            arm=said["arm"],
            level=said["level"],
            run=said["run"],
            wanted=said["format"],
            note=said["note"],
            by=account,
            read=read_apart,
        )
    except Refused as refusal:
        return writing(request, context, form, [("", refusal.sentence)], status=422)
    except EvidenceUnreachable as error:
        return writing(request, context, form, [("", f"{error}. Nothing was kept: try again later.")], status=503)
    except OSError:
        return writing(request, context, form, [("", NO_ROOM.sentence)], status=NO_ROOM.status)
    messages.success(request, f"Imported as {arm_said(trial.arm)} at {trial.level}. No approval can rest on it.")
    address = reverse("brief-imported", args=[context["brief"].pk, context["revision"].number])
    return JsonResponse({"to": address}, status=201) if is_script(request) else redirect(address)


def is_script(request: HttpRequest) -> bool:
    return request.headers.get("X-Requested-With") == "XMLHttpRequest"


def writing(
    request: HttpRequest,
    context: dict[str, Any],
    form: ResultForm,
    problems: list[tuple[str, str]] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    context |= {
        "form": form,
        "said": form.said,
        "problems": problems or [],
        "limit": WELCOME["brief-imported-new"].most_bytes,
        "too_large": result_too_large(),
    }
    template = "traffic/import_problems.html" if is_script(request) else "briefs/imported_new.html"
    return render(request, template, context, status=status)


@require_safe
@login_required
def trial(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    return render_trial(request, trial_or_404(pk), account)


def trial_or_404(pk: int) -> ImportedTrial:
    return get_object_or_404(ImportedTrial.objects.select_related("revision__brief__route__service"), pk=pk)


@posted_from("brief-imported-trial", "pk")
@login_required
def set_aside(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    found = trial_or_404(pk)
    reason = request.POST.get("reason", "")
    try:
        set_imported_aside(trial=found, by=account, reason=reason)
    except Refused as refusal:
        return render_trial(request, found, account, refusal=refusal.sentence, reason=reason, status=422)
    messages.success(request, "Set aside. It stays here with the reason, and in no comparison.")
    return redirect("brief-imported", found.revision.brief_id, found.revision.number)


def render_trial(
    request: HttpRequest,
    found: ImportedTrial,
    account: Account,
    *,
    refusal: str = "",
    reason: str = "",
    status: int = 200,
) -> HttpResponse:
    context = frame(found.revision, "brief-imported", account)
    row = selectors.row_of(found, context["document"])
    context |= {
        "row": row,
        "spreads": [(words, row.summary[name]) for name, words in SPREADS],
        "refusal": refusal,
        "reason": reason,
        "may_set_aside": found.set_aside_at is None and may_change(found.revision, account),
    }
    try:
        manifest = selectors.manifest_of(found)
    except (EvidenceMissing, EvidenceDamaged) as error:
        context["missing"] = str(error)
    else:
        own = list(islice(manifest.aggregates.items(), NUMBERS_SHOWN))
        context |= {"manifest": manifest, "own": own, "more": len(manifest.aggregates) > len(own)}
    return render(request, "briefs/imported_trial.html", context, status=status)
