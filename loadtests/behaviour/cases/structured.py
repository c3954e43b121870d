"""Answers that a grammar constrains: each draft that it forbids has to go, and each that is kept has to advance it."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from loadtests.behaviour.case import (
    DRAWN,
    WITH_CACHE,
    Ask,
    Case,
    Rule,
    Seen,
    always,
    broken,
    cannot_tell,
    held,
    shown,
)
from loadtests.behaviour.cases.asking import chat, together
from loadtests.behaviour.reply import Choice
from loadtests.behaviour.result import Finding
from loadtests.patterns import Linear

# Bounded throughout: a small model would otherwise never come to an end.
TRAINS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "line": {"enum": ["harbour", "mill", "old town"]},
        "late": {"type": "boolean"},
        "stops": {"type": "array", "items": {"enum": ["A", "B", "C", "D"]}, "minItems": 2, "maxItems": 4},
        "engine": {
            "type": "object",
            "properties": {
                "kind": {"enum": ["steam", "diesel"]},
                "cars": {"type": "integer", "minimum": 1, "maximum": 20},
            },
            "required": ["kind", "cars"],
            "additionalProperties": False,
        },
    },
    "required": ["line", "late", "stops", "engine"],
    "additionalProperties": False,
}
PLATE = r"(north|south)-[0-9]{4}-(red|green|blue)-[0-9]{4}"
COLOURS = ("violet and violet and indigo", "violet and violet and crimson", "violet and indigo and violet")
# A regular language, so that a pattern can check what the grammar allows.
SUM = 'root ::= "sum: " term " + " term " + " term\nterm ::= [1-9] [0-9] [0-9]'
SUM_PATTERN = r"sum: [1-9][0-9]{2} \+ [1-9][0-9]{2} \+ [1-9][0-9]{2}"
MOST = 120
Check = Callable[[str], str | None]


@lru_cache(maxsize=256)
def linear(pattern: str) -> Linear:
    return Linear(pattern)


def matching(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not linear(pattern).is_in(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


Validator = extend(Draft202012Validator, {"pattern": matching})


def schema_check(schema: Mapping[str, Any]) -> Check:
    """What is wrong with a text that should be JSON of this schema; None where nothing is."""
    # An empty registry: a reference to another host is never followed.
    validator = Validator(schema, registry=Registry())

    def check(text: str) -> str | None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"it is no JSON ({error})"
        try:
            problem = next(iter(validator.iter_errors(value)), None)
        except Unresolvable as error:
            return f"the schema refers to {error.ref}, which isn't in it"
        except RecursionError:
            return "the schema refers to itself without an end"
        except OverflowError:
            return "it holds a number that is too large to be checked"
        if problem is None:
            return None
        where = "/".join(str(one) for one in problem.absolute_path) or "the whole"
        return f"it doesn't follow the schema at {where}: {problem.message[:200]}"

    return check


def pattern_check(pattern: str) -> Check:
    wanted = Linear(pattern, dot_all=True)
    return lambda text: None if wanted.is_whole(text) else f"it doesn't match {pattern}"


def one_of_check(choices: tuple[str, ...]) -> Check:
    return lambda text: None if text in choices else "it is none of the choices"


def follows(check: Check, *, answers: int | None = None) -> Rule:
    """A rule: every choice of every answer passes, unless ``max_tokens`` cut it off before it was whole; and each
    request has so many ``answers``, where that is given."""

    def rule(seen: Seen) -> Finding:
        for label, reply in seen.items():
            if answers is not None and len(reply.choices) != answers:
                said = f"{label}: {len(reply.choices)} answers came, and n was {answers}"
                return broken(said, shown(label, reply.text))
        found = ((label, choice) for label, reply in seen.items() for choice in reply.choices)
        return together((judged(label, choice, check) for label, choice in found), "no answer came")

    return rule


def judged(label: str, choice: Choice, check: Check) -> Finding:
    problem = check(choice.text)
    if problem is None:
        return held("every answer follows it")
    if choice.finish_reason == "length":
        return cannot_tell("max_tokens cut the answer off before it was whole")
    at = len(choice.text)
    return broken(f"{label}: {problem}", shown(label, choice.text, choice=choice.index, at=at))


def constrained(name: str, value: Any, *prompts: str, **fields: Any) -> tuple[Ask, ...]:
    return tuple(
        chat(f"{name}-{index}", prompt, structured_outputs={name: value}, **({"max_tokens": MOST} | fields))
        for index, prompt in enumerate(prompts)
    )


def as_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "train", "schema": schema}}


# Drafts come out of these; the second has some that the schema forbids. On one line: a small model that may break lines
# goes on with it.
TRAIN = '{"line": "mill", "late": true, "stops": ["A", "B", "A"], "engine": {"kind": "steam", "cars": 4}}'
NO_TRAIN = '{"line": "north", "late": true, "stops": ["A", "E", "A", "B", "C", "D"], "engine": {"kind": "steam"}}'
ABOUT_TRAINS = (
    f"Describe a train as JSON, on one line, like this one: {TRAIN}",
    f"Describe the late train as JSON, on one line, like this one, which is wrong: {NO_TRAIN}",
)
SCHEMA_ASKS = (
    *(
        chat(f"greedy-{index}", text, response_format=as_schema(TRAINS), max_tokens=MOST)
        for index, text in enumerate(ABOUT_TRAINS)
    ),
    *(
        chat(f"warm-{index}", text, response_format=as_schema(TRAINS), max_tokens=MOST, temperature=1.0, seed=DRAWN)
        for index, text in enumerate(ABOUT_TRAINS)
    ),
)
ISSUES = (44993, 36138, 52620, 46118)


def any_object(text: str) -> str | None:
    return schema_check({"type": "object"})(text)


CASES = (
    Case(
        "json-schema",
        "An answer that has to follow a JSON schema follows it",
        "T2",
        (always(*SCHEMA_ASKS),),
        rule=follows(schema_check(TRAINS)),
        needs=("structured_output",),
        descends_from=ISSUES,
        manners=WITH_CACHE,
    ),
    Case(
        "json-object",
        "An answer that has to be a JSON object is one",
        "T2",
        (
            always(
                chat(
                    "object", 'Answer in JSON: {"a": 1, "b": 1}', response_format={"type": "json_object"}, max_tokens=64
                )
            ),
        ),
        rule=follows(any_object),
        needs=("structured_output",),
        descends_from=ISSUES,
    ),
    Case(
        "regex",
        "An answer that has to match a regular expression matches it",
        "T2",
        (always(*constrained("regex", PLATE, "Name a plate like north-1212-red-1212.", "Name another, like south.")),),
        rule=follows(pattern_check(PLATE)),
        needs=("structured_output",),
        descends_from=(44993, 46118),
    ),
    Case(
        "choice",
        "An answer that has to be one of several is one of them",
        "T2",
        (always(*constrained("choice", list(COLOURS), "Which colours?", "Which colours, and which again?")),),
        rule=follows(one_of_check(COLOURS)),
        needs=("structured_output",),
        descends_from=(44993,),
    ),
    Case(
        "grammar",
        "An answer that a grammar constrains is of its language",
        "T2",
        (always(*constrained("grammar", SUM, "Add three numbers, such as 100 + 100 + 100.", "Add others.")),),
        rule=follows(pattern_check(SUM_PATTERN)),
        needs=("structured_output",),
        descends_from=(46118, 36138),
    ),
    Case(
        "several-with-schema",
        "Each of several answers to one request follows the schema",
        "T2",
        (
            always(
                chat(
                    "three",
                    ABOUT_TRAINS[0],
                    response_format=as_schema(TRAINS),
                    max_tokens=MOST,
                    n=3,
                    temperature=1.0,
                    seed=DRAWN,
                )
            ),
        ),
        rule=follows(schema_check(TRAINS), answers=3),
        needs=("structured_output", "n"),
        descends_from=(11312,),
    ),
)
