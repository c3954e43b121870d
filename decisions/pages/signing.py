"""The decision page: the verdict, what it rests on, and the owner's signature."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from decisions.models import Account, BriefRevision, Signature, Verdict
from decisions.pages.access import posted_from, require
from decisions.pages.brief_tabs import frame, revision_or_404
from decisions.pages.gates import NOTHING_TO_SIGN, broken_checks, gates
from decisions.pages.rows import requirement_row
from decisions.rules.power import looks_taken, missing_evidence, powers
from decisions.rules.states import approval_refusal
from decisions.rules.who_may import may_sign
from decisions.selectors.demonstrations import demonstrated
from decisions.selectors.imported import standing, why_unjudged
from decisions.selectors.pictures import heat_map, held_out_pictures
from decisions.selectors.verdict_pictures import ladder, proof
from decisions.services.people import person, relation
from decisions.services.refused import Refused
from decisions.services.sign_decision import refuse_unjudged, sign_decision, statement_to_sign
from loadtests.canonical import digest


@require_safe
@login_required
def sign_off(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    return render_sign_off(request, revision_or_404(brief, number), account)


@require_safe
@login_required
def statement(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    """The statement as it stands while meaning and reason are being written."""
    account = require(request)
    verdict = get_object_or_404(revision_or_404(brief, number).verdicts.order_by("-pk")[:1])
    form = {name: request.GET.get(name, "") for name in ("meaning", "reason")}
    return render(request, "briefs/statement.html", stated(verdict, account, form))


@posted_from("brief-sign-off", "brief", "number")
@login_required
def sign(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    verdict = revision.verdicts.last()
    if verdict is None:
        return unjudged(request, revision, account)
    form = {name: request.POST.get(name, "") for name in ("meaning", "reason", "shown")}
    unseen = may_sign(person(account), relation(revision)) is None and not was_shown(verdict, account, form)
    if unseen:
        said = "Read the statement below: it is what you sign. Give your password again and sign."
        return render_sign_off(request, revision, account, form=form, refusal=said, status=422)
    try:
        sign_decision(
            verdict=verdict,
            by=account,
            password=request.POST.get("password", ""),
            meaning=form["meaning"],
            reason=form["reason"],
        )
    except Refused as refusal:
        return render_sign_off(request, revision, account, form=form, refusal=str(refusal), status=422)
    messages.success(request, "Signed. The signature and its statement are on this page and in the history.")
    return redirect("brief-sign-off", brief, number)


def unjudged(request: HttpRequest, revision: BriefRevision, account: Account) -> HttpResponse:
    try:
        refuse_unjudged(revision=revision, by=account)
    except Refused as refusal:
        return render_sign_off(request, revision, account, refusal=refusal.sentence, status=422)


def was_shown(verdict: Verdict, account: Account, form: dict[str, str]) -> bool:
    """Whether the text that would be signed is the one the person has seen."""
    return bool(form["shown"]) and form["shown"] == stated(verdict, account, form)["shown"]


def stated(verdict: Verdict, account: Account, form: dict[str, str]) -> dict[str, str]:
    if form["meaning"] not in Signature.Meaning.values or not form["reason"].strip():
        return {"statement": "", "shown": ""}
    text = statement_to_sign(verdict=verdict, by=account, meaning=form["meaning"], reason=form["reason"])
    return {"statement": text, "shown": digest(text.encode())}


def render_sign_off(
    request: HttpRequest,
    revision: BriefRevision,
    account: Account,
    *,
    form: dict[str, str] | None = None,
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    verdict = revision.verdicts.last()
    context = frame(revision, "brief-sign-off", account) | {"verdict": verdict, "refusal": refusal}
    context |= {"imported": len(standing(revision)), "unjudged": why_unjudged(revision) if verdict is None else ""}
    if verdict is None:
        return render(request, "briefs/sign_off.html", context, status=status)
    shown = verdict.document
    pictures = held_out_pictures(verdict)
    written = form or {"meaning": "", "reason": ""}
    signatures = list(revision.signatures.select_related("verdict", "release__route__service"))
    tuned = (revision.nomination or {}).get("rows", [])
    document = revision.document
    proved = proof(document, shown)
    vouched = demonstrated(revision)
    context |= {
        "judged": shown,
        "proof": proved,
        "interval_confidence": interval_confidence(shown),
        # Where the outcome is capacity, the ladder is the proof.
        "ladder": None if proved and document.outcome.metric == "capacity" else ladder(document, shown),
        "looks": looks_taken(document, shown, context["taken"]),
        "lacking": missing_evidence(shown) if shown["verdict"] == "INCONCLUSIVE" else [],
        "powers": powers(document, shown["noise_floor"]),
        "pictures": pictures,
        "heat_map": None if pictures.completion or pictures.missing else heat_map(tuned, context["levels"]),
        "broke": broken_checks(shown["validity"]),
        "outcome": [requirement_row(row) for row in shown["outcome"] if row["role"] != "reported"],
        "reported": [requirement_row(row) for row in shown["outcome"] if row["role"] == "reported"],
        "guardrails": [requirement_row(row) for row in shown["guardrails"]],
        "fallback": [row for row in shown["fallback"] if row["class"] == "all"],
        "planned": sum(row["planned"] for row in shown["levels"] if row["class"] == "all"),
        "gates": gates(revision, shown, signatures, vouched),
        "demonstrated": vouched,
        "signatures": signatures,
        "form": written,
        "meanings": meanings(shown),
        "why_not_sign": why_not_sign(revision, account),
        **stated(verdict, account, written),
    }
    return render(request, "briefs/sign_off.html", context, status=status)


def interval_confidence(shown: dict[str, Any]) -> float:
    """The two-sided one of every interval in the table: of the look, where more than one is planned."""
    found = [row["interval_confidence"] for row in [*shown["outcome"], *shown["guardrails"]]]
    whole: float = 2 * shown["confidence"] - 1
    return next((one for one in found if one is not None), whole)


def meanings(shown: dict[str, Any]) -> list[dict[str, str]]:
    """The meanings of a signature, and why one of them can't be chosen here."""
    found = []
    for value, label in Signature.Meaning.choices:
        name, _, consequence = label.partition(": ")
        closed = approval_refusal(shown) if value == Signature.Meaning.APPROVE else None
        found.append({"value": value, "name": name, "consequence": consequence, "closed": closed or ""})
    return found


def why_not_sign(revision: BriefRevision, account: Account) -> str | None:
    if revision.state != "in-review":
        return NOTHING_TO_SIGN.get(revision.state, "There is nothing to sign yet.")
    return may_sign(person(account), relation(revision))
