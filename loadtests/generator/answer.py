"""What an answer said, event by event or all at once, and which status that makes. Pure."""

import codecs
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from unicodedata import category

from pydantic_core import from_json

from loadtests.canonical import canonical
from loadtests.evidence.records import Status
from loadtests.generator.sse import Event

# What a record keeps of an error, and what is kept of it until the prompt has been taken out.
MAX_ERROR_CHARACTERS = 300
MAX_HEARD_CHARACTERS = 1_000
# Of a finish reason, a fingerprint or a model's name: no server needs more, and each is kept with every request.
MAX_NAME_CHARACTERS = 300
MAX_INT32 = 2**31 - 1
# Found now: a codec is read from a file when it is first used, and a client that is out of files has none for it.
codecs.lookup("utf-16-le")
# They make what follows run from right to left, or end that.
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
# Finish reasons with which an engine says that it gave up on the request.
GAVE_UP = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    error: str | None = None


def brief_text(text: str) -> str:
    """One line that UTF-8 can hold, cut: a server may send pages, and halves of surrogate pairs."""
    return " ".join(joined(text).split())[:MAX_HEARD_CHARACTERS] or "no reason given"


def joined(text: str) -> str:
    """Surrogate pairs that two JSON chunks split between them become the one character; lone halves become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def printable(text: str) -> str:
    """U+FFFD for what would move a terminal's cursor, colour it or turn its writing round."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if category(one) == "Cc" or one in TURNING else one for one in text)


def name_of(value: object) -> str:
    """A name that a server gives, fit to be kept and printed; a longer one is cut, and says how long it was. Empty
    where it is no text."""
    text = text_of(value)
    if len(text) > MAX_NAME_CHARACTERS:
        text = f"{text[:MAX_NAME_CHARACTERS]}… ({len(text)} characters)"
    return printable(joined(text))


def outcome_of_code(code: object, reason: str) -> Outcome:
    """4xx (and a redirect, which we don't follow) is refused; everything else is the server's failure."""
    try:
        number = int(str(code))
    except ValueError:
        number = 0
    return Outcome("refused" if 300 <= number < 500 else "failed", brief_text(reason))


def error_outcome(document: Any, where: str) -> Outcome | None:
    """The outcome of an error document, in either form that servers use; None where it is no error."""
    if not isinstance(document, dict):
        return None
    error = document.get("error") if document.get("object") != "error" else document
    if error is None:
        return None
    if not isinstance(error, dict):
        return outcome_of_code(document.get("code"), f"{where}: {error}")
    code = error.get("code")
    return outcome_of_code(code, f"{where}, code {code}: {error.get('message')}")


def looks_wrong(document: dict[str, Any]) -> bool:
    return "error" in document or document.get("object") == "error"


def parse(text: str) -> Any:
    """The JSON value, or None where it is no JSON."""
    try:
        # Twice as fast as the standard library, which also reads halves of surrogate pairs.
        return from_json(text, cache_strings="keys")
    except ValueError:
        return parse_slowly(text)


def parse_slowly(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def entries(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def parts_of(content: object) -> str:
    """The text of a content that some servers send in parts."""
    return "".join(text_of(part.get("text")) for part in entries(content))


def count_of(value: object) -> int | None:
    """A count that the records can hold, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT32 else None


def milliseconds_of(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None


def counts_of(value: object) -> list[int] | None:
    counts = [count_of(one) for one in value] if isinstance(value, list) else [None]
    whole = [one for one in counts if one is not None]
    return whole if len(whole) == len(counts) else None


class Answer:
    """The state of one answer. ``take`` and ``take_whole`` never raise, whatever a server sends.

    An answer that came whole has no ``first_token_ns``: nobody saw when its first token was there.
    """

    def __init__(self) -> None:
        self.chunks = 0
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        self.finish_reason: str | None = None
        self.fingerprint: str | None = None
        self.usage: dict[str, Any] | None = None
        self.metrics: dict[str, Any] = {}
        # How many token ids came with the text; None where text came without them.
        self.token_ids: int | None = 0
        self.prompt_token_ids: int | None = None
        self.done = False
        self.outcome: Outcome | None = None
        self._usage_fell = False
        self._text: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}

    @property
    def settled(self) -> bool:
        """Nothing that may still come can change the status."""
        return self.done or self.outcome is not None

    def take(self, event: Event, now_ns: int) -> None:
        if self.settled:
            return
        if event.data == "[DONE]":
            self.done = True
            return
        document = parse(event.data)
        if not isinstance(document, dict) or event.name == "error" or looks_wrong(document):
            self.outcome = self._error_in(event, document)
        if self.outcome is None:
            self._take_chunk(document, now_ns)

    def take_data(self, data: bytes, now_ns: int) -> None:
        """An event of one line: most are a JSON object without an error, and heard without detours."""
        try:
            document = from_json(data, cache_strings="keys")
        except ValueError:
            document = None
        if isinstance(document, dict) and not (self.settled or looks_wrong(document)):
            self._take_chunk(document, now_ns)
        else:
            self.take(Event(data.decode("utf-8", "replace")), now_ns)

    def _take_chunk(self, chunk: dict[str, Any], now_ns: int) -> None:
        if self._take_pieces(chunk, "delta"):
            self.chunks += 1
            self.last_token_ns = now_ns
            if self.first_token_ns is None:
                self.first_token_ns = now_ns

    def take_whole(self, document: dict[str, Any], now_ns: int) -> None:
        """An answer that wasn't streamed."""
        self.done = True
        self.outcome = error_outcome(document, "error inside HTTP 200")
        if self.outcome is None and self._take_pieces(document, "message"):
            self.chunks, self.last_token_ns = 1, now_ns

    def _error_in(self, event: Event, document: Any) -> Outcome | None:
        if (outcome := error_outcome(document, "error inside HTTP 200")) is not None:
            return outcome
        if event.name == "error":
            return Outcome("failed", brief_text(f"an error event: {event.data}"))
        if not isinstance(document, dict):
            return Outcome("failed", brief_text(f"an event that is no JSON object: {event.data}"))
        return None

    def _take_pieces(self, document: dict[str, Any], place: str) -> bool:
        """Keep what the document says; says whether there was anything that a user could see."""
        visible = False
        choices = document.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and self._take_choice(choice, choice.get(place)):
                visible = True
        # Of the document's other fields most chunks have none.
        if "usage" in document:
            self._take_usage(document["usage"])
        if "metrics" in document:
            self.metrics = mapping(document["metrics"]) or self.metrics
        if "system_fingerprint" in document:
            self.fingerprint = name_of(document["system_fingerprint"]) or self.fingerprint
        if "prompt_token_ids" in document:
            self._count_prompt_ids(document)
        return visible

    def _take_choice(self, choice: dict[str, Any], message: object) -> bool:
        # A chat has a delta or a message, a completion has its text in the choice itself.
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        seen = False
        if text and (text := text if isinstance(text, str) else parts_of(text)):
            self._text.append(text)
            seen = True
        if isinstance(message, dict) and (len(message) > 1 or "content" not in message):
            seen |= self._take_other(message)
        if (reason := choice.get("finish_reason")) is not None:
            self.finish_reason = name_of(reason) or self.finish_reason
        if isinstance(ids := choice.get("token_ids"), list):
            self.token_ids = None if self.token_ids is None else self.token_ids + len(ids)
        elif seen:
            # Once text has come without its ids, their number is unknown.
            self.token_ids = None
        if "prompt_token_ids" in choice:
            self._count_prompt_ids(choice)
        return seen

    def _take_other(self, message: dict[str, Any]) -> bool:
        """What a message says beside its content."""
        seen = False
        if text := text_of(message.get("refusal")):
            self._text.append(text)
            seen = True
        for call in entries(message.get("tool_calls")):
            seen |= self._take_call(call)
        return seen

    def _take_call(self, call: dict[str, Any]) -> bool:
        function = mapping(call.get("function"))
        name, arguments = text_of(function.get("name")), text_of(function.get("arguments"))
        if not name and not arguments:
            return False
        kept = self._calls.setdefault(count_of(call.get("index")) or 0, {"name": "", "arguments": ""})
        kept["name"] += name
        kept["arguments"] += arguments
        return True

    def _count_prompt_ids(self, document: dict[str, Any]) -> None:
        if isinstance(ids := document["prompt_token_ids"], list):
            self.prompt_token_ids = len(ids)

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        before, self.usage = self.told_tokens, usage
        self._usage_fell |= before is not None and self.told_tokens is not None and self.told_tokens < before

    @property
    def told_tokens(self) -> int | None:
        return count_of((self.usage or {}).get("completion_tokens"))

    @property
    def output_tokens(self) -> int | None:
        """The tokens that were returned to us: by usage, or counted by their ids where usage didn't come; None where
        there was neither, for it is never guessed. Of an answer that was cut off the ids are newer than any usage."""
        counted = self.token_ids or None
        if self.finish_reason is None:
            return self.told_tokens if counted is None else counted
        return counted if self.told_tokens is None else self.told_tokens

    @property
    def prompt_tokens(self) -> int | None:
        return count_of((self.usage or {}).get("prompt_tokens"))

    @property
    def speculation(self) -> dict[str, Any]:
        return mapping(self.metrics.get("speculative_decoding"))

    @property
    def output_sha256(self) -> str | None:
        """SHA-256 of the text in UTF-8, followed by the canonical tool calls if there are any; None without either."""
        if not self._text and not self._calls:
            return None
        content = joined("".join(self._text)).encode()
        if self._calls:
            calls = [self._calls[index] for index in sorted(self._calls)]
            content += canonical([{key: joined(text) for key, text in call.items()} for call in calls])
        return sha256(content).hexdigest()

    def conclude(self) -> Outcome:
        """The status of a stream that has ended, one way or another, without a fault of the connection."""
        if self.outcome is not None:
            return self.outcome
        missing = list(self._missing())
        if missing:
            return Outcome("failed", f"the answer ended without {', '.join(missing)}")
        if self.finish_reason in GAVE_UP:
            return Outcome("failed", f"the engine gave the request up: finish reason {self.finish_reason}")
        return Outcome("completed")

    def _missing(self) -> Iterator[str]:
        if self.finish_reason is None:
            yield "a finish reason"
        if not self.done:
            yield "[DONE]"

    def contradictions(self) -> Iterator[str]:
        """Ways in which the answer's own numbers disagree, or are missing: findings on the trial."""
        usage = self.usage or {}
        for name in COUNTS:
            if usage.get(name) is not None and count_of(usage[name]) is None:
                yield f"usage: {name} is no whole number from 0"
        prompt, output, total = self.prompt_tokens, self.told_tokens, usage.get("total_tokens")
        if prompt is not None and output is not None and total is not None and total != prompt + output:
            yield "usage: prompt_tokens + completion_tokens is not total_tokens"
        if self._usage_fell:
            yield "usage: completion_tokens fell while the answer came"
        if output == 0 and self.chunks:
            yield "usage: no completion_tokens, but text came"
        if self.token_ids and output is not None and output != self.token_ids:
            yield "usage: completion_tokens is not the number of token ids that came"
        if self.prompt_token_ids is not None and prompt is not None and prompt != self.prompt_token_ids:
            yield "usage: prompt_tokens is not the number of the prompt's token ids"
        if self.done and self.finish_reason is not None and output is None:
            yield "usage: the answer told no completion_tokens"
