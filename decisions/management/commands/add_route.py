from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.models import Account, Service
from decisions.rules.policy import PRODUCTION
from decisions.services.add_route import add_route
from decisions.services.refused import Refused


class Command(BaseCommand):
    help = "Adds a route to a service: a way into it that is decided on by itself (docs/search.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("service", help="the service's slug")
        parser.add_argument("slug", help="the route's slug, one of a kind in the installation")
        parser.add_argument("--by", required=True, help="username of one of its owners, or of an operator")
        parser.add_argument("--name", default="", help="as people read it (default: the slug)")
        parser.add_argument(
            "--environment",
            default=PRODUCTION,
            help=f"such as staging: its policy for signatures (default: {PRODUCTION})",
        )
        parser.add_argument("--purpose", default="", help="what comes this way, and who waits for it")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            service = Service.objects.get(slug=options["service"])
            by = Account.objects.get(username=options["by"])
            route = add_route(
                service=service,
                slug=options["slug"],
                name=options["name"],
                purpose=options["purpose"],
                environment=options["environment"],
                by=by,
            )
        except Service.DoesNotExist:
            raise CommandError(f"there is no service {options['service']}") from None
        except Account.DoesNotExist:
            raise CommandError(f"there is no account {options['by']}") from None
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"route {route}")
