import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from decisions.models import SigningKey
from decisions.services.refused import Refused
from decisions.services.rotate_key import rotate_key
from decisions.signing import (
    NoSigningKey,
    Signer,
    configured_signer,
    key_file,
    key_in_file,
    key_of_service,
    new_key,
    write_key,
)


class Command(BaseCommand):
    help = "Records that another key signs from now on, by the old one's own word (docs/bundle.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--new",
            metavar="FILE",
            help="a private key of make_key, or package.module:object; left out: made, and put in the old one's file",
        )
        parser.add_argument("--by", required=True, help="who does it, for the history")
        parser.add_argument("--reason", required=True, help="why, for the history")
        parser.add_argument(
            "--old-is-lost",
            action="store_true",
            help="or somebody else may have it: whoever trusts the old key is not led to the new one",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.rotate(**{name: options[name] for name in ("new", "by", "reason", "old_is_lost")})
        except (Refused, NoSigningKey) as error:
            raise CommandError(str(error)) from None

    def rotate(self, *, new: str | None, by: str, reason: str, old_is_lost: bool) -> None:
        beside = beside_the_old() if new is None else None
        if beside and beside.exists() and was_recorded(beside):
            # The last rotation ended before its key had got its place.
            os.replace(beside, key_file())
            self.stdout.write(f"key {configured_signer().key_id} has its place now, in {key_file()}")
            return
        if beside and not beside.exists():
            write_key(beside, new_key())
        signer: Signer = key_in_file(beside) if beside else signer_named(new or "")
        old = None if old_is_lost else configured_signer()
        added = rotate_key(new=signer, old=old, by=by, reason=reason)
        if beside:
            os.replace(beside, key_file())
        self.stdout.write(f"key {added.key_id} signs from now on")
        where = f"it is in {key_file()}" if beside else f"configure {new} in every process now"
        self.stdout.write(f"{where}; tell whoever verifies bundles its id")


def beside_the_old() -> Path:
    if settings.SIGNER or settings.SIGNING_KEY:
        raise CommandError("the key isn't in a file of this installation: say with --new which one comes after it")
    path = key_file()
    return path.with_name(path.name + ".next")


def was_recorded(path: Path) -> bool:
    last = SigningKey.objects.last()
    return last is not None and last.key_id == key_in_file(path).key_id


def signer_named(name: str) -> Signer:
    return key_of_service(name) if ":" in name else key_in_file(Path(name))
