from django.utils import timezone

from decisions import ledger
from decisions.models import Account, Release
from decisions.rules.reasons import SHORTEST_REASON, is_too_short
from decisions.rules.who_may import may_revoke
from decisions.services.people import person, relation
from decisions.services.reauthenticate import Credentials, reauthenticate
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def revoke_release(*, release: Release, by: Account, credentials: Credentials, reason: str) -> None:
    """Falls back now: from the next read on, the route answers with the baseline."""
    subject = f"route {release.route.slug}"
    refusal = may_revoke(person(by), relation(release.revision))
    if not refusal and is_too_short(reason):
        refusal = f"give a reason of at least {SHORTEST_REASON} characters"
    if not refusal:
        refusal = reauthenticate(by, credentials).refusal
    if refusal:
        refuse("revoke", refusal, subject=subject, actor=by.username)
    with act():
        moved = Release.objects.filter(pk=release.pk, revoked_at=None).update(
            revoked_at=timezone.now(), revoked_by=by.username, revoke_reason=reason.strip()
        )
        if not moved:
            raise Refused("this release was revoked already")
        ledger.append(
            "release-revoked",
            subject=subject,
            actor=by.username,
            details={"release": release.pk, "reason": reason.strip(), "fallback": release.fallback.digest},
        )
    release.refresh_from_db()
