from celery import shared_task

from decisions.models import BriefRevision
from decisions.services.advance_brief import advance_brief
from decisions.services.check_chain import check_chain
from decisions.services.checkpoint_regularly import checkpoint_regularly
from decisions.services.delete_expired_text import delete_expired_text
from decisions.services.record_expiries import record_expiries
from decisions.services.record_trouble import record_broken_history
from decisions.services.send_messages import request_due, send_messages
from decisions.services.tidy import tidy


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
    record_broken_history()


@shared_task(name="decisions.checkpoint_ledger")
def checkpoint_ledger() -> None:
    checkpoint_regularly()


@shared_task(name="decisions.request_sending")
def request_sending_of_what_waits() -> None:
    """A message that waits for its next attempt, or whose sender is gone."""
    request_due()


@shared_task(name="decisions.send_messages")
def send_what_waits() -> None:
    send_messages()


@shared_task(name="decisions.tidy")
def forget_what_is_over() -> None:
    tidy()


@shared_task(name="decisions.verify_chain")
def verify_chain() -> None:
    """From the last point that was verified on, and whole when that is due: a long history takes several times."""
    check_chain(seconds=20)
