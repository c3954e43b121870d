"""What every act on an endpoint begins with."""

from decisions.models import Account, Endpoint, Service
from decisions.rules.who_may import Relation, may_manage_endpoints, may_manage_house_endpoints
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused

MOST_OF_ONE_SERVICE = 20


def why_not_manage(service: Service | None, by: Account) -> str | None:
    """``service`` None: an endpoint of the whole installation."""
    if service is None:
        return may_manage_house_endpoints(person(by))
    return may_manage_endpoints(person(by), Relation(service_owners=owners(service)))


def check_may_manage(service: Service | None, by: Account, act: str) -> None:
    """Raises Refused, with its event."""
    refusal = why_not_manage(service, by)
    if refusal:
        refuse(act, refusal, subject=f"service {service.slug}" if service else "all services", actor=by.username)


def check_room(service: Service | None) -> None:
    """Within the act: one more is enabled by it."""
    if Endpoint.objects.filter(service=service, disabled_at=None).count() >= MOST_OF_ONE_SERVICE:
        raise Refused(f"there are {MOST_OF_ONE_SERVICE} already: disable one that nobody reads")


def subject(endpoint: Endpoint) -> str:
    return f"endpoint {endpoint.pk}"
