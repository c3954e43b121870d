"""What differs between two versions of somebody's words, line by line."""

import difflib
from collections.abc import Iterator

# (plus, minus, at or nothing, the line)
Line = tuple[str, str]
KINDS = {"+": "plus", "-": "minus", "@": "at"}


def line_difference(before: str, after: str) -> list[Line]:
    """Nothing where they are equal."""
    return list(lines_of(before, after))


def lines_of(before: str, after: str) -> Iterator[Line]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    # The first two name files, which there are none of.
    for number, line in enumerate(lines):
        if number > 1:
            yield KINDS.get(line[:1], ""), line
