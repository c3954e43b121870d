"""A revision in review: what is asked, what was signed and said, and what of it still stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from decisions.models import BriefRevision, Event, ReviewComment, Signature, SignatureRequest, Verdict
from decisions.rules import signing
from decisions.rules.signing import APPROVE, REJECT, Asked, bound_digest, signatures_needed
from decisions.selectors.evidence import evidence_digests
from loadtests.canonical import digest, digest_of


@dataclass(frozen=True)
class SignatureShown:
    """``fallen``: what it was bound to is no longer what is there."""

    signature: Signature
    fallen: bool


@dataclass(frozen=True)
class Said:
    """One entry of a review, in the order of time. ``act`` is a word of ``SAID`` in the page's own words."""

    at: datetime
    act: str
    who: str
    words: str = ""
    shown: SignatureShown | None = None
    request: SignatureRequest | None = None


@dataclass(frozen=True)
class Review:
    """``request`` is the latest one; None where the owners were never asked."""

    requests: list[SignatureRequest]
    request: SignatureRequest | None
    asked: Asked | None
    bound: str
    signatures: list[SignatureShown]
    lapsed: bool

    @property
    def approvals(self) -> int:
        return len(self.asked.signers(APPROVE)) if self.asked else 0

    @property
    def rejections(self) -> int:
        return len(self.asked.signers(REJECT)) if self.asked else 0

    @property
    def approvals_needed(self) -> int:
        return self.asked.policy.quorum if self.asked else 1

    @property
    def rejections_needed(self) -> int:
        return signatures_needed(self.asked.policy, REJECT, self.asked.result) if self.asked else 1


def request_of(revision: BriefRevision) -> SignatureRequest | None:
    return revision.signature_requests.select_related("verdict").last()


def bound_now(revision: BriefRevision, verdict: Verdict) -> str:
    """From what is stored now, not from the digests that were noted beside it."""
    return bound_digest(
        brief=digest(bytes(revision.content or b"")),
        evidence=digest_of(evidence_digests(revision)),
        verdict=digest(bytes(verdict.content)),
    )


def asked_of(request: SignatureRequest, revision: BriefRevision, signatures: Iterable[Signature], bound: str) -> Asked:
    """``bound``: of what is there now; signatures that are bound to anything else don't count."""
    standing: dict[str, frozenset[str]] = {}
    for one in signatures:
        if one.request_id == request.pk and one.bound == bound:
            standing[one.meaning] = standing.get(one.meaning, frozenset()) | {one.signer_username}
    return Asked(
        state=revision.state,
        result=request.verdict.result,
        policy=request.policy,
        opened_at=request.opened_at,
        expires_at=request.expires_at,
        closed=request.closed_at is not None,
        glass_broken=request.glass_broken_at is not None,
        signed=standing,
    )


def review_of(revision: BriefRevision, verdict: Verdict, now: datetime) -> Review:
    bound, signatures = bound_now(revision, verdict), signatures_of(revision)
    requests = list(revision.signature_requests.select_related("verdict"))
    request = requests[-1] if requests else None
    asked = asked_of(request, revision, signatures, bound) if request else None
    return Review(
        requests=requests,
        request=request,
        asked=asked,
        bound=bound,
        signatures=[SignatureShown(one, one.bound != bound) for one in signatures],
        lapsed=asked is not None and signing.has_lapsed(asked, now),
    )


def signatures_of(revision: BriefRevision) -> list[Signature]:
    return list(revision.signatures.select_related("verdict", "request", "release__route__service"))


def signed_by(revision: BriefRevision) -> list[Signature]:
    """Names, meanings and times, for wherever the decision is named."""
    return list(revision.signatures.select_related("request").defer("statement", "reason"))


def has_lapsed(revision: BriefRevision, now: datetime) -> bool:
    return SignatureRequest.objects.lapsed(now).filter(revision=revision).exists()


def timeline(revision: BriefRevision, review: Review, now: datetime) -> list[Said]:
    """What was asked, said, signed and withdrawn, in the order of time."""
    return sorted(
        [
            *(
                Said(one.signature.signed_at, "signed", one.signature.signer_name, shown=one)
                for one in review.signatures
            ),
            *(Said(one.written_at, "commented", one.author_name, one.text) for one in comments_of(revision)),
            *(said for one in review.requests for said in of_request(one, revision, now)),
        ],
        key=lambda said: said.at,
    )


def comments_of(revision: BriefRevision) -> list[ReviewComment]:
    return list(revision.comments.all())


def of_request(request: SignatureRequest, revision: BriefRevision, now: datetime) -> Iterator[Said]:
    yield Said(request.opened_at, "asked", request.opened_by, request=request)
    if request.closed_at and request.outcome == SignatureRequest.Outcome.WITHDRAWN:
        event = Event.objects.filter(kind="brief-withdraw", subject=subject_of(revision)).last()
        yield Said(
            request.closed_at, "withdrew", event.actor if event else "", event.details["reason"] if event else ""
        )
    elif request.outcome == SignatureRequest.Outcome.EXPIRED or (
        request.closed_at is None and request.glass_broken_at is None and request.expires_at <= now
    ):
        yield Said(request.expires_at, "expired", "")


def subject_of(revision: BriefRevision) -> str:
    return f"brief {revision.brief_id} revision {revision.number}"
