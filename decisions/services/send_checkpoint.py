from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.mail import EmailMessage

from decisions.ledger import timestamp
from decisions.models import Checkpoint
from loadtests.evidence.store import write_durably

TEXT = """Signed checkpoint of the history of {origin}.

Events: {size}
Head:   {head}
Time:   {at}
Key:    {key}

Keep this message. With the file that comes with it anybody can tell later that the history before it is still the same:
manage.py verify_ledger --checkpoint FILE, or draftproof verify BUNDLE --checkpoint FILE.
"""


def file_name(checkpoint: Checkpoint) -> str:
    return f"checkpoint-{checkpoint.size}-{checkpoint.at:%Y%m%dT%H%M%SZ}.json"


def write_checkpoint(*, checkpoint: Checkpoint, to: Path) -> Path:
    """In a directory under a name of its own, beside those before it. Raises OSError."""
    path = to / file_name(checkpoint) if to.is_dir() else to
    write_durably(path, bytes(checkpoint.content) + b"\n")
    return path


def mail_checkpoint(*, checkpoint: Checkpoint, to: list[str]) -> None:
    """Raises OSError (smtplib's errors are some), also where no mail server is named."""
    if not settings.EMAIL_URL:
        raise OSError("no mail server is named: set EMAIL_URL")
    said = {"origin": settings.ORIGIN, "size": checkpoint.size, "head": checkpoint.head, "key": checkpoint.key_id}
    message = EmailMessage(
        subject=f"Checkpoint of {settings.ORIGIN} over event {checkpoint.size}",
        body=TEXT.format(**said, at=timestamp(checkpoint.at)),
        to=to,
    )
    message.attach(file_name(checkpoint), bytes(checkpoint.content) + b"\n", "application/json")
    message.send()
