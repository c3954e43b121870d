from django.core.cache import cache

from decisions import ledger
from decisions.models import Account
from loadtests import journal

# One event in so many seconds for the same reason: whoever guesses must not fill the ledger.
ONCE_IN_S = 300
NOBODY_KNOWN = "unknown"


def record_refused_sign_in(*, person: Account, reason: str) -> None:
    """What matters of failed sign-ins: somebody knew the password and not the second factor, or guessed on and on."""
    key = f"sign-in-refused:{person.pk}:{reason.replace(' ', '-')}"
    if not cache.add(key, True, timeout=ONCE_IN_S):
        return
    with journal.act():
        ledger.append(
            "sign-in-refused",
            subject=f"account {person.username}",
            # Whoever it was, they have not shown that it was this person.
            actor=NOBODY_KNOWN,
            details={"reason": reason},
        )
