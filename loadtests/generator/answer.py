"""What an answer said, event by event or all at once, and which status that makes. Pure."""

import codecs
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pydantic_core import from_json

from loadtests.canonical import canonical
from loadtests.evidence.records import Status
from loadtests.generator.said import MAX_HEARD_CHARACTERS, brief_text, joined
from loadtests.generator.sse import Event

MAX_INT32 = 2**31 - 1
# Found now: a codec is read from a file when it is first used, and a client that is out of files has none for it.
codecs.lookup("utf-16-le")
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
# No model says so much; a server that never ends must not fill the memory.
MAX_TEXT_CHARACTERS = 16 << 20
# Finish reasons with which an engine says that it gave up on the request.
GAVE_UP = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    error: str | None = None


def name_of(value: object) -> str:
    """A name that a server gives, as it came; empty where it is no text. What is longer than anything is heard is told
    by its length, for cut it could show a part of a secret."""
    text = text_of(value)
    return text if len(text) <= MAX_HEARD_CHARACTERS else f"a text of {len(text)} characters"


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
        self._more_choices = False
        self._text: list[str] = []
        self._calls: dict[int, dict[str, list[str]]] = {}
        self._room = MAX_TEXT_CHARACTERS

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
        if count_of(choice.get("index")):
            # One is asked for: what another says is no part of its answer, and ends it no more than it begins it.
            self._more_choices = True
            return False
        # A chat has a delta or a message, a completion has its text in the choice itself.
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        seen = False
        if text and (text := text if isinstance(text, str) else parts_of(text)):
            self._keep(self._text, text)
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
            self._keep(self._text, text)
            seen = True
        for call in entries(message.get("tool_calls")):
            seen |= self._take_call(call)
        return seen

    def _take_call(self, call: dict[str, Any]) -> bool:
        function = mapping(call.get("function"))
        name, arguments = text_of(function.get("name")), text_of(function.get("arguments"))
        if not name and not arguments:
            return False
        kept = self._calls.setdefault(count_of(call.get("index")) or 0, {"name": [], "arguments": []})
        self._keep(kept["name"], name)
        self._keep(kept["arguments"], arguments)
        return True

    def _keep(self, pieces: list[str], text: str) -> None:
        pieces.append(text)
        self._room -= len(text)
        if self._room < 0:
            self.outcome = Outcome("failed", f"the answer is longer than {MAX_TEXT_CHARACTERS} characters")

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
            content += canonical([{key: joined("".join(pieces)) for key, pieces in call.items()} for call in calls])
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
        if self._more_choices:
            yield "the answer had more choices than the one that was asked for: only the first counts"
        for name in COUNTS:
            if usage.get(name) is not None and count_of(usage[name]) is None:
                yield f"usage: {name} is no whole number from 0 to {MAX_INT32}"
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
        if self.done and self.finish_reason is not None and usage.get("completion_tokens") is None:
            yield "usage: the answer told no completion_tokens"
