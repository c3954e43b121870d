"""Prompts are personal data: what must not be kept is taken out of every text of a row before anything is stored."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from loadtests.patterns import parsed
from loadtests.traffic.importers.drafts import Draft
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
        least = least_length(re.compile(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        return f"{pattern!r} is no regular expression: {error}"
    if least:
        return None
    return (
        f"{pattern!r} can match where there is nothing, and would put its replacement between characters: let it take "
        "one character at least, + instead of * or {1,9} instead of {0,9}"
    )


def least_length(compiled: re.Pattern[str]) -> int:
    """Of a match, in characters: what is accepted never matches the empty text, wherever it stands. A search of sample
    texts would not do, since boundaries and looks around match in some texts alone."""
    # The parser has no public name; it is the one that tells.
    least, _ = parsed(compiled.pattern, compiled.flags).getwidth()
    return int(least)


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
        self._numbers: dict[str, int] = {}
        # The same few names in every record.
        self.field_name = lru_cache(maxsize=1024)(self._field_name)
        self.rows = 0
        self.replaced: Counter[str] = Counter()

    def redacted(self, draft: Draft) -> tuple[Draft, Changed]:
        """The request without what must not be kept, in any of its texts; raises ImportRefused where the function
        fails."""
        replaced: Counter[str] = Counter()
        if self._redaction is None:
            return draft, Changed(replaced, row=False)

        def text(found: str) -> str:
            return self._text(found, replaced, f"in line {draft.line}")

        clean = draft._replace(
            id=self._name(draft.id, text),
            conversation=self._name(draft.conversation, text),
            class_=text(draft.class_) if draft.class_ else draft.class_,
            tenant=text(draft.tenant) if draft.tenant else "",
            messages=draft.messages and [{**one, "content": text(one["content"])} for one in draft.messages],
            sampling=without_in_stop(draft.sampling, text),
        )
        return clean, Changed(replaced, row=clean != draft)

    def _name(self, name: str | None, text: Redact) -> str | None:
        """Two rows or conversations stay two: a name that changed gets a number of its own, in order of the file."""
        if not name or (clean := text(name)) == name:
            return name
        return f"{clean}-{self._numbers.setdefault(name, len(self._numbers) + 1)}"

    def _field_name(self, name: str) -> str:
        return self._text(name, Counter(), "on the name of a field") if self._redaction else name

    def _text(self, text: str, replaced: Counter[str], where: str) -> str:
        for pattern, compiled, replacement in self._patterns:
            text, count = compiled.subn(replacement, text)
            if count:
                replaced[pattern] += count
        return text if self._call is None else called(self._call, text, f"{self._path} failed {where}")

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


def without_in_stop(sampling: dict[str, Any] | None, text: Redact) -> dict[str, Any] | None:
    """A stop string of which nothing is left would stop every answer at once: it is dropped."""
    if sampling is None or not isinstance(sampling.get("stop"), list):
        return sampling
    clean = [text(one) if isinstance(one, str) else one for one in sampling["stop"]]
    return {**sampling, "stop": [one for one, was in zip(clean, sampling["stop"], strict=True) if one or not was]}


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
