"""Text that a regular expression or a small grammar allows: what either would let the tiny language model say."""

import json
import re
from typing import Any

from numpy.random import Generator

from loadtests.patterns import kinds, parsed

MOST_REPEATS = 4
MOST_DEPTH = 50
RULE = re.compile(r"\s*([\w-]+)\s*::=\s*(.*?)\s*")
PART = re.compile(r'"(?:\\.|[^"\\])*"|\[[^\]]+\]|[\w-]+|\|')


def pattern_text(pattern: str, draw: Generator) -> str:
    """A text that the whole pattern matches. Raises ValueError for what it doesn't know (anchors, look-arounds,
    references): it never ignores a rule."""
    try:
        return texts_of(parsed(pattern), draw)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None


def texts_of(pieces: Any, draw: Generator) -> str:
    return "".join(piece_of(kind, value, draw) for kind, value in pieces)


def piece_of(kind: Any, value: Any, draw: Generator) -> str:
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.ANY:
        return "x"
    if kind is kinds.IN:
        return one_of_class(value, draw)
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
        low, high, inside = value
        count = int(draw.integers(low, min(int(high), low + MOST_REPEATS) + 1))
        return "".join(texts_of(inside, draw) for _ in range(count))
    if kind is kinds.SUBPATTERN:
        return texts_of(value[-1], draw)
    if kind is kinds.BRANCH:
        branches = value[1]
        return texts_of(branches[int(draw.integers(len(branches)))], draw)
    raise ValueError(f"the simulator's grammar doesn't know the pattern's {str(kind).lower()}")


def one_of_class(parts: Any, draw: Generator) -> str:
    kind, value = parts[int(draw.integers(len(parts)))]
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.RANGE:
        return chr(int(draw.integers(value[0], value[1] + 1)))
    if kind is kinds.CATEGORY and value is kinds.CATEGORY_DIGIT:
        return str(int(draw.integers(10)))
    raise ValueError(f"the simulator's grammar doesn't know the pattern's {str(kind).lower()} in a class")


def grammar_text(grammar: str, draw: Generator) -> str:
    """A text of a grammar's ``root``, of which each rule is a line ``name ::= parts | parts``; a part is a quoted
    text, a class in brackets or a rule's name. Raises ValueError for anything else."""
    rules: dict[str, str] = {}
    for line in filter(str.strip, grammar.splitlines()):
        found = RULE.fullmatch(line)
        if found is None:
            raise ValueError(f"the simulator's grammar doesn't know the line {line.strip()!r}")
        rules[found[1]] = found[2]
    return rule_text("root", rules, draw, 0)


def rule_text(name: str, rules: dict[str, str], draw: Generator, depth: int) -> str:
    if name not in rules or depth > MOST_DEPTH:
        raise ValueError(f"the grammar has no rule {name}, or it never ends")
    if PART.sub("", rules[name]).strip():
        raise ValueError(f"the simulator's grammar doesn't know all of the rule {name}")
    branches: list[list[str]] = [[]]
    for part in PART.findall(rules[name]):
        if part == "|":
            branches.append([])
        else:
            branches[-1].append(part)
    chosen = branches[int(draw.integers(len(branches)))]
    return "".join(part_text(part, rules, draw, depth) for part in chosen)


def part_text(part: str, rules: dict[str, str], draw: Generator, depth: int) -> str:
    if part.startswith('"'):
        return str(json.loads(part))
    if part.startswith("["):
        return pattern_text(part, draw)
    return rule_text(part, rules, draw, depth + 1)
