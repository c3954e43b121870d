import ctypes
import os
import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from loadtests.models import TrafficImport
from loadtests.services.run_import import carry_out

# Of prctl: the signal that a process gets when its parent dies (linux/prctl.h).
PR_SET_PDEATHSIG = 1
# After the worker's own limit, for a worker that isn't there any more.
PAST_THE_LIMIT_S = 60


class Command(BaseCommand):
    help = "Carries out an import that a worker has claimed; the worker starts it and watches it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("import", type=int)
        parser.add_argument("--worker", required=True, help="who has claimed it")
        parser.add_argument("--watched-by", required=True, type=int, help="the worker's process, whose end ends this")

    def handle(self, *args: Any, **options: Any) -> None:
        end_with(options["watched_by"])
        wanted = TrafficImport.objects.get(pk=options["import"])
        if (wanted.state, wanted.worker) != (TrafficImport.State.RUNNING, options["worker"]):
            raise CommandError(f"{wanted} is {wanted.state}, and not this worker's")
        carry_out(wanted, options["worker"])


def end_with(parent: int) -> None:
    """The kernel ends this process with its parent, and at the limit: an expression that runs would hear no thread, nor
    a handler of ours."""
    signal.alarm(int(settings.IMPORT_LIMIT_S) + PAST_THE_LIMIT_S)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise CommandError("its worker has ended")
