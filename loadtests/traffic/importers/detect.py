"""Which format a file is in, from its first bytes."""

import csv
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from loadtests.traffic.importers.formats import FORMATS, OWN, Shape
from loadtests.traffic.importers.lines import BOM, split_lines
from loadtests.traffic.importers.other_files import check_no_result, check_text
from loadtests.traffic.importers.problems import Problem, Unreadable, listed, name_shown
from loadtests.traffic.importers.records import check_width, json_lines, json_list

LOOKED_AT = 20
DEEPEST = 3
# How a refusal ends that tells to name the columns.
TO_MAP = re.compile(r"; (?:say with --map which|if every line is a prompt, give|a list of texts needs) .*", re.DOTALL)


def shape_of(head: bytes) -> Shape:
    """json (lines or a list), tsv or csv. ``head`` are the first bytes, at least one whole line where there is one."""
    check_text(head)
    start = head.removeprefix(BOM).lstrip()
    if not start:
        raise Unreadable("the file is empty")
    if start[:1] in b"[{":
        return "json"
    return "tsv" if b"\t" in start.split(b"\n", 1)[0] else "csv"


def is_list(head: bytes) -> bool:
    return head.removeprefix(BOM).lstrip()[:1] == b"["


def detect(head: bytes) -> str:
    """The name of the format, or Unreadable with what was found and what to do."""
    shape = shape_of(head)
    name = json_format(head) if shape == "json" else table_format(head)
    if name is None:
        check_no_result(head)
        raise Unreadable(f"no format that is known: {looks_like(head, shape)}")
    return name


def json_format(head: bytes) -> str | None:
    names = (format_of_object(one) for one in objects(head))
    return next((name for name in names if name), None)


def objects(head: bytes) -> Iterator[dict[str, Any]]:
    """The first records that can be read; the last one may be cut, as the head is."""
    limit = len(head) + 1
    records = json_list([head], limit=limit) if is_list(head) else json_lines([head], limit=limit)
    for record in islice(records, LOOKED_AT):
        if not isinstance(record, Problem):
            yield record.fields


def paths(record: Mapping[str, Any], before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """What a mapping can name in a record, and the value there."""
    for name, value in record.items():
        path = f"{before}{name}"
        if isinstance(value, dict) and depth < DEEPEST and not is_message(value):
            yield from paths(value, f"{path}.", depth + 1)
        else:
            yield path, value


def is_message(value: Mapping[str, Any]) -> bool:
    return {"role", "content"} <= set(value) or {"from", "value"} <= set(value)


def format_of_object(fields: dict[str, Any]) -> str | None:
    names = set(fields)
    if {"custom_id", "body"} <= names:
        return "openai-batch"
    if isinstance(fields.get("conversations"), list):
        return "sharegpt"
    if "turns" in names and isinstance(fields["turns"], list):
        return "spec-bench"
    if {"timestamp", "input_length", "output_length"} <= names:
        return "mooncake"
    if names <= OWN and (names - {"prompt"}) and names & {"messages", "prompt", "prompt_tokens"}:
        return "own"
    return "vllm-custom" if isinstance(fields.get("prompt"), str) else None


def table_format(head: bytes) -> str | None:
    names = set(first_cells(head, "csv"))
    return next((one.name for one in FORMATS.values() if one.shape == "csv" and set(one.needs) <= names), None)


def first_cells(head: bytes, shape: Shape) -> list[str]:
    lines = (line.content for line in split_lines([head], limit=len(head)))
    first = next((line for line in lines if line.strip()), b"").decode(errors="replace").rstrip("\r")
    try:
        cells = first.split("\t") if shape == "tsv" else next(csv.reader([first]), [])
    except csv.Error:
        return []
    check_width(cells)
    return [name.strip() for name in cells]


def looks_like(head: bytes, shape: Shape) -> str:
    if shape == "json":
        first = next(objects(head), None)
        if first is None:
            return "no JSON object with named fields at the start; a list of texts needs --no-header and --map 1=prompt"
        return f"its fields are {listed(list(first))}; say with --map which of them is what"
    cells = first_cells(head, shape)
    if len(cells) < 2:
        return "one column of text; if every line is a prompt, give --format tsv --no-header --map 1=prompt"
    # One that is no name may be a prompt, and then its neighbours may be the rest of it: none is quoted.
    quoted = listed(cells) if all(name_shown(cell) == cell for cell in cells) else "too long for names"
    return (
        f"its first line has {len(cells)} columns, {quoted}; say with --map which of them is what "
        "(by number, from 1, with --no-header if these are no names)"
    )
