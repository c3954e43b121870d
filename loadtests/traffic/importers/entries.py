"""Drafts into entries: defaults given, limits checked, everything but the time and turn in canonical bytes."""

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loadtests.canonical import canonical
from loadtests.traffic.importers.blocks import Block
from loadtests.traffic.importers.drafts import Draft, numbered
from loadtests.traffic.importers.problems import BadField, Problem, Reason
from loadtests.traffic.importers.redaction import Redaction
from loadtests.traffic.rows import EVERY_CLASS, LONGEST_CLASS, NANOSECONDS, ClassOfRows, Row, Sampling

CHARACTERS_PER_TOKEN = 4
ESTIMATE = "estimated as characters ÷ 4"
COUNTED = "counted by the source"
DEFAULT_CLASS = "default"
LONGEST_NAME = 200
quoted = json.JSONEncoder(ensure_ascii=False).encode


class LengthRow(BaseModel):
    """A row of a trace without text: it has an arrival and lengths, and can't be sent."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    id: str = Field(min_length=1, max_length=LONGEST_NAME)
    conversation: str = Field(min_length=1, max_length=LONGEST_NAME)
    turn: int = Field(1, ge=1)
    arrival_s: float = Field(ge=0, allow_inf_nan=False)
    class_: ClassOfRows = Field(alias="class", min_length=1, max_length=LONGEST_CLASS)
    tenant: str = ""
    prompt_tokens: int = Field(ge=1)
    max_tokens: int = Field(ge=1)

    @property
    def content(self) -> bytes:
        return canonical(self.model_dump(mode="json", by_alias=True))


@dataclass(frozen=True)
class Rules:
    """What the engineer chose for rows that leave it open. ``max_tokens`` is the output limit of a row without one."""

    class_: str | None = None
    max_tokens: int = 1024
    max_context: int | None = None
    redaction: Redaction | None = None


class Entry(NamedTuple):
    """A row but for its time and turn, which are known when every row has been read. ``payload`` is its text and
    sampling settings, or its prompt length, as a canonical part of its line. ``own_conversation`` marks a row that
    belongs to no conversation of the source; a ``turn`` of None is numbered in order of arrival."""

    line: int
    time_ns: int | None
    zoned: bool | None
    id: str
    conversation: str
    own_conversation: bool
    turn: int | None
    class_: str | None
    tenant: str
    max_tokens: int
    limit_given: bool
    payload: bytes
    has_text: bool
    tokens: int
    estimated: bool


def entry_of(draft: Draft, rules: Rules) -> Entry:
    """Raises BadField where the draft can't be a row."""
    id_ = named(draft.id or numbered(draft.number), "id")
    conversation = named(draft.conversation or id_, "conversation")
    limit = rules.max_tokens if draft.max_tokens is None else draft.max_tokens
    class_ = draft.class_ or rules.class_
    if class_ is not None:
        class_named(class_)
    if draft.messages is None:
        payload, tokens, estimated = lengths_of(draft)
    else:
        payload = text_payload(draft, id_, conversation, class_, limit)
        estimated = draft.prompt_tokens is None
        tokens = draft.prompt_tokens or estimate(draft.messages)
    check_context(tokens, limit, rules.max_context, estimated=estimated)
    return Entry(
        line=draft.line,
        time_ns=draft.time_ns,
        zoned=draft.zoned,
        id=id_,
        conversation=conversation,
        own_conversation=draft.conversation is None,
        turn=draft.turn if draft.conversation is not None else draft.turn or 1,
        class_=class_,
        tenant=named(draft.tenant, "tenant", LONGEST_NAME, least=0),
        max_tokens=limit,
        limit_given=draft.max_tokens is not None,
        payload=payload,
        has_text=draft.messages is not None,
        tokens=tokens,
        estimated=estimated,
    )


def named(text: str, field: str, longest: int = LONGEST_NAME, least: int = 1) -> str:
    if not least <= len(text) <= longest:
        raise BadField(field, Reason.NOT_ALLOWED, f"{len(text)} characters, the limit is {longest}")
    if "\0" in text:
        # PostgreSQL keeps none, and a class stands in what is signed.
        raise BadField(field, Reason.NOT_ALLOWED, "the character NUL")
    if not text.isascii():
        check_unicode(text, field)
    return text


def class_named(text: str) -> str:
    if text == EVERY_CLASS:
        said = f"{EVERY_CLASS!r} stands for all classes together: map it to another name"
        raise BadField("class", Reason.NOT_ALLOWED, said)
    return named(text, "class", LONGEST_CLASS)


def check_unicode(text: str, field: str) -> None:
    """JSON can spell half a surrogate pair, which is no character and has no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadField(field, Reason.NOT_UTF8, "half of a surrogate pair") from None


def lengths_of(draft: Draft) -> tuple[bytes, int, bool]:
    if draft.prompt_tokens is None:
        raise BadField("messages", Reason.MISSING)
    if draft.max_tokens is None:
        raise BadField("max_tokens", Reason.MISSING)
    return b'"prompt_tokens":%d' % draft.prompt_tokens, draft.prompt_tokens, False


def text_payload(draft: Draft, id_: str, conversation: str, class_: str | None, limit: int) -> bytes:
    row = checked_row(
        {
            "id": id_,
            "conversation": conversation,
            "turn": draft.turn or 1,
            "arrival_s": 0,
            "class": class_ or DEFAULT_CLASS,
            "tenant": draft.tenant,
            "messages": draft.messages,
            "max_tokens": limit,
            "sampling": draft.sampling or {},
        }
    )
    if not any(message.content for message in row.messages):
        raise BadField("messages", Reason.EMPTY_PROMPT)
    try:
        return b'"messages":%b,"sampling":%b' % (said(row), settings(row.sampling))
    except UnicodeEncodeError:
        for at, message in enumerate(row.messages):
            check_unicode(message.content, f"messages.{at}.content")
        raise BadField("sampling", Reason.NOT_UTF8, "half of a surrogate pair") from None
    except ValueError as error:
        raise BadField("sampling", Reason.NOT_ALLOWED, str(error)) from None


def said(row: Row) -> bytes:
    """The messages in canonical bytes. For texts alone the standard library writes what RFC 8785 does, and fast."""
    messages = (f'{{"content":{quoted(one.content)},"role":"{one.role}"}}' for one in row.messages)
    return f"[{','.join(messages)}]".encode()


@lru_cache(maxsize=1024)
def settings(sampling: Sampling) -> bytes:
    return canonical(sampling.model_dump(mode="json"))


def checked_row(document: dict[str, Any]) -> Row:
    try:
        return Row.model_validate(document)
    except ValidationError as error:
        # Pydantic's own message may quote what it found, which may be a prompt.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "(whole line)"
        raise BadField(field, Reason.NOT_ALLOWED, first["msg"]) from None


def estimate(messages: list[dict[str, Any]]) -> int:
    characters = sum(len(message["content"]) for message in messages)
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


def check_context(tokens: int, limit: int, context: int | None, *, estimated: bool, prompt: str = "prompt") -> None:
    if context is not None and tokens + limit > context:
        raise BadField("prompt", Reason.BEYOND_CONTEXT, beyond(tokens, limit, context, estimated=estimated, of=prompt))


def beyond(tokens: int, limit: int, context: int, *, estimated: bool, of: str = "prompt") -> str:
    counted = f"{tokens} tokens of {of} ({ESTIMATE})" if estimated else f"{tokens} tokens of {of}"
    return f"{counted} and {limit} of output, the context is {context}"


def middle(entry: Entry) -> bytes:
    """The canonical line from after its time to before its turn. RFC 8785 sorts names, so the time comes first and
    the turn last, and both can wait."""
    head = (
        f',"class":{quoted(entry.class_ or DEFAULT_CLASS)},"conversation":{quoted(entry.conversation)}'
        f',"id":{quoted(entry.id)},"max_tokens":{entry.max_tokens},'
    )
    return head.encode() + entry.payload + f',"tenant":{quoted(entry.tenant)},"turn":'.encode()


class BlockEntries(NamedTuple):
    """The rows of a block that can be used, and what is wrong with the others."""

    lines: list[int]
    times_ns: list[int]
    tokens: list[int]
    max_tokens: list[int]
    zoned: bool
    class_: str
    middles: list[bytes]
    problems: list[Problem]


def block_entries(block: Block, rules: Rules) -> BlockEntries:
    """As ``entry_of`` and ``middle`` for every row of a block."""
    limit = rules.max_context
    fits = np.ones(len(block.prompts), dtype=bool) if limit is None else block.prompts + block.outputs <= limit
    kept = np.flatnonzero(fits)
    class_ = class_named(rules.class_ or DEFAULT_CLASS)
    shape = (
        b',"class":%b,"conversation":"r%%07d","id":"r%%07d","max_tokens":%%d,"prompt_tokens":%%d,"tenant":"","turn":'
    )
    row = shape % quoted(class_).encode().replace(b"%", b"%%")
    numbers, prompts, outputs = (
        (kept + block.number).tolist(),
        block.prompts[kept].tolist(),
        block.outputs[kept].tolist(),
    )
    return BlockEntries(
        lines=(kept + block.line).tolist(),
        times_ns=block.times_ns[kept].tolist(),
        tokens=prompts,
        max_tokens=outputs,
        zoned=block.zoned,
        class_=class_,
        middles=[row % (at, at, most, length) for at, most, length in zip(numbers, outputs, prompts, strict=True)],
        problems=[too_long_for(block, at, limit or 0) for at in np.flatnonzero(~fits).tolist()],
    )


def too_long_for(block: Block, at: int, limit: int) -> Problem:
    detail = beyond(int(block.prompts[at]), int(block.outputs[at]), limit, estimated=False)
    return Problem(block.line + at, "prompt", Reason.BEYOND_CONTEXT, detail)


def line_of_row(arrival_ns: int, middle_: bytes, turn: int) -> bytes:
    return b'{"arrival_s":%b%b%d}\n' % (seconds(arrival_ns), middle_, turn)


def seconds(nanoseconds: int) -> bytes:
    """Nanoseconds as RFC 8785 writes the seconds: the shortest decimal that gives the same double."""
    whole, rest = divmod(nanoseconds, NANOSECONDS)
    if rest == 0 and whole < 10**15:
        return b"%d" % whole
    value = nanoseconds / NANOSECONDS
    # From 10⁻⁴ to 10¹⁶ Python and RFC 8785 agree.
    return repr(value).removesuffix(".0").encode() if 1e-4 <= value < 1e15 else canonical(value)
