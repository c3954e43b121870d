"""What somebody has to prove who they are with, and whether what they gave proves it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

PASSWORD, TOTP, RECOVERY_CODE, PASSKEY = "password", "TOTP", "recovery code", "passkey"
SINGLE_SIGN_ON = "single sign-on"
# Failed tries, and the seconds within which they count.
MOST_TRIES, TRIES_WITHIN_S = 5, 300
# How far the provider's clock and ours may differ.
CLOCKS_DIFFER = timedelta(seconds=60)
# How long nobody signs after somebody else changed what an account is proven with: time for its person to notice.
RESET_SETTLES = timedelta(hours=24)
# The events of it, and what they say to the person.
RESETS = {
    "password-reset": "set your password anew",
    "second-factor-reset": "took your second factor off",
    "single-sign-on-reset": "cut your link to the single sign-on",
    "email-set": "set the e-mail address that the single sign-on finds you by",
}

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


def why_not_linked(*, email: str, verified: bool, accounts: int, linked: bool = False) -> str | None:
    """Whom a provider vouches for is linked to the one account that an operator gave their e-mail address, and never to
    one that is somebody else's there already: houses give the addresses of those who have left to others."""
    if not email or not verified:
        return "The single sign-on names no verified e-mail address of yours, so no account here can be found by it."
    if accounts != 1:
        return f"No account here has the e-mail address {email}. Ask an operator to give it to yours."
    if linked:
        return (
            f"The account with the e-mail address {email} belongs to another sign-in there. If both are yours, ask "
            "whoever runs this site to cut the old link: manage.py reset_account --single-sign-on."
        )
    return None


def why_not_fresh(auth_time: datetime, begun_at: datetime, now: datetime) -> str | None:
    """They have to sign in after they were asked to; and one that is still to come would never grow old."""
    if auth_time < begun_at - CLOCKS_DIFFER:
        return "The single sign-on let you in without asking who you are. Give your password there again."
    if auth_time > now + CLOCKS_DIFFER:
        return f"The single sign-on says that you signed in at {at(auth_time)}, which is yet to come: a clock is wrong."
    return None


@dataclass(frozen=True)
class Reset:
    """Somebody else changed what an account is proven with. ``kind``: one of ``RESETS``."""

    kind: str
    by: str
    at: datetime

    @property
    def settles_at(self) -> datetime:
        return self.at + RESET_SETTLES


def why_not_after_reset(reset: Reset | None, now: datetime) -> str | None:
    """Whoever can change somebody's keys could otherwise sign as them before they know."""
    if reset is None or reset.settles_at <= now:
        return None
    return (
        f"nobody can sign as you before {at(reset.settles_at)}: {reset.by} {RESETS[reset.kind]} at {at(reset.at)}. If "
        "you didn’t ask for it, tell an auditor"
    )


def at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
