from celery import shared_task

from decisions.models import BriefRevision
from decisions.services.advance_brief import advance_brief


@shared_task(name="decisions.advance_briefs")
def advance_briefs() -> None:
    """Takes every measuring brief a step further."""
    for revision in BriefRevision.objects.filter(state="measuring", halted=""):
        advance_brief(revision=revision)
