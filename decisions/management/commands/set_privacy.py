from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.models import Account, Service
from decisions.services.refused import Refused
from decisions.services.set_privacy import set_privacy
from loadtests.traffic.importers import read_pattern


class Command(BaseCommand):
    help = "Says how long a service's traffic keeps its text, and what imports take out of it (docs/traffic.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("service", help="its slug")
        parser.add_argument("--by", required=True, help="username of one of its owners, or of an operator")
        parser.add_argument("--retention-days", type=int, help="left out: the text stays until someone deletes it")
        parser.add_argument(
            "--redact",
            action="append",
            default=[],
            metavar="PATTERN[=>REPLACEMENT]",
            help="may be given several times; left out: nothing is taken out",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        pairs = [read_pattern(one) for one in options["redact"]]
        redactions = [{"pattern": pattern, "replacement": replacement} for pattern, replacement in pairs]
        try:
            service = Service.objects.get(slug=options["service"])
            by = Account.objects.get(username=options["by"])
            set_privacy(service=service, retention_days=options["retention_days"], redactions=redactions, by=by)
        except Service.DoesNotExist:
            raise CommandError(f"there is no service {options['service']}") from None
        except Account.DoesNotExist:
            raise CommandError(f"there is no account {options['by']}") from None
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
        kept = f"{retention} days" if (retention := options["retention_days"]) else "until someone deletes it"
        self.stdout.write(f"service {service.slug}: text is kept {kept}, redactions: {len(redactions)}")
