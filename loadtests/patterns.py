"""Regular expressions taken apart (the standard library has a parser for it, under no public name), and those of
others, which are matched in linear time."""

from importlib import import_module
from typing import Any

import re2

__all__ = ["Linear", "kinds", "parsed"]

# No public names, hence in no stub to count on.
kinds: Any = import_module("re._constants")
parser: Any = import_module("re._parser")


def parsed(pattern: str, flags: int = 0) -> Any:
    """Its pieces, as (kind, value), with ``getwidth()``: the least and most characters that it takes. Raises
    ``re.error``."""
    return parser.parse(pattern, flags)


class Linear:
    """A pattern that somebody wrote, in RE2's language: Python's own engine takes for ever over some. A dot takes line
    ends too where ``dot_all`` says so. Raises ValueError for what RE2 can't read."""

    def __init__(self, pattern: str, *, dot_all: bool = False) -> None:
        options = re2.Options()
        options.dot_nl, options.log_errors = dot_all, False
        try:
            self._pattern = re2.compile(pattern, options)
        except UnicodeEncodeError:
            raise ValueError("it holds half a character") from None
        except re2.error as error:
            said = error.args[0]
            raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None

    def is_whole(self, text: str) -> bool:
        return self._pattern.fullmatch(whole_characters(text)) is not None

    def is_in(self, text: str) -> bool:
        return self._pattern.search(whole_characters(text)) is not None


def whole_characters(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
