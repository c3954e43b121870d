"""What a server says of a request may repeat it: the prompt is taken out before an error is kept. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence

# Runs this long are somebody's text; shorter ones may be anybody's words.
RUN = 20
# Whoever holds a run of 20 characters holds one of these that begins at a multiple of 10.
BLOCK = 10
PROMPT = "[prompt]"


def without_prompt(text: str, contents: Iterable[str]) -> str:
    """``text`` without any run of 20 characters or more that stands in one of the contents."""
    forms = [form for content in contents for form in forms_of(content) if len(form) >= RUN]
    blocks = {text[start : start + BLOCK] for start in range(0, len(text) - BLOCK + 1, BLOCK)}
    forms = [form for form in forms if any(block in form for block in blocks)]
    return "".join(pieces(text, forms)) if forms else text


def forms_of(content: str) -> Iterator[str]:
    """As it may be told: on one line, and as it stands in a JSON document."""
    yield " ".join(content.split())
    yield json.dumps(content)[1:-1]


def pieces(text: str, forms: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(text):
        length = max(repeated(text, at, form) for form in forms)
        yield PROMPT if length else text[at]
        at += length or 1


def repeated(text: str, at: int, form: str) -> int:
    """How many characters from here on stand in the form, if they are a run; else 0."""
    end = at + RUN
    if end > len(text) or text[at:end] not in form:
        return 0
    while end < len(text) and text[at : end + 1] in form:
        end += 1
    return end - at
