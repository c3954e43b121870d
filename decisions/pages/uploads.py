"""Files that come in with a form: streamed to the disk, where they are welcome, up to the limit that settings name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.core.files.uploadhandler import FileUploadHandler, SkipFile, StopUpload
from django.http import HttpRequest

from decisions.models import Account
from decisions.rules.who_may import Person, may_import_evidence, may_import_traffic, may_vouch
from decisions.services.people import person
from decisions.services.vouch_demonstration import LONGEST_RESULT
from loadtests import uploads

MEGABYTE = 1_000_000
# A result file is read while its sender waits, so it has an end before a traffic file has.
RESULT_LIMIT = 200 * MEGABYTE
# Of a file that is only looked at: more than one look takes, less than anyone would mind.
LOOK_LIMIT = 1 << 20
# Room that an upload leaves on the disk: the database and the evidence lie there too.
ROOM_LEFT = 256 * MEGABYTE


@dataclass(frozen=True)
class Welcome:
    """A page that takes a file: from whom, all of it or only its beginning, and up to which size of its own, with what
    is to be done with a larger one."""

    rule: Callable[[Person], str | None]
    whole: bool = True
    limit: int | None = None
    larger: str = ""

    @property
    def most_bytes(self) -> int:
        return min(settings.UPLOAD_LIMIT_BYTES, self.limit or settings.UPLOAD_LIMIT_BYTES)


WELCOME = {
    "traffic-import": Welcome(may_import_traffic),
    "traffic-import-again": Welcome(may_import_traffic),
    "traffic-import-look": Welcome(may_import_traffic, whole=False),
    "brief-imported-new": Welcome(
        may_import_evidence,
        limit=RESULT_LIMIT,
        larger="Compress it with gzip or zstd, which are read as they are, or have it imported with manage.py "
        "import_evidence.",
    ),
    "demonstration-new": Welcome(
        may_vouch, limit=LONGEST_RESULT, larger="The result.json of a suite is smaller: look which file it is."
    ),
}


@dataclass(frozen=True)
class Trouble:
    """Why the files of a request were not taken."""

    status: int
    sentence: str


def trouble_of(request: HttpRequest) -> Trouble | None:
    """Read after ``request.FILES``: what came before the trouble was dropped with it."""
    found: Trouble | None = getattr(request, "upload_trouble", None)
    return found


def too_large() -> Trouble:
    limit = settings.UPLOAD_LIMIT_BYTES / MEGABYTE
    return Trouble(
        413,
        f"The file is larger than the {limit:,.0f} MB that this installation takes. Compress it with gzip or zstd, "
        "which are read as they are, or ask whoever runs it for a higher DRAFTPROOF_UPLOAD_MB.",
    )


def result_too_large(page: str = "brief-imported-new") -> Trouble:
    welcome = WELCOME[page]
    said = f"The file is larger than the {welcome.most_bytes / MEGABYTE:,.0f} MB that this page takes."
    return Trouble(413, f"{said} {welcome.larger}")


NO_ROOM = Trouble(507, "There is not enough room on the disk for this file. Nothing of it was kept.")


class BoundedUpload(FileUploadHandler):
    """Nothing is stored for anyone who may not import, nor by a page that takes no file."""

    request: HttpRequest
    # Django closes what a handler has under this name when it breaks off.
    file: TemporaryUploadedFile
    taken = 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        if not is_welcome(self.request):
            raise SkipFile
        if lacks_room(int(self.request.META.get("CONTENT_LENGTH") or 0)):
            self.stop(NO_ROOM)
        # Under a name of ours: theirs may be longer than the file system takes.
        self.file = TemporaryUploadedFile("upload", self.content_type or "", 0, self.charset, self.content_type_extra)
        self.file.name = self.file_name

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        self.taken += len(raw_data)
        page = page_of(self.request)
        welcome = WELCOME[page]
        if welcome.whole:
            if self.taken > welcome.most_bytes:
                self.stop(result_too_large(page) if welcome.limit else too_large())
        elif self.taken > LOOK_LIMIT:
            return None
        try:
            self.file.write(raw_data)
        except OSError:
            self.stop(NO_ROOM)
        return None

    def file_complete(self, file_size: int) -> TemporaryUploadedFile:
        self.file.seek(0)
        self.file.size = file_size
        return self.file

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()

    def stop(self, trouble: Trouble) -> None:
        """The rest is read and let go, so that a browser hears the answer."""
        self.upload_interrupted()
        cast(Any, self.request).upload_trouble = trouble
        raise StopUpload(connection_reset=False)


def is_welcome(request: HttpRequest) -> bool:
    account, welcome = request.user, WELCOME.get(page_of(request))
    return isinstance(account, Account) and welcome is not None and welcome.rule(person(account)) is None


def page_of(request: HttpRequest) -> str:
    return (request.resolver_match.url_name if request.resolver_match else "") or ""


def lacks_room(size: int) -> bool:
    return shutil.disk_usage(uploads.directory()).free < size + ROOM_LEFT


def path_of(file: TemporaryUploadedFile) -> Path:
    return Path(file.temporary_file_path())
