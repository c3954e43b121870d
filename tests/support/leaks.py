"""Looks for texts in whatever a program gave out, however it was written down on the way."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from urllib.parse import unquote_plus

import pyarrow.parquet as pq

# Characters of a piece that must be found in a row: fewer would be found by chance.
HEAD = 24
SENTENCE = 40
ESCAPES = re.compile(r"\\u[0-9a-f]{4}|\\[nrt]")
OTHERS = re.compile(r"[^a-z0-9]+")


def squeezed(text: str) -> str:
    """Letters and digits alone, so that quotes, blanks and line breaks are the same in HTML, JSON and a log."""
    return OTHERS.sub("", ESCAPES.sub("", text.lower()))


def pieces_of(text: str) -> Iterator[str]:
    """The text itself, and what of it is as long as a sentence."""
    yield text
    yield from (piece for piece in re.split(r"[\n.!?:;]+", text) if len(piece) >= SENTENCE)


class Secrets:
    """Pieces of ``texts`` that stand in none of the ``known`` ones."""

    def __init__(self, texts: Iterable[str], known: Iterable[str]) -> None:
        public = "\n".join(map(squeezed, known))
        pieces = {squeezed(piece) for text in texts for piece in pieces_of(text)}
        self.pieces = sorted(piece for piece in pieces if len(piece) >= HEAD and piece not in public)
        self._by_head: dict[str, list[str]] = {}
        for piece in self.pieces:
            self._by_head.setdefault(piece[:HEAD], []).append(piece)

    def in_text(self, text: str) -> list[str]:
        found: set[str] = set()
        for form in {text, html.unescape(text), unquote_plus(text)}:
            found |= set(self._in_squeezed(squeezed(form)))
        return sorted(found)

    def _in_squeezed(self, text: str) -> Iterator[str]:
        for at in range(len(text) - HEAD + 1):
            for piece in self._by_head.get(text[at : at + HEAD], ()):
                if text.startswith(piece, at):
                    yield piece

    def in_bytes(self, content: bytes) -> list[str]:
        if content.startswith(b"PAR1"):
            table = pq.read_table(BytesIO(content))
            columns = "\n".join(str(value) for column in table.columns for value in column.to_pylist() if value)
            content += f"{columns}\n{table.schema.metadata}".encode()
        return self.in_text(content.decode("utf-8", "replace"))
