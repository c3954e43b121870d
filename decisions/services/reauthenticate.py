"""The one place that says whether somebody is who they say, at the moment of a signature."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from decisions.models import Account


@dataclass(frozen=True)
class Credentials:
    """What a person gives with a signature."""

    password: str


@dataclass(frozen=True)
class Proof:
    """``at``: when the person proved who they are. ``method`` is stored with the signature."""

    at: datetime
    method: str

    def age_s(self, now: datetime) -> float:
        return (now - self.at).total_seconds()


def reauthenticate(person: Account, credentials: Credentials) -> Proof | None:
    """None where the credentials are wrong, or the account has none of its own: nobody signs by a session alone."""
    if person.has_usable_password() and person.check_password(credentials.password):
        return Proof(timezone.now(), "password")
    return None
