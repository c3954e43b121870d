from collections.abc import Iterator

from django.utils import timezone

from decisions import ledger
from decisions.models import Release, SignatureRequest
from decisions.rules.notices import expires_soon_from
from decisions.rules.signing import BREAK_GLASS
from decisions.selectors.review import bound_now
from decisions.services.move_revision import subject
from decisions.services.start_campaign import ACTOR
from loadtests.journal import act


def record_expiries() -> None:
    """One event for everything that has expired, will soon, or has fallen away since. Nothing rests on it: pages,
    gateways and signatures go by the clock and by the digests themselves."""
    now = timezone.now()
    for request in SignatureRequest.objects.lapsed(now).filter(expiry_recorded_at=None).select_related("revision"):
        record_expiry(request)
    for request in fallen():
        record_fall(request)
    for release in Release.objects.in_force(now).filter(end_announced_at=None).select_related("route", "signature"):
        if expires_soon_from(release.released_at, release.expires_at) <= now:
            announce_end(release)
    for release in (
        Release.objects.expired(now).filter(expiry_recorded_at=None).select_related("route", "fallback", "signature")
    ):
        record_end(release)


def record_expiry(request: SignatureRequest) -> None:
    now = timezone.now()
    with act():
        if (
            SignatureRequest.objects.lapsed(now)
            .filter(pk=request.pk, expiry_recorded_at=None)
            .update(expiry_recorded_at=now)
        ):
            details = {"request": request.pk, "expired": request.expires_at.isoformat()}
            ledger.append("request-expired", subject=subject(request.revision), actor=ACTOR, details=details)


def fallen() -> Iterator[SignatureRequest]:
    signed = SignatureRequest.objects.filter(closed_at=None, fall_recorded_at=None, signatures__isnull=False)
    for request in signed.distinct().select_related("revision", "verdict"):
        if bound_now(request.revision, request.verdict) != request.bound:
            yield request


def record_fall(request: SignatureRequest) -> None:
    with act():
        if SignatureRequest.objects.filter(pk=request.pk, fall_recorded_at=None).update(
            fall_recorded_at=timezone.now()
        ):
            details = {
                "request": request.pk,
                "bound": request.bound,
                "now": bound_now(request.revision, request.verdict),
                "signatures": list(request.signatures.order_by("pk").values_list("digest", flat=True)),
            }
            ledger.append("signatures-fell-away", subject=subject(request.revision), actor=ACTOR, details=details)


def announce_end(release: Release) -> None:
    now = timezone.now()
    with act():
        if Release.objects.in_force(now).filter(pk=release.pk, end_announced_at=None).update(end_announced_at=now):
            record("release-expires-soon", release, expires=release.expires_at.isoformat())


def record_end(release: Release) -> None:
    now = timezone.now()
    with act():
        if Release.objects.expired(now).filter(pk=release.pk, expiry_recorded_at=None).update(expiry_recorded_at=now):
            ended, fallback = release.expires_at.isoformat(), release.fallback.digest
            record("release-expired", release, expired=ended, fallback=fallback)


def record(kind: str, release: Release, **details: str) -> None:
    glass_broken = release.signature.meaning == BREAK_GLASS
    found = {"release": release.pk, "glass_broken": glass_broken, **details}
    ledger.append(kind, subject=f"route {release.route.slug}", actor=ACTOR, details=found)
