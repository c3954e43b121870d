from decisions import ledger
from decisions.models import Account, Service, ServiceCases
from decisions.rules.who_may import Relation, may_keep_cases
from decisions.selectors.service_cases import latest_cases
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.behaviour.own_cases import BadCases, OwnCases, read_own_cases
from loadtests.behaviour.registry import CASES
from loadtests.canonical import canonical
from loadtests.journal import act
from loadtests.strict_yaml import SLIPS

# They are read while their writer waits, and kept for ever.
LONGEST_SOURCE = 200_000  # bytes
# What a problem begins with, before its line and field.
NAME = "the document"


def keep_cases(*, service: Service, source: str, by: Account, begun_on: int | None = None) -> ServiceCases:
    """A new version of the service's own cases; where they are what the latest version holds, that version and no new
    one. ``begun_on``: the version that was looked at while these words were written, 0 for none.

    Raises BadCases, naming line and field, and Refused."""
    refusal = may_keep_cases(person(by), Relation(service_owners=owners(service)))
    if refusal:
        refuse("service-cases-keep", refusal, subject=f"service {service.slug}", actor=by.username)
    cases = usable(source)
    with act():
        latest = latest_cases(service)
        if latest is not None and latest.digest == cases.digest:
            return latest
        version = latest.version if latest else 0
        if begun_on not in (None, version):
            raise Refused(
                f"version {version} was kept by {latest.created_by if latest else 'nobody'} since you began: take over "
                f"what it changed, and send yours again to keep them as version {version + 1}"
            )
        kept = ServiceCases.objects.create(
            service=service,
            version=version + 1,
            source=source,
            content=canonical(cases.model_dump(mode="json", by_alias=True)),
            digest=cases.digest,
            count=len(cases.cases),
            created_by=by.username,
        )
        ledger.append(
            "service-cases-kept",
            subject=f"service {service.slug}",
            actor=by.username,
            details={"version": kept.version, "digest": kept.digest, "cases": kept.count},
        )
    return kept


def usable(source: str) -> OwnCases:
    """Raises BadCases. Half a character is no UTF-8, and said to be none."""
    content = source.encode("utf-8", "surrogatepass")
    if len(content) > LONGEST_SOURCE:
        raise BadCases(f"{NAME} is longer than {LONGEST_SOURCE // 1000} kB: keep what broke once or must never break")
    try:
        cases = read_own_cases(content, NAME)
    except BadCases:
        raise
    except SLIPS as error:
        raise BadCases(f"{NAME} has a word that isn't what it is said to be: {error}") from None
    ours = {case.id for case in CASES}
    for place, one in enumerate(cases.cases):
        if one.id in ours:
            raise BadCases(f"{NAME}, cases.{place}.id: {one.id} is one of the suite's own cases: choose another id")
    return cases
