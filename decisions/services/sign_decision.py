from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn

from django.utils import timezone

from decisions import ledger
from decisions.models import Account, BriefRevision, Release, Signature, Verdict
from decisions.rules.evidence import TrialEvidence
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.states import approval_refusal
from decisions.rules.tested_range import tested_range
from decisions.rules.who_may import may_sign
from decisions.selectors.behaviour import read_behaviour
from decisions.selectors.evidence import evidence_of
from decisions.selectors.imported import why_unjudged
from decisions.selectors.seal import used_before
from decisions.services.compute_verdict import evidence_digests
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import person, relation
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.canonical import digest, digest_of
from loadtests.evidence.ahead import act_on_evidence
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable
from loadtests.models import Campaign
from loadtests.services.store_configuration import store_configuration

ACTS = {
    Signature.Meaning.APPROVE: "approve",
    Signature.Meaning.REJECT: "reject",
    Signature.Meaning.REQUEST_CHANGES: "request-changes",
}

NO_VERDICT = "there is no verdict to sign yet: it follows from the evidence of a brief that was frozen and started"


def statement_to_sign(*, verdict: Verdict, by: Account, meaning: str, reason: str) -> str:
    """The exact text that is signed; it binds the act to the digests of brief, evidence and verdict."""
    revision = verdict.revision
    route = revision.brief.route
    return "\n".join(
        [
            f"{by.get_full_name() or by.username} ({by.username}), decision owner of {route.service.slug}, signs:",
            f"{Signature.Meaning(meaning).label}.",
            f"Route: {route.service.slug}/{route.slug}",
            f"Brief: {revision.title}, revision {revision.number}, sha256 {revision.digest}",
            f"Nominee: {revision.nominee or 'none'}",
            f"Verdict: {verdict.result}, sha256 {verdict.digest}",
            f"Evidence: sha256 {verdict.evidence_digest}",
            f"Reason: {reason.strip()}",
        ]
    )


def sign_decision(*, verdict: Verdict, by: Account, password: str, meaning: str, reason: str) -> Signature:
    """The owner's signed act on a verdict. Every refusal is left in the ledger."""
    revision = verdict.revision
    refusal = may_sign(person(by), relation(revision)) or why_not(verdict, by, password, meaning, reason)
    if refusal:
        refuse("sign", refusal, subject=subject(revision), actor=by.username)
    try:
        return act_on_evidence(partial(record_signature, verdict, by, meaning, reason.strip()))
    except Refused as late:
        # Somebody else decided first, or the evidence changed since it was judged.
        refuse("sign", late.sentence, subject=subject(revision), actor=by.username)


def refuse_unjudged(*, revision: BriefRevision, by: Account) -> NoReturn:
    """There is nothing to sign without a verdict; where imported trials are all there is, the refusal says why."""
    refusal = may_sign(person(by), relation(revision)) or why_unjudged(revision) or NO_VERDICT
    refuse("sign", refusal, subject=subject(revision), actor=by.username)


def record_signature(verdict: Verdict, by: Account, meaning: str, reason: str) -> Signature:
    """Within its act: everything that is read of the evidence comes before the first change."""
    revision = verdict.revision
    now = timezone.now()
    statement = statement_to_sign(verdict=verdict, by=by, meaning=meaning, reason=reason).encode()
    if meaning == Signature.Meaning.APPROVE:
        refusal = why_no_approval(verdict)
        if refusal:
            raise Refused(refusal)
    move_revision(
        revision=revision,
        act=ACTS[Signature.Meaning(meaning)],
        actor=by.username,
        details={
            "verdict": verdict.digest,
            "evidence": verdict.evidence_digest,
            "brief": revision.digest,
            "statement": digest(statement),
            "reason": reason,
        },
    )
    signature = Signature.objects.create(
        revision=revision,
        verdict=verdict,
        signer=by,
        signer_name=by.get_full_name() or by.username,
        meaning=meaning,
        reason=reason,
        statement=statement,
        digest=digest(statement),
        signed_at=now,
    )
    if meaning == Signature.Meaning.APPROVE:
        create_release(signature, now)
    return signature


def why_not(verdict: Verdict, by: Account, password: str, meaning: str, reason: str) -> str | None:
    if not by.has_usable_password() or not by.check_password(password):
        return "the password is wrong: a signature needs your own password again"
    if meaning not in Signature.Meaning.values:
        return f"{meaning!r} is no meaning of a signature"
    if is_too_short(reason):
        return f"give a reason of at least {SHORTEST_REASON} characters"
    if verdict != verdict.revision.verdicts.last():
        return "there is a newer verdict: read that one"
    return None


def why_no_approval(verdict: Verdict) -> str | None:
    """Checked within the act: the evidence must be all there, and be the evidence that was judged."""
    revision = verdict.revision
    refusal = approval_refusal(verdict.document)
    if refusal:
        return refusal
    if digest(bytes(verdict.content)) != verdict.digest or revision.document.digest != revision.digest:
        return (
            "the stored brief or verdict no longer has the digest it was signed under: this is a matter for the auditor"
        )
    if digest_of(evidence_digests(revision)) != verdict.evidence_digest:
        return "the evidence is no longer what the verdict was computed from: let the stages finish, then judge again"
    try:
        trials = evidence_of(revision)
        read_behaviour(revision)
    except EvidenceUnreachable as error:
        return f"the evidence can't be read now, so nobody can approve on it: {error}. Sign when the store is back"
    except (EvidenceMissing, EvidenceDamaged) as error:
        return f"evidence is missing or damaged: {error}"
    if used_before(revision):
        return "its held-out traffic was read for another brief before: only unused traffic can carry an approval"
    return why_no_fallback(trials)


def why_no_fallback(trials: Sequence[TrialEvidence]) -> str | None:
    fallback = [trial for trial in trials if trial.purpose == "fallback"]
    if not fallback:
        return "the fallback has not been tested at peak"
    if any(trial.died or not (trial.columns["status"] == "completed").any() for trial in fallback):
        return "the fallback did not survive its test at peak: without it nobody could switch speculation off"
    return None


def create_release(signature: Signature, now: datetime) -> Release:
    revision = signature.revision
    document = revision.document
    route = revision.brief.route
    for replaced in Release.objects.filter(route=route, revoked_at=None, superseded_at=None).select_related("revision"):
        Release.objects.filter(pk=replaced.pk).update(superseded_at=now)
        move_revision(
            revision=replaced.revision,
            act="supersede",
            actor=signature.signer.username,
            details={"release": replaced.pk},
        )
    release = Release.objects.create(
        route=route,
        revision=revision,
        signature=signature,
        configuration=store_configuration(document.configuration(revision.nominee)),
        fallback=store_configuration(document.baseline),
        tested_range=range_of(revision),
        released_at=now,
        expires_at=now + timedelta(days=document.release_days),
    )
    ledger.append(
        "release-in-force",
        subject=f"route {route.slug}",
        actor=signature.signer.username,
        details={
            "release": release.pk,
            "configuration": release.configuration.digest,
            "decision": signature.digest,
            "expires": release.expires_at.isoformat(),
        },
    )
    return release


def range_of(revision: BriefRevision) -> dict[str, Any]:
    return tested_range(evidence_of(revision, purposes=[Campaign.Purpose.HELD_OUT]))
