from typing import Any

from django.core.management.base import BaseCommand

from decisions import ledger


class Command(BaseCommand):
    help = "Verifies the ledger's hash chain: prints `ok N events`, or the first broken event and exits 1."

    def handle(self, *args: Any, **options: Any) -> None:
        result = ledger.verify()
        self.stdout.write(str(result))
        if result.broken:
            raise SystemExit(1)
