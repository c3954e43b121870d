from celery import shared_task

from decisions.models import BriefRevision
from decisions.services.advance_brief import advance_brief
from decisions.services.checkpoint_regularly import checkpoint_regularly
from decisions.services.delete_expired_text import delete_expired_text
from decisions.services.record_expiries import record_expiries


@shared_task(name="decisions.advance_briefs")
def advance_briefs() -> None:
    """Takes every measuring brief a step further."""
    for revision in BriefRevision.objects.filter(state="measuring", halted=""):
        advance_brief(revision=revision)


@shared_task(name="decisions.delete_expired_text")
def delete_text_past_its_retention() -> None:
    delete_expired_text()


@shared_task(name="decisions.record_expiries")
def record_what_expired() -> None:
    record_expiries()


@shared_task(name="decisions.checkpoint_ledger")
def checkpoint_ledger() -> None:
    checkpoint_regularly()
