"""The rows that an import left out: a file that may have a million lines, so one page of it is read at a time."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from decisions.selectors.traffic import donor_file, donor_problem_counts, problem_counts
from loadtests.canonical import canonical
from loadtests.evidence.stores import evidence_store
from loadtests.models import TrafficSet

ROWS_A_PAGE = 25
# More are listed as they were found: putting a million in order would keep the page waiting.
MOST_IN_ORDER = 20_000


@dataclass(frozen=True)
class ProblemsPage:
    """``number`` counts from 1; ``count`` is what the import counted for the reason, or for all of them.

    ``in_order`` of file and line, or else as the rows were found.
    """

    rows: list[Mapping[str, Any]]
    number: int
    count: int
    in_order: bool

    @property
    def pages(self) -> int:
        return max(1, -(-self.count // ROWS_A_PAGE))

    @property
    def newer(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def older(self) -> int | None:
        return self.number + 1 if self.number < self.pages else None


def problems_page(traffic_set: TrafficSet, *, reason: str, number: int, of_donor: bool = False) -> ProblemsPage:
    """Of the set's own file, or of its donor's. Raises EvidenceMissing or EvidenceDamaged where the problems aren't as
    they were kept."""
    donor = donor_file(traffic_set.imported)
    counts = (donor_problem_counts if of_donor else problem_counts)(traffic_set.imported)
    count = counts.get(reason, 0) if reason else sum(counts.values())
    number = min(max(1, number), max(1, -(-count // ROWS_A_PAGE)))
    first = (number - 1) * ROWS_A_PAGE
    in_order = count <= MOST_IN_ORDER
    with closing(problem_lines(traffic_set.problems_digest, reason)) as every:
        lines = of_one_file(every, donor, of_donor) if donor else every
        rows = ordered(lines) if in_order else map(json.loads, lines)
        return ProblemsPage(list(islice(rows, first, first + ROWS_A_PAGE)), number, count, in_order)


def of_one_file(lines: Iterable[bytes], donor: str, of_donor: bool) -> Iterator[bytes]:
    """A quote inside a text is escaped, so the file's name stands where it seems to."""
    named = b',"file":' + canonical(donor) + b',"line":'
    return (line for line in lines if (named in line) == of_donor)


def ordered(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    return iter(sorted(map(json.loads, lines), key=lambda row: int(row["line"])))


def problem_lines(digest: str, reason: str = "") -> Generator[bytes]:
    """The lines of problems.jsonl, those of one reason or all, in the order in which they were found.

    The file is checked against its digest first; raises EvidenceMissing or EvidenceDamaged.
    """
    return lines_of(evidence_store().file(digest), reason)


def lines_of(path: Path, reason: str) -> Generator[bytes]:
    """The lines are canonical, so the reason, the last of the fields by name, ends each of them: none has to be parsed
    to be left out."""
    ending = b',"reason":' + canonical(reason) + b"}\n"
    with path.open("rb") as lines:
        yield from (line for line in lines if line.endswith(ending)) if reason else lines
