from collections.abc import Collection

from allauth.usersessions.models import UserSession

from decisions import ledger
from decisions.models import Account
from decisions.services.refused import Refused
from loadtests.journal import act


def end_sessions(*, person: Account, sessions: Collection[int]) -> int:
    """A person ends sessions of their own: whoever holds one has to sign in again."""
    with act():
        found = list(UserSession.objects.filter(user=person, pk__in=sessions))
        if not found:
            raise Refused("these sessions have ended already")
        for one in found:
            one.end()
        ledger.append(
            "sessions-ended",
            subject=f"account {person.username}",
            actor=person.username,
            details={"sessions": len(found)},
        )
    return len(found)


def end_all(person: Account) -> int:
    """Within the act that ends them."""
    found = list(UserSession.objects.filter(user=person))
    for one in found:
        one.end()
    return len(found)
