import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from decisions import ledger
from decisions.models import Account, ApiToken
from decisions.rules.tokens import in_order, token_problem
from decisions.rules.who_may import inactive
from decisions.services.people import person as person_of
from decisions.services.reauthenticate import Credentials, reauthenticate
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.canonical import digest
from loadtests.journal import act

# So that a secret that lies about is recognised as one.
BEGINNING = "dp_"
SECRET_BYTES = 32
PREFIX_SHOWN = 9


@dataclass(frozen=True)
class NewToken:
    """``secret`` is told once: only its digest is kept."""

    token: ApiToken
    secret: str


def make_token(*, person: Account, name: str, scopes: Collection[str], days: int, by: str) -> NewToken:
    """``by``: the person's own username, or who ran the command."""
    refusal = inactive(person_of(person))
    if refusal:
        refuse("token-make", refusal, subject=f"account {person.username}", actor=by)
    problem = token_problem(name=name.strip(), scopes=scopes, days=days)
    if problem:
        raise Refused(problem)
    secret = BEGINNING + secrets.token_urlsafe(SECRET_BYTES)
    with act():
        token = ApiToken.objects.create(
            person=person,
            name=name.strip(),
            prefix=secret[:PREFIX_SHOWN],
            digest=digest(secret.encode()),
            scopes=in_order(scopes),
            created_by=by,
            expires_at=timezone.now() + timedelta(days=days),
        )
        ledger.append("token-made", subject=f"account {person.username}", actor=by, details=told(token))
    return NewToken(token, secret)


def make_own_token(
    *, person: Account, credentials: Credentials, name: str, scopes: Collection[str], days: int
) -> NewToken:
    """A person's own: whoever finds their browser open makes none."""
    problem = token_problem(name=name.strip(), scopes=scopes, days=days)
    if problem:
        raise Refused(problem)
    proof = reauthenticate(person, credentials)
    if proof.refusal:
        refuse("token-make", proof.refusal, subject=f"account {person.username}", actor=person.username)
    return make_token(person=person, name=name, scopes=scopes, days=days, by=person.username)


def told(token: ApiToken) -> dict[str, object]:
    """What an event says of it."""
    return {
        "token": token.pk,
        "prefix": token.prefix,
        "name": token.name,
        "scopes": token.scopes,
        "expires": token.expires_at.isoformat(),
    }
