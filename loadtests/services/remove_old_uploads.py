from datetime import timedelta

from django.utils import timezone

from loadtests import journal, uploads
from loadtests.journal import act
from loadtests.models import TrafficImport
from loadtests.services.remove_left_behind import remove_left_behind
from loadtests.services.retry_import import donor_upload

KEPT = timedelta(days=1)


def remove_old_uploads() -> None:
    """Removes the files of imports that ended a day ago and were not started again, and what nobody waits for.
    What a killed import left goes at once."""
    remove_left_behind()
    limit = timezone.now() - KEPT
    for wanted in TrafficImport.objects.exclude(state__in=TrafficImport.OPEN).filter(ended_at__lt=limit):
        if wanted.upload:
            remove_upload(wanted)
    uploads.sweep(names_in_use(), older_than_s=KEPT.total_seconds())


def remove_upload(wanted: TrafficImport) -> None:
    with act():
        if not TrafficImport.objects.filter(pk=wanted.pk, upload=wanted.upload).update(upload=""):
            return
        journal.record("traffic-upload-removed", subject=f"traffic import {wanted.pk}", actor="reconciler")
    uploads.drop(wanted.upload, donor_upload(wanted.options))


def names_in_use() -> set[str]:
    waiting = TrafficImport.objects.exclude(upload="").values_list("upload", "options")
    return {name for upload, options in waiting for name in (upload, donor_upload(options)) if name}
