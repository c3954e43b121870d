"""One server as the suite asks it: requests of each kind, what it can tell, and whether it still answers."""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from loadtests.behaviour.case import Ask, Kind
from loadtests.behaviour.counters import Counters, counters_of
from loadtests.behaviour.reading import Reading, failed
from loadtests.behaviour.reply import Reply
from loadtests.generator.answer import MAX_ERROR_CHARACTERS, mapping, name_of, parse, printable
from loadtests.generator.endpoint import Endpoint, describe
from loadtests.generator.exchange import CLIENT_ERRNOS
from loadtests.generator.http_answer import BadAnswer
from loadtests.generator.quoting import without_prompt
from loadtests.generator.reach import ShortAnswer, Unreachable, reach
from loadtests.generator.sse import EventTooLong
from loadtests.generator.trial import without_key
from loadtests.generator.way import Way, request_of

PROBE_S = 30.0
NO_ANSWER = "no answer in time"


class ClientFault(OSError):
    """The client's own machine ran out of something: nothing can be said of the server."""


@dataclass(frozen=True)
class Abilities:
    """What a server was found to take and to tell before the suite began. ``version`` is None where it told none."""

    completions: bool = True
    chat: bool = True
    token_ids: bool = False
    tokenizer: bool = False
    counters: bool = False
    version: str | None = None


class Server:
    """``timeout_s`` is for one whole answer."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float) -> None:
        self.endpoint, self.timeout_s = endpoint, timeout_s
        self.abilities = Abilities()
        self._way = Way(endpoint)

    async def ask(self, ask: Ask, *, stream: bool) -> Reply:
        """Raises ClientFault alone: whatever the server does is a reply."""
        stream = stream and ask.kind in ("chat", "text")
        path, body = self._request(ask, stream)
        reply = await self._post(path, body, stream=stream, timeout_s=self.timeout_s)
        if reply.error is None:
            return reply
        # A server may say the key, or the prompt, in its error.
        said = without_prompt(without_key(reply.error, self.endpoint), prompts_of(ask.body))
        return replace(reply, error=printable(said[:MAX_ERROR_CHARACTERS]))

    async def _post(self, path: str, body: dict[str, Any], *, stream: bool, timeout_s: float) -> Reply:
        reading = Reading(stream=stream)
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with asyncio.timeout(timeout_s):
                await self._way.ask(request_of(self.endpoint, "POST", path, content), reading)
        except TimeoutError:
            return failed(f"{NO_ANSWER}: {timeout_s:g} s", stream=stream)
        except (OSError, BadAnswer, EventTooLong) as error:
            if getattr(error, "errno", None) in CLIENT_ERRNOS:
                raise ClientFault(f"the client's machine ran out of something: {describe(error)}") from None
            return failed(describe(error), stream=stream)
        return reading.reply()

    def _request(self, ask: Ask, stream: bool) -> tuple[str, dict[str, Any]]:
        kind = self.kind_of(ask)
        body = {"model": self.endpoint.model, **body_of(ask.body, kind)}
        if kind in ("tokenize", "detokenize"):
            return self._root(f"/{kind}"), body
        if self.abilities.token_ids:
            body["return_token_ids"] = True
        else:
            body.pop("return_tokens_as_token_ids", None)
        body["stream"] = stream
        if stream:
            body["stream_options"] = {"include_usage": True}
        return self._path("chat" if kind == "chat" else "completions"), body

    def kind_of(self, ask: Ask) -> Kind:
        """A base model has no chat, some gateways pass on nothing else."""
        if ask.kind == "text" and not self.abilities.completions and self.abilities.chat:
            return "chat"
        only_text = "tools" not in ask.body
        if ask.kind == "chat" and not self.abilities.chat and self.abilities.completions and only_text:
            return "text"
        return ask.kind

    def _path(self, api: str) -> str:
        return replace(self.endpoint, api=api).path  # type: ignore[arg-type]

    def _root(self, path: str) -> str:
        """Beside ``/v1``, where the engine has what OpenAI's interface doesn't know."""
        return urlsplit(self.endpoint.base_url).path.removesuffix("/v1") + path

    async def probe(self) -> Abilities:
        """Find out what it can. Raises Unreachable where nothing answers."""
        await reach(self.endpoint)
        asked = {"model": self.endpoint.model, "max_tokens": 1, "temperature": 0}
        chat = asked | {"messages": [{"role": "user", "content": "Hello"}]}
        text = asked | {"prompt": "Hello"}
        replies = {
            name: await self._post(self._path(name), body, stream=False, timeout_s=self.timeout_s)
            for name, body in (("chat", chat), ("completions", text))
        }
        able = {name: reply.status == "answered" for name, reply in replies.items()}
        name, body = ("completions", text) if able["completions"] else ("chat", chat)
        ids = await self._post(self._path(name), body | {"return_token_ids": True}, stream=False, timeout_s=PROBE_S)
        words = await self._post(
            self._root("/detokenize"),
            {"model": self.endpoint.model, "tokens": list(ids.choice.token_ids or (1,))},
            stream=False,
            timeout_s=PROBE_S,
        )
        version = parse(await self._get(self._root("/version")))
        self.abilities = Abilities(
            completions=able["completions"],
            chat=able["chat"],
            token_ids=ids.choice.token_ids is not None,
            tokenizer="prompt" in words.document,
            counters=await self.counters() is not None,
            version=name_of(mapping(version).get("version")) or None,
        )
        return self.abilities

    async def counters(self) -> Counters | None:
        """The engine's counters of drafts as they stand; None where it tells none."""
        text = await self._get(self._root("/metrics"))
        return counters_of(text) if text else None

    async def _get(self, path: str) -> str:
        """The body of an answer; empty where it isn't 200, or none comes."""
        answer = ShortAnswer()
        try:
            async with asyncio.timeout(PROBE_S):
                await self._way.ask(request_of(self.endpoint, "GET", path), answer)
        except (OSError, BadAnswer):
            return ""
        return answer.body.decode("utf-8", "replace") if answer.http.status == 200 else ""

    async def alive(self) -> bool:
        """Whether anything still answers at the address."""
        try:
            await reach(self.endpoint, timeout_s=PROBE_S)
        except Unreachable:
            return False
        return True


def prompts_of(body: Any) -> list[str]:
    said = [str(one.get("content") or "") for one in body.get("messages", ())]
    return [*said, str(body.get("prompt") or "")]


def body_of(neutral: Any, kind: Kind) -> dict[str, Any]:
    """The request in the words of its kind: ``top_logprobs`` asks for that many log probabilities in either."""
    body = dict(neutral)
    most = body.pop("top_logprobs", None)
    if kind == "chat":
        if "prompt" in body:
            body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
        return body if most is None else body | {"logprobs": True, "top_logprobs": most}
    if kind == "text":
        if "messages" in body:
            body["prompt"] = "\n\n".join(str(one.get("content") or "") for one in body.pop("messages"))
        return body if most is None else body | {"logprobs": most}
    return body
