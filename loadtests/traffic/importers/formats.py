"""The formats: how each one's records become drafts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from loadtests.traffic.importers.blocks import Block, Columns
from loadtests.traffic.importers.drafts import (
    Draft,
    Drafted,
    Messages,
    dialogue,
    messages_of,
    name_of,
    user,
)
from loadtests.traffic.importers.problems import BadField, Problem, Reason, Unreadable, listed, name_shown, what_it_is
from loadtests.traffic.importers.records import Found, Record
from loadtests.traffic.importers.values import (
    UNITS,
    count_of,
    filled,
    instant_ns,
    offset_ns,
    optional_output,
    optional_text,
    output_length,
    prompt_length,
)

Shape = Literal["json", "csv", "tsv"]
Parse = Callable[[Record], Iterable[Drafted]]


@dataclass(frozen=True)
class Format:
    """``reads`` are the fields it uses (the others are counted and named; in JSON a dot leads inside), ``needs`` the
    columns a table must have. Shape json is JSON Lines or one JSON list."""

    name: str
    shape: Shape
    parse: Parse
    reads: frozenset[str]
    needs: tuple[str, ...] = ()
    header: bool = True
    blocks: Columns | None = None

    def check(self, names: list[str]) -> None:
        lacking = [name for name in self.needs if name not in names]
        if lacking:
            raise Unreadable(f"no column {listed(lacking)}; {said_of(names)}")

    @cached_property
    def leads_to(self) -> frozenset[str]:
        """The fields in which others are read."""
        steps = [name.split(".") for name in self.reads] if self.shape == "json" else []
        return frozenset(".".join(parts[:at]) for parts in steps for at in range(1, len(parts)))

    def unread(self, record: Record) -> Iterator[str]:
        for name, value in record.fields.items():
            if name not in self.reads:
                yield from self._left_aside(name, value)

    def _left_aside(self, path: str, value: object) -> Iterator[str]:
        if path not in self.leads_to:
            yield path
        elif isinstance(value, dict):
            for name, one in value.items():
                if f"{path}.{name}" not in self.reads:
                    yield from self._left_aside(f"{path}.{name}", one)
        elif isinstance(value, list):
            yield from self._left_aside_in_list(path, value)

    def _left_aside_in_list(self, path: str, values: list[Any]) -> Iterator[str]:
        others = False
        for at, one in enumerate(values):
            if f"{path}.{at}" in self.leads_to:
                yield from self._left_aside(f"{path}.{at}", one)
            else:
                others |= f"{path}.{at}" not in self.reads
        if others:
            yield f"{path}.*"


def said_of(names: list[str]) -> str:
    """What the first line of a table looks like where a column isn't there."""
    if names[0].startswith(("{", "[")):
        return "its first line looks like JSON, not like the header of a table"
    # One that is no name may be a prompt, and then its neighbours may be the rest of it: none is quoted.
    if any(name_shown(name) != name for name in names):
        return f"its first line is no header: {len(names)} column{'s' * (len(names) > 1)}, too long for names"
    return f"the columns are {listed(names)}"


def drafts(
    format_: Format, records: Iterable[Found | Block], unread: Callable[[str, int], None]
) -> Iterator[Drafted | Block]:
    """What a format reads from records; ``unread`` is told of every field that the format leaves aside."""
    for record in records:
        if isinstance(record, Block):
            for name in set(record.names) - format_.reads:
                unread(name, len(record.prompts))
        if isinstance(record, Problem | Block):
            yield record
            continue
        for name in format_.unread(record):
            unread(name, 1)
        try:
            yield from format_.parse(record)
        except BadField as bad:
            yield bad.at(record.line)


# Our own JSONL.

OWN = frozenset(
    [
        "id",
        "conversation",
        "turn",
        "arrival_s",
        "class",
        "tenant",
        "messages",
        "prompt",
        "prompt_tokens",
        "max_tokens",
        "sampling",
    ]
)


def own(record: Record) -> Iterator[Draft]:
    fields = record.fields
    for name in fields:
        if name not in OWN:
            raise BadField(name, Reason.UNKNOWN_FIELD)
    arrival = fields.get("arrival_s")
    yield Draft(
        record.number,
        record.line,
        id=optional_text(fields, "id"),
        conversation=optional_text(fields, "conversation"),
        turn=turn_of(fields, "turn"),
        time_ns=None if arrival is None else offset_ns(arrival, UNITS["s"], "arrival_s"),
        class_=optional_text(fields, "class"),
        tenant=optional_text(fields, "tenant") or "",
        messages=own_messages(fields),
        prompt_tokens=prompt_length(fields, "prompt_tokens") if fields.get("prompt_tokens") is not None else None,
        max_tokens=optional_output(fields, "max_tokens"),
        sampling=sampling_object(fields.get("sampling"), "sampling"),
    )


def own_messages(fields: Mapping[str, Any]) -> Messages | None:
    if fields.get("messages") is not None:
        return messages_of(fields["messages"], "messages")
    if fields.get("prompt") is not None:
        return user(prompt_text(fields["prompt"], "prompt"))
    if fields.get("prompt_tokens") is not None:
        return None
    raise BadField("messages", Reason.MISSING, "nor is there a prompt or prompt_tokens")


def prompt_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise BadField(name, Reason.NOT_TEXT, what_it_is(value))
    if not value:
        raise BadField(name, Reason.EMPTY_PROMPT)
    return value


def turn_of(fields: Mapping[str, Any], name: str) -> int | None:
    if fields.get(name) in (None, ""):
        return None
    turn = count_of(fields[name], name)
    if turn == 0:
        raise BadField(name, Reason.NOT_ALLOWED, "turns count from 1")
    return turn


def sampling_object(value: object, name: str) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadField(name, Reason.NOT_ALLOWED, "sampling settings are an object")
    return {key: plain(one) for key, one in value.items()}


def plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


# OpenAI batch files.

BODY = frozenset(["messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop"])
# "stream" and "model" say how and whom to ask; a plan settles both.
BODY_SETTLED = frozenset({"model", "stream", "stream_options"})
GENERATING = ("/v1/chat/completions", "/v1/completions")


def openai_batch(record: Record) -> Iterator[Draft]:
    fields = record.fields
    url, body = fields.get("url", GENERATING[0]), fields.get("body")
    if url not in GENERATING:
        raise BadField("url", Reason.NOT_GENERATION)
    if not isinstance(body, dict):
        raise BadField("body", Reason.MISSING if body is None else Reason.NOT_ALLOWED)
    limit = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    with_path = {f"body.{name}": value for name, value in body.items()}
    yield Draft(
        record.number,
        record.line,
        id=optional_text(fields, "custom_id"),
        messages=batch_messages(body),
        max_tokens=optional_output(with_path, f"body.{limit}"),
        sampling=batch_sampling(body),
    )


def batch_messages(body: Mapping[str, Any]) -> Messages:
    if body.get("messages") is not None:
        return messages_of(body["messages"], "body.messages")
    return user(prompt_text(filled({"body.prompt": body.get("prompt")}, "body.prompt"), "body.prompt"))


def batch_sampling(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request that names no temperature gets 1 from an OpenAI server, not our 0."""
    stop = body.get("stop")
    settings = {name: plain(body[name]) for name in ("temperature", "top_p", "seed") if body.get(name) is not None}
    if stop is not None:
        settings["stop"] = [stop] if isinstance(stop, str) else stop
    return {"temperature": 1.0, **settings}


# Real text without times.


def vllm_custom(record: Record) -> Iterator[Draft]:
    yield Draft(
        record.number,
        record.line,
        messages=user(prompt_text(filled_text(record.fields, "prompt"), "prompt")),
        max_tokens=optional_output(record.fields, "output_tokens"),
    )


def filled_text(fields: Mapping[str, Any], name: str) -> Any:
    """Unlike an absent text, an empty one is there."""
    return fields[name] if fields.get(name) is not None else filled(fields, name)


def sharegpt(record: Record) -> Iterator[Drafted]:
    name = name_of(record.fields.get("id"), "id", record.number)
    base = Draft(record.number, record.line)
    return dialogue(base, record.fields.get("conversations"), "conversations", name=name)


def spec_bench(record: Record) -> Iterator[Drafted]:
    name = name_of(record.fields.get("question_id"), "question_id", record.number)
    base = Draft(record.number, record.line, class_=optional_text(record.fields, "category"))
    return dialogue(base, record.fields.get("turns"), "turns", name=name)


# Traces of lengths.


def azure(record: Record) -> Iterator[Draft]:
    fields = record.fields
    time_ns, zoned = instant_ns(filled(fields, "TIMESTAMP"), "TIMESTAMP")
    yield Draft(
        record.number,
        record.line,
        time_ns=time_ns,
        zoned=zoned,
        max_tokens=output_length(fields, "GeneratedTokens"),
        prompt_tokens=prompt_length(fields, "ContextTokens"),
    )


def mooncake(record: Record) -> Iterator[Draft]:
    fields = record.fields
    yield Draft(
        record.number,
        record.line,
        conversation=optional_text(fields, "session_id"),
        time_ns=offset_ns(filled(fields, "timestamp"), UNITS["ms"], "timestamp"),
        max_tokens=output_length(fields, "output_length"),
        prompt_tokens=prompt_length(fields, "input_length"),
    )


def burstgpt(record: Record) -> Iterator[Draft]:
    """Versions 1 and 2 by their column names: version 2 puts two columns before those of version 1."""
    fields = record.fields
    yield Draft(
        record.number,
        record.line,
        conversation=optional_text(fields, "Session ID"),
        time_ns=offset_ns(filled(fields, "Timestamp"), UNITS["s"], "Timestamp"),
        class_=optional_text(fields, "Log Type"),
        max_tokens=output_length(fields, "Response tokens"),
        prompt_tokens=prompt_length(fields, "Request tokens"),
    )


FORMATS = {
    one.name: one
    for one in (
        Format("own", "json", own, OWN),
        Format(
            "openai-batch",
            "json",
            openai_batch,
            frozenset({"custom_id", "method", "url"}) | {f"body.{name}" for name in BODY | BODY_SETTLED},
        ),
        Format("vllm-custom", "json", vllm_custom, frozenset({"prompt", "output_tokens"})),
        Format("sharegpt", "json", sharegpt, frozenset({"id", "conversations"})),
        Format("spec-bench", "json", spec_bench, frozenset({"question_id", "category", "turns"})),
        Format(
            "azure",
            "csv",
            azure,
            frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
            needs=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
            blocks=Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        ),
        Format("mooncake", "json", mooncake, frozenset({"timestamp", "input_length", "output_length", "session_id"})),
        Format(
            "burstgpt",
            "csv",
            burstgpt,
            frozenset({"Timestamp", "Session ID", "Log Type", "Request tokens", "Response tokens"}),
            needs=("Timestamp", "Request tokens", "Response tokens"),
        ),
    )
}
