from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.models import Account
from decisions.services.delete_text import delete_text
from decisions.services.refused import Refused
from loadtests.models import TrafficSet


class Command(BaseCommand):
    help = "Deletes the text of a traffic set for good; hashes, lengths and evidence stay (docs/traffic.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("set", type=int, help="its number, as its page's address has it")
        parser.add_argument("--by", required=True, help="username of an owner of its service, or of an operator")
        parser.add_argument("--reason", required=True, help="why, for the history")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = TrafficSet.objects.get(pk=options["set"])
            by = Account.objects.get(username=options["by"])
            delete_text(traffic_set=found, by=by, reason=options["reason"])
        except TrafficSet.DoesNotExist:
            raise CommandError(f"there is no traffic set {options['set']}") from None
        except Account.DoesNotExist:
            raise CommandError(f"there is no account {options['by']}") from None
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"the text of traffic set {found.pk} is deleted")
