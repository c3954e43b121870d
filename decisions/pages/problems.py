"""What is wrong with a brief's words, and on which line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import yaml

from decisions.rules.brief import LONGEST_SOURCE, Brief
from loadtests.strict_yaml import SLIPS

# As pydantic says it.
UNKNOWN = "Extra inputs are not permitted"
Children = dict[str, tuple[int, yaml.Node]]


@dataclass(frozen=True)
class Problem:
    """``rule``: that of the preflight which it breaks, where it breaks one."""

    field: str
    sentence: str
    line: int | None
    rule: str = ""


def located(problems: Sequence[str], source: str, rules: Mapping[str, str] | None = None) -> list[Problem]:
    """``problems`` as BadBrief has them, "dotted.field: sentence", each with the line that the field stands on;
    ``rules`` as its ``rules``."""
    lines, broken = Lines(source), rules or {}
    return [replace(locate(problem, lines), rule=broken.get(problem, "")) for problem in problems]


def composed(source: str) -> yaml.Node | None:
    if len(source) > LONGEST_SOURCE:
        return None
    try:
        return yaml.compose(source, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, *SLIPS):
        return None


def locate(problem: str, lines: Lines) -> Problem:
    field, separator, sentence = problem.partition(": ")
    if not separator or " " in field:
        return Problem("", problem, None)
    if sentence == UNKNOWN:
        sentence = unknown_field(field.split("."))
    return Problem(field, sentence, lines.of(field.split(".")))


def unknown_field(path: Sequence[str]) -> str:
    """Which names there are instead, the nearest first where one is near."""
    allowed = fields_at(path[:-1])
    near = difflib.get_close_matches(path[-1], allowed, n=1)
    if near:
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; there are: {', '.join(allowed)}" if allowed else "unknown field"


def fields_at(path: Sequence[str]) -> list[str]:
    """The names of the fields that a brief's schema allows at a path of field names and indices."""
    node = resolved(schema())
    for step in path:
        inside = node.get("properties", {}).get(step) or node.get("items") or node.get("additionalProperties")
        if not isinstance(inside, dict):
            return []
        node = resolved(inside)
    return list(node.get("properties", {}))


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """A node of the schema without the reference or the choice that it may be wrapped in."""
    for choice in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        if choice.get("type") != "null":
            return resolved(choice)
    if "$ref" in node:
        return resolved(schema()["$defs"][node["$ref"].rsplit("/", 1)[-1]])
    return node


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    return Brief.model_json_schema()


class Lines:
    """The lines of a source; each of its nodes is gone through once, however many problems ask."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.known: dict[int, Children] = {}

    @cached_property
    def root(self) -> yaml.Node | None:
        """Composed only when a field is asked for: to compose what is no YAML takes longest, and finds none."""
        return composed(self.source)

    def of(self, path: Sequence[str]) -> int | None:
        """The line of the deepest part of the path that exists: a missing field is missing from its parent."""
        line, node = None, self.root
        for step in path:
            found = self.children(node).get(step)
            if found is None:
                return line
            at, node = found
            line = at + 1
        return line

    def children(self, node: yaml.Node | None) -> Children:
        if id(node) not in self.known:
            self.known[id(node)] = children(node)
        return self.known[id(node)]


def children(node: yaml.Node | None) -> Children:
    """{key or index: (line from 0, value)} of a mapping or a sequence; the last of two equal keys is the one read."""
    if isinstance(node, yaml.MappingNode):
        scalars = ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode))
        return {key.value: (key.start_mark.line, value) for key, value in scalars}
    if isinstance(node, yaml.SequenceNode):
        return {str(index): (item.start_mark.line, item) for index, item in enumerate(node.value)}
    return {}
