import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.db import DatabaseError

from loadtests import journal, uploads
from loadtests.canonical import digest_of
from loadtests.evidence.store import EvidenceStore, digest_of_file
from loadtests.journal import act
from loadtests.models import TrafficPart, TrafficSet
from loadtests.statistics.resemblance import Sample, comparison
from loadtests.traffic.columns import Int64, read_columns
from loadtests.traffic.division import Alike, Division, divide, given
from loadtests.traffic.groups import NO_PAIRS
from loadtests.traffic.importers import Wanted, import_file
from loadtests.traffic.near_duplicates import check_similarity, read_prompts
from loadtests.traffic.part_statistics import Side, part_statistics
from loadtests.traffic.parts import part_file, write_parts
from loadtests.traffic.time_blocks import width_ns

SCHEMA = "draftproof.traffic-set/1"
SHARES = {"tuning": 0.35, "held-out": 0.5, "evaluation": 0.15}
SIMILARITY = 0.8
LONGEST_NAME = 120
LONGEST_SOURCE = 200
NO_TEXT = "none: there is no text to compare"

Tell = Callable[[str, int, int], None]


def tell_nobody(stage: str, done: int, of: int) -> None:
    """Nobody waits for news."""


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
) -> TrafficSet:
    """Reads, splits and stores a traffic file.

    ``tell`` hears how far it is: stages "reading" (bytes), "comparing prompts" and "writing" (rows). Raises
    ImportRefused, ValueError, OSError, or what ``tell`` raises, and then leaves nothing behind. The same file split
    in the same way is the same set: it is returned, not imported twice.
    """
    check_name(name)
    given(shares)
    width_ns(block_s)
    check_similarity(similarity)
    wanted = replace(reading, path=path) if reading else Wanted(path)
    with tempfile.TemporaryDirectory(prefix="set-", dir=uploads.directory()) as scratch:
        found = Found(wanted, Path(scratch), tell)
        found.split(shares=shares, seed=seed, block_s=block_s, similarity=similarity)
        known = TrafficSet.objects.filter(digest=found.digest).first()
        if known:
            return still_there(known)
        with kept(found.files):
            return created(found, name=name, by=by, service=service)


def check_name(name: str) -> None:
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"the set's name has {len(name)} characters; it may have 1 to {LONGEST_NAME}")


class Found:
    """What becomes a set, in a directory of its own."""

    def __init__(self, wanted: Wanted, scratch: Path, tell: Tell) -> None:
        self._scratch, self._tell = scratch, tell
        self.source = wanted.path.name
        self.imported = import_file(wanted, scratch / "set", lambda done, of: tell("reading", done, of))
        self._rows = scratch / "set" / "rows.jsonl"
        self.columns = read_columns(self._rows)

    def split(self, *, shares: Mapping[str, float], seed: int, block_s: float, similarity: float) -> None:
        timed = not self.imported["needs_arrival_process"]
        prompts, unit, alike = self._prompts(similarity)
        self.division = divide(self.columns, alike, shares=shares, seed=seed, block_s=block_s, timed=timed)
        all_rows, all_time = np.ones(len(self.columns), dtype=bool), [[0, self.columns.end_ns]]
        whole = Side(self.columns, prompts, unit, all_time, timed, all_rows)
        sides = {
            kind: replace(whole, stretches=self.division.stretches[kind], rows=self.division.part_of == place)
            for place, kind in enumerate(self.division.kinds)
        }
        self.statistics = {kind: part_statistics(side) for kind, side in sides.items()}
        compared = comparison(sample(sides["tuning"]), sample(sides["held-out"]))
        self.set_statistics = {**part_statistics(whole), "comparison": compared}
        self.parts = write_parts(self._rows, self.columns, self.division, self._scratch, self._told("writing"))
        self.digest = set_digest(self.parts, self.division)
        self.files = {self.parts[kind]: part_file(self._scratch, kind) for kind in self.parts}
        problems = self._scratch / "set" / "problems.jsonl"
        self.problems_digest = digest_of_file(problems) if problems.stat().st_size else ""
        if self.problems_digest:
            self.files[self.problems_digest] = problems

    def _prompts(self, similarity: float) -> tuple[Int64, str, Alike]:
        if self.columns.prompt_tokens is not None:
            return self.columns.prompt_tokens, "tokens", Alike(NO_PAIRS, similarity, NO_TEXT)
        told = self._told("comparing prompts")
        with tempfile.TemporaryFile(dir=self._scratch) as shingles:
            found = read_prompts(self._rows, self.columns, threshold=similarity, scratch=shingles, tell=told)
        return found.characters, "characters", Alike(found.pairs, similarity, found.method)

    def _told(self, stage: str) -> Callable[[int], None]:
        return lambda done: self._tell(stage, done, len(self.columns))


def sample(side: Side) -> Sample:
    return Sample(side.prompt_lengths, side.unit, side.output_limits, side.classes, side.gaps_s)


def set_digest(parts: Mapping[str, str], division: Division) -> str:
    """Rows and split in one name: whoever knows it can check both."""
    described = {kind: {"digest": parts[kind], "stretches": division.stretches[kind]} for kind in parts}
    return digest_of({"schema": SCHEMA, "parts": described})


def still_there(known: TrafficSet) -> TrafficSet:
    if known.text_deleted_at:
        raise ValueError(
            f"this very set was imported as {known.name!r}, and its text was deleted by {known.text_deleted_by} on "
            f"{known.text_deleted_at:%Y-%m-%d}: import it with another split if it may be kept again"
        )
    return known


def put_again(files: Mapping[str, Path]) -> None:
    """What another set shared and was taken away with its text since it was put."""
    store = EvidenceStore(settings.EVIDENCE_DIR)
    for digest, path in files.items():
        if not store.has(digest):
            store.put_file(path)


@contextmanager
def kept(files: Mapping[str, Path]) -> Iterator[None]:
    """The files are in the evidence store; those that were not there before are gone again after an error."""
    store = EvidenceStore(settings.EVIDENCE_DIR)
    added = [digest for digest in files if not store.has(digest)]
    try:
        for digest in files:
            store.put_file(files[digest])
        yield
    except BaseException:
        drop_unused(store, added)
        raise


def drop_unused(store: EvidenceStore, digests: list[str]) -> None:
    """Unless another import has stored the same meanwhile, or nobody can tell."""
    with suppress(DatabaseError), act():
        used = {*TrafficPart.objects.values_list("digest", flat=True)}
        used |= {*TrafficSet.objects.values_list("problems_digest", flat=True)}
        for digest in set(digests) - used:
            store.path(digest).unlink(missing_ok=True)


def created(found: Found, *, name: str, by: str, service: str) -> TrafficSet:
    with act():
        # Another import of the same file may have ended meanwhile.
        known = TrafficSet.objects.filter(digest=found.digest).first()
        if known:
            return still_there(known)
        put_again(found.files)
        one = TrafficSet.objects.create(
            name=name,
            digest=found.digest,
            rows=len(found.columns),
            source=found.source[:LONGEST_SOURCE],
            service=service,
            imported=storable(found.imported),
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
    return one


def storable(document: Any) -> Any:
    """PostgreSQL's JSON holds no NUL, which a class or a field of a strange file may have in its name."""
    if isinstance(document, str):
        return document.replace("\0", "\N{SYMBOL FOR NULL}")
    if isinstance(document, dict):
        return {storable(name): storable(value) for name, value in document.items()}
    return [storable(one) for one in document] if isinstance(document, list) else document
