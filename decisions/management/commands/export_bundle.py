from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.bundle import Wanted, export_bundle, file_name
from decisions.management.commands.import_evidence import revision_of
from decisions.services.refused import Refused
from decisions.signing import NoSigningKey


class Command(BaseCommand):
    help = "Writes the bundle of a signed decision, which anybody can verify without this server (docs/bundle.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("brief", type=int, help="its number, as its page's address has it")
        parser.add_argument("--revision", type=int, help="of the brief (default: the latest)")
        parser.add_argument("--to", type=Path, default=Path(), metavar="FILE", help="or a directory (default: here)")
        parser.add_argument(
            "--with-evidence",
            action="store_true",
            help="plans, records and timelines: hashes of prompts, and what a server's errors said",
        )
        parser.add_argument(
            "--with-text",
            action="store_true",
            help="also engine logs and the answers of the preserved-behaviour suite, which are personal data",
        )
        parser.add_argument(
            "--checkpoint",
            type=Path,
            metavar="FILE",
            help="that somebody kept: the bundle's part of the history reaches as far as that",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        revision = revision_of(options["brief"], options["revision"])
        to: Path = options["to"] / file_name(revision) if options["to"].is_dir() else options["to"]
        try:
            wanted = Wanted(
                files=options["with_evidence"] or options["with_text"],
                text=options["with_text"],
                reaching=options["checkpoint"].read_bytes() if options["checkpoint"] else None,
            )
            with TemporaryDirectory(dir=to.parent, prefix=".bundle-") as directory:
                draft = Path(directory) / "bundle.zip"
                with draft.open("w+b") as sink:
                    key = export_bundle(revision=revision, sink=sink, wanted=wanted)
                draft.replace(to)
        except (Refused, NoSigningKey) as refusal:
            raise CommandError(str(refusal)) from None
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from None
        self.stdout.write(f"{to}\nsigned with the key {key}")
