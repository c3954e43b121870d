import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from loadtests import journal, uploads
from loadtests.canonical import digest_of
from loadtests.evidence.store import EvidenceUnreachable, digest_of_file
from loadtests.evidence.stores import evidence_store
from loadtests.journal import act
from loadtests.models import Removal, TrafficPart, TrafficSet
from loadtests.naming import Held, named_elsewhere, naming_lock
from loadtests.services.give_service import give_service
from loadtests.services.remove_unwanted import ask_removal, remove_unwanted
from loadtests.statistics.resemblance import Sample, comparison
from loadtests.traffic.columns import Columns, Int64, read_columns
from loadtests.traffic.division import Alike, Division, divide, given
from loadtests.traffic.groups import NO_PAIRS
from loadtests.traffic.importers import Wanted, import_file
from loadtests.traffic.joined import Joining, read_trace, readable_twice
from loadtests.traffic.near_duplicates import check_similarity, read_prompts
from loadtests.traffic.part_index import PartIndex, index_content, prompt_hashes
from loadtests.traffic.part_statistics import Side, followers, part_statistics
from loadtests.traffic.parts import part_file, write_parts
from loadtests.traffic.time_blocks import block_starts, width_ns

SCHEMA = "draftproof.traffic-set/1"
SHARES = {"tuning": 0.35, "held-out": 0.5, "evaluation": 0.15}
SIMILARITY = 0.8
LONGEST_NAME = 120
LONGEST_SOURCE = 200
# Whoever removes files waits for a store that is away no longer than that.
NAMING_PATIENCE_S = 300.0
SEARCHING = "looking for near-duplicates"
NO_TEXT = "none: there is no text to compare"

Tell = Callable[[str, int, int], None]
Also = Callable[[TrafficSet], object]


def tell_nobody(stage: str, done: int, of: int) -> None:
    """Nobody waits for news."""


def nothing_else(created: TrafficSet) -> None:
    """The set is all there is to write."""


def import_traffic(
    *,
    path: Path,
    name: str,
    by: str,
    service: str = "",
    reading: Wanted | None = None,
    shares: Mapping[str, float] = SHARES,
    seed: int = 0,
    block_s: float = 120.0,
    similarity: float = SIMILARITY,
    tell: Tell = tell_nobody,
    also: Also = nothing_else,
) -> TrafficSet:
    """Reads, splits and stores a traffic file.

    ``tell`` hears how far it is: stages "reading" (bytes), "reading prompts" (rows), "looking for near-duplicates"
    (bands of signatures) and "writing" (rows); where a donor gives its text, the prompts are the donor's, and "joining
    text" (bytes) comes after. ``also`` is done in the act that creates the set. Raises ImportRefused, ValueError,
    OSError, or what these two raise, and then leaves nothing behind. The same file split in the same way is the same
    set: it is returned, not imported twice, and refused where it was to have another name or service.
    """
    check_name(name)
    given(shares)
    width_ns(block_s)
    check_similarity(similarity)
    wanted = replace(reading, path=path) if reading else Wanted(path)
    since = timezone.now()
    with uploads.workplace("set-") as scratch:
        found = Found(wanted, Split(shares, seed, block_s, similarity), scratch, tell)
        known = TrafficSet.objects.filter(digest=found.digest).first()
        if known:
            return still_there(known, name=name, by=by, service=service)
        with kept(found.files, scratch):
            return created(found, name=name, by=by, service=service, also=also, since=since)


def check_name(name: str) -> None:
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"the set's name has {len(name)} characters; it may have 1 to {LONGEST_NAME}")


@dataclass(frozen=True)
class Split:
    """How a set is to be split."""

    shares: Mapping[str, float]
    seed: int
    block_s: float
    similarity: float

    def check_blocks(self, columns: Columns, *, timed: bool) -> None:
        """Raises ValueError, before prompts are compared for minutes."""
        if timed:
            block_starts(columns.arrivals_ns, block_s=self.block_s)

    def divided(self, columns: Columns, alike: Alike, *, timed: bool) -> Division:
        return divide(columns, alike, shares=self.shares, seed=self.seed, block_s=self.block_s, timed=timed)


class Found:
    """What becomes a set, in a directory of its own."""

    def __init__(self, wanted: Wanted, split: Split, scratch: Path, tell: Tell) -> None:
        self._split, self._scratch, self._tell = split, scratch, tell
        self._rows = scratch / "set" / "rows.jsonl"
        prompts, unit = self._joined(wanted) if wanted.donor else self._read(wanted)
        self.source: str = self.imported["source"]["file"]
        self._describe(prompts, unit)
        self._write()

    def _read(self, wanted: Wanted) -> tuple[Int64, str]:
        """Gives the lengths of the prompts, and their unit."""
        self.imported = import_file(wanted, self._scratch / "set", partial(self._tell, "reading"))
        self.columns = read_columns(self._rows)
        timed = not self.imported["needs_arrival_process"]
        self._split.check_blocks(self.columns, timed=timed)
        prompts, unit, alike = self._prompts(self._split.similarity)
        self.division = self._split.divided(self.columns, alike, timed=timed)
        return prompts, unit

    def _joined(self, wanted: Wanted) -> tuple[Int64, str]:
        """Split by time and conversation before there is a text, which then comes from each part's own donors."""
        wanted = replace(wanted, path=readable_twice(wanted.path, self._scratch))
        trace = read_trace(wanted, self._scratch, partial(self._tell, "reading"))
        lengths = Alike(NO_PAIRS, self._split.similarity, NO_TEXT)
        division = self._split.divided(trace.columns, lengths, timed=trace.timed)
        joining = Joining(
            trace,
            division,
            similarity=self._split.similarity,
            scratch=self._scratch,
            tell=partial(self._tell, "reading prompts"),
            tell_bands=partial(self._tell, SEARCHING),
        )
        told = partial(self._tell, "joining text")
        self.imported = import_file(wanted, self._scratch / "set", told, joining.divide_donors)
        self.columns = read_columns(self._rows)
        self.division = joining.division_of(self.columns)
        return joining.characters, "characters"

    def _describe(self, prompts: Int64, unit: str) -> None:
        timed = not self.imported["needs_arrival_process"]
        all_rows, all_time = np.ones(len(self.columns), dtype=bool), [[0, self.columns.end_ns]]
        whole = Side(self.columns, prompts, unit, all_time, timed, all_rows)
        sides = {
            kind: replace(whole, stretches=self.division.stretches[kind], rows=self.division.part_of == place)
            for place, kind in enumerate(self.division.kinds)
        }
        self.statistics = {kind: part_statistics(side) for kind, side in sides.items()}
        tuning, held_out = (sample(sides[kind], self.division) for kind in ("tuning", "held-out"))
        compared = comparison(tuning, held_out, dealt="time blocks" if timed else "groups of conversations")
        self.set_statistics = {**part_statistics(whole), "comparison": compared}

    def _write(self) -> None:
        self.parts = write_parts(self._rows, self.columns, self.division, self._scratch, self._told("writing"))
        self.digest = set_digest(self.parts, self.division)
        self.files = {self.parts[kind]: part_file(self._scratch, kind) for kind in self.parts}
        self.indexes = {kind: self._index(place, kind) for place, kind in enumerate(self.division.kinds)}
        problems = self._scratch / "set" / "problems.jsonl"
        self.problems_digest = digest_of_file(problems) if problems.stat().st_size else ""
        if self.problems_digest:
            self.files[self.problems_digest] = problems

    def _index(self, place: int, kind: str) -> str:
        arrivals = self.columns.arrivals_ns[self.division.part_of == place]
        with part_file(self._scratch, kind).open("rb") as lines:
            prompts = None if self.columns.prompt_tokens is not None else prompt_hashes(lines)
        path = self._scratch / f"{kind}.index"
        path.write_bytes(index_content(PartIndex(arrivals, prompts)))
        digest = digest_of_file(path)
        self.files[digest] = path
        return digest

    def _prompts(self, similarity: float) -> tuple[Int64, str, Alike]:
        if self.columns.prompt_tokens is not None:
            return self.columns.prompt_tokens, "tokens", Alike(NO_PAIRS, similarity, NO_TEXT)
        told = self._told("reading prompts")
        with tempfile.TemporaryFile(dir=self._scratch) as shingles:
            found = read_prompts(
                self._rows,
                self.columns,
                threshold=similarity,
                scratch=shingles,
                tell=told,
                tell_bands=partial(self._tell, SEARCHING),
            )
        return found.characters, "characters", Alike(found.pairs, similarity, found.method)

    def _told(self, stage: str) -> Callable[[int], None]:
        return lambda done: self._tell(stage, done, len(self.columns))


def sample(side: Side, division: Division) -> Sample:
    _, after = followers(side.arrivals_ns, side.stretches)
    return Sample(
        prompt_lengths=side.prompt_lengths,
        unit=side.unit,
        output_limits=side.output_limits,
        classes=side.columns.classes[side.rows],
        class_names=side.columns.class_names,
        blocks=division.unit_of[side.rows],
        gaps_s=side.gaps_s,
        gap_blocks=division.block_of[side.rows][after],
    )


def set_digest(parts: Mapping[str, str], division: Division) -> str:
    """Rows and split in one name: whoever knows it can check both."""
    described = {kind: {"digest": parts[kind], "stretches": division.stretches[kind]} for kind in parts}
    return digest_of({"schema": SCHEMA, "parts": described})


def still_there(known: TrafficSet, *, name: str, by: str, service: str) -> TrafficSet:
    """The set that is here already, under the name that was asked for; one that had no service gets the one asked for.
    Raises ValueError where it was asked for as something else: nobody may believe that it was."""
    if known.text_deleted_at:
        raise ValueError(
            f"this very set was imported as {known.name!r}, and its text was deleted by {known.text_deleted_by} on "
            f"{known.text_deleted_at:%Y-%m-%d}: import it with another split if it may be kept again"
        )
    here = f"this very set is here already: set {known.pk}, {known.name!r}, of {service_words(known.service)}"
    another = "import the file with another split if a second set is wanted"
    if known.service and service != known.service:
        raise ValueError(f"{here}, whose retention holds for it. Use that set, or {another}")
    if name != known.name:
        given = f"; an import under its name gives it the service {service!r}" if service != known.service else ""
        raise ValueError(f"{here}. Use that set, or {another}{given}")
    if service != known.service:
        give_service(traffic_set=known, service=service, by=by)
    return known


def service_words(slug: str) -> str:
    return f"the service {slug!r}" if slug else "no service"


def put_again(files: Mapping[str, Path]) -> None:
    """What another set shared and was taken away with its text since it was put."""
    store = evidence_store()
    for digest, path in files.items():
        if not store.has(digest):
            store.put_file(path)


@contextmanager
def kept(files: Mapping[str, Path], scratch: Path) -> Iterator[None]:
    """The files are in the evidence store; those that no set names are gone again after an error. What is on its way
    stands in ``scratch``, so that a killed import's are found as well."""
    store = evidence_store()
    uploads.intend(scratch, files)
    try:
        for path in files.values():
            store.put_file(path)
        yield
    except BaseException:
        # Where nobody can tell what is used, what was left behind is looked through later.
        with suppress(DatabaseError):
            drop_unused(files)
            uploads.settled(scratch)
        raise
    uploads.settled(scratch)


def drop_unused(digests: Collection[str]) -> None:
    """Asked for within an act, so that it is done sooner or later; another import that is storing the same puts it
    again."""
    with act():
        # What a set whose text was deleted names is gone, and must not come back by an import that failed.
        used = {*TrafficPart.objects.filter(set__text_deleted_at=None).values_list("digest", flat=True)}
        used |= {*TrafficPart.objects.values_list("index_digest", flat=True)}
        used |= {*TrafficSet.objects.values_list("problems_digest", flat=True)}
        ask_removal(set(digests) - used - named_elsewhere(digests))
    remove_unwanted()


@contextmanager
def naming(files: Mapping[str, Path], *, patience_s: float) -> Iterator[Held]:
    """None of them can be removed between the look whether it is there and the act that names it, which says so with
    ``name_files``. Raises EvidenceUnreachable."""
    with naming_lock(patience_s=patience_s) as lock:
        if lock is None:
            raise EvidenceUnreachable("other files of the store are being removed, and that takes long")
        put_again(files)
        yield lock


def name_files(files: Collection[str], lock: Held) -> None:
    """Within the act: from here on something names them, again where they were to be removed."""
    lock.check()
    Removal.objects.filter(digest__in=files).delete()


def created(found: Found, *, name: str, by: str, service: str, also: Also, since: datetime) -> TrafficSet:
    with naming(found.files, patience_s=NAMING_PATIENCE_S) as lock:
        return written(found, lock=lock, name=name, by=by, service=service, also=also, since=since)


def written(found: Found, *, lock: Held, name: str, by: str, service: str, also: Also, since: datetime) -> TrafficSet:
    with act():
        # Another import of the same file may have ended meanwhile.
        known = TrafficSet.objects.filter(digest=found.digest).first()
        if known:
            return still_there(known, name=name, by=by, service=service)
        check_not_deleted_meanwhile(text_digest(found.imported), since)
        name_files(found.files, lock)
        one = TrafficSet.objects.create(
            name=name,
            digest=found.digest,
            rows=len(found.columns),
            source=found.source[:LONGEST_SOURCE],
            service=service,
            imported=storable(found.imported),
            text_digest=text_digest(found.imported),
            problems_digest=found.problems_digest,
            split=found.division.document,
            statistics=storable(found.set_statistics),
            created_by=by,
        )
        for place, kind in enumerate(found.division.kinds):
            TrafficPart.objects.create(
                set=one,
                kind=kind,
                digest=found.parts[kind],
                index_digest=found.indexes[kind],
                rows=int((found.division.part_of == place).sum()),
                stretches=found.division.stretches[kind],
                statistics=storable(found.statistics[kind]),
            )
        journal.record(
            "traffic-imported",
            subject=f"traffic set {one.pk}",
            actor=by,
            digest=one.digest,
            rows=one.rows,
            label=found.imported["label"],
            skipped=found.imported["skipped"],
            similarity=found.division.document["near_duplicates"]["threshold"],
        )
        also(one)
    return one


def check_not_deleted_meanwhile(text: str, since: datetime) -> None:
    """Whoever deletes a text is told which sets still hold it, and this one wasn't there yet. Raises ValueError."""
    holds = Q(text_digest=text) | Q(parts__digest=text)
    gone = TrafficSet.objects.filter(holds, text_deleted_at__gte=since).first() if text else None
    if gone:
        raise ValueError(
            f"the text of {gone} was deleted by {gone.text_deleted_by} while it was read for this set: import it again "
            "if it may be kept"
        )


def text_digest(imported: Mapping[str, Any]) -> str:
    """Of the file that the text was read from; empty for lengths alone."""
    if not imported["acceptance"]["usable"]:
        return ""
    file = imported["join"]["donor"] if imported["join"] else imported["source"]
    return str(file["sha256"])


def storable(document: Any) -> Any:
    """PostgreSQL's JSON holds no NUL, which a class or a field of a strange file may have in its name."""
    if isinstance(document, str):
        return document.replace("\0", "\N{SYMBOL FOR NULL}")
    if isinstance(document, dict):
        return {storable(name): storable(value) for name, value in document.items()}
    return [storable(one) for one in document] if isinstance(document, list) else document
