from datetime import datetime, timedelta
from typing import Any

from decisions import ledger
from decisions.models import BriefRevision, Release, Signature, SignatureRequest
from decisions.rules.policy import Policy
from decisions.rules.signing import BREAK_GLASS
from decisions.rules.states import APPROVED
from decisions.rules.tested_range import tested_range
from decisions.selectors.evidence import evidence_of
from decisions.services.move_revision import move_revision
from loadtests.models import Campaign
from loadtests.services.store_configuration import store_configuration


def create_release(*, signature: Signature, policy: Policy, now: datetime) -> Release:
    """Within the act of the signature: what was in force on the route before is replaced."""
    revision = signature.revision
    document, route = revision.document, revision.brief.route
    for replaced in Release.objects.filter(route=route, revoked_at=None, superseded_at=None).select_related("revision"):
        replace_release(replaced, signature, now)
    release = Release.objects.create(
        route=route,
        revision=revision,
        signature=signature,
        configuration=store_configuration(document.configuration(revision.nominee)),
        fallback=store_configuration(document.baseline),
        tested_range=range_of(revision),
        released_at=now,
        expires_at=now + lasting(signature.meaning, policy, document.release_days),
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
            "glass_broken": signature.meaning == BREAK_GLASS,
        },
    )
    return release


def lasting(meaning: str, policy: Policy, days: int) -> timedelta:
    """The shorter of what the brief and the policy say; a release on one signature ends within hours."""
    whole = timedelta(days=min(days, policy.release_days))
    return min(whole, timedelta(hours=policy.break_glass_hours)) if meaning == BREAK_GLASS else whole


def replace_release(replaced: Release, signature: Signature, now: datetime) -> None:
    Release.objects.filter(pk=replaced.pk).update(superseded_at=now)
    # A release by a broken glass belongs to a revision that is still in review, be it this one or another.
    if replaced.revision_id != signature.revision_id and replaced.revision.state == APPROVED:
        move_revision(
            revision=replaced.revision,
            act="supersede",
            actor=signature.signer.username,
            details={"release": replaced.pk},
        )


def end_release_of(request: SignatureRequest, signature: Signature, now: datetime) -> None:
    """The owners have decided against what runs by a broken glass: the route falls back at once."""
    running = Release.objects.in_force(now).filter(signature__request=request, signature__meaning=BREAK_GLASS)
    for release in running.select_related("route", "fallback"):
        reason = f"{signature.get_meaning_display()}. {signature.reason}"
        Release.objects.filter(pk=release.pk).update(
            revoked_at=now, revoked_by=signature.signer.username, revoke_reason=reason
        )
        ledger.append(
            "release-revoked",
            subject=f"route {release.route.slug}",
            actor=signature.signer.username,
            details={"release": release.pk, "reason": reason, "fallback": release.fallback.digest},
        )


def range_of(revision: BriefRevision) -> dict[str, Any]:
    return tested_range(evidence_of(revision, purposes=[Campaign.Purpose.HELD_OUT]))
