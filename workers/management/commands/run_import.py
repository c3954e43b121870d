from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from loadtests.apart import Orphaned, bound
from loadtests.models import TrafficImport
from loadtests.services.run_import import carry_out

# After the worker's own limit, for a worker that isn't there any more.
PAST_THE_LIMIT_S = 60


class Command(BaseCommand):
    help = "Carries out an import that a worker has claimed; the worker starts it and watches it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("import", type=int)
        parser.add_argument("--worker", required=True, help="who has claimed it")
        parser.add_argument("--watched-by", required=True, type=int, help="the worker's process, whose end ends this")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            bound(parent=options["watched_by"], seconds=settings.IMPORT_LIMIT_S + PAST_THE_LIMIT_S)
        except Orphaned as error:
            raise CommandError(str(error)) from None
        wanted = TrafficImport.objects.get(pk=options["import"])
        if (wanted.state, wanted.worker) != (TrafficImport.State.RUNNING, options["worker"]):
            raise CommandError(f"{wanted} is {wanted.state}, and not this worker's")
        carry_out(wanted, options["worker"])
