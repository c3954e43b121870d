"""What can be wrong with a row of a traffic file, and with the file as a whole."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

SHOWN = 40
WORD = re.compile(r"[A-Za-z]{4}")
MOST_WORDS = 3


class Reason(StrEnum):
    """The reasons that rows are counted by. docs/traffic.md explains each."""

    LINE_TOO_LONG = "line too long"
    NOT_UTF8 = "not UTF-8"
    NOT_JSON = "not JSON"
    NOT_AN_OBJECT = "not a JSON object"
    NOT_CSV = "not CSV"
    COLUMNS = "wrong number of columns"
    TRUNCATED = "cut short at the end of the file"
    DAMAGED = "compressed file damaged or cut short"
    MISSING = "missing"
    UNKNOWN_FIELD = "unknown field"
    NOT_TEXT = "not text"
    NOT_A_COUNT = "not a count"
    NOT_A_TIME = "not a time"
    ZONES_MIXED = "times with and without a zone in one file"
    NO_TIME = "no time where other rows have one"
    EMPTY_PROMPT = "zero-length prompt"
    EMPTY_OUTPUT = "zero-length output"
    NOT_GENERATION = "not a request for text"
    NO_ANSWER = "the turn before has no recorded answer"
    NOT_ALLOWED = "not allowed"
    ID_TWICE = "id used twice"
    MIXED = "text and bare lengths in one file"
    BEYOND_CONTEXT = "longer than the context"
    NO_DONOR = "no donor text of this length"


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that can't be used: where it stands and why. ``detail`` never quotes a prompt."""

    line: int
    field: str
    reason: Reason
    detail: str = ""

    def document(self, file: str) -> dict[str, Any]:
        return {
            "file": file,
            "line": self.line,
            "field": name_shown(self.field),
            "reason": str(self.reason),
            "detail": self.detail,
        }

    def sentence(self, file: str) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{file}, line {self.line}, field {name_shown(self.field)}: {self.reason}{detail}"


class BadField(Exception):
    """Raised while one row is read; becomes a Problem where its line is known."""

    def __init__(self, field: str, reason: Reason, detail: str = "") -> None:
        super().__init__(field, reason, detail)
        self.field, self.reason, self.detail = field, reason, detail

    def at(self, line: int) -> Problem:
        return Problem(line, self.field, self.reason, self.detail)


class Unreadable(Exception):
    """The content as a whole can't be read as asked; becomes ImportRefused where the file's name is known."""


class ImportRefused(Exception):
    """The file as a whole can't be imported; nothing was written."""


def shown(value: object) -> str:
    """A number or time as it was found. What looks like words is not shown: it may be a prompt."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= SHOWN and text.isascii() and text.isprintable() and not WORD.search(text):
        return text
    return f"{len(text)} characters"


def name_shown(name: str) -> str:
    """A column or field as the file names it. What is too long for a name, or a sentence, may be a prompt."""
    if len(name) <= SHOWN and len(re.findall(r"[^\W\d_]{2,}", name)) <= MOST_WORDS:
        return name
    return f"a name of {len(name)} characters"
