"""What is wrong with a brief's words, and on which line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml


@dataclass(frozen=True)
class Problem:
    field: str
    sentence: str
    line: int | None


def located(problems: Sequence[str], source: str) -> list[Problem]:
    """``problems`` as BadBrief has them, "dotted.field: sentence", each with the line that the field stands on."""
    root = composed(source)
    return [locate(problem, root) for problem in problems]


def composed(source: str) -> yaml.Node | None:
    try:
        return yaml.compose(source, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None


def locate(problem: str, root: yaml.Node | None) -> Problem:
    field, separator, sentence = problem.partition(": ")
    if not separator or " " in field:
        return Problem("", problem, None)
    return Problem(field, sentence, line_of(field.split("."), root))


def line_of(path: Sequence[str], node: yaml.Node | None) -> int | None:
    """The line of the deepest part of the path that exists: a missing field is missing from its parent."""
    line = None
    for step in path:
        found = child(node, step)
        if found is None:
            return line
        at, node = found
        line = at + 1
    return line


def child(node: yaml.Node | None, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        pairs = ((key.start_mark.line, value) for key, value in node.value if key.value == step)
        return next(pairs, None)
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        item = node.value[int(step)]
        return item.start_mark.line, item
    return None
