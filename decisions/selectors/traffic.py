from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Prefetch, QuerySet

from decisions.models import BriefRevision, Service
from decisions.rules.brief import Brief
from decisions.selectors.seal import Use, uses_of
from loadtests.models import TrafficPart, TrafficSet

PART_ORDER = ("tuning", "held-out", "evaluation")


@dataclass(frozen=True)
class ClassShare:
    name: str
    count: int
    share: float


@dataclass(frozen=True)
class SetRow:
    """A set in the list: its parts by kind, and how many rows of its file were left out."""

    set: TrafficSet
    parts: list[TrafficPart | None]
    problems: int


@dataclass(frozen=True)
class UseShown:
    """A reading of the held-out part; ``again`` where an earlier revision for the same route had read it before."""

    use: Use
    again: bool


def traffic_sets() -> QuerySet[TrafficSet]:
    return TrafficSet.objects.prefetch_related("parts").order_by("-pk")


def set_rows() -> list[SetRow]:
    """Without the statistics, which the list doesn't show and a thousand sets have a lot of."""
    parts = Prefetch("parts", TrafficPart.objects.defer("statistics", "stretches"))
    sets = TrafficSet.objects.prefetch_related(parts).defer("statistics", "split").order_by("-pk")
    return [set_row(one) for one in sets]


def set_row(traffic_set: TrafficSet) -> SetRow:
    kinds = {part.kind: part for part in traffic_set.parts.all()}
    problems = sum(problem_counts(traffic_set.imported).values())
    return SetRow(traffic_set, [kinds.get(kind) for kind in PART_ORDER], problems)


def problem_counts(imported: Mapping[str, Any]) -> dict[str, int]:
    """Rows left out by reason, most frequent first: those of the file and those of its donor."""
    donor = (imported.get("join") or {}).get("donor") or {}
    counts = Counter(imported.get("skipped") or {})
    counts.update(donor.get("skipped") or {})
    return dict(counts.most_common())


def parts_in_order(traffic_set: TrafficSet) -> list[TrafficPart]:
    return sorted(traffic_set.parts.all(), key=lambda part: PART_ORDER.index(part.kind))


def set_by_digest(digest: str) -> TrafficSet | None:
    return TrafficSet.objects.filter(digest=digest).first()


def replayed_part(brief: Brief) -> TrafficPart | None:
    """The tuning part, where a level of the brief replays it."""
    if all(level.arrival.process != "replay" for level in brief.levels):
        return None
    parts = TrafficPart.objects.filter(set__digest=brief.traffic.set, kind=TrafficPart.Kind.TUNING)
    return parts.defer("statistics").first()


def class_shares(statistics: Mapping[str, Any]) -> list[ClassShare]:
    counts = statistics.get("classes")
    if not isinstance(counts, dict) or not counts:
        return []
    total = sum(counts.values()) or 1
    return [ClassShare(name, count, count / total) for name, count in sorted(counts.items(), key=lambda one: -one[1])]


def briefs_on(traffic_set: TrafficSet) -> list[BriefRevision]:
    return list(
        traffic_set.revisions.select_related("brief__route__service").defer("source").order_by("-brief_id", "-number")
    )


def newest_frozen(revisions: list[BriefRevision]) -> BriefRevision | None:
    frozen = [one for one in revisions if one.frozen_at is not None and one.content is not None]
    return max(frozen, key=lambda one: (one.frozen_at, one.pk), default=None)


def uses_shown(traffic_set: TrafficSet) -> list[UseShown]:
    """Every revision that read the held-out part, the first one first."""
    routes: set[str] = set()
    shown = []
    for use in uses_of(traffic_set):
        shown.append(UseShown(use, use.route in routes))
        routes.add(use.route)
    return shown


def service_of(traffic_set: TrafficSet) -> Service | None:
    return Service.objects.filter(slug=traffic_set.service).first() if traffic_set.service else None


def text_kept_until(traffic_set: TrafficSet, service: Service | None) -> datetime | None:
    """When the retention of its service deletes the text; None where nothing does."""
    if service is None or service.retention_days is None or traffic_set.text_deleted_at:
        return None
    return traffic_set.created_at + timedelta(days=service.retention_days)
