from __future__ import annotations

import logging

from django.conf import settings

from decisions.models import Checkpoint, Event
from decisions.services.make_checkpoint import make_checkpoint
from decisions.services.record_trouble import MAILED, SIGNED, WRITTEN, record_failed_checkpoint
from decisions.services.refused import Refused
from decisions.services.send_checkpoint import mail_checkpoint, write_checkpoint
from decisions.signing import NoSigningKey

logger = logging.getLogger(__name__)


def checkpoint_regularly() -> Checkpoint | None:
    """A checkpoint where the history has grown since the last one, sent where the settings say. What can't be done
    stands in the log and in the history, and is tried again in an hour; None: nothing was new, or it couldn't be
    signed."""
    head = Event.objects.values_list("sequence", flat=True).last()
    if head is None or Checkpoint.objects.filter(size=head).exists():
        return None
    try:
        checkpoint = make_checkpoint()
    except (Refused, NoSigningKey) as refusal:
        logger.error("no checkpoint of the ledger was signed: %s", refusal)
        record_failed_checkpoint(SIGNED, str(refusal))
        return None
    send(checkpoint)
    return checkpoint


def send(checkpoint: Checkpoint) -> None:
    try:
        if settings.CHECKPOINT_TO:
            write_checkpoint(checkpoint=checkpoint, to=settings.CHECKPOINT_TO)
    except OSError as error:
        logger.error("checkpoint over event %s could not be written: %s", checkpoint.size, error)
        record_failed_checkpoint(WRITTEN, str(error))
    try:
        if settings.CHECKPOINT_MAIL:
            mail_checkpoint(checkpoint=checkpoint, to=settings.CHECKPOINT_MAIL)
    except OSError as error:
        logger.error("checkpoint over event %s could not be mailed: %s", checkpoint.size, error)
        record_failed_checkpoint(MAILED, str(error))
