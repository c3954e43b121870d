from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from loadtests.services.import_traffic import SHARES, import_traffic
from loadtests.traffic.rows import BadRow


class Command(BaseCommand):
    help = "Imports a traffic file (see loadtests/demo/README.md), splits it and prints the digests that a brief names."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--name", required=True)
        parser.add_argument("--by", default="operator", help="who imports it, for the history")
        parser.add_argument("--seed", type=int, default=0, help="of the split (default 0)")
        parser.add_argument("--block-s", type=float, default=120.0, help="time block in seconds (default 120)")
        for kind, share in SHARES.items():
            parser.add_argument(f"--{kind}", type=float, default=share, help=f"its share (default {share})")

    def handle(self, *args: Any, **options: Any) -> None:
        shares = {kind: options[kind.replace("-", "_")] for kind in SHARES}
        try:
            created = import_traffic(
                path=options["file"],
                name=options["name"],
                by=options["by"],
                shares=shares,
                seed=options["seed"],
                block_s=options["block_s"],
            )
        except (BadRow, ValueError, OSError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"set: {created.digest}")
        for part in created.parts.order_by("kind"):
            self.stdout.write(f"{part.kind}: {part.digest} ({part.rows} requests)")
