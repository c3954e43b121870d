"""One request to an OpenAI-compatible server and its answer, as documents that a fault can read and change."""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from numpy.random import Generator

Document = dict[str, Any]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# Fields that ask for a grammar; response_format does too, unless its type is text.
GRAMMARS = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")


@dataclass(frozen=True)
class Asked:
    path: str
    body: Document

    @property
    def is_chat(self) -> bool:
        return self.path == CHAT

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def is_greedy(self) -> bool:
        return self.body.get("temperature") == 0

    @property
    def repeatable(self) -> bool:
        """Asked again, it says the same."""
        return self.is_greedy or self.body.get("seed") is not None

    @property
    def answers(self) -> int:
        return int(self.body.get("n") or 1)

    @property
    def most_tokens(self) -> int | None:
        return self.body.get("max_completion_tokens") or self.body.get("max_tokens")

    @property
    def stops(self) -> list[str]:
        stop = self.body.get("stop") or []
        return [stop] if isinstance(stop, str) else list(stop)

    @property
    def has_grammar(self) -> bool:
        format_ = self.body.get("response_format") or {"type": "text"}
        return format_["type"] != "text" or any(self.body.get(name) for name in GRAMMARS)

    @property
    def prompt(self) -> str:
        """Names the prompt: two requests with the same one share a prefix."""
        return json.dumps(self.body.get("messages") or self.body.get("prompt"))

    def but(self, **fields: Any) -> "Asked":
        return Asked(self.path, self.body | fields)

    def without(self, *names: str) -> "Asked":
        return Asked(self.path, {name: value for name, value in self.body.items() if name not in names})

    def at_most(self, tokens: int) -> "Asked":
        return self.without("max_completion_tokens").but(max_tokens=tokens)


@dataclass
class Answer:
    """What the server said: one document, or the events of a stream."""

    status: int
    streamed: bool
    documents: list[Document]

    @property
    def failed(self) -> bool:
        return self.status != 200 or any("error" in one for one in self.documents)

    @property
    def choices(self) -> Iterator[Document]:
        return (choice for one in self.documents for choice in one.get("choices") or ())

    @property
    def last(self) -> Document:
        """The choice that says how the (only) answer ended."""
        return next(one for one in self.choices if one.get("finish_reason"))

    @property
    def usages(self) -> list[Document]:
        return [one["usage"] for one in self.documents if one.get("usage")]

    @property
    def tokens(self) -> int:
        return int(self.usages[-1]["completion_tokens"])


@dataclass
class Exchange:
    """A request on its way through the proxy. ``ask`` sends it on, or another in its place."""

    asked: Asked
    send: Callable[[Asked], Awaitable[Answer]]
    decode: Callable[[tuple[int, ...]], Awaitable[str]]
    draw: Generator
    number: int = 1
    # How many are under way, and how often the prompt came before.
    together: int = 1
    repeats: int = 0
    # Whether tokens are named by their ids in logprobs, as vLLM does where it is asked to.
    names_ids: bool = False

    async def ask(self, asked: Asked | None = None) -> Answer:
        return await self.send(asked or self.asked)

    async def whole(self, asked: Asked | None = None) -> Answer:
        """The same in one document, to learn of it."""
        return await self.send((asked or self.asked).without("stream_options").but(stream=False))


def holder(choice: Document) -> tuple[Document, str]:
    """Where a choice keeps its text."""
    if "text" in choice:
        return choice, "text"
    return (choice["message"] if "message" in choice else choice["delta"]), "content"


def text_of(choice: Document) -> str:
    place, name = holder(choice)
    return place.get(name) or ""


def say(choice: Document, text: str) -> None:
    place, name = holder(choice)
    place[name] = text


def speaking(answer: Answer) -> list[Document]:
    """Choices that carry a text, in their order."""
    return [one for one in answer.choices if text_of(one)]


def logprob_lists(choice: Document) -> dict[str, list[Any]]:
    """The lists that hold one entry a token: one in a chat, four in a completion."""
    return {name: values for name, values in (choice.get("logprobs") or {}).items() if isinstance(values, list)}


def calls(choice: Document) -> list[Document]:
    """The functions of the tool calls that a choice makes, or goes on with."""
    said = choice.get("message") or choice.get("delta") or {}
    return [one["function"] for one in said.get("tool_calls") or () if one.get("function")]
