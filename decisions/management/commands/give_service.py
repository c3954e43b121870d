from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.models import Account, Service
from decisions.services.give_service import give_service
from decisions.services.refused import Refused
from loadtests.models import TrafficSet


class Command(BaseCommand):
    help = "Gives a traffic set of no service to one, whose retention holds from then on (docs/traffic.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("set", type=int, help="its number, as its page's address has it")
        parser.add_argument("service", help="the service's slug")
        parser.add_argument("--by", required=True, help="username of an engineer or an operator")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = TrafficSet.objects.get(pk=options["set"])
            service = Service.objects.get(slug=options["service"])
            give_service(traffic_set=found, service=service, by=Account.objects.get(username=options["by"]))
        except TrafficSet.DoesNotExist:
            raise CommandError(f"there is no traffic set {options['set']}") from None
        except Service.DoesNotExist:
            raise CommandError(f"there is no service {options['service']}") from None
        except Account.DoesNotExist:
            raise CommandError(f"there is no account {options['by']}") from None
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"traffic set {found.pk} belongs to {service.slug} now")
