from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import click
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from decisions.models import Service
from loadtests.commands.import_traffic import FILE, leaving_nothing_behind, wanted_of
from loadtests.commands.import_traffic import import_traffic as reading
from loadtests.models import TrafficSet
from loadtests.redacting import redaction_of
from loadtests.services.import_traffic import SHARES, SIMILARITY, import_traffic
from loadtests.traffic.importers import ImportRefused, Wanted

# Of ``draftproof import``: where it writes is no question here, and its seed is the split's too.
NOT_ASKED = {"file", "out", "seed"}


class Command(BaseCommand):
    help = "Imports a traffic file (docs/traffic.md), splits it and prints the digests that a brief names."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=checked(FILE), help="- is the standard input")
        parser.add_argument("--name", required=True)
        parser.add_argument("--by", default="operator", help="who imports it, for the history")
        parser.add_argument("--service", default="", help="slug of the service whose retention and redactions hold")
        parser.add_argument("--seed", type=int, default=0, help="of the split, and of the donors (default 0)")
        parser.add_argument("--block-s", type=float, default=120.0, help="time block in seconds (default 120)")
        parser.add_argument(
            "--similarity",
            type=float,
            default=SIMILARITY,
            help=f"prompts this much alike stay on one side; 1: equal ones alone (default {SIMILARITY})",
        )
        for kind, share in SHARES.items():
            parser.add_argument(f"--{kind}", type=float, default=share, help=f"its share, 0: none (default {share})")
        for option in reading_options():
            add_option(parser, option)
        parser.set_defaults(unpacked_limit=settings.UNPACKED_LIMIT_BYTES)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with leaving_nothing_behind():
                created = import_traffic(
                    path=options["file"],
                    name=options["name"],
                    by=options["by"],
                    service=options["service"],
                    reading=wanted(options),
                    shares={kind: options[kind.replace("-", "_")] for kind in SHARES},
                    seed=options["seed"],
                    block_s=options["block_s"],
                    similarity=options["similarity"],
                )
        except (ImportRefused, ValueError, OSError) as error:
            raise CommandError(str(error)) from None
        self.stdout.writelines(f"{line}\n" for line in told(created))


def reading_options() -> list[click.Option]:
    return [one for one in reading.params if isinstance(one, click.Option) and one.name not in NOT_ASKED]


def add_option(parser: ArgumentParser, option: click.Option) -> None:
    settings: dict[str, Any] = {"dest": option.name, "help": option.help, "default": option.to_info_dict()["default"]}
    if option.is_flag:
        settings["action"] = "store_true"
    elif isinstance(option.type, click.Choice):
        settings["choices"] = list(option.type.choices)
    else:
        settings |= {"type": checked(option.type), "metavar": option.metavar}
    if option.multiple:
        settings |= {"action": "append", "default": []}
    parser.add_argument(*option.opts, **settings)


def checked(type_: click.ParamType[Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return type_.convert(text, None, None)
        except click.BadParameter as error:
            raise ArgumentTypeError(error.message) from None

    return convert


def wanted(options: dict[str, Any]) -> Wanted:
    """As asked for, with what the service always takes out first."""
    asked = wanted_of(
        options["file"], seed=options["seed"], **{one.name: options[one.name] for one in reading_options() if one.name}
    )
    own = asked.rules.redaction
    patterns = [*redactions(options["service"]), *(own.patterns if own else ())]
    redaction = redaction_of(patterns, options["redact_with"] or settings.REDACT_WITH)
    return replace(asked, rules=replace(asked.rules, redaction=redaction))


def redactions(slug: str) -> Iterator[tuple[str, str]]:
    if slug:
        service = Service.objects.filter(slug=slug).first()
        if service is None:
            raise ValueError(f"there is no service {slug!r}")
        yield from ((one["pattern"], one["replacement"]) for one in service.redactions)


def told(created: TrafficSet) -> Iterator[str]:
    yield from (f"left out: {count} × {reason}" for reason, count in created.imported["skipped"].items())
    caution = created.imported["acceptance"].get("caution")
    comparison = created.statistics["comparison"]["warning"]
    yield from (f"warning: {one}" for one in [*created.split["warnings"], comparison, caution] if one)
    # delete_text and give_service ask for the number.
    yield f"set: {created.digest} (number {created.pk}, on the page /traffic/{created.pk}/)"
    for part in created.parts.order_by("kind"):
        yield f"{part.kind}: {part.digest} ({part.rows} requests)"
