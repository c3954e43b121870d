from pathlib import Path
from typing import Any

from loadtests import uploads
from loadtests.journal import act
from loadtests.models import TrafficImport
from loadtests.services.refused import Refused
from loadtests.services.request_import import record_request

RETRIABLE = (TrafficImport.State.REFUSED, TrafficImport.State.FAILED)


def retry_import(
    *,
    wanted: TrafficImport,
    name: str,
    service: str,
    options: dict[str, Any],
    by: str,
    donor: Path | None = None,
) -> TrafficImport:
    """A new import of the file that a refused or failed one left; raises Refused where the file is gone.

    A donor's file that ``options`` still names goes along; a new one takes its place.
    """
    if not uploads.is_here(wanted.upload):
        raise Refused("The uploaded file is no longer here. Choose it again.")
    kept = uploads.keep(donor) if donor is not None else ""
    if kept:
        options = {**options, "donor": {**options["donor"], "upload": kept}}
    try:
        with act():
            # Whoever comes first takes the file.
            taken = TrafficImport.objects.filter(pk=wanted.pk, state__in=RETRIABLE, upload=wanted.upload)
            if not taken.update(upload=""):
                raise Refused("This import was started again already.")
            again = TrafficImport.objects.create(
                name=name,
                service=service,
                file_name=wanted.file_name,
                file_bytes=wanted.file_bytes,
                upload=wanted.upload,
                options=options,
                requested_by=by,
            )
            record_request(again, again_of=wanted.pk)
    except BaseException:
        uploads.drop(kept)
        raise
    left = donor_upload(wanted.options)
    if left != donor_upload(options):
        uploads.drop(left)
    return again


def donor_upload(options: dict[str, Any]) -> str:
    return str((options.get("donor") or {}).get("upload", ""))
