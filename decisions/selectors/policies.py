"""The policies that a service's signatures are asked for by."""

from __future__ import annotations

from dataclasses import dataclass

from decisions.models import Route, Service, SigningPolicy
from decisions.rules.policy import DEFAULT, Policy


@dataclass(frozen=True)
class InForce:
    """``stored`` is None where nobody has set one for the environment: the policy is the default, version 0."""

    environment: str
    policy: Policy
    version: int
    stored: SigningPolicy | None
    routes: tuple[Route, ...] = ()


def policy_in_force(service: Service, environment: str) -> InForce:
    stored = versions_of(service, environment)[:1]
    if not stored:
        return InForce(environment, DEFAULT, 0, None)
    return InForce(environment, stored[0].policy, stored[0].version, stored[0])


def versions_of(service: Service, environment: str) -> list[SigningPolicy]:
    """The latest first."""
    return list(SigningPolicy.objects.filter(service=service, environment=environment).order_by("-version"))


def policies_of(service: Service) -> list[InForce]:
    """One for each environment that a route of the service is in."""
    routes: dict[str, list[Route]] = {}
    for route in service.routes.all():
        routes.setdefault(route.environment, []).append(route)
    latest = {one.environment: one for one in SigningPolicy.objects.filter(service=service).order_by("version")}
    return [
        InForce(
            name, stored.policy if stored else DEFAULT, stored.version if stored else 0, stored, tuple(routes[name])
        )
        for name in sorted(routes)
        for stored in [latest.get(name)]
    ]
