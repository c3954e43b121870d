from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from decisions.models import BriefRevision
from loadtests.models import TrafficSet


@dataclass(frozen=True)
class ClassShare:
    name: str
    count: int
    share: float


def traffic_sets() -> QuerySet[TrafficSet]:
    return TrafficSet.objects.prefetch_related("parts").order_by("-pk")


def class_shares(statistics: dict[str, object]) -> list[ClassShare]:
    counts = statistics.get("classes")
    if not isinstance(counts, dict) or not counts:
        return []
    total = sum(counts.values()) or 1
    return [ClassShare(name, count, count / total) for name, count in sorted(counts.items(), key=lambda one: -one[1])]


def briefs_on(traffic_set: TrafficSet) -> list[BriefRevision]:
    return list(
        traffic_set.revisions.select_related("brief__route__service").defer("source").order_by("-brief_id", "-number")
    )
