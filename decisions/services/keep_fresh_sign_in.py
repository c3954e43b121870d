from datetime import UTC, datetime

from decisions.models import Account, FreshSignIn
from decisions.rules.identity import is_fresh
from decisions.services.refused import Refused
from loadtests.journal import act


def keep_fresh_sign_in(*, person: Account, auth_time: object, begun_at: datetime) -> FreshSignIn:
    """No event of its own: the act that it is used for says how the person proved who they are."""
    if not isinstance(auth_time, int) or isinstance(auth_time, bool):
        raise Refused("The single sign-on doesn’t say when you signed in, so it can’t be used for this.")
    at = datetime.fromtimestamp(auth_time, UTC)
    if not is_fresh(at, begun_at):
        raise Refused("The single sign-on let you in without asking who you are. Give your password there again.")
    with act():
        kept, is_new = FreshSignIn.objects.get_or_create(person=person, auth_time=at)
    if not is_new and kept.used_at:
        raise Refused("This sign-in was used already. Sign in anew.")
    return kept
