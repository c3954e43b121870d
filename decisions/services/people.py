"""From rows to what the pure rules speak of."""

from decisions.models import Account, BriefRevision, Service
from decisions.rules.who_may import Person, Relation


def person(account: Account) -> Person:
    return Person(
        username=account.username,
        groups=account.group_names,
        is_superuser=account.is_superuser,
        is_active=account.is_active,
    )


def relation(revision: BriefRevision) -> Relation:
    return Relation(
        author=revision.author.username,
        editors=frozenset(revision.editors.values_list("username", flat=True)),
        run_starters=frozenset(revision.run_starters.values_list("username", flat=True)),
        service_owners=owners(revision.brief.route.service),
    )


def owners(service: Service) -> frozenset[str]:
    return frozenset(service.owners.values_list("username", flat=True))
