"""What can be wrong with a row of a traffic file, and with the file as a whole."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

SHOWN = 40
SHOWN_NAMES = 12
NUMBER = re.compile(r"[+-]?[0-9.,]{1,25}([eE][+-]?[0-9]{1,4})?")
DATE = re.compile(
    r"[0-9]{1,4}[-/.][0-9]{1,2}([-/.][0-9]{1,4})?([T ][0-9]{1,2}[0-9:.,]{1,16} ?([AP]M)?(Z|[+-][0-9:]{2,6})?)?"
)
SHORT = 4
MOST_WORDS = 3
WORD = re.compile(r"[^\W\d_]{2,}")
# Scripts without spaces between words, in which two letters are about one.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")


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
    """A number or date as it was found. Anything else is not shown: it may be a prompt, or a telephone's number."""
    if value is None or isinstance(value, bool):
        return repr(value)
    text = value if isinstance(value, str) else repr(value)
    short = len(text) <= SHORT and text.isascii() and text.isprintable()
    return text if short or NUMBER.fullmatch(text) or DATE.fullmatch(text) else f"{len(text)} characters"


def name_shown(name: str) -> str:
    """A column or field as the file names it. What is too long for a name, or a sentence, may be a prompt."""
    if len(name) <= SHOWN and len(WORD.findall(name)) <= MOST_WORDS >= len(UNSPACED.findall(name)) / 2:
        return spelt_out(name)
    return f"a name of {len(name)} characters"


def spelt_out(text: str) -> str:
    """Half of a surrogate pair, which JSON and file names can hold and UTF-8 can't, is spelt out."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def file_shown(path: Path) -> str:
    """The file's name; its bytes needn't be UTF-8."""
    return os.fsencode(path.name).decode(errors="backslashreplace")


def listed(names: Iterable[str]) -> str:
    quoted = [repr(name_shown(name)) for name in names]
    return ", ".join([*quoted[:SHOWN_NAMES], "…"] if len(quoted) > SHOWN_NAMES else quoted)


def what_it_is(value: object, field: str = "") -> str:
    """What stands where a text is wanted, and under which names texts lie inside, if it is under ``field``."""
    if isinstance(value, dict):
        texts = [f"{field}.{name}" for name, one in value.items() if isinstance(one, str)] if field else []
        instead = f"; a text in it is {name_shown(texts[0])!r}" if texts else ""
        return f"an object with the fields {listed(value)}{instead}" if value else "an object without fields"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "a number"
