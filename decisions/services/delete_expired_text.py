import logging
from datetime import datetime

from django.utils import timezone

from decisions.selectors.kept_text import retention_of
from decisions.services.delete_text import delete_unless_measuring
from decisions.services.refused import Refused
from loadtests.models import TrafficSet
from loadtests.services.delete_text import holds_text

logger = logging.getLogger(__name__)

ACTOR = "draftproof"


def delete_expired_text(*, now: datetime | None = None) -> None:
    """Deletes the text of every set whose retention is past. A set in use waits for the next time, and one that fails
    does not keep the others."""
    limit = now or timezone.now()
    for traffic_set in TrafficSet.objects.filter(text_deleted_at=None).defer("statistics").order_by("pk"):
        retention = retention_of(traffic_set) if holds_text(traffic_set) else None
        if retention and retention.until < limit:
            delete_one(traffic_set, retention.reason(traffic_set))


def delete_one(traffic_set: TrafficSet, reason: str) -> None:
    try:
        delete_unless_measuring([traffic_set], by=ACTOR, reason=reason)
    except Refused as refusal:
        logger.info("traffic set %s keeps its text past its retention: %s", traffic_set.pk, refusal)
    except Exception:
        logger.exception("the text of traffic set %s could not be deleted", traffic_set.pk)
