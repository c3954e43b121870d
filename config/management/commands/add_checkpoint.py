from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from loadtests.configurations import Checkpoint
from workers.target import RECORD, TargetError, record_checkpoint, verified_checkpoint


class Command(BaseCommand):
    help = "Reads a checkpoint, notes its digests beside it, where workers look for them, and prints a brief's target."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, help="in DRAFTPROOF_VAR/models, itself or as a link")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = added(options["directory"].absolute())
        except (OSError, TargetError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(yaml.safe_dump({"target": found.model_dump()}, sort_keys=False), ending="")


def added(directory: Path) -> Checkpoint:
    """What a record says already is checked and never written over: a changed file is another checkpoint."""
    if not directory.is_dir():
        raise TargetError(f"{directory} is no directory")
    if directory.parent.resolve() != settings.MODELS_DIR.resolve():
        raise TargetError(
            f"workers look for checkpoints in {settings.MODELS_DIR} alone: move or link {directory} there"
        )
    return verified_checkpoint(directory) if (directory / RECORD).exists() else record_checkpoint(directory)
