"""A trial's plan, read back as columns: a JSON list for each of a million requests would take most of a verdict's
time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.traffic.planned import SCHEMA, SECOND_SCHEMA

Integers = npt.NDArray[np.int64]
FIRST, LAST, BETWEEN = b'"requests":[[', b"]]", b"],["
DIGITS = b"0123456789"
NOBODY, MISSING = b"null", -1
SHA256_DIGITS = 64
# No time or row has more, so none is beyond 64 bits.
MOST_DIGITS = 18
# Numbers after a row's SHA-256: in the second schema the moment of giving up follows the planned time.
TIMES = {SCHEMA: 1, SECOND_SCHEMA: 2}
REQUEST = "a request isn't its id, row, SHA-256 and planned time, in the second schema with when its user gives up"


class BadPlan(ValueError):
    """Bytes that are no plan of a trial."""


@dataclass(frozen=True, eq=False)
class Plan:
    """``document`` is all but the requests, whose columns are shape (planned,) each; ``give_up_ns`` is −1 for those who
    never do, and ``row_keys`` are the first 64 bits of the SHA-256 of each row's bytes."""

    document: Mapping[str, Any]
    request_ids: pa.StringArray
    rows: Integers
    row_keys: npt.NDArray[np.uint64]
    planned_ns: Integers
    give_up_ns: Integers

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def repeated_id(self) -> str | None:
        counts = pc.value_counts(self.request_ids)
        twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        return str(twice[0]) if len(twice) else None

    @cached_property
    def repeated_row(self) -> int | None:
        ordered = np.sort(self.rows)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        return int(twice[0]) if len(twice) else None


def read_plan(content: bytes) -> Plan:
    """From the canonical bytes that ``plan_content`` gives, and no others. Raises BadPlan."""
    start, end = content.find(FIRST), content.rfind(LAST)
    if not 0 <= start < end:
        raise BadPlan("it lists no requests")
    start += len(FIRST)
    document = document_of(content[:start] + content[end:])
    body = content[start:end]
    # Ids are names that we give ourselves: nothing is escaped in them.
    pieces = body.split(b'"')
    if b"\\" in body or pieces[0] or len(pieces) % 4 != 1 or len(pieces) < 5:
        raise BadPlan(REQUEST)
    rows, times = pieces[2::4], b"".join(pieces[4::4]) + BETWEEN
    found = numbers_in(times.replace(NOBODY, b"%d" % MISSING), BETWEEN, len(rows), TIMES[document["schema"]])
    return Plan(
        document=document,
        request_ids=texts_in(pieces[1::4]),
        rows=numbers_in(b"".join(rows), b",", len(rows), 1)[:, 0],
        row_keys=keys_in(pieces[3::4]),
        planned_ns=found[:, 0],
        give_up_ns=found[:, 1] if found.shape[1] > 1 else np.full(len(found), MISSING, dtype=np.int64),
    )


def document_of(content: bytes) -> dict[str, Any]:
    """Of a plan without its requests."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.pop("requests", None) != [[]]:
        raise BadPlan("it is no canonical JSON of a plan")
    if document.get("schema") not in TIMES:
        raise BadPlan(f"its schema is {document.get('schema')!r}; this program reads {' and '.join(TIMES)}")
    return document


def numbers_in(text: bytes, ending: bytes, count: int, each: int) -> Integers:
    """Shape (count, each): after each comma a number, after the last of each request the ``ending``."""
    if text.translate(None, b"-" + DIGITS) != (b"," * each + ending) * count:
        raise BadPlan(REQUEST)
    alone = text.replace(ending + b",", b",").removeprefix(b",").removesuffix(ending)
    try:
        found = np.fromstring(alone, dtype=np.int64, sep=",")
    except ValueError:
        raise BadPlan("a row or time is no whole number") from None
    if len(found) != count * each or found.min() < MISSING or found.max() >= 10**MOST_DIGITS:
        raise BadPlan("a row or time is no whole number, or is missing")
    return found.reshape(count, each)


def texts_in(pieces: Sequence[bytes]) -> pa.StringArray:
    try:
        return pa.array(pieces, pa.string())
    except pa.ArrowInvalid:
        raise BadPlan("a request's id is no UTF-8") from None


def keys_in(pieces: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    joined = b"".join(pieces)
    if set(map(len, pieces)) != {SHA256_DIGITS} or joined.translate(None, DIGITS + b"abcdef"):
        raise BadPlan("a row's SHA-256 doesn't have 64 hexadecimal digits")
    whole = np.frombuffer(bytes.fromhex(joined.decode()), dtype=">u8")
    return whole[:: SHA256_DIGITS // 16].astype(np.uint64)
