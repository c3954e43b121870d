from decisions import ledger
from decisions.models import Account, Service
from decisions.rules.who_may import Relation, may_manage_privacy
from decisions.services.people import owners, person
from decisions.services.refuse import refuse
from decisions.services.refused import Refused
from loadtests.journal import act
from loadtests.models import TrafficImport
from loadtests.traffic.importers.redaction import pattern_problems

LONGEST_RETENTION = 36_500  # days, a century


def set_privacy(*, service: Service, retention_days: int | None, redactions: list[dict[str, str]], by: Account) -> None:
    """How long the text of the service's traffic is kept (None: until someone deletes it), and what an import takes
    out of it. Raises Refused with a sentence for each line that can't be used."""
    refusal = may_manage_privacy(person(by), Relation(service_owners=owners(service)))
    if refusal:
        refuse("privacy", refusal, subject=f"service {service.slug}", actor=by.username)
    problems = privacy_problems(retention_days, redactions)
    if problems:
        raise Refused("; ".join(problems))
    with act():
        held = Service.objects.get(pk=service.pk)
        before = privacy_of(held)
        held.retention_days, held.redactions = retention_days, redactions
        if privacy_of(held) == before:
            return
        held.save(update_fields=["retention_days", "redactions"])
        redact_what_waits(held)
        ledger.append(
            "privacy-set",
            subject=f"service {service.slug}",
            actor=by.username,
            details={"before": before, "after": privacy_of(held)},
        )
    service.refresh_from_db()


def redact_what_waits(service: Service) -> None:
    """An import that was asked for under the old expressions and hasn't begun is read under the new ones, and so is one
    that begins again because its worker was stopped."""
    for wanted in TrafficImport.objects.filter(service=service.slug, state__in=TrafficImport.OPEN):
        wanted.options["redactions"] = service.redactions
        wanted.save(update_fields=["options"])


def privacy_of(service: Service) -> dict[str, object]:
    return {"retention_days": service.retention_days, "redactions": service.redactions}


def privacy_problems(retention_days: int | None, redactions: list[dict[str, str]]) -> list[str]:
    problems = []
    if retention_days is not None and not 1 <= retention_days <= LONGEST_RETENTION:
        problems.append(f"retention is 1 to {LONGEST_RETENTION:,} days, or empty: {retention_days} is neither")
    return problems + pattern_problems([(one["pattern"], one["replacement"]) for one in redactions])
