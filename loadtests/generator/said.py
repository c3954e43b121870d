"""What is kept of what a server said: all of it goes through here before it reaches a file, a summary or a terminal.

A server is told the key and the prompts, and may repeat either wherever it says something, in any writing. What is
kept of its words is ``Clean``, which nothing else makes. First a secret is taken out of the whole of a text, then the
text is cut: of what is cut before, no pattern can tell that it was a secret. Pure.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NewType
from unicodedata import category
from urllib.parse import quote

from loadtests.generator.quoting import (
    WORD,
    Span,
    as_read,
    as_read_with_places,
    folded,
    parts_near,
    pieces_of,
    repeats,
    without,
)

Clean = NewType("Clean", str)

# What is kept of a text, and what is heard of it until then; a text that was heard as long as that was cut there.
MAX_KEPT_CHARACTERS = 300
MAX_HEARD_CHARACTERS = 1_000
# The end of a text that was cut may be the beginning of a key; this many hold any KEY_RUN of it in the longest writing.
CUT_END = 150
# Runs this long are somebody's text; shorter ones may be anybody's words.
PROMPT_RUN = 20
PROMPT = "[prompt]"
# So much of a key is a part of it; a shorter part, as servers show it on purpose, opens nothing.
KEY_RUN = 12
# A shorter key can't be told from words.
SHORTEST_KEY = 8
KEY = "[key]"
# What a short key has to stand after to be one.
SIGNED = r"(?:key|bearer|authorization|token|secret|password)[\"']?\s*[=:]\s*[\"']?(?:bearer\s+)?"
NAMED = rf"({SIGNED}|(?:bearer|key)\s+[\"'`]?)"
# Of the protocol: they tell nothing of anybody.
FINISH_REASONS = frozenset(
    {"stop", "length", "tool_calls", "function_call", "content_filter", "abort", "error", "repetition"}
)
# They make what follows run from right to left, or end that.
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def joined(text: str) -> str:
    """Surrogate pairs that two JSON chunks split between them become the one character; lone halves become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def brief_text(text: str) -> str:
    """One line that UTF-8 can hold, as much as is heard: a server may send pages, and halves of surrogate pairs."""
    return " ".join(joined(text).split())[:MAX_HEARD_CHARACTERS] or "no reason given"


def printable(text: str) -> str:
    """U+FFFD for what would move a terminal's cursor, colour it or turn its writing round."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if category(one) == "Cc" or one in TURNING else one for one in text)


@dataclass(frozen=True)
class Secrets:
    """What a server knows of us. ``prompts`` are those of the request that it answers."""

    key: str | None = field(default=None, repr=False)

    def reason(self, heard: str, prompts: Iterable[str] = ()) -> Clean:
        """Why something went wrong: one line."""
        cut = len(heard) >= MAX_HEARD_CHARACTERS
        text = self.without_key(joined(heard), end=len(heard) - CUT_END if cut else None)
        return Clean(printable(without_prompt(text, prompts)[:MAX_KEPT_CHARACTERS]))

    def name(self, heard: str, prompts: Iterable[str] = ()) -> Clean:
        """A name that the server gives to something; a longer one is cut, and says how long it was."""
        text = without_prompt(self.without_key(joined(heard)), prompts)
        if len(text) > MAX_KEPT_CHARACTERS:
            text = f"{text[:MAX_KEPT_CHARACTERS]}… ({len(heard)} characters)"
        return Clean(printable(text))

    def finish_reason(self, heard: str, prompts: Iterable[str] = ()) -> Clean:
        return Clean(heard) if heard in FINISH_REASONS else self.name(heard, prompts)

    def without_key(self, text: str, *, end: int | None = None) -> str:
        """The text, up to ``end``, without the key in any of its writings."""
        key = (self.key or "").strip()
        if len(key) < SHORTEST_KEY:
            return named_key(key).sub(rf"\1{KEY}", text[:end]) if key else text[:end]
        places = known_places if len(text) <= MAX_HEARD_CHARACTERS else places_of_key
        return without(text, places(key, text), KEY, end=end)

    def says_key(self, texts: Iterable[str]) -> bool:
        return any(self.without_key(text) != text for text in texts)


@lru_cache(maxsize=16)
def named_key(key: str) -> re.Pattern[str]:
    return re.compile(rf"(?i:{NAMED}){re.escape(key)}(?!\w)")


@lru_cache(maxsize=16)
def writings_of(key: str) -> tuple[Sequence[str], Sequence[str]]:
    """The key as it stands, in an address, in base64 and in hexadecimal digits; and all of them as they are read."""
    digits = key.encode().hex()
    coded = [key, quote(key, safe=""), digits, digits.upper(), *in_base64(key)]
    return list(dict.fromkeys(coded)), [one for one in dict.fromkeys(map(as_read, coded)) if len(one) >= SHORTEST_KEY]


def in_base64(key: str) -> Iterator[str]:
    """Of a text that holds the key, the letters that no other bytes have a part in: in both alphabets, and with the
    key's first byte at each place of the three that four letters stand for."""
    content = key.encode()
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + content)
        core = coded[-(-8 * before // 6) : 8 * (before + len(content)) // 6].decode()
        yield from (core, core.replace("+", "-").replace("/", "_"))


def places_of_key(key: str, text: str) -> list[Span]:
    as_it_stands, read = writings_of(key)
    found = [span for one in as_it_stands for span in repeats(text, [one], min(KEY_RUN, len(one)))]
    seen, places = as_read_with_places(text)
    hidden = (span for one in read for span in repeats(seen, [one], min(KEY_RUN, len(one))))
    return found + [(places[begin][0], places[end - 1][1]) for begin, end in hidden]


# The same words come with thousands of requests.
known_places = lru_cache(maxsize=1_024)(places_of_key)


def without_prompt(text: str, prompts: Iterable[str]) -> str:
    """``text`` without any run of 20 characters or more that stands in one of the prompts, in any writing."""
    if len(text) < PROMPT_RUN:
        return text
    if WORD.fullmatch(text):
        small = folded(text)
        return without(text, repeats(small, map(folded, prompts), PROMPT_RUN), PROMPT)
    prompts = [one for one in prompts if len(one) >= PROMPT_RUN]
    found = repeats(text, (" ".join(one.split()) for one in prompts), PROMPT_RUN)
    seen, places = as_read_with_places(text)
    hidden = repeats(seen, map(as_read, prompts), PROMPT_RUN)
    return without(text, [*found, *((places[begin][0], places[end - 1][1]) for begin, end in hidden)], PROMPT)


def repeated_in(texts: Iterable[str], prompts: Iterable[str]) -> list[str]:
    """Those of the prompts that one of the texts may repeat, found in one go through them."""
    pieces = {piece for one in texts for piece in pieces_of(as_read(one), PROMPT_RUN)}
    return [one for one in prompts if pieces and any(parts_near(as_read(one), pieces, PROMPT_RUN))]
