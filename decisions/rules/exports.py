"""Events as lines of a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

# A spreadsheet takes a cell that begins with one of these for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
COLUMNS = ("sequence", "at", "kind", "actor", "subject", "service", "route", "previous", "hash", "content")


def safe_cell(text: str) -> str:
    """With an apostrophe before what would be a formula, which spreadsheets take for text. A cell that begins with one
    itself gets another, so that leaving out one gives back every cell."""
    return f"'{text}" if text.startswith((*FORMULA, "'")) else text


def csv_line(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([safe_cell(one) for one in cells])
    return line.getvalue()


def cells_in(row: Sequence[str]) -> list[str]:
    """What ``csv_line`` was given."""
    return [one.removeprefix("'") for one in row]
