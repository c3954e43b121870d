import logging

from celery import shared_task

from decisions.models import BriefRevision
from decisions.services.advance_brief import advance_brief

logger = logging.getLogger(__name__)


@shared_task(name="decisions.advance_briefs")
def advance_briefs() -> None:
    """Takes every measuring brief a step further; one that fails does not hold up the others."""
    for revision in BriefRevision.objects.filter(state="measuring", halted=""):
        try:
            advance_brief(revision=revision)
        except Exception:
            logger.exception("brief %s revision %s could not be advanced", revision.brief_id, revision.number)
