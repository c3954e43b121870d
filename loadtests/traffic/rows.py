"""A traffic row and the project's own timed real-text JSONL (one request a line)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from loadtests.canonical import canonical, digest

NANOSECONDS = 1_000_000_000
LONGEST_CLASS = 60
# In a brief, a verdict and on pages it stands for all classes together.
EVERY_CLASS = "all"


def not_every_class(name: str) -> str:
    if name == EVERY_CLASS:
        raise ValueError(f"a class can't be named {EVERY_CLASS!r}, which stands for all classes together")
    return name


ClassOfRows = Annotated[str, AfterValidator(not_every_class)]


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Sampling(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = None
    stop: tuple[str, ...] = ()


# As whole nanoseconds it must be a 64-bit number, as all times of records are.
MAX_ARRIVAL_S = 9e9


class Row(BaseModel):
    """One request of a traffic set. ``arrival_s`` counts from the start of the set."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    id: str = Field(min_length=1, max_length=200)
    conversation: str = Field(min_length=1, max_length=200)
    turn: int = Field(1, ge=1)
    arrival_s: float = Field(ge=0, le=MAX_ARRIVAL_S, allow_inf_nan=False)
    class_: ClassOfRows = Field(alias="class", min_length=1, max_length=LONGEST_CLASS)
    tenant: str = ""
    messages: tuple[Message, ...] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    sampling: Sampling = Sampling()

    @property
    def arrival_ns(self) -> int:
        return round(self.arrival_s * NANOSECONDS)

    @property
    def content(self) -> bytes:
        return canonical(self.model_dump(mode="json", by_alias=True))


@dataclass(frozen=True)
class BadRow(Exception):
    """A row that can't be used: where it stands, what is wrong, what was found."""

    file: str
    line: int
    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, field {self.field}: {self.reason}"


def parse_row(text: str, *, file: str, line: int) -> Row:
    """One JSONL line as a row; raises BadRow naming the file, line and field."""
    try:
        return Row.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise BadRow(file, line, "(whole line)", f"not JSON: {error.msg} at column {error.colno}") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "(whole line)"
        raise BadRow(file, line, field, first["msg"]) from None
    except (RecursionError, ValueError) as error:
        raise BadRow(file, line, "(whole line)", str(error)) from None


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a JSONL file, in file order; raises BadRow at the first that can't be used."""
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                reason = f"not UTF-8 at byte {error.start}"
                raise BadRow(path.name, number, "(whole line)", reason) from None
            if text:
                yield parse_row(text, file=path.name, line=number)


def part_content(rows: Iterable[Row]) -> bytes:
    """The bytes of a part: one canonical row a line. Its digest names the part."""
    return b"".join(row.content + b"\n" for row in rows)


def rows_of(content: bytes, *, name: str = "part") -> list[Row]:
    """The rows of a part's stored bytes (the inverse of ``part_content``)."""
    # Not splitlines: U+2028 and its like stand unescaped inside canonical JSON strings.
    lines = [line for line in content.decode("utf-8").split("\n") if line]
    return [parse_row(text, file=name, line=number) for number, text in enumerate(lines, start=1)]


def part_digest(rows: Iterable[Row]) -> str:
    return digest(part_content(rows))


def request_body(
    row: Row, model: str, *, api: str = "chat", stream: bool = True, token_ids: bool = False
) -> dict[str, Any]:
    """What is sent for a row: an OpenAI chat completion or completion, with usage where it is streamed.

    Raises ValueError for a completion of several messages: how a server would join them is unknown.
    """
    sampling = row.sampling.model_dump(mode="json")
    body: dict[str, Any] = {
        "model": model,
        **asked_of(row, api),
        "max_tokens": row.max_tokens,
        "temperature": sampling["temperature"],
        "top_p": sampling["top_p"],
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    if token_ids:
        body["return_token_ids"] = True
    if sampling["seed"] is not None:
        body["seed"] = sampling["seed"]
    if sampling["stop"]:
        body["stop"] = sampling["stop"]
    return body


def asked_of(row: Row, api: str) -> dict[str, Any]:
    if api == "chat":
        return {"messages": messages_of(row)}
    if len(row.messages) > 1 or row.messages[0].role != "user":
        raise ValueError(f"row {row.id} is a chat, and a completion takes one prompt: ask for it with the chat API")
    return {"prompt": row.messages[0].content}


def messages_of(row: Row) -> list[dict[str, str]]:
    return [message.model_dump() for message in row.messages]
