"""From the bytes of an HTTP answer to a ``Reply``. Pure; nothing that a server sends makes it raise but BadAnswer."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loadtests.behaviour.reply import Call, Choice, Reply, Token
from loadtests.generator.answer import (
    GAVE_UP,
    Outcome,
    count_of,
    counts_of,
    entries,
    error_outcome,
    mapping,
    name_of,
    outcome_of_code,
    parse,
    parts_of,
    text_of,
)
from loadtests.generator.hearing import place_of
from loadtests.generator.http_answer import BadAnswer, HttpAnswer
from loadtests.generator.said import Secrets, brief_text, joined
from loadtests.generator.sse import Event, EventParser

MAX_BODY_BYTES = 16 << 20
INSIDE_200 = "error inside HTTP 200"


class Reading:
    """Hears one answer. ``take`` says whether all is said; ``take`` and ``end`` raise BadAnswer, EventTooLong."""

    def __init__(self, *, stream: bool, secrets: Secrets) -> None:
        self.stream, self.secrets = stream, secrets
        self._http = HttpAnswer()
        self._events = EventParser()
        self._body = bytearray()
        self._documents: list[dict[str, Any]] = []
        self._outcome: Outcome | None = None
        self._done = False

    def take(self, data: bytes) -> bool:
        for piece in self._http.feed(data):
            if self._is_stream:
                self._hear(self._events.feed(piece))
            else:
                self._body += piece
            if len(self._body) > MAX_BODY_BYTES:
                raise BadAnswer(f"the answer is longer than {MAX_BODY_BYTES} bytes")
        return self._http.complete or self._done or self._outcome is not None

    def end(self) -> None:
        self._http.end()

    @property
    def _is_stream(self) -> bool:
        kind = self._http.headers.get("content-type", "").partition(";")[0].strip().lower()
        return self.stream and self._http.status == 200 and kind == "text/event-stream"

    def _hear(self, events: list[Event]) -> None:
        for event in events:
            if self._done or self._outcome is not None:
                return
            if event.data == "[DONE]":
                self._done = True
                continue
            document = parse(event.data)
            self._outcome = error_outcome(document, INSIDE_200)
            if self._outcome is None and (not isinstance(document, dict) or event.name == "error"):
                self._outcome = Outcome("failed", brief_text(f"an event that is no JSON object: {event.data}"))
            elif self._outcome is None:
                self._documents.append(document)

    def reply(self) -> Reply:
        """What came of it, once it is over."""
        status = self._http.status
        if status != 200:
            return self._without_answer(outcome_of_code(status, self._told()), inside_200=False)
        if self.stream and not self._is_stream:
            outcome = error_outcome(parse(self._text), INSIDE_200)
            said = outcome or Outcome("failed", "HTTP 200 carried no stream of events")
            return self._without_answer(said, inside_200=outcome is not None)
        if not self.stream:
            self._take_whole()
        if self._outcome is not None:
            return self._without_answer(self._outcome, inside_200=True)
        return reply_of(self._documents, stream=self.stream, done=self._done or not self.stream)

    def _take_whole(self) -> None:
        document = parse(self._text)
        if isinstance(document, dict):
            self._outcome = error_outcome(document, INSIDE_200)
            self._documents.append(document)
        else:
            self._outcome = Outcome("failed", brief_text(f"HTTP 200 carried no JSON object: {self._text}"))

    def _without_answer(self, outcome: Outcome, *, inside_200: bool) -> Reply:
        return Reply(
            "refused" if outcome.status == "refused" else "failed",
            error=outcome.error,
            http_status=self._http.status,
            inside_200=inside_200,
            stream=self.stream,
        )

    @property
    def _text(self) -> str:
        return bytes(self._body).decode("utf-8", "replace")

    def _told(self) -> str:
        line = f"HTTP {self._http.status} {self._http.reason}".strip()
        if (location := self._http.headers.get("location")) is not None:
            return f"{line}: a redirect to {place_of(location, self.secrets)}, not followed"
        said = error_outcome(parse(self._text), "error")
        return f"{line}: {(said.error if said else None) or self._text}"


def failed(error: str, *, stream: bool, http_status: int | None = None) -> Reply:
    """No answer came, or none that was whole."""
    return Reply("failed", error=brief_text(error), stream=stream, http_status=http_status)


@dataclass
class Saying:
    """One choice as far as it has come."""

    index: int
    pieces: list[str] = field(default_factory=list)
    # None once text has come without them.
    token_ids: list[int] | None = field(default_factory=list)
    tokens: list[Token] | None = None
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    def take(self, choice: dict[str, Any]) -> None:
        message = mapping(choice.get("delta") or choice.get("message"))
        content = message.get("content") if message else choice.get("text")
        text = content if isinstance(content, str) else parts_of(content)
        if text:
            self.pieces.append(text)
        for call in entries(message.get("tool_calls")):
            self._take_call(call)
        self._take_ids(choice, bool(text or message.get("tool_calls")))
        if (told := tokens_of(mapping(choice.get("logprobs")))) is not None:
            self.tokens = [*(self.tokens or ()), *told]
        if choice.get("finish_reason") is not None:
            self.finish_reason = name_of(choice["finish_reason"])
            reason = choice.get("stop_reason")
            self.stop_reason = joined(reason) if isinstance(reason, str) else count_of(reason)

    def _take_call(self, call: dict[str, Any]) -> None:
        function = mapping(call.get("function"))
        # A whole answer numbers its calls by their order alone.
        index = count_of(call.get("index"))
        kept = self.calls.setdefault(len(self.calls) if index is None else index, ["", ""])
        kept[0] += text_of(function.get("name"))
        kept[1] += text_of(function.get("arguments"))

    def _take_ids(self, choice: dict[str, Any], said: bool) -> None:
        ids = counts_of(choice.get("token_ids"))
        if ids is not None and self.token_ids is not None:
            self.token_ids += ids
        elif ids is None and said:
            self.token_ids = None

    @property
    def choice(self) -> Choice:
        # A character may come as two halves of a surrogate pair, one in each chunk: whole, it is none the worse.
        whole = joined("".join(self.pieces))
        pieces = self.pieces if "".join(self.pieces) == whole else [whole]
        told_ids = self.token_ids is not None and (self.token_ids or not whole)
        return Choice(
            self.index,
            tuple(pieces),
            tuple(self.token_ids or ()) if told_ids else None,
            None if self.tokens is None else tuple(self.tokens),
            tuple(Call(joined(name), joined(arguments)) for name, arguments in self.calls.values()),
            self.finish_reason,
            self.stop_reason,
        )


def tokens_of(logprobs: dict[str, Any]) -> list[Token] | None:
    """Of either API's form; None where there is neither."""
    if isinstance(logprobs.get("content"), list):
        return [chat_token(one) for one in entries(logprobs["content"])]
    if isinstance(logprobs.get("tokens"), list):
        return list(completion_tokens(logprobs))
    return None


def chat_token(told: dict[str, Any]) -> Token:
    top = [(joined(text_of(one.get("token"))), number(one.get("logprob"))) for one in entries(told.get("top_logprobs"))]
    bytes_ = counts_of(told.get("bytes"))
    return Token(
        joined(text_of(told.get("token"))),
        number(told.get("logprob")),
        None if bytes_ is None else tuple(bytes_),
        best_first(top),
    )


def completion_tokens(logprobs: dict[str, Any]) -> Iterator[Token]:
    values, tops = logprobs.get("token_logprobs"), logprobs.get("top_logprobs")
    for index, text in enumerate(logprobs["tokens"]):
        top = mapping(tops[index]) if isinstance(tops, list) and index < len(tops) else {}
        value = values[index] if isinstance(values, list) and index < len(values) else None
        shown = [(joined(name), number(one)) for name, one in top.items() if isinstance(name, str)]
        yield Token(joined(text_of(text)), number(value), None, best_first(shown))


def best_first(top: list[tuple[str, float | None]]) -> tuple[tuple[str, float], ...]:
    finite = [(text, value) for text, value in top if value is not None]
    return tuple(sorted(finite, key=lambda one: -one[1]))


def number(value: object) -> float | None:
    """A finite number, or None: evidence holds no others."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None


def reply_of(documents: list[dict[str, Any]], *, stream: bool, done: bool) -> Reply:
    """The answer that these documents make together, in their order."""
    choices: dict[int, Saying] = {}
    for document in documents:
        for one in entries(document.get("choices")):
            index = count_of(one.get("index")) or 0
            choices.setdefault(index, Saying(index)).take(one)
    drafts = drafts_of(documents)
    reply = Reply(
        "answered",
        tuple(choices[index].choice for index in sorted(choices)),
        http_status=200,
        stream=stream,
        usage=usage_of(documents),
        prompt_token_ids=prompt_ids(documents),
        prompt_logprobs=prompt_logprobs_of(documents),
        fingerprint=next((name for one in documents if (name := name_of(one.get("system_fingerprint")))), None),
        document=tokenizer_words(documents),
        draft_tokens=drafts["num_draft_tokens"],
        accepted_tokens=drafts["num_accepted_draft_tokens"],
    )
    missing = list(what_is_missing(reply, done))
    if missing:
        return failed(f"the answer ended without {', '.join(missing)}", stream=stream, http_status=200)
    gave_up = next((one.finish_reason for one in reply.choices if one.finish_reason in GAVE_UP), None)
    if gave_up is not None:
        return failed(f"the engine gave the request up: {gave_up}", stream=stream, http_status=200)
    return reply


def what_is_missing(reply: Reply, done: bool) -> Iterator[str]:
    if not done:
        yield "[DONE]"
    if reply.document:
        return
    if not reply.choices:
        yield "a choice"
    if any(one.finish_reason is None for one in reply.choices):
        yield "a finish reason"


def usage_of(documents: list[dict[str, Any]]) -> dict[str, Any] | None:
    told = [one for document in documents if (one := mapping(document.get("usage")))]
    if not told:
        return None
    usage = {key: count_of(told[-1].get(key)) for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    cached = count_of(mapping(told[-1].get("prompt_tokens_details")).get("cached_tokens"))
    return usage if cached is None else usage | {"cached_tokens": cached}


def places(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A chat tells of its prompt beside the choices, a completion in the first of them."""
    for document in documents:
        yield document
        yield from entries(document.get("choices"))


def prompt_ids(documents: list[dict[str, Any]]) -> tuple[int, ...] | None:
    found = (counts_of(one.get("prompt_token_ids")) for one in places(documents))
    return next((tuple(ids) for ids in found if ids is not None), None)


def prompt_logprobs_of(documents: list[dict[str, Any]]) -> tuple[dict[str, float] | None, ...] | None:
    found = next((told for one in places(documents) if isinstance(told := one.get("prompt_logprobs"), list)), None)
    return None if found is None else tuple(prompt_entry(one) for one in found)


def prompt_entry(told: object) -> dict[str, float] | None:
    if not isinstance(told, dict):
        return None
    values = {str(token): number(mapping(one).get("logprob")) for token, one in told.items()}
    return {token: value for token, value in values.items() if value is not None}


def drafts_of(documents: list[dict[str, Any]]) -> dict[str, int | None]:
    told = [mapping(mapping(one.get("metrics")).get("speculative_decoding")) for one in documents]
    said: dict[str, Any] = next((one for one in reversed(told) if one), {})
    return {name: count_of(said.get(name)) for name in ("num_draft_tokens", "num_accepted_draft_tokens")}


def tokenizer_words(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """What ``/tokenize`` (``tokens``) or ``/detokenize`` (``prompt``) said."""
    found: dict[str, Any] = {}
    for document in documents:
        if (tokens := counts_of(document.get("tokens"))) is not None:
            found["tokens"] = tokens
        if "choices" not in document and isinstance(document.get("prompt"), str):
            found["prompt"] = joined(document["prompt"])
    return found
