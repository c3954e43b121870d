from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from decisions.models import Account
from decisions.selectors.kept_text import others_with_its_text
from decisions.services.delete_text import delete_text
from decisions.services.refused import Refused
from loadtests.models import Removal, TrafficSet
from loadtests.services.remove_unwanted import still_kept


class Command(BaseCommand):
    help = "Deletes the text of a traffic set for good; hashes, lengths and evidence stay (docs/traffic.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("set", type=int, help="its number, as its page's address has it")
        parser.add_argument("--by", required=True, help="username of an owner of its service, or of an operator")
        parser.add_argument("--reason", required=True, help="why, for the history")
        parser.add_argument(
            "--also",
            type=int,
            action="append",
            default=[],
            metavar="SET",
            help="another set that holds the same text; may be given several times. Without it they are only named",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = set_of(options["set"])
            by = Account.objects.get(username=options["by"])
            also = [set_of(number) for number in options["also"]]
            delete_text(traffic_set=found, by=by, reason=options["reason"], also=also)
        except Account.DoesNotExist:
            raise CommandError(f"there is no account {options['by']}") from None
        except Refused as refusal:
            raise CommandError(str(refusal)) from None
        kept = {one.pk: still_kept(one) for one in [found, *also]}
        for pk in [pk for pk in kept if not kept[pk]]:
            self.stdout.write(f"the text of traffic set {pk} is deleted")
        for one in others_with_its_text(found):
            self.stdout.write(f"traffic set {one.pk}, {one.name}, still holds the same text or some of it")
        if trouble := [f"traffic set {pk}: {why(removals)}" for pk, removals in kept.items() if removals]:
            raise CommandError(
                f"{'; '.join(trouble)}. Nobody can use it any more, and its removal is tried again every half hour"
            )


def why(removals: list[Removal]) -> str:
    trouble = next((one.trouble for one in removals if one.trouble), "an import is storing files")
    return f"its text still lies in the evidence store ({trouble})"


def set_of(number: int) -> TrafficSet:
    found = TrafficSet.objects.filter(pk=number).first()
    if found is None:
        raise CommandError(f"there is no traffic set {number}")
    return found
