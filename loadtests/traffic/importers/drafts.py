"""What a format reads from a record: a request before defaults, limits and checks."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from loadtests.traffic.importers.problems import BadField, Problem, Reason, what_it_is
from loadtests.traffic.importers.values import text_of

Messages = list[dict[str, Any]]

# ShareGPT names on the left as they occur in the wild.
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
ASKING = ("user", "tool")


class Draft(NamedTuple):
    """None stands for what the source doesn't say. A request has ``messages`` or, in a trace of lengths alone,
    ``prompt_tokens``; where it has both the count is used for the context check."""

    number: int
    line: int
    id: str | None = None
    conversation: str | None = None
    turn: int | None = None
    time_ns: int | None = None
    zoned: bool | None = None
    class_: str | None = None
    tenant: str = ""
    messages: Messages | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    sampling: dict[str, Any] | None = None


Drafted = Draft | Problem


def user(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def messages_of(value: object, field: str) -> Messages:
    if not isinstance(value, list) or not value:
        raise BadField(field, Reason.MISSING if value in (None, "", []) else Reason.NOT_ALLOWED, "a list of messages")
    return [message_of(one, f"{field}.{at}") for at, one in enumerate(value)]


def message_of(value: object, field: str) -> dict[str, Any]:
    """A message under OpenAI names (role, content) or ShareGPT names (from, value)."""
    if not isinstance(value, dict):
        raise BadField(field, Reason.NOT_ALLOWED, "a message is an object with a role and a text")
    role = value.get("role", value.get("from"))
    if not isinstance(role, str) or role.lower() not in ROLES:
        raise BadField(f"{field}.role", Reason.MISSING if role is None else Reason.NOT_ALLOWED, "the role")
    content = value["content"] if "content" in value else value.get("value")
    return {"role": ROLES[role.lower()], "content": content_of(content, field)}


def content_of(content: object, field: str) -> str:
    """A text, or OpenAI content parts that are all text; a picture has no place in a row."""
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        if parts and all(isinstance(part, str) for part in parts):
            return "".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise BadField(f"{field}.content", Reason.NOT_TEXT, what_it_is(content))
    return content


def turns_of(value: object, field: str) -> list[Messages]:
    """The turns of a recorded dialogue: each a text, or a list of messages. A flat list of messages is one turn."""
    if not isinstance(value, list) or not value:
        raise BadField(field, Reason.MISSING if value in (None, "", []) else Reason.NOT_ALLOWED, "a list of turns")
    if all(isinstance(one, dict) for one in value):
        return [messages_of(value, field)]
    return [user(one) if isinstance(one, str) else messages_of(one, f"{field}.{at}") for at, one in enumerate(value)]


def dialogue(base: Draft, value: object, field: str, *, name: str) -> Iterator[Drafted]:
    """One request for every answer that a dialogue waits for, with the recorded history before it.

    Where a turn follows one whose answer was not recorded, what would be sent is unknown: it is reported.
    """
    for turn, history in enumerate(requests_of(turns_of(value, field)), start=1):
        if isinstance(history, int):
            yield Problem(base.line, f"{field}.{history}", Reason.NO_ANSWER)
        else:
            yield base._replace(id=f"{name}.{turn}", conversation=name, turn=turn, messages=history)


def requests_of(turns: Iterable[Messages]) -> Iterator[Messages | int]:
    """Histories that end with a question; the number of a turn (from 0) that can't be known."""
    history: Messages = []
    for at, turn in enumerate(turns):
        if at and history[-1]["role"] in ASKING:
            yield at
            continue
        for message in turn:
            if message["role"] == "assistant" and history and history[-1]["role"] in ASKING:
                yield list(history)
            history.append(message)
        if history[-1]["role"] in ASKING:
            yield list(history)


def name_of(value: object, field: str, number: int) -> str:
    """The source's own name of a record, or its number."""
    return numbered(number) if value is None or value == "" else text_of(value, field)


def numbered(number: int) -> str:
    return f"r{number:07d}"


def number_of(name: str) -> int | None:
    """The record that ``numbered`` calls so, as far as a file can have one."""
    digits = name[1:]
    number = int(digits) if name[0] == "r" and digits.isascii() and digits.isdigit() and len(digits) < 16 else None
    return number if number is not None and numbered(number) == name else None
