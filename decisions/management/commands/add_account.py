import secrets
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from decisions.models import Account

ROLES = ("engineer", "owner", "auditor", "operator")


class Command(BaseCommand):
    help = "Adds a person with their roles and prints a generated password, once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--role", action="append", choices=ROLES, required=True, help="may be given several times")

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        username = options["username"]
        if Account.objects.filter(username=username).exists():
            raise CommandError(f"there is an account {username} already")
        password = secrets.token_urlsafe(12)
        person = Account.objects.create_user(username, password=password)
        person.groups.set([Group.objects.get_or_create(name=role)[0] for role in options["role"]])
        self.stdout.write(f"account {username} password {password}   (shown this once)")
