from pathlib import Path
from typing import Any

from loadtests import journal, queue, uploads
from loadtests.journal import act
from loadtests.models import TrafficImport


def request_import(
    *,
    name: str,
    service: str,
    file_name: str,
    upload: Path,
    options: dict[str, Any],
    by: str,
    donor: Path | None = None,
) -> TrafficImport:
    """Queues the import of an uploaded file, and of a donor's, which both move into the uploads directory.

    ``options`` are what loadtests.services.run_import reads. Raises OSError where the disk fails; then, as after any
    other failure, none of the files is kept.
    """
    kept: list[str] = []
    try:
        kept.append(uploads.keep(upload))
        if donor is not None:
            kept.append(uploads.keep(donor))
            options = {**options, "donor": {**options["donor"], "upload": kept[1]}}
        with act():
            wanted = TrafficImport.objects.create(
                name=name,
                service=service,
                file_name=uploads.safe_name(file_name),
                file_bytes=uploads.path_of(kept[0]).stat().st_size,
                upload=kept[0],
                options=options,
                requested_by=by,
            )
            record_request(wanted)
    except BaseException:
        uploads.drop(*kept)
        raise
    return wanted


def record_request(wanted: TrafficImport, **more: object) -> None:
    journal.record(
        "traffic-import-requested",
        subject=f"traffic import {wanted.pk}",
        actor=wanted.requested_by,
        name=wanted.name,
        service=wanted.service,
        file=wanted.file_name,
        bytes=wanted.file_bytes,
        **more,
    )
    queue.request_import()
