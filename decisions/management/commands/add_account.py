from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.management.commands.make_token import whoever_runs_this
from decisions.rules.who_may import ROLES
from decisions.services.make_account import make_account
from decisions.services.refused import Refused


class Command(BaseCommand):
    help = "Adds a person with their roles and prints a generated password, once (docs/accounts.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--role", action="append", choices=ROLES, required=True, help="may be given several times")
        parser.add_argument("--name", default="", help="as it stands with a signature")
        parser.add_argument("--email", default="", help="the single sign-on finds the account by it")
        parser.add_argument("--single-sign-on", action="store_true", help="no password: by single sign-on alone")

    def handle(self, *args: Any, **options: Any) -> None:
        username = options["username"]
        try:
            made = make_account(
                username=username,
                name=options["name"],
                email=options["email"],
                roles=options["role"],
                single_sign_on=options["single_sign_on"],
                by=f"{whoever_runs_this()} (add_account)",
            )
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
        if made.password:
            self.stdout.write(
                f"account {username} password {made.password}   (shown this once; changed at the first sign-in)"
            )
        else:
            self.stdout.write(f"account {username} signs in by single sign-on, as {options['email']}")
