from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.history import stated, verify_history


class Command(BaseCommand):
    help = (
        "Verifies the ledger's hash chain and its signed checkpoints: prints `ok N events` and from where to where, or "
        "what is broken first and exits 1."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--checkpoint",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="a checkpoint that was kept elsewhere; may be given several times",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            given = [stated(str(path), path.read_bytes().strip()) for path in options["checkpoint"]]
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}", returncode=2) from None
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from None
        history = verify_history(given)
        self.stdout.write(str(history))
        if history.fault:
            raise SystemExit(1)
