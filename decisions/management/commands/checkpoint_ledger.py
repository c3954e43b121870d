from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.ledger import timestamp
from decisions.services.make_checkpoint import make_checkpoint
from decisions.services.refused import Refused
from decisions.services.send_checkpoint import mail_checkpoint, write_checkpoint
from decisions.signing import NoSigningKey


class Command(BaseCommand):
    help = "Signs the ledger's head and keeps the checkpoint; writes it to a file and mails it (docs/bundle.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--to", type=Path, metavar="FILE", help="or a directory, where each has a name of its own")
        parser.add_argument("--mail", action="append", default=[], metavar="ADDRESS", help="may be given several times")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            checkpoint = make_checkpoint()
            self.stdout.write(
                f"checkpoint over event {checkpoint.size}, {checkpoint.head}, of {timestamp(checkpoint.at)}, signed "
                f"with the key {checkpoint.key_id}"
            )
            if options["to"]:
                self.stdout.write(f"written to {write_checkpoint(checkpoint=checkpoint, to=options['to'])}")
            if options["mail"]:
                mail_checkpoint(checkpoint=checkpoint, to=options["mail"])
                self.stdout.write(f"mailed to {', '.join(options['mail'])}")
        except (Refused, NoSigningKey, OSError) as error:
            raise CommandError(str(error)) from None
