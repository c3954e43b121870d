"""A service's own cases: requests of its owner with what has to be true of their answers, from YAML or JSON. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, Self

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import AfterValidator, Field, ValidationError, model_validator
from yaml.composer import ComposerError

from loadtests.behaviour.case import EVERY_MANNER, Ask, Case, Rule, Seen, always, broken, held, shown
from loadtests.behaviour.cases.asking import together
from loadtests.behaviour.cases.structured import Check, follows, pattern_check, schema_check
from loadtests.behaviour.reply import Reply
from loadtests.behaviour.result import Finding
from loadtests.canonical import canonical, digest_of
from loadtests.patterns import Linear
from loadtests.strict_yaml import Loader
from loadtests.traffic.levels import Frozen

MAX_BYTES = 4 << 20
MOST_CASES = 500
# The suite says these itself.
OURS = ("model", "stream", "stream_options", "return_token_ids")
MannerId = Literal["serial", "serial-stream", "concurrent", "concurrent-stream", "cached", "cached-stream"]
# Of a JSON schema: keywords whose value is no schema, and those whose value has a schema for each name.
VALUES = ("const", "default", "dependentRequired", "enum", "examples")
BY_NAME = ("properties", "$defs", "definitions", "dependentSchemas")
Text = Annotated[str, Field(min_length=1, max_length=100_000)]


class BadCases(ValueError):
    """A document of cases can't be used; the message says where."""


def usable_pattern(pattern: str) -> str:
    try:
        Linear(pattern)
    except ValueError as error:
        raise ValueError(f"it is no regular expression of RE2, which has no look-around and no \\1: {error}") from None
    return pattern


def usable_schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"it is no JSON schema: {error.message[:200]}") from None
    for part in schemas_in(schema):
        if "patternProperties" in part:
            raise ValueError("patternProperties isn't checked here: name the fields, or give propertyNames a pattern")
        if isinstance(part.get("pattern"), str):
            usable_pattern(part["pattern"])
    return schema


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """It and those within it; what is only a value is none, and neither is a table of schemas by name."""
    inside = schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        yield schema
        inside = [one for name, one in schema.items() if name not in (*VALUES, *BY_NAME)]
        inside += [one for name in BY_NAME if isinstance(schema.get(name), dict) for one in schema[name].values()]
    for one in inside:
        yield from schemas_in(one)


JsonSchema = Annotated[dict[str, Any], AfterValidator(usable_schema)]


class ToolCall(Frozen):
    name: Text
    arguments: JsonSchema | None = None


class Expected(Frozen):
    """All that is given has to hold. ``stop``: strings that the text may not hold. ``golden``: the text itself."""

    json_schema: JsonSchema | None = None
    regex: Annotated[Text, AfterValidator(usable_pattern)] | None = None
    stop: tuple[Text, ...] = Field((), max_length=20)
    golden: Text | None = None
    tool_call: ToolCall | None = None

    @model_validator(mode="after")
    def something(self) -> Self:
        if not self.model_dump(exclude_defaults=True):
            raise ValueError("nothing is expected: give json_schema, regex, stop, golden or tool_call")
        return self


class OwnCase(Frozen):
    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=80, description="kebab-case")
    title: str = Field(min_length=1, max_length=200)
    request: dict[str, Any]
    expect: Expected
    manners: tuple[MannerId, ...] = Field(("serial", "concurrent-stream"), min_length=1)

    @model_validator(mode="after")
    def usable_request(self) -> Self:
        if ("messages" in self.request) == ("prompt" in self.request):
            raise ValueError("request: give either messages or a prompt")
        if ours := [name for name in OURS if name in self.request]:
            raise ValueError(f"request: {ours[0]} is set by the suite: leave it out")
        if "messages" in self.request:
            check_messages(self.request["messages"])
        elif not isinstance(self.request["prompt"], str):
            raise ValueError("request: prompt is no text")
        return self

    @property
    def case(self) -> Case:
        kind: Literal["chat", "text"] = "chat" if "messages" in self.request else "text"
        manners = tuple(one for one in EVERY_MANNER if one.id in self.manners)
        return Case(
            self.id,
            self.title,
            "T2",
            (always(Ask("asked", self.request, kind)),),
            rule=rule_of(self.expect),
            manners=manners,
            thorough=manners,
            source="owner",
            document=self.model_dump(mode="json"),
        )


def check_messages(messages: object) -> None:
    if not isinstance(messages, list) or not messages:
        raise ValueError("request: messages is no list, or an empty one")
    for place, one in enumerate(messages):
        if not isinstance(one, dict) or not isinstance(one.get("role"), str):
            raise ValueError(f"request: messages.{place} has no role")


class OwnCases(Frozen):
    schema_version: Literal["draftproof.behaviour-cases/1"] = Field(alias="schema")
    cases: tuple[OwnCase, ...] = Field(min_length=1, max_length=MOST_CASES)

    @property
    def digest(self) -> str:
        return digest_of(self.model_dump(mode="json", by_alias=True))


def rule_of(expected: Expected) -> Rule:
    rules = list(rules_of(expected))

    def rule(seen: Seen) -> Finding:
        found = [one(seen) for one in rules]
        # All have to hold: what is worst counts.
        states = ("broken", "cannot_tell", "not_exercised", "held")
        return min(found, key=lambda one: states.index(one.state))

    return rule


def rules_of(expected: Expected) -> Iterator[Rule]:
    if expected.json_schema is not None:
        yield follows(schema_check(expected.json_schema))
    if expected.regex is not None:
        yield follows(pattern_check(expected.regex))
    if expected.stop:
        yield follows_always(lambda text: holds_none(text, expected.stop))
    if expected.golden is not None:
        yield golden_rule(expected.golden)
    if expected.tool_call is not None:
        yield call_rule(expected.tool_call)


def holds_none(text: str, stops: Sequence[str]) -> str | None:
    found = next((one for one in stops if one in text), None)
    return None if found is None else f"it holds the stop string {found!r}"


def each(judged: Callable[[str, Reply], Finding]) -> Rule:
    return lambda seen: together((judged(label, reply) for label, reply in seen.items()), "no answer came")


def follows_always(check: Check) -> Rule:
    def judged(label: str, reply: Reply) -> Finding:
        problem = check(reply.text)
        return held("every answer follows it") if problem is None else broken(problem, shown(label, reply.text))

    return each(judged)


def golden_rule(golden: str) -> Rule:
    def judged(label: str, reply: Reply) -> Finding:
        if reply.text == golden:
            return held("the text is the golden one")
        return broken("the text is not the golden one", shown(label, reply.text, expected=golden))

    return each(judged)


def call_rule(wanted: ToolCall) -> Rule:
    check = None if wanted.arguments is None else schema_check(wanted.arguments)

    def judged(label: str, reply: Reply) -> Finding:
        calls = [one for one in reply.choice.calls if one.name == wanted.name]
        if not calls:
            names = ", ".join(one.name for one in reply.choice.calls) or "none"
            return broken(f"{wanted.name} was not called (calls: {names})", shown(label, reply.text))
        problems = [problem for one in calls if check is not None and (problem := check(one.arguments)) is not None]
        if problems:
            return broken(f"the arguments: {problems[0]}", shown(label, calls[0].arguments))
        return held("the tool was called as expected")

    return each(judged)


class WithoutAliases(Loader):
    """What stands for something else may stand for more than fits into memory."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            said = "it uses a YAML alias (*name), so write out what it stands for"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # of PyYAML, whose stubs lack it
            raise ComposerError(None, None, said, mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def read_own_cases(content: bytes, name: str) -> OwnCases:
    """From YAML, of which JSON is a part. Raises BadCases, naming file, line and field."""
    if len(content) > MAX_BYTES:
        raise BadCases(f"{name} is longer than {MAX_BYTES} bytes: split it into several documents")
    try:
        reading = WithoutAliases(content.decode())
        node = reading.get_single_node()
        if node is None:
            raise BadCases(f"{name} is empty: give schema and cases")
        check_nodes(node, name)
        document = reading.construct_document(node)
        canonical(document)
    except UnicodeDecodeError as error:
        raise BadCases(f"{name}, byte {error.start}: it is not in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise BadCases(f"{name}{where}: it can't be read as YAML or JSON: {getattr(error, 'problem', error)}") from None
    except RecursionError:
        raise BadCases(f"{name} is nested too deeply") from None
    except BadCases:
        raise
    except ValueError as error:
        raise BadCases(f"{name}: it holds a value that JSON has no word for ({error})") from None
    return validated(document, node, name)


def validated(document: Any, node: yaml.Node, name: str) -> OwnCases:
    try:
        cases = OwnCases.model_validate(document)
    except ValidationError as error:
        one = error.errors()[0]
        field = ".".join(str(part) for part in one["loc"]) or "the document"
        said = str(one["msg"]).removeprefix("Value error, ")
        raise BadCases(f"{name}, line {line_of(node, one['loc'])}, {field}: {said}") from None
    ids = [one.id for one in cases.cases]
    twice = next((place for place, one in enumerate(ids) if one in ids[:place]), None)
    if twice is not None:
        line = line_of(node, ("cases", twice, "id"))
        raise BadCases(
            f"{name}, line {line}, cases.{twice}.id: {ids[twice]} is there twice: give each an id of its own"
        )
    return cases


PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq"))


def check_nodes(node: yaml.Node, name: str) -> None:
    """Nothing that JSON has no word for."""
    line = node.start_mark.line + 1
    if node.tag not in PLAIN:
        kind = node.tag.rpartition(":")[2]
        raise BadCases(f"{name}, line {line}: {node.value!r} is read as a {kind}: put it in quotes")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise BadCases(f"{name}, line {key.start_mark.line + 1}: the key {key.value!r} is no text: quote it")
            check_nodes(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            check_nodes(value, name)


def line_of(node: yaml.Node, path: Sequence[Any]) -> int:
    """The line in which a field stands; of one that is missing, that of what it should be in."""
    for part in path:
        inside: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            inside = next((value for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            inside = node.value[part]
        if inside is None:
            break
        node = inside
    return node.start_mark.line + 1
