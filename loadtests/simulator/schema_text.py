"""JSON text that a simple schema allows: what a grammar would let the tiny language model say."""

import json
from typing import Any

from numpy.random import Generator

from loadtests.simulator.language import WORDS

MOST_DEPTH = 8


def json_text(schema: dict[str, Any], draw: Generator) -> str:
    """Raises ValueError for what it doesn't know (references, patterns, conditions): it never ignores a rule."""
    return json.dumps(value_of(schema, draw, 0))


UNKNOWN = frozenset(
    {"$ref", "allOf", "not", "if", "pattern", "format", "patternProperties", "dependentRequired", "multipleOf"}
)


def value_of(schema: dict[str, Any], draw: Generator, depth: int) -> Any:
    if unknown := sorted(UNKNOWN & schema.keys()):
        raise ValueError(f"the simulator's grammar doesn't know {', '.join(unknown)}")
    if depth > MOST_DEPTH:
        raise ValueError(f"the schema is nested deeper than {MOST_DEPTH}")
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return pick(schema["enum"], draw)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return value_of(pick(schema[several], draw), draw, depth + 1)
    return typed_value(schema, draw, depth)


def typed_value(schema: dict[str, Any], draw: Generator, depth: int) -> Any:
    kind = schema.get("type", "object")
    kind = pick(kind, draw) if isinstance(kind, list) else kind
    if kind == "object":
        return {
            name: value_of(one, draw, depth + 1)
            for name, one in schema.get("properties", {}).items()
            if name in schema.get("required", ()) or draw.random() < 0.7
        }
    if kind == "array":
        low = int(schema.get("minItems", 0))
        count = number_between(low, int(schema.get("maxItems", max(low, 3))), draw)
        return [value_of(schema.get("items", {"type": "string"}), draw, depth + 1) for _ in range(count)]
    return simple_value(kind, schema, draw)


def simple_value(kind: str, schema: dict[str, Any], draw: Generator) -> Any:
    if kind == "string":
        return string_of(int(schema.get("minLength", 0)), int(schema.get("maxLength", 60)), draw)
    if kind in ("integer", "number"):
        low = int(schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1))
        return number_between(low, int(schema.get("maximum", schema.get("exclusiveMaximum", low + 101) - 1)), draw)
    if kind == "boolean":
        return bool(draw.random() < 0.5)
    if kind == "null":
        return None
    raise ValueError(f"the simulator's grammar doesn't know the type {kind!r}")


def string_of(least: int, most: int, draw: Generator) -> str:
    text = " ".join(pick(WORDS, draw) for _ in range(number_between(1, 4, draw)))
    while len(text) < least:
        text += f" {pick(WORDS, draw)}"
    return text[:most]


def number_between(low: int, high: int, draw: Generator) -> int:
    if low > high:
        raise ValueError(f"the schema allows no number between {low} and {high}")
    return int(draw.integers(low, high + 1))


def pick(values: Any, draw: Generator) -> Any:
    if not values:
        raise ValueError("the schema allows none of no values")
    return values[int(draw.integers(len(values)))]
