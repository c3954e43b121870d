"""What is kept of rows when their text is deleted: names, times, lengths and hashes, never a word of a prompt."""

from collections.abc import Iterable, Iterator
from typing import Any

from loadtests.canonical import canonical, digest, digest_of
from loadtests.traffic.rows import Row, parse_row


def prompt_sha256(row: Row) -> str:
    """As every record of a request has it."""
    return digest_of([message.model_dump() for message in row.messages])


def outline_of(row: Row) -> dict[str, Any]:
    """``row_sha256`` is what plans name a row by."""
    return {
        "id": row.id,
        "conversation": row.conversation,
        "turn": row.turn,
        "arrival_s": row.arrival_s,
        "class": row.class_,
        "max_tokens": row.max_tokens,
        # Stop strings are text as well.
        "sampling": row.sampling.model_dump(mode="json", exclude={"stop"}),
        "prompt_characters": sum(len(message.content) for message in row.messages),
        "prompt_sha256": prompt_sha256(row),
        "row_sha256": digest(row.content),
    }


def outline_lines(lines: Iterable[bytes], *, name: str) -> Iterator[bytes]:
    """One canonical line for each of a part's; raises BadRow where one of them is no row."""
    for number, line in enumerate(lines, start=1):
        yield canonical(outline_of(parse_row(line.decode(), file=name, line=number))) + b"\n"
