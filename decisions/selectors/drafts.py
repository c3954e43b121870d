"""What is known of a draft before anything of it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decisions.models import BriefRevision, Verdict
from decisions.rules.brief import Brief
from decisions.rules.request_counts import NO_TRAFFIC, Traffic
from loadtests.models import TrafficPart, TrafficSet


def traffic_told(traffic_set: TrafficSet | None) -> Traffic:
    """By the tuning part's own counts; the held-out part resembles it and isn't asked."""
    part = traffic_set.parts.filter(kind=TrafficPart.Kind.TUNING).first() if traffic_set else None
    if part is None:
        return NO_TRAFFIC
    told: Mapping[str, Any] = part.statistics
    count, duration_s, classes = told.get("count"), told.get("duration_s"), told.get("classes") or {}
    shares = {name: number / count for name, number in classes.items()} if count else {}
    return Traffic(count / duration_s if count and duration_s else None, shares)


def judged_before(revision: BriefRevision) -> tuple[Brief, Mapping[str, Any]] | None:
    """The brief and the verdict of the last earlier revision that has one."""
    earlier = Verdict.objects.filter(revision__brief=revision.brief_id, revision__number__lt=revision.number)
    verdict = earlier.select_related("revision").order_by("-pk").first()
    return (verdict.revision.document, verdict.document) if verdict else None
