from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from decisions import ledger
from decisions.management.commands.make_token import whoever_runs_this
from decisions.models import Account, Route, Service
from decisions.services.set_roles import roles_of
from loadtests.journal import act


class Command(BaseCommand):
    help = "Adds a service with its routes and the owners who sign for it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--name", required=True)
        parser.add_argument("--purpose", required=True)
        parser.add_argument("--target", required=True, help="the target model's name")
        parser.add_argument("--pool", required=True, help="hardware pool; its workers listen on engine.<pool>")
        parser.add_argument(
            "--route", action="append", required=True, help="a route's slug; may be given several times"
        )
        parser.add_argument("--owner", action="append", required=True, help="username; may be given several times")

    def handle(self, *args: Any, **options: Any) -> None:
        if Service.objects.filter(slug=options["slug"]).exists():
            raise CommandError(f"there is a service {options['slug']} already")
        owners = [self.owner(username) for username in options["owner"]]
        fields = {name: options[name] for name in ("slug", "name", "purpose", "target", "pool")}
        try:
            with act():
                service = Service(**fields)
                service.full_clean()
                service.save()
                for owner in owners:
                    give(service, owner)
                for slug in options["route"]:
                    route = Route(service=service, slug=slug, name=slug)
                    route.full_clean()
                    route.save()
        except ValidationError as error:
            raise CommandError(
                "; ".join(f"{name}: {' '.join(said)}" for name, said in error.message_dict.items())
            ) from None
        self.stdout.write(f"service {service.slug} with the routes {', '.join(options['route'])}")

    def owner(self, username: str) -> Account:
        person = Account.objects.filter(username=username, groups__name="owner").first()
        if person is None:
            raise CommandError(f"there is no account {username} with the role owner: add it with add_account first")
        return person


def give(service: Service, owner: Account) -> None:
    """Within the act. What somebody may sign for has to be known later, so it is an event like any other."""
    before = roles_of(owner)
    service.owners.add(owner)
    ledger.append(
        "roles-set",
        subject=f"account {owner.username}",
        actor=f"{whoever_runs_this()} (add_service)",
        details={"before": before, "after": roles_of(owner)},
    )
