from collections.abc import Collection

from django.contrib.auth.models import Group

from decisions import ledger
from decisions.models import Account, Service
from decisions.rules.who_may import OWNER, ROLES
from decisions.services.changed_by import changed_by
from decisions.services.refused import Refused
from loadtests.journal import act


def set_roles(*, account: Account, roles: Collection[str], services: Collection[str], by: Account) -> None:
    """Which groups somebody is in, and which services they own, by slug."""
    subject = f"account {account.username}"
    changed_by(by, account, "roles-set")
    check_words(roles, services)
    with act():
        before = roles_of(account)
        after = {"roles": sorted(roles), "services": sorted(services)}
        if before == after:
            raise Refused("these are the roles and services that they have already")
        account.groups.set([Group.objects.get_or_create(name=role)[0] for role in roles])
        account.owned_services.set(Service.objects.filter(slug__in=services))
        ledger.append("roles-set", subject=subject, actor=by.username, details={"before": before, "after": after})


def roles_of(account: Account) -> dict[str, object]:
    return {
        "roles": sorted(account.groups.values_list("name", flat=True)),
        "services": sorted(account.owned_services.values_list("slug", flat=True)),
    }


def check_words(roles: Collection[str], services: Collection[str]) -> None:
    if unknown := sorted(set(roles) - set(ROLES)):
        raise Refused(f"there is no role {unknown[0]}; there are {', '.join(ROLES)}")
    known = set(Service.objects.filter(slug__in=services).values_list("slug", flat=True))
    if missing := sorted(set(services) - known):
        raise Refused(f"there is no service {missing[0]}")
    if services and OWNER not in roles:
        raise Refused("only someone with the role owner owns a service: give the role as well, or no service")
