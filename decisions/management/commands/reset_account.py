from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.management.commands.make_token import whoever_runs_this
from decisions.models import Account
from decisions.services.refused import Refused
from decisions.services.reset_password import reset_password
from decisions.services.reset_second_factor import reset_second_factor
from decisions.services.reset_single_sign_on import reset_single_sign_on


class Command(BaseCommand):
    help = (
        "Sets a password anew, takes off second factors or cuts the link to the single sign-on: for superusers, and "
        "where no other operator is left."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--password", action="store_true", help="a generated one, printed once")
        parser.add_argument("--second-factor", action="store_true", help="all of them, and the recovery codes")
        parser.add_argument(
            "--single-sign-on", action="store_true", help="the link to it: the next sign-in makes another"
        )
        parser.add_argument("--reason", required=True, help="stands in the history")

    def handle(self, *args: Any, **options: Any) -> None:
        account = Account.objects.filter(username=options["username"]).first()
        if account is None:
            raise CommandError(f"there is no account {options['username']}")
        if not options["password"] and not options["second_factor"] and not options["single_sign_on"]:
            raise CommandError("say what to reset: --password, --second-factor, --single-sign-on, or several of them")
        by, reason = f"{whoever_runs_this()} (reset_account)", options["reason"]
        try:
            if options["second_factor"]:
                reset_second_factor(account=account, reason=reason, by=by)
                self.stdout.write(f"account {account.username} has no second factor any more")
            if options["single_sign_on"]:
                reset_single_sign_on(account=account, reason=reason, by=by)
                self.stdout.write(f"account {account.username} is not linked to the single sign-on any more")
            if options["password"]:
                password = reset_password(account=account, reason=reason, by=by)
                self.stdout.write(f"account {account.username} password {password}   (shown this once)")
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
