from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.signing import key_in_file, new_key, write_key


class Command(BaseCommand):
    help = "Makes an Ed25519 signing key in a new file, for its owner alone, and prints its id (docs/bundle.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        if path.exists():
            raise CommandError(f"{path} is there already, and a key is never written over")
        try:
            write_key(path, new_key())
        except OSError as error:
            raise CommandError(f"{path} can't be written: {error.strerror}") from None
        self.stdout.write(f"key {key_in_file(path).key_id} in {path}")
        self.stdout.write("Set DRAFTPROOF_SIGNING_KEY_FILE to it before anything is signed; later use rotate_key --new")
