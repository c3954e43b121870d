from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Prefetch, QuerySet

from decisions.models import BriefRevision, Event, Service
from decisions.rules.brief import Brief
from decisions.rules.may_carry import Standing, rows_left_out, standing
from decisions.selectors.seal import Use, uses_of
from loadtests.models import TrafficPart, TrafficSet

PART_ORDER = ("tuning", "held-out", "evaluation")
# A user's name mapped to the class makes as many classes as there are users.
MOST_CLASSES = 50
# Whether a set was read in another split takes a look at many indexes.
MOST_LOOKED_AT = 20


@dataclass(frozen=True)
class ClassRow:
    """A class with its requests, in the whole set and in each part in turn."""

    name: str
    count: int
    share: float
    in_parts: list[int]


@dataclass(frozen=True)
class Classes:
    """The most frequent classes; ``others`` are how many there are besides, and ``rest`` what they hold together."""

    rows: list[ClassRow]
    others: int = 0
    rest: ClassRow | None = None


@dataclass(frozen=True)
class SetRow:
    """A set in the list. ``parts`` by kind, ``known`` what the list needs of its statistics, ``problems`` how many rows
    of its files were left out."""

    set: TrafficSet
    parts: list[TrafficPart | None]
    known: Mapping[str, Any]
    problems: int
    of: int
    standing: Standing


@dataclass(frozen=True)
class UseShown:
    """A reading of the held-out part; ``again`` where an earlier revision for the same route had read it before."""

    use: Use
    again: bool


def traffic_sets() -> QuerySet[TrafficSet]:
    return TrafficSet.objects.prefetch_related("parts").order_by("-pk")


def set_rows() -> list[SetRow]:
    """Of the statistics only what the list shows: a thousand sets have a lot of them."""
    parts = Prefetch("parts", TrafficPart.objects.defer("statistics", "stretches"))
    sets = list(
        TrafficSet.objects.prefetch_related(parts)
        .defer("statistics")
        .annotate(
            timed=F("statistics__timed"),
            duration_s=F("statistics__duration_s"),
            compared=F("statistics__comparison"),
        )
        .order_by("-pk")
    )
    read = held_out_read(sets)
    return [set_row(one, read) for one in sets]


def held_out_read(sets: Iterable[TrafficSet]) -> set[str]:
    """The digests of the held-out parts of which the history has a reading."""
    subjects = set(Event.objects.filter(kind="held-out-read").values_list("subject", flat=True).distinct())
    return {held_out_of(one) for one in sets if f"traffic set {one.pk}" in subjects}


def held_out_of(traffic_set: TrafficSet) -> str:
    return next((part.digest for part in traffic_set.parts.all() if part.kind == TrafficPart.Kind.HELD_OUT), "")


def set_row(found: Any, read: Container[str]) -> SetRow:
    """``found`` is a TrafficSet with the annotations of ``set_rows``."""
    kinds = {part.kind: part for part in found.parts.all()}
    known = {
        "count": found.rows,
        "timed": found.timed is not False,
        "duration_s": found.duration_s,
        "comparison": found.compared or {},
    }
    return SetRow(
        found,
        [kinds.get(kind) for kind in PART_ORDER],
        known,
        problems=sum(problem_counts(found.imported).values()),
        of=found.rows + rows_left_out(found.imported),
        standing=standing(
            imported=found.imported,
            split=found.split,
            statistics=known,
            text_deleted=found.text_deleted_at is not None,
            read_for=["an earlier brief"] if held_out_of(found) in read else [],
        ),
    )


def standing_of(traffic_set: TrafficSet, uses: Iterable[UseShown]) -> Standing:
    return standing(
        imported=traffic_set.imported,
        split=traffic_set.split,
        statistics=traffic_set.statistics,
        text_deleted=traffic_set.text_deleted_at is not None,
        read_for=[shown.use.route for shown in uses],
    )


def problem_counts(imported: Mapping[str, Any]) -> dict[str, int]:
    """The file's rows that were left out, by reason, most frequent first. A donor's are no load and count apart, unless
    both files have one name, by which nobody could tell them apart."""
    counts = Counter(imported.get("skipped") or {})
    if not donor_file(imported):
        counts.update(donor_of(imported).get("skipped") or {})
    return dict(counts.most_common())


def donor_problem_counts(imported: Mapping[str, Any]) -> dict[str, int]:
    """The same of the donor's rows."""
    return dict(Counter(donor_of(imported).get("skipped") or {}).most_common()) if donor_file(imported) else {}


def donor_of(imported: Mapping[str, Any]) -> Mapping[str, Any]:
    return (imported.get("join") or {}).get("donor") or {}


def donor_set(imported: Mapping[str, Any]) -> TrafficSet | None:
    """The set whose tuning part gave its text, where it is stored here."""
    digest = donor_of(imported).get("sha256")
    parts = TrafficPart.objects.filter(digest=digest, kind=TrafficPart.Kind.TUNING) if digest else None
    part = parts.select_related("set").defer("statistics", "set__statistics").order_by("pk").first() if parts else None
    return part.set if part else None


def donor_file(imported: Mapping[str, Any]) -> str:
    """The name by which the rows of a donor are told from those of the file; empty where there is none."""
    name = str(donor_of(imported).get("file") or "")
    return name if name != (imported.get("source") or {}).get("file") else ""


def parts_in_order(traffic_set: TrafficSet) -> list[TrafficPart]:
    return sorted(traffic_set.parts.all(), key=lambda part: PART_ORDER.index(part.kind))


def set_by_digest(digest: str) -> TrafficSet | None:
    return TrafficSet.objects.filter(digest=digest).first()


def newest_ready(service: Service) -> TrafficSet | None:
    """The service's newest set that could carry an approval: with its text, and with held-out rows that nobody has
    read, under another name or split neither."""
    sets = traffic_sets().filter(service=service.slug, text_deleted_at=None, parts__kind=TrafficPart.Kind.HELD_OUT)
    return next((one for one in sets[:MOST_LOOKED_AT] if has_usable_text(one) and not uses_of(one)), None)


def has_usable_text(traffic_set: TrafficSet) -> bool:
    return bool(traffic_set.imported.get("acceptance", {}).get("usable", True))


def text_gone(traffic_set: TrafficSet | None) -> str | None:
    """Why a frozen brief on the set can't be started, and what to do."""
    if traffic_set is None or traffic_set.text_deleted_at is None:
        return None
    return (
        f"The text of {traffic_set} was deleted on {traffic_set.text_deleted_at:%d %B %Y} by "
        f"{traffic_set.text_deleted_by}, so there is nothing to send. Withdraw this brief, or write a new revision on "
        "another set."
    )


def replayed_part(brief: Brief) -> TrafficPart | None:
    """The tuning part, where a level of the brief replays it."""
    if all(level.arrival.process != "replay" for level in brief.levels):
        return None
    parts = TrafficPart.objects.filter(set__digest=brief.traffic.set, kind=TrafficPart.Kind.TUNING)
    return parts.defer("statistics").first()


def classes_shown(statistics: Mapping[str, Any], parts: Sequence[TrafficPart]) -> Classes:
    counts = statistics.get("classes")
    if not isinstance(counts, dict) or not counts:
        return Classes([])
    total = sum(counts.values()) or 1
    in_parts = [part.statistics.get("classes") or {} for part in parts]
    named = sorted(counts, key=lambda name: (-counts[name], name))[:MOST_CLASSES]
    rows = [
        ClassRow(name, counts[name], counts[name] / total, [part.get(name, 0) for part in in_parts]) for name in named
    ]
    others = len(counts) - len(named)
    if not others:
        return Classes(rows)
    left = total - sum(row.count for row in rows)
    left_in_parts = [
        sum(part.values()) - sum(row.in_parts[place] for row in rows) for place, part in enumerate(in_parts)
    ]
    return Classes(rows, others, ClassRow("", left, left / total, left_in_parts))


def briefs_on(traffic_set: TrafficSet) -> list[BriefRevision]:
    return list(
        traffic_set.revisions.select_related("brief__route__service").defer("source").order_by("-brief_id", "-number")
    )


def newest_frozen(revisions: list[BriefRevision]) -> BriefRevision | None:
    frozen = [one for one in revisions if one.frozen_at is not None and one.content is not None]
    return max(frozen, key=lambda one: (one.frozen_at, one.pk), default=None)


def uses_shown(traffic_set: TrafficSet) -> list[UseShown]:
    """Every revision that read the held-out part, the first one first."""
    routes: set[str] = set()
    shown = []
    for use in uses_of(traffic_set):
        shown.append(UseShown(use, use.route in routes))
        routes.add(use.route)
    return shown
