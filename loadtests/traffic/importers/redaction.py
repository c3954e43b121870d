"""Prompts are personal data: what must not be kept is taken out of every message before anything is stored."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loadtests.traffic.importers.drafts import Messages
from loadtests.traffic.importers.problems import ImportRefused

REPLACEMENT = "[redacted]"
MOST_PATTERNS = 50
LONGEST_PATTERN = 500  # characters, of a replacement too
SEPARATOR = "=>"

Redact = Callable[[str], str]


@dataclass(frozen=True)
class Redaction:
    """Regular expressions with what replaces their matches, taken in order, and then a function of the engineer's own.

    ``call`` is the function behind ``callable_path``. Raises ValueError for an expression that can't be used.
    """

    patterns: tuple[tuple[str, str], ...] = ()
    callable_path: str | None = None
    call: Redact | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        problems = pattern_problems(self.patterns)
        if problems:
            raise ValueError("; ".join(problems))


def pattern_problems(patterns: Sequence[tuple[str, str]]) -> list[str]:
    """What is wrong with the expressions, one sentence per line that can't be used."""
    if len(patterns) > MOST_PATTERNS:
        return [f"{len(patterns)} regular expressions: {MOST_PATTERNS} are the most, join some with |"]
    found = ((number, problem_of(*pair)) for number, pair in enumerate(patterns, start=1))
    return [f"line {number}: {problem}" for number, problem in found if problem]


def problem_of(pattern: str, replacement: str) -> str | None:
    if max(len(pattern), len(replacement)) > LONGEST_PATTERN:
        return f"longer than {LONGEST_PATTERN} characters"
    if not all(is_text(one) for one in (pattern, replacement)):
        return "a character that is no Unicode text, or NUL"
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"{pattern!r} is no regular expression: {error}"
    # It would put its replacement between all characters.
    return f"{pattern!r} matches the empty text" if compiled.search("") else None


def is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def read_pattern(said: str) -> tuple[str, str]:
    """``PATTERN`` or ``PATTERN=>REPLACEMENT``; the last => separates."""
    pattern, separator, replacement = said.rpartition(SEPARATOR)
    return (pattern, replacement) if separator else (said, REPLACEMENT)


class Changed(NamedTuple):
    """What was taken out of one request: matches by expression, and whether anything changed at all."""

    replaced: Counter[str]
    row: bool


class Redactor:
    """A redaction at work, with the counts that import.json tells."""

    def __init__(self, redaction: Redaction | None) -> None:
        self._redaction = redaction
        self._call = redaction.call if redaction else None
        self._path = redaction.callable_path if redaction else None
        self._patterns = [
            # A replacement is taken as it is written: a backslash has no meaning of its own.
            (pattern, re.compile(pattern), replacement.replace("\\", r"\\"))
            for pattern, replacement in (redaction.patterns if redaction else ())
        ]
        self.rows = 0
        self.replaced: Counter[str] = Counter()

    def redacted(self, messages: Messages | None, line: int) -> tuple[Messages | None, Changed]:
        """The messages without what must not be kept; raises ImportRefused where the function fails."""
        replaced: Counter[str] = Counter()
        if messages is None or self._redaction is None:
            return messages, Changed(replaced, row=False)
        clean = [{**one, "content": self._text(one["content"], replaced, line)} for one in messages]
        return clean, Changed(replaced, row=clean != messages)

    def _text(self, text: str, replaced: Counter[str], line: int) -> str:
        for pattern, compiled, replacement in self._patterns:
            text, count = compiled.subn(replacement, text)
            if count:
                replaced[pattern] += count
        return text if self._call is None else called(self._call, text, f"{self._path} failed in line {line}")

    def count(self, changed: Changed) -> None:
        """For rows that are kept."""
        self.rows += changed.row
        self.replaced.update(changed.replaced)

    def document(self) -> dict[str, Any] | None:
        if self._redaction is None:
            return None
        return {
            "patterns": [
                {"pattern": pattern, "replacement": replacement} for pattern, replacement in self._redaction.patterns
            ],
            "callable": self._redaction.callable_path,
            "rows": self.rows,
            "replaced": {pattern: self.replaced[pattern] for pattern, _ in self._redaction.patterns},
        }


def called(call: Redact, text: str, failure: str) -> str:
    try:
        result: object = call(text)
    except Exception as error:
        # Its words may quote the prompt, and so may the chain of causes.
        why = type(error).__name__
    else:
        if isinstance(result, str):
            return result
        why = f"it gave {type(result).__name__}, not text"
    raise ImportRefused(f"the redaction {failure}: {why}")
