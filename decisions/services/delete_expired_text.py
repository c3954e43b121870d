import logging
from datetime import datetime, timedelta

from django.utils import timezone

from decisions.models import Service
from decisions.services.delete_text import delete_unless_measuring
from decisions.services.refused import Refused
from loadtests.models import TrafficSet
from loadtests.services.delete_text import holds_text

logger = logging.getLogger(__name__)

ACTOR = "draftproof"


def delete_expired_text(*, now: datetime | None = None) -> None:
    """Deletes the text of every set that is older than its service keeps it. A set in use waits for the next time,
    and one that fails does not keep the others."""
    for service in Service.objects.exclude(retention_days=None):
        for traffic_set in expired_sets(service, now or timezone.now()):
            delete_one(traffic_set, f"retention of {service.retention_days} days")


def expired_sets(service: Service, now: datetime) -> list[TrafficSet]:
    limit = now - timedelta(days=service.retention_days or 0)
    kept = TrafficSet.objects.filter(service=service.slug, text_deleted_at=None, created_at__lt=limit)
    return [one for one in kept.order_by("pk") if holds_text(one)]


def delete_one(traffic_set: TrafficSet, reason: str) -> None:
    try:
        delete_unless_measuring(traffic_set, by=ACTOR, reason=reason)
    except Refused as refusal:
        logger.info("traffic set %s keeps its text past its retention: %s", traffic_set.pk, refusal)
    except Exception:
        logger.exception("the text of traffic set %s could not be deleted", traffic_set.pk)
