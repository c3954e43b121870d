from celery import shared_task

from decisions.models import BriefRevision
from decisions.services.advance_brief import advance_brief
from decisions.services.delete_expired_text import delete_expired_text


@shared_task(name="decisions.advance_briefs")
def advance_briefs() -> None:
    """Takes every measuring brief a step further."""
    for revision in BriefRevision.objects.filter(state="measuring", halted=""):
        advance_brief(revision=revision)


@shared_task(name="decisions.delete_expired_text")
def delete_text_past_its_retention() -> None:
    delete_expired_text()
