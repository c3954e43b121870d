"""The behaviour tab: what the preserved-behaviour suite asked, what it found, and the answers beside each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from decisions.models import Account, BehaviourResult, BriefRevision
from decisions.pages.access import require
from decisions.pages.behaviour_words import (
    OUTCOMES,
    TIERS,
    WORDS,
    alone_rows,
    asked_facts,
    brief_facts,
    figures,
    noticed,
    rule_words,
)
from decisions.pages.brief_tabs import frame, revision_or_404
from decisions.pages.evidence_away import without_evidence
from decisions.rules.brief import Brief
from decisions.rules.states import MEASURING
from decisions.rules.who_may import may_read_cases
from decisions.selectors import behaviour_page as selectors
from decisions.selectors.behaviour import behaviour_result, suite_boots
from decisions.selectors.progress import campaigns_of
from decisions.selectors.runs import DECIDED
from decisions.services.people import person, relation
from loadtests.behaviour.case import EVERY_MANNER, LOADS
from loadtests.behaviour.result import CaseResult, CaseRun, Outcome, State, SuiteResult, read_result
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.evidence.stores import evidence_store
from loadtests.models import Campaign

# Nothing was shown of a case in these states: none of them is a case that passed.
UNSHOWN: tuple[State, ...] = ("cannot_tell", "not_exercised", "unsupported")


@require_safe
@login_required
def behaviour(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    context = frame(revision, "brief-behaviour", account)
    document = context["document"]
    if document is None:
        return render(request, "briefs/behaviour.html", context)
    context |= progress_context(revision, document, context["campaigns"])
    if (row := context["row"]) is not None:
        context |= result_context(revision, row, account)
    return render(request, "briefs/behaviour.html", context)


def progress_context(revision: BriefRevision, document: Brief, campaigns: Sequence[Campaign]) -> dict[str, Any]:
    campaign = selectors.suite_campaign(campaigns)
    row = behaviour_result(revision) if campaign else None
    stage = selectors.stage_of(revision, document, campaign, row is not None)
    return {
        "row": row,
        "stage": stage,
        "campaign": campaign,
        "suite_boots": selectors.suite_boot_rows(campaign) if campaign else [],
        "live": stage in selectors.LIVE and not revision.halted,
        "to_ask": brief_facts(document.suite) if document.suite else [],
    }


def result_context(revision: BriefRevision, row: BehaviourResult, account: Account) -> dict[str, Any]:
    stored = selectors.stored_result(row)
    shown: dict[str, Any] = {
        "outcome": OUTCOMES[cast(Outcome, row.outcome)],
        "missing": stored.missing,
        "verdict": revision.verdicts.last(),
    }
    if stored.result is None:
        return shown
    hidden = why_no_text(stored.result, revision, account)
    result = selectors.without_texts(stored.result) if hidden else stored.result
    return shown | {
        "result": result,
        "may_download": not hidden and may_download(revision),
        "tiers": [(one, TIERS[one.tier]) for one in selectors.matrix(result)],
        "loads": LOADS,
        "manners": EVERY_MANNER,
        "words": WORDS,
        "broke": selectors.named(result, "broken"),
        "changed": selectors.named(result, "changed"),
        "unshown": selectors.named(result, *UNSHOWN),
        "asked_facts": asked_facts(result),
        "rule": rule_words(result.declared),
        "noticed": noticed(result),
        "why_no_text": hidden,
    }


def why_no_text(result: SuiteResult, revision: BriefRevision, account: Account) -> str:
    """Empty where the person may read every text of the result."""
    refusal = may_read_cases(person(account), relation(revision)) if selectors.has_own_cases(result) else None
    return f"Prompts and outputs of the service’s own cases are personal data. {refusal}" if refusal else ""


@require_safe
@login_required
def behaviour_live(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    """The part that changes while the servers are asked; the whole page once it says something else."""
    require(request)
    revision = revision_or_404(brief, number)
    if revision.state != MEASURING:
        return HttpResponseClientRefresh()
    context = progress_context(revision, revision.document, campaigns_of(revision))
    if not context["live"]:
        return HttpResponseClientRefresh()
    return render(request, "briefs/behaviour_live.html", context | {"revision": revision, "brief": revision.brief})


@require_safe
@login_required
def behaviour_run(request: HttpRequest, brief: int, number: int, case: str, manner: str) -> HttpResponse:
    """One case in one manner."""
    account = require(request)
    revision = revision_or_404(brief, number)
    row = row_or_404(revision)
    try:
        result = readable_or_404(evidence_store().get(row.digest))
    except (EvidenceMissing, EvidenceDamaged) as error:
        return without_evidence(request, error)
    hidden = why_no_text(result, revision, account)
    found = found_or_404(selectors.without_texts(result) if hidden else result, case, manner)
    context = frame(revision, "brief-behaviour", account) | run_context(found)
    if hidden and selectors.is_own(found.case):
        context["why_no_text"] = hidden
    else:
        context |= texts_context(row, found, request.GET.get("answer", ""))
    return render(request, "briefs/behaviour_case.html", context)


@dataclass(frozen=True)
class Found:
    case: CaseResult
    run: CaseRun


def row_or_404(revision: BriefRevision) -> BehaviourResult:
    row = behaviour_result(revision)
    if row is None:
        raise Http404("the suite has found nothing for this revision yet")
    return row


def readable_or_404(content: bytes) -> SuiteResult:
    try:
        return read_result(content)
    except ValueError:
        raise Http404("the result is none that this version can read") from None


def found_or_404(result: SuiteResult, case: str, manner: str) -> Found:
    found = selectors.found_run(result, case, manner)
    if found is None:
        raise Http404("the suite has no such case in that manner")
    return Found(*found)


def run_context(found: Found) -> dict[str, Any]:
    return {
        "case": found.case,
        "run": found.run,
        "tier": TIERS[found.case.tier],
        "cells": selectors.cells_of(found.case),
        "figures": figures(found.run.finding.numbers),
        "alone": alone_rows(found.run),
        "word": WORDS[found.run.finding.state],
    }


def texts_context(row: BehaviourResult, found: Found, asked: str) -> dict[str, Any]:
    """What was said, as far as a page shows it; ``asked`` is the label of a request that is wanted whole."""
    shown = {asked, *(selectors.label_of(one.answer) for one in found.run.finding.differences)}
    exchanges = selectors.exchanges_of(row, found.case.id, found.run.manner, shown)
    whole = next((one for one in exchanges.listed if one.label == asked), None)
    if asked and whole is None and not exchanges.missing:
        raise Http404("there was no such request")
    return {
        "apart": [selectors.apart_of(one) for one in found.run.finding.differences],
        "exchanges": exchanges,
        "whole": whole and whole_context(whole),
    }


def whole_context(whole: selectors.Exchange) -> dict[str, Any]:
    line = whole.line
    return {
        "label": whole.label,
        "request": line and selectors.request_of(line),
        "apart": selectors.whole_texts(whole.label, *whole.replies),
        "replies": [("baseline", whole.replies[0]), ("candidate", whole.replies[1])],
        "lines": [
            (name, cut(json.dumps(one.document, ensure_ascii=False, indent=2)))
            for name, one in (("baseline", whole.baseline), ("candidate", whole.candidate))
            if one is not None
        ],
    }


def cut(words: str) -> str:
    more = len(words) - selectors.MOST_LINE
    return words if more <= 0 else f"{words[: selectors.MOST_LINE]}\n… {more:,} characters more: answers.jsonl has them"


@require_safe
@login_required
def behaviour_file(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    """The bytes of result.json, whose digest a verdict names."""
    account = require(request)
    revision = revision_or_404(brief, number)
    row = row_or_404(revision)
    if not may_download(revision):
        raise Http404("the result can be downloaded once the brief has been decided on")
    try:
        content = evidence_store().get(row.digest)
    except (EvidenceMissing, EvidenceDamaged) as error:
        return without_evidence(request, error)
    if hidden := why_no_text(readable_or_404(content), revision, account):
        raise PermissionDenied(hidden)
    name = f"behaviour-{revision.brief_id}-{revision.number}-{row.digest[:12]}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type="application/json", headers=headers)


def may_download(revision: BriefRevision) -> bool:
    """As records: of measured boots of a brief that has been decided on."""
    boots = suite_boots(revision) or {}
    measured = all(one.configuration.document.runtime.evidence_class == "measured" for one in boots.values())
    return revision.state in DECIDED and bool(boots) and measured
