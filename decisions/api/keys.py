"""What addresses and bodies may hold."""

from typing import Annotated

from ninja import Path
from pydantic import AfterValidator, Field

from decisions.api.paging import LARGEST_KEY
from decisions.rules.brief import LONGEST_SOURCE


def storable(text: str) -> str:
    """A database takes neither a NUL nor half a surrogate pair."""
    if "\0" in text:
        raise ValueError("holds the character NUL, which no text here can hold")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a character: it can't be written in UTF-8") from None
    return text


Number = Annotated[int, Path(ge=1, le=LARGEST_KEY)]
Source = Annotated[str, Field(min_length=1, max_length=LONGEST_SOURCE), AfterValidator(storable)]
Reason = Annotated[str, Field(max_length=2_000), AfterValidator(storable)]
