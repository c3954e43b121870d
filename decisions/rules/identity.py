"""What somebody has to prove who they are with, and whether what they gave proves it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

PASSWORD, TOTP, RECOVERY_CODE, PASSKEY = "password", "TOTP", "recovery code", "passkey"
SINGLE_SIGN_ON = "single sign-on"
# Failed tries, and the seconds within which they count.
MOST_TRIES, TRIES_WITHIN_S = 5, 300
# How far the provider's clock may be behind ours.
CLOCKS_DIFFER = timedelta(seconds=60)

WRONG_PASSWORD = "the password is wrong: this needs your own password again"  # noqa: S105 (a sentence)
NO_SECOND_FACTOR_GIVEN = (
    "your password alone is not enough: give a code of your authenticator app, a recovery code, or your passkey as well"
)
WRONG_SECOND_FACTOR = (
    "the code or passkey is wrong, or was used already: every code counts once, so wait for the next one"
)
SIGN_IN_ANEW = (
    "prove that it is you: give your second factor, or sign in anew at the single sign-on right before; a sign-in "
    "counts for one act and a few minutes"
)
NO_PROOF = (
    "you came by single sign-on and have no second factor here, so nothing shows that it is you now: sign in anew at "
    "the single sign-on right before, or add a passkey or an authenticator app under Account"
)
NOTHING_TO_PROVE_WITH = (
    "your account has neither a password nor a second factor: an operator can give it a password, then add a second "
    "factor under Account"
)
TOO_MANY_TRIES = f"there were too many failed tries: wait {TRIES_WITHIN_S // 60} minutes and try again"


@dataclass(frozen=True)
class Means:
    """What an account can be proven with. ``single_sign_on``: it is linked to one that is in use here."""

    password: bool = False
    totp: bool = False
    passkey: bool = False
    single_sign_on: bool = False

    @property
    def second_factor(self) -> bool:
        return self.totp or self.passkey


@dataclass(frozen=True)
class Given:
    """What was right of what a person gave. ``second``: TOTP, RECOVERY_CODE or PASSKEY; "" where it was wrong, None
    where none was given. ``signed_in_at``: when they signed in anew at the single sign-on, for this one act."""

    password: bool = False
    second: str | None = None
    signed_in_at: datetime | None = None


def why_not_proven(means: Means, given: Given) -> str | None:
    """A session alone proves nothing: whoever has neither a password nor a second factor needs a fresh sign-in."""
    return why_not_by_password(means, given) if means.password else why_not_without_password(means, given)


def why_not_by_password(means: Means, given: Given) -> str | None:
    if not given.password:
        return WRONG_PASSWORD
    if given.second or not means.second_factor:
        return None
    return NO_SECOND_FACTOR_GIVEN if given.second is None else WRONG_SECOND_FACTOR


def why_not_without_password(means: Means, given: Given) -> str | None:
    # A recovery code stands in for a factor that is lost, beside a password.
    if given.second in (TOTP, PASSKEY) or given.signed_in_at:
        return None
    if means.second_factor:
        return SIGN_IN_ANEW if given.second is None else WRONG_SECOND_FACTOR
    return NO_PROOF if means.single_sign_on else NOTHING_TO_PROVE_WITH


def method(given: Given) -> str:
    """What proved it, as it is kept with a signature."""
    parts = [PASSWORD] if given.password else []
    if given.second:
        parts.append(given.second)
    return " + ".join(parts) or SINGLE_SIGN_ON


def why_not_linked(*, email: str, verified: bool, accounts: int) -> str | None:
    """Whom a provider vouches for is linked to the one account that an operator gave their e-mail address."""
    if not email or not verified:
        return "The single sign-on names no verified e-mail address of yours, so no account here can be found by it."
    if accounts != 1:
        return f"No account here has the e-mail address {email}. Ask an operator to give it to yours."
    return None


def is_fresh(auth_time: datetime, begun_at: datetime) -> bool:
    """Whether they signed in after they were asked to."""
    return auth_time >= begun_at - CLOCKS_DIFFER
