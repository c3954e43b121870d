"""Trials as ``draftproof replay`` and ``draftproof simulate`` leave them in directories, read back and verified."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from loadtests.canonical import canonical, digest
from loadtests.evidence.manifest import NANOSECONDS, Manifest, read_manifest
from loadtests.evidence.plans import BadPlan, Plan, read_plan
from loadtests.evidence.records import BadRecords, read_records
from loadtests.traffic.arrivals import exact
from loadtests.traffic.levels import Level

MANIFEST, PLAN, RECORDS = "manifest.json", "plan.json", "records.parquet"
LAYOUT = f"a trial's directory holds {MANIFEST}, {PLAN} and {RECORDS}, a boot's the directories of its trials"


class UnusableEvidence(ValueError):
    """A directory that can't be judged; the text says which, why, and what to do."""


@dataclass(frozen=True, eq=False)
class KeptTrial:
    """``level`` is the manifest's own."""

    path: Path
    manifest: Manifest
    manifest_sha256: str
    level: Level
    plan: Plan
    records: pa.Table

    @property
    def window_ns(self) -> int:
        """Where the window begins, after the level's warm-up."""
        return math.ceil(exact(self.level.warm_up_s) * NANOSECONDS)


def boots_in(path: Path) -> list[list[Path]]:
    """The trials' directories of each boot in a directory: of a trial, of a boot, or of boots.

    Boots come in the order of their names, numbers by their value. Raises UnusableEvidence where there is no manifest,
    and where a directory looks like evidence and is in none of these boots.
    """
    if not path.is_dir():
        raise UnusableEvidence(f"{path} is no directory: {LAYOUT}")
    if (path / MANIFEST).is_file():
        found = [[path]]
    elif trials := trials_in(path):
        found = [trials]
    else:
        boots = {one: trials for one in children(path) if (trials := trials_in(one))}
        check_numbered(path, list(boots))
        found = list(boots.values())
    if not found:
        raise UnusableEvidence(f"{path} has no {MANIFEST}, and neither has anything in it: {LAYOUT}")
    check_all_read(path, {trial for trials in found for trial in trials})
    return found


def check_numbered(path: Path, boots: Sequence[Path]) -> None:
    """Which of boot-1 and boot-01 is of the first pair, nobody can tell."""
    places = Counter(tuple(natural(one)) for one in boots)
    same = [one.name for one in boots if places[tuple(natural(one))] > 1]
    if same:
        raise UnusableEvidence(
            f"{path}: {same[0]} and {same[1]} have one number: name them so that their order is told"
        )


def trials_in(boot: Path) -> list[Path]:
    return [one for one in children(boot) if (one / MANIFEST).is_file()]


def check_all_read(path: Path, trials: set[Path]) -> None:
    """What is left out unseen may be just what speaks against the rest."""
    here = [one for one in sorted(path.rglob("*"), key=lambda one: one.parts) if not one.name.startswith(".")]
    for one in here:
        if one.is_dir() and not any(one.iterdir()):
            raise UnusableEvidence(f"{one} is empty: {LAYOUT}")
    for one in dict.fromkeys(file.parent for file in here if file.name in (MANIFEST, PLAN, RECORDS)):
        if one not in trials and not (one / MANIFEST).is_file():
            raise UnusableEvidence(f"{one / MANIFEST} is missing: {LAYOUT}")
        if one not in trials:
            raise UnusableEvidence(f"{one} is a trial within another trial or boot, where none is read: {LAYOUT}")


def children(path: Path) -> list[Path]:
    return sorted((one for one in path.iterdir() if one.is_dir()), key=lambda one: (natural(one), one.name))


def natural(path: Path) -> list[tuple[int, str]]:
    """boot-2 comes before boot-10."""
    pieces: Iterator[str] = iter(re.split(r"(\d+)", path.name))
    return [(int(one), "") if one.isdigit() else (-1, one) for one in pieces]


def kept_trial(path: Path, columns: Sequence[str] | None = None, plans: dict[str, Plan] | None = None) -> KeptTrial:
    """A trial, once each of its files is the one that its manifest names; of its records all columns, or these alone.
    ``plans`` are those that were read already, by their digest. Raises UnusableEvidence."""
    content = read(path / MANIFEST)
    try:
        manifest = read_manifest(content)
    except ValidationError as error:
        one = error.errors()[0]
        field = ".".join(str(part) for part in one["loc"]) or "(whole file)"
        raise UnusableEvidence(f"{path / MANIFEST} is no manifest of a trial: {field}: {one['msg']}") from None
    for field, number in endless(manifest.model_dump(by_alias=True)):
        raise UnusableEvidence(f"{path / MANIFEST} is no manifest of a trial: {field}: {number} is no finite number")
    level = level_told(manifest, path / MANIFEST)
    plan = named_by(manifest.digests.plan, path / PLAN)
    records = named_by(manifest.digests.records, path / RECORDS)
    known = {} if plans is None else plans
    try:
        planned = known[manifest.digests.plan] = known.get(manifest.digests.plan) or read_plan(plan)
    except BadPlan as error:
        raise UnusableEvidence(f"{path / PLAN} is no plan of a trial: {error}") from None
    try:
        table = read_records(records, columns)
    except BadRecords as error:
        raise UnusableEvidence(f"{path / RECORDS}: {error}") from None
    return KeptTrial(path, manifest, digest(content), level, planned, table)


def level_told(manifest: Manifest, path: Path) -> Level:
    """Strictly as it was written: "40" for 40 would be a number to one reader and none to another."""
    try:
        return Level.model_validate_json(canonical(manifest.level), strict=True)
    except ValidationError as error:
        one = error.errors()[0]
        field = ".".join(str(part) for part in ("level", *one["loc"]))
        raise UnusableEvidence(f"{path}: {field}: {one['msg'].removeprefix('Value error, ')}") from None


def endless(document: Any, field: str = "") -> Iterator[tuple[str, float]]:
    """The numbers that JSON has no word for (a reader takes NaN, Infinity and 1e999 all the same), by dotted field."""
    if isinstance(document, float) and not math.isfinite(document):
        yield field, document
    lists = document if isinstance(document, list | tuple) else ()
    for name, value in document.items() if isinstance(document, dict) else enumerate(lists):
        yield from endless(value, f"{field}.{name}".lstrip("."))


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UnusableEvidence(f"{path} is missing: {LAYOUT}") from None
    except OSError as error:
        raise UnusableEvidence(f"{path} can't be read: {error.strerror}") from None


def named_by(wanted: str, path: Path) -> bytes:
    content = read(path)
    if (found := digest(content)) != wanted:
        raise UnusableEvidence(
            f"{path} is not the file that {MANIFEST} beside it names: its SHA-256 is {found}, there it is {wanted}"
        )
    return content
