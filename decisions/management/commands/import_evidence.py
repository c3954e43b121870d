from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.models import Account, BriefRevision
from decisions.rules.imported import label
from decisions.services.import_evidence import import_evidence
from decisions.services.refused import Refused
from loadtests.evidence.foreign import FORMATS


class Command(BaseCommand):
    help = "Brings another tool's result file to a brief as an imported trial (docs/imported-evidence.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="of vllm bench serve, AIPerf or GuideLLM")
        parser.add_argument("--brief", type=int, required=True, help="its number, as its page's address has it")
        parser.add_argument("--revision", type=int, help="of the brief (default: the latest)")
        parser.add_argument("--arm", required=True, help="baseline, or the name of a candidate of the brief")
        parser.add_argument("--level", required=True, help="the load level of the brief that it stands for")
        parser.add_argument("--by", required=True, help="username of an engineer")
        parser.add_argument("--run", type=int, help="which run, where the file holds several")
        parser.add_argument("--format", default="auto", choices=FORMATS)
        parser.add_argument("--note", default="", help="who measured it, and where")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        try:
            trial = import_evidence(
                revision=revision_of(options["brief"], options["revision"]),
                path=path,
                file_name=path.name,
                arm=options["arm"],
                level=options["level"],
                run=options["run"],
                wanted=options["format"],
                note=options["note"],
                by=Account.objects.get(username=options["by"]),
            )
        except Account.DoesNotExist:
            raise CommandError(f"there is no account {options['by']}") from None
        except (Refused, OSError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"imported trial {trial.pk}, {label(trial.tool)}: {trial.arm} at {trial.level}")
        self.stdout.write(f"manifest: {trial.manifest_digest}")
        self.stdout.writelines(f"lacks: {one}\n" for one in trial.summary["lacks"])


def revision_of(brief: int, number: int | None) -> BriefRevision:
    found = BriefRevision.objects.filter(brief=brief).select_related("brief__route__service", "author")
    revision = found.filter(number=number).first() if number is not None else found.last()
    if revision is None:
        raise CommandError(f"there is no brief {brief}" + ("" if number is None else f" with a revision {number}"))
    return revision
