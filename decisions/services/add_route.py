from django.core.exceptions import ValidationError

from decisions import ledger
from decisions.models import Account, Route, Service
from decisions.rules.policy import PRODUCTION
from decisions.rules.who_may import OPERATOR, Relation, may_add_route
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act


def add_route(
    *, service: Service, slug: str, name: str, purpose: str, by: Account, environment: str = PRODUCTION
) -> Route:
    """Another way into a service, with briefs and releases of its own. Raises Refused for a name that is taken, in
    whatever service: a gateway asks for a route by its slug alone."""
    refusal = may_add_route(person(by), Relation(service_owners=owners(service)))
    if refusal:
        refuse("route-add", refusal, subject=f"service {service.slug}", actor=by.username)
    check_environment(service, environment, by)
    route = Route(service=service, slug=slug, name=name or slug, purpose=purpose, environment=environment)
    with act():
        taken = Route.objects.filter(slug=slug).select_related("service").first()
        if taken:
            raise Refused(f"{taken.service.name} has a route {slug} already: choose another name")
        check(route)
        route.save()
        ledger.append(
            "route-added",
            subject=f"service {service.slug}",
            actor=by.username,
            details={"route": slug, "name": route.name, "purpose": purpose, "environment": environment},
        )
    return route


def check_environment(service: Service, environment: str, by: Account) -> None:
    """A new environment begins under the policy of every service at first: an owner may not choose that for a service
    whose signatures are asked for by another one."""
    known = set(service.routes.values_list("environment", flat=True))
    if known and environment not in known and OPERATOR not in by.group_names:
        refuse(
            "route-add",
            f"{service.name} has no route in {environment} yet, and only someone in the group operator can begin one: "
            f"choose {' or '.join(sorted(known))}",
            subject=f"service {service.slug}",
            actor=by.username,
        )


def check(route: Route) -> None:
    try:
        route.full_clean()
    except ValidationError as error:
        words = {"slug": "its name in briefs", "name": "its name for people", "environment": "its environment"}
        said = [f"{words.get(field, field)}: {' '.join(problems)}" for field, problems in error.message_dict.items()]
        raise Refused("; ".join(said)) from None
