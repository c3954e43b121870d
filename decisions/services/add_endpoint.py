from __future__ import annotations

import secrets
from base64 import b64encode
from dataclasses import dataclass

from django.conf import settings
from django.utils import timezone

from decisions import ledger
from decisions.at_rest import encrypted
from decisions.models import Account, Endpoint, Service
from decisions.rules.delivery import WEBHOOK, address_problem, shown_address
from decisions.services.manage_endpoint import check_may_manage, check_room, subject
from decisions.services.refused import Refused
from loadtests.journal import act

LONGEST_NAME = 80
# The specification asks for 24 to 64 of them.
SECRET_BYTES = 32


@dataclass(frozen=True)
class NewSecret:
    """``secret`` is told once, and "" for Slack, which has none."""

    endpoint: Endpoint
    secret: str


def add_endpoint(*, service: Service | None, kind: str, name: str, address: str, by: Account) -> NewSecret:
    """From now on messages about the service, or about every one, are posted there. Raises Refused."""
    check_may_manage(service, by, "endpoint-add")
    name, address = name.strip(), address.strip()
    problem = problem_of(kind, name, address)
    if problem:
        raise Refused(problem)
    secret = new_secret() if kind == WEBHOOK else ""
    with act():
        check_room(service)
        endpoint = Endpoint.objects.create(
            service=service,
            kind=kind,
            name=name,
            shown=shown_address(address),
            address=encrypted(address),
            secret=encrypted(secret) if secret else "",
            secret_set_at=timezone.now(),
            created_by=by.username,
        )
        ledger.append("endpoint-added", subject=subject(endpoint), actor=by.username, details=endpoint.told)
    return NewSecret(endpoint, secret)


def problem_of(kind: str, name: str, address: str) -> str | None:
    if kind not in Endpoint.Kind.values:
        return f"there is no kind {kind!r}: choose {' or '.join(Endpoint.Kind.values)}"
    if not name or len(name) > LONGEST_NAME:
        return f"say who reads there, in at most {LONGEST_NAME} characters"
    return address_problem(address, settings.NOTIFY_HOSTS, plain_loopback=settings.EMBEDDED)


def new_secret() -> str:
    return "whsec_" + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
