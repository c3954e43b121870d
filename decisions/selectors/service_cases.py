"""The versions of the cases that a service adds to the preserved-behaviour suite."""

from __future__ import annotations

from django.db.models import QuerySet

from decisions.models import Service, ServiceCases
from decisions.rules.difference import Line, line_difference

# Time grows with the square of lines that repeat.
MOST_LINES_COMPARED = 3_000


def versions_of(service: Service) -> QuerySet[ServiceCases]:
    """Latest first, without their words."""
    return service.cases.order_by("-version").defer("source", "content")


def latest_cases(service: Service) -> ServiceCases | None:
    return service.cases.order_by("-version").first()


def digests_of(service: Service) -> dict[int, str]:
    """By version."""
    return dict(service.cases.values_list("version", "digest"))


def cases_named(service: Service, digest: str) -> ServiceCases | None:
    """The version that a brief means; of two with the same content the later one."""
    return service.cases.filter(digest=digest).order_by("-version").first()


def changed_since_the_one_before(cases: ServiceCases) -> list[Line] | None:
    """Nothing for the first version; None where comparing the two would take a page too long."""
    before = cases.service.cases.filter(version=cases.version - 1).first()
    if before is None:
        return []
    if max(one.source.count("\n") for one in (before, cases)) > MOST_LINES_COMPARED:
        return None
    return line_difference(before.source, cases.source)
