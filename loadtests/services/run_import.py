"""One import from its claim to its end."""

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from loadtests import journal, queue, uploads
from loadtests.evidence.store import EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.import_pulse import ImportPulse, StopAsked
from loadtests.journal import act
from loadtests.models import TrafficImport, TrafficPart, TrafficSet
from loadtests.redacting import redaction_of_service
from loadtests.services.beat_import import GIVEN_UP
from loadtests.services.import_traffic import Also, import_traffic
from loadtests.services.refused import Refused
from loadtests.services.retry_import import RETRIABLE, donor_upload
from loadtests.traffic.importers import ImportRefused, Rules, Wanted, read_mapping
from loadtests.traffic.rows import BadRow

logger = logging.getLogger(__name__)

State = TrafficImport.State
Tell = Callable[[str, int, int], None]
FULL = (errno.ENOSPC, errno.EDQUOT)
# Sentences that were written for whoever asked.
SPOKEN = (ImportRefused, Refused, BadRow)
DISK_FULL = "the disk is full: make room, then start it again"
# What the shell calls by its options, by the names of the form's fields.
IN_THE_FORM = {
    "(--on-bad-row skip)": "(choose that a row that can’t be used is left out and reported)",
    "say with --map which": "say under “Columns under other names” which",
    "with --no-header if these are no names": "and say so if these are no names",
    "give --format tsv --no-header --map 1=prompt": "choose the format tsv, say that the columns have no names, and "
    "1=prompt under “Columns under other names”",
    "needs --no-header and --map 1=prompt": "needs 1=prompt under “Columns under other names”, and that they have no "
    "names",
    " (--map is for the trace alone), and give its rows.jsonl": ", and choose the tuning part of its set",
    "raise --similarity": "raise “Nearly the same from”",
    "raise --unpacked-limit": "ask whoever runs this installation for a higher DRAFTPROOF_UNPACKED_GB",
}
DATABASE_LOST = "the database was lost while the set was written: start it again when it is back"


@dataclass(frozen=True)
class Ended:
    state: State
    reason: str = ""
    created: TrafficSet | None = None


def run_import(*, wanted: TrafficImport, worker: str) -> None:
    """Imports a queued file here and now, unless another import runs or this one was taken. Workers let a process of
    its own do it (workers.imports): nothing in this one could end an expression that backtracks."""
    if claim(wanted, worker):
        carry_out(wanted, worker)


def carry_out(wanted: TrafficImport, worker: str) -> None:
    """A claimed import to its end as done, refused, failed or cancelled; one that is neither refused nor failed leaves
    no file."""
    end(wanted, worker, outcome(wanted, worker))


def claim(wanted: TrafficImport, worker: str) -> bool:
    """By compare-and-swap. One import at a time, however many workers there are: each may take a gigabyte."""
    with act():
        if TrafficImport.objects.filter(state=State.RUNNING).exists():
            return False
        taken = TrafficImport.objects.filter(pk=wanted.pk, state=State.QUEUED).update(
            state=State.RUNNING, worker=worker, beat_at=timezone.now()
        )
        if taken:
            journal.record("traffic-import-started", subject=f"traffic import {wanted.pk}", actor=worker)
    return bool(taken)


def outcome(wanted: TrafficImport, worker: str) -> Ended:
    def done(created: TrafficSet) -> None:
        """Set and end in one act: an import that was given up meanwhile creates nothing."""
        if not end(wanted, worker, Ended(State.DONE, created=created)):
            raise StopAsked(GIVEN_UP)

    try:
        return Ended(State.DONE, created=imported(wanted, ImportPulse(wanted, worker).tell, done))
    except StopAsked as asked:
        return Ended(State.CANCELLED, str(asked))
    except DatabaseError as error:
        logger.warning("import %s lost its database: %s", wanted.pk, error)
        connection.close()
        return Ended(State.FAILED, DATABASE_LOST)
    except EvidenceUnreachable as error:
        logger.warning("import %s: %s", wanted.pk, error)
        return Ended(State.FAILED, f"the evidence store failed: {error}")
    except OSError as error:
        logger.warning("import %s: %s", wanted.pk, error)
        return Ended(State.FAILED, DISK_FULL if error.errno in FULL else f"the disk failed: {error.strerror}")
    except Exception as error:
        if isinstance(error, SPOKEN) or type(error) is ValueError:
            return Ended(State.REFUSED, in_the_form(str(error)))
        # Another library's words may quote a row: they are for the log alone.
        logger.exception("import %s failed", wanted.pk)
        return Ended(State.FAILED, f"a fault of ours, {type(error).__name__}: its worker's log says more")


def in_the_form(reason: str) -> str:
    """What is said to whoever imports in the shell, for whoever imports in the browser."""
    for in_the_shell, here in IN_THE_FORM.items():
        reason = reason.replace(in_the_shell, here)
    return reason


def imported(wanted: TrafficImport, tell: Tell, also: Also) -> TrafficSet:
    """Raises what loadtests.services.import_traffic raises, and Refused."""
    options = wanted.options
    with laid_out(wanted) as (path, donor):
        reading = Wanted(
            path=path,
            format=options["format"],
            mapping=read_mapping(options["mapping"]),
            header=options["header"],
            refuse=options["on_bad_row"] == "refuse",
            rules=rules_of(options),
            donor=donor,
            seed=options["seed"],
            unpacked_limit=settings.UNPACKED_LIMIT_BYTES,
        )
        return import_traffic(
            path=path,
            name=wanted.name,
            by=wanted.requested_by,
            service=wanted.service,
            reading=reading,
            shares=options["shares"],
            seed=options["seed"],
            block_s=options["block_s"],
            similarity=options["similarity"],
            tell=tell,
            also=also,
        )


def rules_of(options: dict[str, Any]) -> Rules:
    return Rules(
        class_=options["class"] or None,
        max_tokens=options["max_tokens"],
        max_context=options["max_context"],
        redaction=redaction_of_service(options["redactions"], settings.REDACT_WITH or None),
    )


@contextmanager
def laid_out(wanted: TrafficImport) -> Iterator[tuple[Path, Path | None]]:
    """The files under the names that people gave them, since problems and the set's source speak of those."""
    with uploads.workplace("import-") as place:
        (own := place / "file").mkdir()
        (donors := place / "donor").mkdir()
        path = linked(own, wanted.file_name, uploads.path_of(wanted.upload))
        yield path, donor_of(wanted.options, donors)


def linked(place: Path, name: str, target: Path) -> Path:
    if not target.is_file():
        raise Refused(f"{name} is no longer here: choose the file again")
    path = place / uploads.safe_name(name)
    path.symlink_to(target)
    return path


def donor_of(options: dict[str, Any], place: Path) -> Path | None:
    """Real text for a trace of lengths: a file that came along, or the tuning part of a set, never another part."""
    donor = options["donor"]
    if donor is None:
        return None
    if "upload" in donor:
        return linked(place, donor["file_name"], uploads.path_of(donor["upload"]))
    part = TrafficPart.objects.filter(set=donor["set"], kind=TrafficPart.Kind.TUNING).select_related("set").first()
    if part is None or part.set.text_deleted_at:
        raise Refused("the set that was to give its text has none any more: choose another one")
    return linked(place, f"tuning part of {part.set.name}", evidence_store().file(part.digest))


def end(wanted: TrafficImport, worker: str, ended: Ended) -> bool:
    """Unless it has ended, or was given up meanwhile: then the file is for whoever starts it again."""
    keep = ended.state in RETRIABLE
    with act():
        moved = TrafficImport.objects.filter(pk=wanted.pk, state=State.RUNNING, worker=worker).update(
            state=ended.state,
            reason=ended.reason,
            created_set=ended.created,
            ended_at=timezone.now(),
            upload=wanted.upload if keep else "",
        )
        if not moved:
            return False
        journal.record(
            f"traffic-import-{ended.state}",
            subject=f"traffic import {wanted.pk}",
            actor=worker,
            reason=ended.reason,
            set=ended.created.pk if ended.created else None,
        )
        queue.request_import()
        if not keep:
            transaction.on_commit(lambda: uploads.drop(wanted.upload, donor_upload(wanted.options)))
    return True


def next_import() -> TrafficImport | None:
    """The one that has waited longest, while none runs."""
    if TrafficImport.objects.filter(state=State.RUNNING).exists():
        return None
    return TrafficImport.objects.filter(state=State.QUEUED).order_by("pk").first()
