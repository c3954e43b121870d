"""A trace of lengths that gets text is split first, and its donors are divided among the parts: otherwise a text that
many requests carry would hold them all on one side."""

import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtests.traffic.columns import Columns, Int64, read_columns
from loadtests.traffic.dealing import NOBODY, Deck, dealt
from loadtests.traffic.division import Division, Joined, Stretches, joined, missed_shares, much_foreign, warnings
from loadtests.traffic.groups import NO_PAIRS, Int32, groups_of
from loadtests.traffic.importers import ImportRefused, Wanted
from loadtests.traffic.importers.entries import Entry
from loadtests.traffic.importers.gathered import OWN_CONVERSATION, Gathered, Spool
from loadtests.traffic.importers.importing import (
    Donor,
    Log,
    Reading,
    has_text_already,
    read_in_order,
    write,
)
from loadtests.traffic.importers.join import DividedDonors, SplitRows
from loadtests.traffic.importers.problems import file_shown
from loadtests.traffic.near_duplicates import Prompts, prompts_of
from loadtests.traffic.part_statistics import stretch_of

Tell = Callable[[int, int], None]


class Lengths(Gathered):
    """The rows of a trace, of which one with text is the end."""

    def __init__(self, spool: Spool, path: Path) -> None:
        super().__init__(spool)
        self._path = path

    def check(self, entry: Entry) -> None:
        if entry.has_text:
            raise has_text_already(self._path)
        super().check(entry)


@dataclass(frozen=True)
class Trace:
    """A trace before it gets text. ``lines`` are of its usable rows in the order of the file, ``order`` holds their
    places in it by arrival, as the rows of ``columns``."""

    columns: Columns
    timed: bool
    lines: "array[int]"
    order: Int64

    def in_file(self, part_of: NDArray[np.int8]) -> NDArray[np.int8]:
        """The part of each row in the order of the file; one without a time where others have one has none."""
        found = np.full(len(self.lines), NOBODY, dtype=np.int8)
        found[self.order] = part_of
        return found


def read_trace(wanted: Wanted, scratch: Path, tell: Tell) -> Trace:
    """The lengths alone. What is wrong with rows is said when they get their text."""
    rows_path = scratch / "lengths.jsonl"
    with tempfile.TemporaryFile(dir=scratch) as rows_file, tempfile.TemporaryFile(dir=scratch) as problems:
        rows = Lengths(Spool(rows_file), wanted.path)
        log = Log(file_shown(wanted.path), problems, refuse=wanted.refuse)
        _, ordered = read_in_order(Reading(wanted, log, rows, None, tell))
        write(rows_path, ordered.content())
    columns = read_columns(rows_path)
    rows_path.unlink()
    return Trace(columns, not ordered.needs_arrival_process, rows.lines, ordered.order)


def readable_twice(path: Path, scratch: Path) -> Path:
    """A pipe gives its content once: it is copied, under its name."""
    if path.is_file():
        return path
    (place := scratch / "source").mkdir()
    with path.open("rb") as source, (place / path.name).open("wb") as copy:
        shutil.copyfileobj(source, copy)
    return place / path.name


class Joining:
    """The donors of a trace that is split. ``divide_donors`` is for ``import_file``; what it found is known then."""

    def __init__(
        self, trace: Trace, division: Division, *, similarity: float, scratch: Path, tell: Tell, tell_bands: Tell
    ) -> None:
        self._trace, self._division = trace, division
        self._similarity, self._scratch = similarity, scratch
        self._tell, self._tell_bands = tell, tell_bands
        self._donors: DividedDonors
        self._prompts: Prompts
        self._name, self._texts = "", 0

    def divide_donors(self, donor: Donor) -> DividedDonors:
        """Raises ImportRefused where they don't suffice for every part."""
        group_of = self._groups(donor.rows)
        decks = decks_of(self._trace.columns, self._division, donor)
        part_of = dealt(decks, group_of, seed=self._division.document["seed"])
        self._name, self._texts = donor.name, len(np.unique(group_of[part_of != NOBODY]))
        self._check(np.bincount(part_of[part_of != NOBODY], minlength=len(self._division.kinds)))
        kinds = self._division.kinds
        rows = SplitRows(self._trace.lines, self._trace.in_file(self._division.part_of), kinds)
        self._donors = DividedDonors(donor.donors, part_of, rows)
        return self._donors

    def _groups(self, rows: Gathered) -> Int32:
        """Donors that must stand on one side: those of a conversation, and those with an equal or like text."""
        conversations = numbered_conversations(rows)
        count = len(conversations)
        lines = (b"," + rows.spool.read(index) for index in range(count))
        with tempfile.TemporaryFile(dir=self._scratch) as shingles:
            self._prompts = prompts_of(
                lines,
                conversations,
                threshold=self._similarity,
                scratch=shingles,
                tell=lambda done: self._tell(done, count),
                tell_bands=self._tell_bands,
            )
        found: Int32 = groups_of(int(conversations.max()) + 1, self._prompts.pairs)[conversations]
        return found

    def _check(self, counts: Int64) -> None:
        empty = [kind for kind, count in zip(self._division.kinds, counts, strict=True) if not count]
        if empty:
            raise ImportRefused(
                f"no text is left for {', '.join(empty)}: of the lengths that the trace asks for, {self._name} has "
                f"{self._texts:,} different {'text' if self._texts == 1 else 'texts'} (those nearly alike count as "
                f"one), and no text may stand in two of the {len(counts)} parts; take a larger donor, or fewer parts"
            )

    @property
    def _kept(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._donors.given[self._trace.order] != NOBODY
        return found

    @property
    def characters(self) -> Int64:
        """Per joined row."""
        given = self._donors.given[self._trace.order]
        found: Int64 = self._prompts.characters[given[given != NOBODY]]
        return found

    def division_of(self, columns: Columns) -> Division:
        """The division of the rows that got a text, which are ``columns``; raises ImportRefused where a part has
        none in its own time."""
        kept, first = self._kept, self._division
        part_of = first.part_of[kept]
        offset_ns = int(self._trace.columns.arrivals_ns[kept][0])
        stretches = {kind: shifted(first.stretches[kind], offset_ns, columns.end_ns) for kind in first.kinds}
        counts = np.bincount(part_of, minlength=len(first.kinds))
        self._check(np.array([bool(stretches[kind]) * counts[at] for at, kind in enumerate(first.kinds)]))
        found = joined(columns, groups_of(columns.conversation_count, NO_PAIRS))
        document = {
            **first.document,
            "achieved": {kind: float(counts[at] / len(columns)) for at, kind in enumerate(first.kinds)},
            "near_duplicates": {
                "threshold": self._similarity,
                "method": f"donors were divided among the parts before the join, by: {self._prompts.method}",
                "conversations_joined": found.conversations,
                "largest_group": found.largest,
            },
            "foreign_share": foreign_share(columns, part_of, list(stretches.values())) if self._trace.timed else 0.0,
        }
        return replace(
            first,
            part_of=part_of,
            unit_of=first.unit_of[kept],
            block_of=first.block_of[kept],
            stretches=stretches,
            document={**document, "warnings": self._warnings(document, found, left_out=int((~kept).sum()))},
        )

    def _warnings(self, document: dict[str, Any], found: Joined, *, left_out: int) -> list[str]:
        """Where the split itself came close to the shares, it is the rows without a text that are missing."""
        missed = missed_shares(document)
        if not missed or missed_shares(self._division.document):
            return warnings(document, found)
        return [
            f"{missed}, because {left_out:,} requests got no text: for their part {self._name} has none of their "
            "length; import with a larger donor, or use fewer parts",
            *much_foreign(document["foreign_share"]),
        ]


def decks_of(columns: Columns, division: Division, donor: Donor) -> Iterator[Deck]:
    """By length, and by class and length for the classes that donors have."""
    assert columns.prompt_tokens is not None
    bits = np.frexp(columns.prompt_tokens)[1].astype(np.int64)
    shape = (len(columns.class_names), int(bits.max()) + 1, len(division.kinds))
    places = np.ravel_multi_index((columns.classes, bits, division.part_of), shape)
    asked = np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)
    for class_, table in [(None, asked.sum(axis=0)), *zip(columns.class_names, asked, strict=True)]:
        for length in np.flatnonzero(table.sum(axis=1)).tolist():
            donors = np.array(donor.donors.members((class_, length)), dtype=np.int64)
            yield Deck(class_, length, donors, table[length])


def numbered_conversations(rows: Gathered) -> Int32:
    conversations = np.array(rows.conversation_of, dtype=np.int32)
    own = conversations == OWN_CONVERSATION
    conversations[own] = len(rows.conversations) + np.arange(int(own.sum()))
    return conversations


def shifted(stretches: Stretches, offset_ns: int, end_ns: int) -> Stretches:
    """On a clock that starts at the offset and ends at ``end_ns``."""
    moved = [[max(0, start - offset_ns), min(end - offset_ns, end_ns)] for start, end in stretches]
    return [[start, end] for start, end in moved if start < end]


def foreign_share(columns: Columns, part_of: NDArray[np.int8], stretches: list[Stretches]) -> float:
    """Of all requests, those that arrive in another part's time."""
    foreign = [stretch_of(columns.arrivals_ns[part_of == place], one) < 0 for place, one in enumerate(stretches)]
    return float(np.concatenate(foreign).mean())
