import os
import pwd
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.models import Account
from decisions.rules.tokens import MOST_DAYS, READ, SCOPES
from decisions.services.make_token import make_token
from decisions.services.refused import Refused


class Command(BaseCommand):
    help = "Makes a token of the API for a person and prints it, once (docs/api.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", required=True, help="what it is for")
        parser.add_argument(
            "--scope", action="append", choices=SCOPES, help=f"may be given several times (default: {READ})"
        )
        parser.add_argument("--days", type=int, default=90, help=f"until it expires, at most {MOST_DAYS} (default: 90)")

    def handle(self, *args: Any, **options: Any) -> None:
        person = Account.objects.filter(username=options["username"]).first()
        if person is None:
            raise CommandError(f"there is no account {options['username']}")
        try:
            made = make_token(
                person=person,
                name=options["name"],
                scopes=options["scope"] or [READ],
                days=options["days"],
                by=f"{whoever_runs_this()} (make_token)",
            )
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"{made.secret}   (shown this once; {', '.join(made.token.scopes)})")


def whoever_runs_this() -> str:
    """The user of this machine: the command asks nobody to sign in."""
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return f"user {os.getuid()}"
