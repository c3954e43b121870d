"""What a streamed answer said, event by event, and which status that makes. Pure."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from loadtests.canonical import canonical
from loadtests.evidence.records import Status
from loadtests.generator.sse import Event

MAX_ERROR_CHARACTERS = 300
MAX_INT32 = 2**31 - 1
# Finish reasons with which an engine says that it gave up on the request.
GAVE_UP = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    error: str | None = None


def brief_text(text: str) -> str:
    """One line that UTF-8 can hold, cut: a server may send pages, and halves of surrogate pairs."""
    return " ".join(joined(text).split())[:MAX_ERROR_CHARACTERS] or "no reason given"


def joined(text: str) -> str:
    """Surrogate pairs that two JSON chunks split between them become the one character; lone halves become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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


def parse(text: str) -> Any:
    """The JSON value, or None where it is no JSON."""
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
    """The state of one streamed chat completion. ``take`` never raises, whatever a server sends."""

    def __init__(self) -> None:
        self.chunks = 0
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        self.finish_reason: str | None = None
        self.fingerprint: str | None = None
        self.usage: dict[str, Any] | None = None
        self.metrics: dict[str, Any] = {}
        self.done = False
        self.outcome: Outcome | None = None
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
        self.outcome = error_outcome(document, "error inside HTTP 200")
        if self.outcome is None and (event.name == "error" or not isinstance(document, dict)):
            kind = "an error event" if event.name == "error" else "an event that is no JSON object"
            self.outcome = Outcome("failed", brief_text(f"{kind}: {event.data}"))
        if self.outcome is None:
            self._take_chunk(document, now_ns)

    def _take_chunk(self, chunk: dict[str, Any], now_ns: int) -> None:
        visible = False
        for choice in entries(chunk.get("choices")):
            visible |= self._take_delta(mapping(choice.get("delta")))
            self.finish_reason = text_of(choice.get("finish_reason")) or self.finish_reason
        if visible:
            self.chunks += 1
            self.last_token_ns = now_ns
            if self.first_token_ns is None:
                self.first_token_ns = now_ns
        self.fingerprint = text_of(chunk.get("system_fingerprint")) or self.fingerprint
        if isinstance(usage := chunk.get("usage"), dict):
            self.usage = usage
        if isinstance(metrics := chunk.get("metrics"), dict):
            self.metrics = metrics

    def _take_delta(self, delta: dict[str, Any]) -> bool:
        """Keep the delta's text and tool calls; says whether there was anything that a user could see."""
        text = text_of(delta.get("content")) + text_of(delta.get("refusal"))
        if text:
            self._text.append(text)
        calls = [self._take_call(call) for call in entries(delta.get("tool_calls"))]
        return bool(text) or any(calls)

    def _take_call(self, call: dict[str, Any]) -> bool:
        function = mapping(call.get("function"))
        name, arguments = text_of(function.get("name")), text_of(function.get("arguments"))
        if not name and not arguments:
            return False
        kept = self._calls.setdefault(count_of(call.get("index")) or 0, {"name": "", "arguments": ""})
        kept["name"] += name
        kept["arguments"] += arguments
        return True

    @property
    def output_tokens(self) -> int | None:
        return count_of((self.usage or {}).get("completion_tokens"))

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
            return Outcome("failed", f"the stream ended without {', '.join(missing)}")
        if self.finish_reason in GAVE_UP:
            return Outcome("failed", f"the engine gave the request up: finish reason {self.finish_reason}")
        return Outcome("completed")

    def _missing(self) -> Iterator[str]:
        if self.finish_reason is None:
            yield "a finish reason"
        if self.output_tokens is None:
            yield "usage"
        if not self.done:
            yield "[DONE]"

    def contradictions(self) -> Iterator[str]:
        """Ways in which the answer's own numbers disagree: findings on the trial."""
        prompt, output, total = self.prompt_tokens, self.output_tokens, (self.usage or {}).get("total_tokens")
        if prompt is not None and output is not None and total is not None and total != prompt + output:
            yield "usage: prompt_tokens + completion_tokens is not total_tokens"
        if output is not None and output == 0 and self.chunks:
            yield "usage: no completion_tokens, but text came"
