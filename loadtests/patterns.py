"""A regular expression taken apart: the standard library has a parser for it, under no public name."""

from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

__all__ = ["kinds", "parsed"]


def parsed(pattern: str, flags: int = 0) -> Any:
    """Its pieces, as (kind, value), with ``getwidth()``: the least and most characters that it takes. Raises
    ``re.error``."""
    return parser.parse(pattern, flags)
