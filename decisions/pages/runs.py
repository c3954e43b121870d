from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from decisions.models import Account, BriefRevision
from decisions.pages.access import posted_from, require
from decisions.pages.boot_facts import client_floor, engine_facts, trial_checks
from decisions.pages.evidence_away import without_evidence
from decisions.rules.who_may import may_declare_fault, may_read_cases
from decisions.selectors import runs as selectors
from decisions.selectors.timelines import timeline_bytes, timelines_of
from decisions.services.declare_fault import declare_fault
from decisions.services.people import person, relation
from decisions.services.refused import Refused
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.evidence.stores import evidence_store
from loadtests.models import Boot, Trial


@require_safe
@login_required
def runs(request: HttpRequest) -> HttpResponse:
    require(request)
    return render(request, "runs/list.html", queue())


@require_safe
@login_required
def runs_live(request: HttpRequest) -> HttpResponse:
    require(request)
    return render(request, "runs/live.html", queue())


def queue() -> dict[str, object]:
    return {
        "running": [(boot, selectors.trial_rows(boot), selectors.suite_of(boot)) for boot in selectors.running_boots()],
        "queued": selectors.queued_boots(),
        "lost": selectors.lost_boots(),
        "recent": selectors.recent_boots(),
    }


@require_safe
@login_required
def boot(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    return render_boot(request, get_object_or_404(selectors.boot_for_page(), pk=pk), account)


@require_safe
@login_required
def boot_live(request: HttpRequest, pk: int) -> HttpResponse:
    require(request)
    found = get_object_or_404(selectors.boot_for_page(), pk=pk)
    if not is_live(found):
        # The page around this part has changed with it: facts, digests, forms.
        return HttpResponseClientRefresh()
    return render(request, "runs/boot_live.html", {"boot": found, "live": True, **trials_of(found)})


@posted_from("boot", "pk")
@login_required
def fault(request: HttpRequest, pk: int) -> HttpResponse:
    account = require(request)
    found = get_object_or_404(selectors.boot_for_page(), pk=pk)
    reason = request.POST.get("reason", "")
    try:
        declare_fault(boot=found, by=account, reason=reason)
    except Refused as refusal:
        return render_boot(request, found, account, refusal=str(refusal), reason=reason, status=422)
    messages.success(request, "Declared. The whole pair is run again; this attempt stays in the history.")
    return redirect("boot", pk)


@require_safe
@login_required
def records(request: HttpRequest, pk: int) -> HttpResponse:
    require(request)
    trial = get_object_or_404(
        Trial.objects.select_related("boot__campaign__brief_campaign__revision").defer("boot__campaign__plan"), pk=pk
    )
    if not selectors.may_download(trial, selectors.revision_of(trial.boot)):
        raise Http404("records can be downloaded once the brief has been decided on")
    try:
        content = evidence_store().get(trial.records_digest)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return without_evidence(request, error)
    return parquet(content, f"trial-{trial.pk}-{trial.records_digest[:12]}")


@require_safe
@login_required
def answers(request: HttpRequest, pk: int) -> HttpResponse:
    """What a server answered to the preserved-behaviour suite, as JSON lines."""
    account = require(request)
    found = get_object_or_404(selectors.boot_for_page(), pk=pk)
    revision = selectors.revision_of(found)
    if revision is None or not selectors.may_download_answers(found, revision):
        raise Http404("answers can be downloaded once the brief has been decided on")
    if refusal := why_no_answers(revision, account):
        raise PermissionDenied(refusal)
    digest = found.suite_run.answers_digest
    try:
        content = evidence_store().get(digest)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return without_evidence(request, error)
    headers = {"Content-Disposition": f'attachment; filename="boot-{pk}-answers-{digest[:12]}.jsonl"'}
    return HttpResponse(content, content_type="application/jsonl", headers=headers)


def why_not_download(boot: Boot, revision: BriefRevision | None, account: Account) -> str | None:
    """None where the boot has answers that the person may download."""
    if selectors.suite_of(boot) is None:
        return None
    if revision is None or not selectors.may_download_answers(boot, revision):
        return "after the decision"
    return why_no_answers(revision, account)


def why_no_answers(revision: BriefRevision, account: Account) -> str | None:
    """The suite's own prompts are no secret; those of the service's own cases are personal data."""
    return may_read_cases(person(account), relation(revision)) if selectors.asks_own_cases(revision) else None


@require_safe
@login_required
def timeline(request: HttpRequest, pk: int) -> HttpResponse:
    require(request)
    trial = get_object_or_404(
        Trial.objects.select_related("boot__campaign__brief_campaign__revision").defer("boot__campaign__plan"), pk=pk
    )
    if selectors.is_sealed(trial.boot, selectors.revision_of(trial.boot)):
        raise Http404("the timeline of a held-out trial can be seen once its verdict exists")
    try:
        content = timeline_bytes(trial)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return without_evidence(request, error)
    return parquet(content, f"trial-{trial.pk}-timeline-{trial.summary['timeline'][:12]}")


def parquet(content: bytes, name: str) -> HttpResponse:
    response = HttpResponse(content, content_type="application/vnd.apache.parquet")
    response["Content-Disposition"] = f'attachment; filename="{name}.parquet"'
    return response


def trials_of(boot: Boot) -> dict[str, object]:
    """Or its suite, which a boot of a behaviour campaign has instead."""
    rows = selectors.trial_rows(boot)
    sealed = selectors.is_sealed(boot, selectors.revision_of(boot))
    checks = trial_checks(rows, boot.configuration.digest, sealed=sealed)
    return {"rows": rows, "suite": selectors.suite_of(boot), "checks": checks}


def is_live(boot: Boot) -> bool:
    return boot.state in (Boot.State.WAITING, Boot.State.RUNNING)


def render_boot(
    request: HttpRequest, boot: Boot, account: Account, *, refusal: str = "", reason: str = "", status: int = 200
) -> HttpResponse:
    revision = selectors.revision_of(boot)
    sealed = selectors.is_sealed(boot, revision)
    faultable = boot.state == Boot.State.FINISHED and revision is not None and revision.state == "measuring"
    context = {
        "boot": boot,
        "campaign": boot.campaign,
        "revision": revision,
        **trials_of(boot),
        "facts": engine_facts(boot.facts),
        "client": client_floor(boot.facts),
        "live": is_live(boot),
        "sealed": sealed,
        "timelines": [] if sealed or is_live(boot) else timelines_of(boot.trials.all()),
        "downloadable": {trial.pk for trial in boot.trials.all() if selectors.may_download(trial, revision)},
        "siblings": selectors.siblings_of(boot),
        "why_no_answers": why_not_download(boot, revision, account),
        "suite_result": boot.campaign.behaviour_results.last(),
        "may_declare": faultable and may_declare_fault(person(account)) is None,
        "refusal": refusal,
        "reason": reason,
    }
    return render(request, "runs/boot.html", context, status=status)
