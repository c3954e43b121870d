"""A look at the first bytes of a file: its format, or what its columns may be. A proposal is never applied by itself:
whoever brings the file says whether the columns mean that. Nothing here quotes a value, since it may be a prompt."""

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from itertools import chain, islice
from typing import Any, Literal

import pyarrow

from loadtests.traffic.importers.detect import (
    LOOKED_AT,
    first_cells,
    is_list,
    is_message,
    json_format,
    objects,
    paths,
    shape_of,
    table_format,
)
from loadtests.traffic.importers.formats import Shape
from loadtests.traffic.importers.mapped import INSTANT as AT
from loadtests.traffic.importers.mapped import TEXTS
from loadtests.traffic.importers.other_files import check_no_result
from loadtests.traffic.importers.problems import Problem, Unreadable
from loadtests.traffic.importers.records import json_lines, json_list, table
from loadtests.traffic.importers.source import GZIP
from loadtests.traffic.importers.values import INSTANT, NUMBER
from loadtests.traffic.importers.zstd_blocks import ZSTD

LOOK_BYTES = 1 << 16
MOST_COLUMNS = 60
# How alike two names must be where none of those below is the very same.
ALIKE = 0.85
# A name as people give columns; anything longer or stranger may be a prompt and isn't shown.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/ ()\[\]-]{0,39}")
UNIT = re.compile(r"[_ .-]?(ms|us|ns|s|secs?|seconds)$", re.IGNORECASE)
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")

Kind = Literal["number", "date", "text", "messages", "dialogue", "other", "empty"]
TIME = "arrival"
KINDS: dict[str, tuple[Kind, ...]] = {
    TIME: ("number", "date"),
    "prompt": ("text",),
    "messages": ("messages",),
    "dialogue": ("dialogue", "messages"),
    "prompt_tokens": ("number",),
    "max_tokens": ("number",),
    "turn": ("number",),
    "class": ("text",),
    "conversation": ("text", "number"),
    "tenant": ("text", "number"),
    "id": ("text", "number"),
}
# Names that files have been seen with, lower case and without anything between their words.
NAMES: dict[str, tuple[str, ...]] = {
    TIME: (
        *("arrival", "arrivaltime", "arrivedat", "arrivalat", "time", "timestamp", "ts", "datetime", "starttime"),
        *("startedat", "requesttime", "createdat", "sentat", "receivedat", "offset"),
    ),
    "prompt": ("prompt", "question", "instruction", "query", "problem", "text", "input", "content", "request"),
    "messages": ("messages", "conversation", "conversations", "chat", "history"),
    "dialogue": ("dialogue", "dialog", "turns", "conversations", "conversation", "messages", "question"),
    "prompt_tokens": (
        *("prompttokens", "numprefilltokens", "prefilltokens", "inputtokens", "numprompttokens", "numinputtokens"),
        *("promptlength", "promptlen", "inputlength", "inputlen", "contexttokens", "requesttokens", "prefilllength"),
    ),
    "max_tokens": (
        *("maxtokens", "numdecodetokens", "decodetokens", "outputtokens", "numoutputtokens", "completiontokens"),
        *("outputlength", "outputlen", "generatedtokens", "responsetokens", "decodelength", "maxcompletiontokens"),
    ),
    "class": ("class", "category", "task", "tasktype", "logtype", "kind", "requesttype"),
    "conversation": ("conversationid", "conversation", "sessionid", "session", "chatid", "threadid", "dialogueid"),
    "turn": ("turn", "turnid", "turnindex", "turnnumber"),
    "tenant": ("tenant", "tenantid", "user", "userid", "customer", "customerid", "organisation", "organization"),
    "id": ("id", "requestid", "customid", "uuid", "questionid", "taskid", "rowid", "instanceid"),
}


@dataclass(frozen=True)
class Column:
    """``name`` is what a mapping says; ``shown`` is False for a name that is none, which is told by its number."""

    name: str
    kind: Kind
    field: str = ""
    shown: bool = True


@dataclass(frozen=True)
class Doubt:
    """Columns that could as well be the same field: none of them is proposed."""

    field: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Look:
    """``format`` is empty where none is known; ``trouble`` says why the bytes can't be read at all."""

    format: str = ""
    shape: Shape | Literal[""] = ""
    header: bool = True
    columns: tuple[Column, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    trouble: str = ""

    @property
    def unshown(self) -> int:
        return sum(not one.shown for one in self.columns)

    @property
    def proposed(self) -> tuple[tuple[str, str], ...]:
        return tuple((one.name, one.field) for one in self.columns if one.field)


def look(head: bytes) -> Look:
    """What the first bytes of a file say, compressed or not; the last record may be cut, as they are."""
    try:
        plain = unpacked(head)
        shape = shape_of(plain)
        known = json_format(plain) if shape == "json" else table_format(plain)
        if known:
            return Look(format=known, shape=shape)
        check_no_result(plain)
        if shape == "csv" and is_plain_text(plain):
            # One prompt a line: as TSV, in which a comma or a quote is a character like any other.
            shape = "tsv"
        header, values = json_values(plain) if shape == "json" else table_values(plain, shape)
    except Unreadable as error:
        return Look(trouble=str(error))
    kinds = {name: kind_of(found) for name, found in islice(values.items(), MOST_COLUMNS)}
    fields, doubts = proposed(kinds, values) if header else unnamed(kinds)
    columns = (Column(name, kind, fields.get(name, ""), is_name(name)) for name, kind in kinds.items())
    return Look("", shape, header, tuple(columns), doubts)


def unpacked(head: bytes) -> bytes:
    """The start of what a compressed file holds, as far as these bytes go."""
    if head[:2] == GZIP:
        try:
            return zlib.decompressobj(wbits=31).decompress(head, LOOK_BYTES)
        except zlib.error:
            raise Unreadable("this looks like gzip, but its start is damaged") from None
    if head[:4] == ZSTD:
        return b"".join(zstd_pieces(head))
    return head


def zstd_pieces(head: bytes) -> Iterator[bytes]:
    try:
        stream = pyarrow.CompressedInputStream(pyarrow.BufferReader(head), "zstd")
        for _ in range(LOOK_BYTES >> 12):
            if not (piece := stream.read(1 << 12)):
                return
            yield piece
    except (OSError, pyarrow.ArrowException):
        return


Values = Mapping[str, Sequence[Any]]


def json_values(head: bytes) -> tuple[bool, Values]:
    """Whether the records have names, and the values under each path; a bare value stands in the column "1"."""
    values: dict[str, list[Any]] = {}
    for record in objects(head):
        for path, value in paths(record):
            values.setdefault(path, []).append(value)
    if values:
        return True, values
    limit = len(head) + 1
    bare = (json_list if is_list(head) else json_lines)([head], limit=limit, named=False)
    found = [one.fields["1"] for one in islice(bare, LOOKED_AT) if not isinstance(one, Problem) and "1" in one.fields]
    if not found:
        raise Unreadable("no whole JSON record in its first 64 KiB")
    return False, {"1": found}


def table_values(head: bytes, shape: Shape) -> tuple[bool, Values]:
    first = first_cells(head, shape)
    header = is_header(first)
    rows = table([whole_lines(head)], limit=len(head) + 1, tabs=shape == "tsv", header=header)
    records = [one.fields for one in islice(rows, LOOKED_AT) if not isinstance(one, Problem)]
    names = first if header else [str(number) for number in range(1, len(first) + 1)]
    return header, {name: [record.get(name) for record in records] for name in names}


def is_plain_text(head: bytes) -> bool:
    """No names, and one cell a line, or a number of cells that no table has."""
    first = first_cells(head, "csv")
    if is_header(first):
        return False
    rows = table([whole_lines(head)], limit=len(head) + 1, tabs=False, header=False)
    return len(first) < 2 or any(isinstance(row, Problem) for row in islice(rows, LOOKED_AT))


def whole_lines(head: bytes) -> bytes:
    return head[: head.rfind(b"\n") + 1] or head


def is_header(cells: Sequence[str]) -> bool:
    """A line of names: no number, nothing twice, and words that are known or can only be a name."""
    if not cells or len(set(cells)) < len(cells) or not all(map(is_name, cells)):
        return False
    known = any(best_fields(cell, tuple(KINDS))[0] for cell in cells)
    return known or (len(cells) > 1 and all(map(IDENTIFIER.fullmatch, cells)))


def is_name(cell: str) -> bool:
    return NAME.fullmatch(cell) is not None or (cell.isascii() and cell.isdigit() and len(cell) < 4)


def kind_of(values: Sequence[Any]) -> Kind:
    kinds = {one_kind(value) for value in values if value is not None and value != ""}
    if not kinds:
        return "empty"
    if len(kinds) == 1:
        return next(iter(kinds))
    return "text" if all(isinstance(value, str) for value in values if value is not None) else "other"


def one_kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "other"
    if isinstance(value, str):
        return "number" if NUMBER.fullmatch(value) else "date" if INSTANT.fullmatch(value.strip()) else "text"
    if isinstance(value, list):
        return list_kind(value)
    return "other" if isinstance(value, dict) else "number"


def list_kind(values: list[Any]) -> Kind:
    if values and all(isinstance(one, dict) and is_message(one) for one in values):
        return "messages"
    if values and all(isinstance(one, str | list) for one in values):
        return "dialogue"
    return "other"


def proposed(kinds: Mapping[str, Kind], values: Values) -> tuple[dict[str, str], tuple[Doubt, ...]]:
    """The field of each column that has one by its name and its values, and the doubts."""
    wanted: dict[str, list[tuple[float, str]]] = {}
    for column, kind in kinds.items():
        alike, field = best_fields(column, [one for one in KINDS if kind in KINDS[one]])
        if field:
            wanted.setdefault(field, []).append((alike, column))
    winners = {field: best(candidates) for field, candidates in wanted.items()}
    doubts = tuple(Doubt(spoken(field), names) for field, names in winners.items() if len(names) > 1)
    fields = {names[0]: field for field, names in winners.items() if len(names) == 1}
    kept = with_one_text(fields)
    return {name: unit_of(name, values[name]) if field == TIME else field for name, field in kept.items()}, doubts


def best(candidates: list[tuple[float, str]]) -> tuple[str, ...]:
    highest = max(alike for alike, _ in candidates)
    return tuple(name for alike, name in candidates if alike == highest)


def with_one_text(fields: Mapping[str, str]) -> dict[str, str]:
    """A request's text comes from one field: recorded messages tell more than a prompt beside them."""
    texts = [field for field in ("messages", "dialogue", "prompt") if field in fields.values()]
    return {name: field for name, field in fields.items() if field not in TEXTS or field == texts[0]}


def spoken(field: str) -> str:
    return "the arrival time" if field == TIME else field


def best_fields(column: str, fields: Sequence[str]) -> tuple[float, str]:
    """How alike the column's name is to the most alike name of a field, 1 where they are the same, and the field."""
    last = column.rpartition(".")[2]
    names = {field: bare(UNIT.sub("", last) if field == TIME else last) for field in fields}
    scored = ((alike(names[field], known), field) for field in fields for known in NAMES[field])
    highest, field = max(chain(scored, [(0.0, "")]), key=lambda one: one[0])
    return (highest, field) if highest >= ALIKE else (0.0, "")


def bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def alike(one: str, other: str) -> float:
    if one == other:
        return 1.0
    # What is short is like anything.
    return SequenceMatcher(None, one, other).ratio() if min(len(one), len(other)) > 4 else 0.0


def unit_of(column: str, values: Sequence[Any]) -> str:
    """The unit that the name tells, else the one in which the first number is a time since 1970, else seconds."""
    name = bare(column)
    first = next((value for value in values if value not in (None, "")), 0)
    if one_kind(first) == "date":
        return AT
    unit = next((unit for unit in ("ms", "us", "ns") if name.endswith(unit)), "")
    return f"arrival_{unit or unit_since_1970(Decimal(first))}"


def unit_since_1970(number: Decimal) -> str:
    """By magnitude: 1.7e9 s, 1.7e12 ms, 1.7e15 µs or 1.7e18 ns are all in this century."""
    return next((unit for unit, least in (("ns", 1e17), ("us", 1e14), ("ms", 1e11)) if number >= least), "s")


def unnamed(kinds: Mapping[str, Kind]) -> tuple[dict[str, str], tuple[Doubt, ...]]:
    """Without names only this can be proposed: a file with one column of text has prompts in it."""
    texts = tuple(name for name, kind in kinds.items() if kind == "text")
    if len(texts) == 1:
        return {texts[0]: "prompt"}, ()
    return {}, (Doubt("prompt", texts),) if texts else ()
