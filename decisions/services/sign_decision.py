from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from django.utils import timezone

from decisions.models import Account, BriefRevision, Signature, SignatureRequest, Verdict
from decisions.rules.evidence import TrialEvidence
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.signing import (
    ACTS,
    ACTS_IN_PART,
    BREAK_GLASS,
    RELEASING,
    Asked,
    decides,
    glass_lasts,
    signatures_needed,
    why_not_sign,
)
from decisions.rules.states import approval_refusal
from decisions.rules.who_may import may_sign
from decisions.selectors.behaviour import read_behaviour
from decisions.selectors.evidence import evidence_digests, evidence_of
from decisions.selectors.identity import recent_reset
from decisions.selectors.imported import why_unjudged
from decisions.selectors.review import asked_of, bound_now, request_of
from decisions.selectors.seal import used_before
from decisions.services.close_request import close_request
from decisions.services.create_release import create_release, end_release_of
from decisions.services.move_revision import move_revision, subject
from decisions.services.people import person, relation
from decisions.services.reauthenticate import Credentials, Proof, reauthenticate
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.canonical import digest, digest_of
from loadtests.evidence.ahead import act_on_evidence
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing, EvidenceUnreachable

NO_VERDICT = "there is no verdict to sign yet: it follows from the evidence of a brief that was frozen and started"
NOT_ASKED = "nobody is asked for a signature on this verdict"


def statement_to_sign(*, verdict: Verdict, by: Account, meaning: str, reason: str) -> str:
    """The exact text that is signed; it binds the act to the digests of brief, evidence and verdict."""
    revision = verdict.revision
    route = revision.brief.route
    request = verdict.signature_requests.last()
    return "\n".join(
        [
            f"{by.get_full_name() or by.username} ({by.username}), decision owner of {route.service.slug}, signs:",
            f"{Signature.Meaning(meaning).label}.",
            f"Route: {route.service.slug}/{route.slug}",
            f"Brief: {revision.title}, revision {revision.number}, sha256 {revision.digest}",
            f"Nominee: {revision.nominee or 'none'}",
            f"Verdict: {verdict.result}, sha256 {verdict.digest}",
            f"Evidence: sha256 {verdict.evidence_digest}",
            *(policy_lines(request, meaning, verdict.result) if request else []),
            f"Reason: {reason.strip()}",
        ]
    )


def policy_lines(request: SignatureRequest, meaning: str, result: str) -> list[str]:
    needed = 1 if meaning == BREAK_GLASS else signatures_needed(request.policy, meaning, result)
    lines = [
        f"Bound: sha256 {request.bound}",
        f"Policy: {request.environment}, version {request.policy_version}; signatures that this takes: {needed}",
    ]
    return [*lines, f"Ends: {glass_lasts(request.policy)}"] if meaning == BREAK_GLASS else lines


def sign_decision(*, verdict: Verdict, by: Account, credentials: Credentials, meaning: str, reason: str) -> Signature:
    """The owner's signed act on a verdict. Every refusal is left in the ledger."""
    proof = reauthenticate(by, credentials)
    try:
        return act_on_evidence(partial(record_signature, verdict, by, proof, meaning, reason.strip()))
    except Refused as refusal:
        refuse("sign", refusal.sentence, subject=subject(verdict.revision), actor=by.username)


def refuse_unjudged(*, revision: BriefRevision, by: Account) -> NoReturn:
    """There is nothing to sign without a verdict; where imported trials are all there is, the refusal says why."""
    refusal = may_sign(person(by), relation(revision)) or why_unjudged(revision) or NO_VERDICT
    refuse("sign", refusal, subject=subject(revision), actor=by.username)


def record_signature(verdict: Verdict, by: Account, proof: Proof, meaning: str, reason: str) -> Signature:
    """Within its act, where nobody else writes: everything is read anew, and what is read of the evidence comes before
    the first change."""
    verdict.revision.refresh_from_db()
    signer = Account.objects.get(pk=by.pk)
    request, asked = request_now(verdict)
    refusal = why_not(verdict, signer, asked, proof, meaning, reason)
    if refusal is None and meaning in RELEASING:
        refusal = why_no_approval(verdict)
    if refusal or request is None or asked is None:
        raise Refused(refusal or NOT_ASKED)
    signature = create_signature(request, verdict, signer, proof, meaning, reason)
    carry_out(signature, request, asked)
    return signature


def request_now(verdict: Verdict) -> tuple[SignatureRequest | None, Asked | None]:
    revision = verdict.revision
    request = request_of(revision)
    if request is None:
        return None, None
    signatures = list(request.signatures.all())
    return request, asked_of(request, revision, signatures, bound_now(revision, verdict) if signatures else "")


def create_signature(
    request: SignatureRequest, verdict: Verdict, by: Account, proof: Proof, meaning: str, reason: str
) -> Signature:
    statement = statement_to_sign(verdict=verdict, by=by, meaning=meaning, reason=reason).encode()
    return Signature.objects.create(
        revision=verdict.revision,
        verdict=verdict,
        request=request,
        signer=by,
        signer_name=by.get_full_name() or by.username,
        signer_username=by.username,
        authentication=proof.method,
        meaning=meaning,
        reason=reason,
        statement=statement,
        digest=digest(statement),
        bound=request.bound,
        signed_at=timezone.now(),
    )


def carry_out(signature: Signature, request: SignatureRequest, asked: Asked) -> None:
    """What follows from a signature: the decision, where it is the last one that takes; and a release, or its end."""
    meaning, now = signature.meaning, signature.signed_at
    decided = decides(asked, meaning)
    move_revision(
        revision=signature.revision,
        act=ACTS[meaning] if decided else ACTS_IN_PART.get(meaning, ACTS[meaning]),
        actor=signature.signer_username,
        details={
            "verdict": signature.verdict.digest,
            "evidence": signature.verdict.evidence_digest,
            "brief": signature.revision.digest,
            "bound": signature.bound,
            "statement": signature.digest,
            "meaning": meaning,
            "reason": signature.reason,
            "request": request.pk,
            "signature": len(asked.signers(meaning)) + 1,
            "of": 1 if meaning == BREAK_GLASS else signatures_needed(asked.policy, meaning, asked.result),
        },
    )
    if meaning == BREAK_GLASS:
        SignatureRequest.objects.filter(pk=request.pk).update(glass_broken_at=now)
    if decided:
        close_request(request=request, outcome=signature.revision.state)
    if meaning in RELEASING and (decided or meaning == BREAK_GLASS):
        create_release(signature=signature, policy=request.policy, now=now)
    elif decided:
        end_release_of(request, signature, now)


def why_not(verdict: Verdict, by: Account, asked: Asked | None, proof: Proof, meaning: str, reason: str) -> str | None:
    revision, now = verdict.revision, timezone.now()
    if asked is None:
        return may_sign(person(by), relation(revision)) or NOT_ASKED
    refusal = why_not_sign(
        person(by),
        relation(revision),
        asked,
        meaning=meaning,
        reauthenticated_s=proof.age_s(now),
        now=now,
        unproven=proof.refusal,
        reset=recent_reset(by),
    )
    if refusal:
        return refusal
    if meaning not in Signature.Meaning.values:
        return f"{meaning!r} is no meaning of a signature"
    if is_too_short(reason):
        return f"give a reason of at least {SHORTEST_REASON} characters"
    if verdict != revision.verdicts.last():
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
