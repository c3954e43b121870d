"""How long the text of a traffic set is kept, and which other sets hold the same text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from decisions.models import Service
from loadtests.models import Removal, TrafficPart, TrafficSet
from loadtests.services.delete_text import holds_text


@dataclass(frozen=True)
class Retention:
    """A number of days from the import of a set. ``of`` is that set: the one asked about, or one that gave it its text.
    ``service`` is None where the installation's own retention holds, since the set is of no service."""

    days: int
    of: TrafficSet
    service: Service | None

    @property
    def until(self) -> datetime:
        return self.of.created_at + timedelta(days=self.days)

    def reason(self, traffic_set: TrafficSet) -> str:
        said = f"retention of {self.days} days"
        if self.service is None:
            said += " for traffic of no service"
        return said if self.of == traffic_set else f"{said}, of the donor {self.of}"


def service_of(traffic_set: TrafficSet) -> Service | None:
    return Service.objects.filter(slug=traffic_set.service).first() if traffic_set.service else None


def retention_of(traffic_set: TrafficSet) -> Retention | None:
    """The one that ends first: the set's own, or that of a stored set that gave it its text, from whose import it then
    counts: text that was joined to a trace lives no longer than where it came from. None where nothing deletes it."""
    found = [own for one in (traffic_set, *donors_of(traffic_set)) if (own := own_retention(one))]
    return min(found, key=lambda one: one.until, default=None)


def own_retention(traffic_set: TrafficSet) -> Retention | None:
    service = service_of(traffic_set)
    days = service.retention_days if service else settings.RETENTION_DAYS
    return Retention(days, traffic_set, service) if days else None


def donors_of(traffic_set: TrafficSet) -> list[TrafficSet]:
    """The stored sets that gave a joined set its text, directly or through another joined set."""
    found: dict[int, TrafficSet] = {}
    asked = [traffic_set]
    while asked:
        for donor in direct_donors(asked.pop()):
            if donor.pk not in found and donor.pk != traffic_set.pk:
                found[donor.pk] = donor
                asked.append(donor)
    return list(found.values())


def direct_donors(traffic_set: TrafficSet) -> Iterator[TrafficSet]:
    """Those of which the donor's file is a part, or the very file that they were read from."""
    if not is_joined(traffic_set) or not traffic_set.text_digest:
        return
    same = with_file({traffic_set.text_digest}) - {traffic_set.pk}
    for one in TrafficSet.objects.filter(pk__in=same).defer("statistics").order_by("pk"):
        # Another set that was joined from the same file gave nothing.
        if one.text_digest != traffic_set.text_digest or not is_joined(one):
            yield one


def is_joined(traffic_set: TrafficSet) -> bool:
    return bool(traffic_set.imported.get("join"))


def others_with_its_text(traffic_set: TrafficSet) -> list[TrafficSet]:
    """Other sets that still hold the text, or some of it: they were read from the same file, share a part, or one was
    joined from the other, directly or through a third."""
    others = sets_of_one_text(traffic_set.pk) - {traffic_set.pk}
    return [
        one for one in TrafficSet.objects.filter(pk__in=others, text_deleted_at=None).order_by("pk") if holds_text(one)
    ]


@dataclass(frozen=True)
class NotRemoved:
    """What should be gone and still lies in the evidence store: of sets whose text was deleted, and how many files of
    imports that failed."""

    sets: list[TrafficSet]
    others: int


def not_removed_yet() -> NotRemoved | None:
    digests = set(Removal.objects.values_list("digest", flat=True))
    if not digests:
        return None
    of_sets = TrafficPart.objects.filter(digest__in=digests).exclude(set__text_deleted_at=None)
    sets = TrafficSet.objects.filter(pk__in=of_sets.values("set")).defer("statistics").order_by("pk")
    return NotRemoved(list(sets), len(digests - {*of_sets.values_list("digest", flat=True)}))


def sets_of_one_text(pk: int) -> set[int]:
    """The set and those that hold the same text or some of it, or held it until it was deleted."""
    known = {pk}
    while new := linked(known) - known:
        known |= new
    return known


def linked(known: Collection[int]) -> set[int]:
    """The sets that share a file of text with one of these, and these."""
    parts = TrafficPart.objects.filter(set__in=known).values_list("digest", flat=True)
    files = TrafficSet.objects.filter(pk__in=known).exclude(text_digest="").values_list("text_digest", flat=True)
    return with_file({*parts, *files})


def with_file(digests: Collection[str]) -> set[int]:
    """The sets that hold a file of text as one of their parts, or were read from it."""
    return {
        *TrafficSet.objects.filter(text_digest__in=digests).values_list("pk", flat=True),
        *TrafficPart.objects.filter(digest__in=digests).values_list("set_id", flat=True),
    }
