from datetime import UTC, datetime

from django.utils import timezone

from decisions.models import Account, FreshSignIn
from decisions.rules.identity import why_not_fresh
from decisions.services.refused import Refused
from loadtests.journal import act

NOT_SAID = "The single sign-on doesn’t say when you signed in, so it can’t be used for this."


def keep_fresh_sign_in(*, person: Account, auth_time: object, begun_at: datetime) -> FreshSignIn:
    """No event of its own: the act that it is used for says how the person proved who they are."""
    at = moment_of(auth_time)
    refusal = why_not_fresh(at, begun_at, timezone.now()) if at else NOT_SAID
    if at is None or refusal:
        raise Refused(refusal or NOT_SAID)
    with act():
        kept, is_new = FreshSignIn.objects.get_or_create(person=person, auth_time=at)
    if not is_new and kept.used_at:
        raise Refused("This sign-in was used already. Sign in anew.")
    return kept


def moment_of(auth_time: object) -> datetime | None:
    if not isinstance(auth_time, int) or isinstance(auth_time, bool):
        return None
    try:
        return datetime.fromtimestamp(auth_time, UTC)
    except (ValueError, OverflowError, OSError):
        return None
