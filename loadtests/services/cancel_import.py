from django.utils import timezone

from loadtests import journal, uploads
from loadtests.journal import act
from loadtests.models import TrafficImport
from loadtests.services.refused import Refused
from loadtests.services.retry_import import RETRIABLE, donor_upload

State = TrafficImport.State


def cancel_import(*, wanted: TrafficImport, by: str) -> None:
    """Ends an import that waits, asks a running one to end, and removes the file that a refused or failed one left.

    A running import is ended by its own worker, which notices within a second or two: so a set is either whole or not
    there, and the import never says otherwise. Raises Refused where there is nothing left to cancel.
    """
    mine = TrafficImport.objects.filter(pk=wanted.pk)
    reason, now = f"cancelled by {by}", timezone.now()
    with act():
        if mine.filter(state=State.QUEUED).update(state=State.CANCELLED, reason=reason, ended_at=now, upload=""):
            kind = "traffic-import-cancelled"
        elif mine.filter(state=State.RUNNING).update(reason=reason):
            kind = "traffic-import-cancel-asked"
        elif mine.filter(state__in=RETRIABLE).exclude(upload="").update(upload=""):
            kind = "traffic-upload-removed"
        else:
            raise Refused("This import has ended already, and its file is gone.")
        journal.record(kind, subject=f"traffic import {wanted.pk}", actor=by)
    if kind != "traffic-import-cancel-asked":
        uploads.drop(wanted.upload, donor_upload(wanted.options))
