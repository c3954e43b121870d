"""The decision page: the verdict, what it rests on, what is said of it, and the owners' signatures."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from decisions.models import Account, BriefRevision, Signature, Verdict
from decisions.pages.access import posted_from, require
from decisions.pages.brief_tabs import frame, revision_or_404
from decisions.pages.credentials import credentials_of
from decisions.pages.gates import NOTHING_TO_SIGN, broken_checks, gates
from decisions.pages.rows import requirement_row
from decisions.rules.identity import why_not_after_reset
from decisions.rules.policy import HANDS, hours, in_words
from decisions.rules.power import looks_taken, missing_evidence, powers
from decisions.rules.signing import (
    APPROVE,
    BREAK_GLASS,
    REJECT,
    RELEASING,
    Asked,
    signatures_needed,
    why_not_mean,
    why_not_open,
)
from decisions.rules.states import IN_REVIEW, approval_refusal
from decisions.rules.who_may import Person, may_comment, may_sign, may_write_brief
from decisions.selectors import briefs as revisions
from decisions.selectors.demonstrations import Demonstrated, demonstrated
from decisions.selectors.identity import recent_reset
from decisions.selectors.imported import standing, why_unjudged
from decisions.selectors.pictures import heat_map, held_out_pictures
from decisions.selectors.review import Review, request_of, review_of, timeline
from decisions.selectors.verdict_pictures import ladder, proof
from decisions.services.ask_again import ask_again
from decisions.services.people import person, relation
from decisions.services.refused import Refused
from decisions.services.sign_decision import NOT_ASKED, refuse_unjudged, sign_decision, statement_to_sign
from decisions.services.write_comment import write_comment
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
    if may_sign_here(revision, account) and not was_shown(verdict, account, form):
        said = "Read the statement below: it is what you sign. Prove again that it is you, and sign."
        return render_sign_off(request, revision, account, form=form, refusal=said, status=422)
    try:
        signature = sign_decision(
            verdict=verdict,
            by=account,
            credentials=credentials_of(request),
            meaning=form["meaning"],
            reason=form["reason"],
        )
    except Refused as refusal:
        return render_sign_off(request, revision, account, form=form, refusal=str(refusal), status=422)
    messages.success(request, signed_words(signature))
    return redirect("brief-sign-off", brief, number)


@posted_from("brief-sign-off", "brief", "number")
@login_required
def comment(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    revision = revision_or_404(brief, number)
    text = request.POST.get("text", "")
    try:
        write_comment(revision=revision, by=account, text=text)
    except Refused as refusal:
        said = {"comment": text, "comment_refusal": str(refusal)}
        return render_sign_off(request, revision, account, said=said, status=422)
    return redirect(f"{reverse('brief-sign-off', args=[brief, number])}#review")


@posted_from("brief-sign-off", "brief", "number")
@login_required
def ask_for_signatures_again(request: HttpRequest, brief: int, number: int) -> HttpResponse:
    account = require(request)
    try:
        ask_again(revision=revision_or_404(brief, number), by=account)
    except Refused as refusal:
        messages.error(request, f"{str(refusal).rstrip('.')}.")
    else:
        messages.success(request, "The owners are asked again, under the policy that is in force now.")
    return redirect("brief-sign-off", brief, number)


def signed_words(signature: Signature) -> str:
    where = "The signature and its statement are on this page and in the history."
    if signature.meaning == BREAK_GLASS:
        return f"Signed: the configuration is in force for now. The owners have to decide on it still. {where}"
    if signature.revision.state == IN_REVIEW:
        return f"Signed. It takes another owner’s signature still. {where}"
    return f"Signed. {where}"


def may_sign_here(revision: BriefRevision, account: Account) -> bool:
    request = request_of(revision)
    barred = request.policy.may_not_sign if request else HANDS
    return may_sign(person(account), relation(revision), barred) is None


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
    said: dict[str, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    """``said``: a comment that was refused, and why."""
    verdict = revision.verdicts.last()
    review = review_of(revision, verdict, timezone.now()) if verdict else None
    context = frame(revision, "brief-sign-off", account, review) | {"verdict": verdict, "refusal": refusal}
    context |= {"imported": len(standing(revision)), "unjudged": why_unjudged(revision) if verdict is None else ""}
    if verdict is None or review is None:
        return render(request, "briefs/sign_off.html", context, status=status)
    shown = verdict.document
    pictures = held_out_pictures(verdict)
    written = form or {"meaning": "", "reason": ""}
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
        "demonstrated": vouched,
        "form": written,
        **stated(verdict, account, written),
        **reviewed(revision, review, shown, vouched, account),
        **(said or {}),
    }
    return render(request, "briefs/sign_off.html", context, status=status)


def interval_confidence(shown: dict[str, Any]) -> float:
    """The two-sided one of every interval in the table: of the look, where more than one is planned."""
    found = [row["interval_confidence"] for row in [*shown["outcome"], *shown["guardrails"]]]
    whole: float = 2 * shown["confidence"] - 1
    return next((one for one in found if one is not None), whole)


def reviewed(
    revision: BriefRevision, review: Review, shown: dict[str, Any], vouched: list[Demonstrated], account: Account
) -> dict[str, Any]:
    """What is asked and said of the verdict, and what this person may do about it."""
    now, who = timezone.now(), person(account)
    earlier = revisions.before(revision) if revision.number > 1 else None
    return {
        "review": review,
        "signatures": [one.signature for one in review.signatures],
        "timeline": timeline(revision, review, now),
        "policy_words": in_words(review.asked.policy) if review.asked else [],
        "gates": gates(revision, shown, review, vouched),
        "meanings": meanings(shown, review.asked, who, now),
        "why_not_sign": why_not_sign(revision, review, account, now),
        "may_comment": may_comment(who) is None,
        "may_ask_again": review.lapsed and may_write_brief(who) is None,
        "earlier": earlier,
        "diff": revisions.source_diff(earlier, revision),
    }


def meanings(shown: dict[str, Any], asked: Asked | None, who: Person, now: datetime) -> list[dict[str, str]]:
    """The meanings of a signature, and why one of them can't be chosen here; without a glass, nobody offers to break
    it."""
    found = []
    for value, label in Signature.Meaning.choices:
        if value == BREAK_GLASS and not (asked and asked.policy.break_glass and asked.policy.waits):
            continue
        name, _, consequence = label.partition(": ")
        closed = approval_refusal(shown) if value in RELEASING else None
        closed = closed or (why_not_mean(who, asked, value, now) if asked else None)
        found.append(
            {
                "value": value,
                "name": name,
                "consequence": f"{consequence}{further(value, asked)}",
                "closed": closed or "",
            }
        )
    return found


def further(meaning: str, asked: Asked | None) -> str:
    """What else follows from it, under the policy."""
    if asked is None:
        return ""
    needed = signatures_needed(asked.policy, meaning, asked.result)
    if meaning == BREAK_GLASS:
        return f", at most for {hours(asked.policy.break_glass_hours)}"
    if meaning == APPROVE and needed > 1:
        return f", once {needed} owners have approved"
    if meaning == REJECT and needed > 1:
        return ". This is against the verdict: it takes a second owner"
    return ""


def why_not_sign(revision: BriefRevision, review: Review, account: Account, now: datetime) -> str | None:
    if revision.state != IN_REVIEW:
        return NOTHING_TO_SIGN.get(revision.state, "There is nothing to sign yet.")
    if review.asked is None:
        return NOT_ASKED
    who, barred = person(account), review.asked.policy.may_not_sign
    return (
        may_sign(who, relation(revision), barred)
        or why_not_after_reset(recent_reset(account), now)
        or why_not_open(review.asked, now)
    )
