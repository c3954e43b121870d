"""One server as the suite asks it: requests of each kind, what it can tell, and whether it still answers."""

import asyncio
import json
import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from loadtests.behaviour.case import Ask, Kind
from loadtests.behaviour.counters import Counters, counters_of
from loadtests.behaviour.reading import Reading, failed
from loadtests.behaviour.reply import Choice, Reply
from loadtests.generator.answer import mapping, name_of, parse
from loadtests.generator.endpoint import Endpoint, describe
from loadtests.generator.exchange import CLIENT_ERRNOS
from loadtests.generator.http_answer import BadAnswer
from loadtests.generator.reach import ShortAnswer, Unreachable, reach
from loadtests.generator.said import Secrets
from loadtests.generator.sse import EventTooLong
from loadtests.generator.way import Way, request_of

PROBE_S = 30.0
VERSION = re.compile(r"[\w.+-]{1,100}")
NO_ANSWER = "no answer in time"
SAID_THE_KEY = "the answer holds the key that was sent with the request, so nothing of it is kept"


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
        return self._clean(reply, prompts_of(ask.body))

    def _clean(self, reply: Reply, prompts: list[str]) -> Reply:
        """As it is kept. Texts, which the cases judge, stay as they came: all of them, or none where they hold the
        key, which may well stand in several pieces of them."""
        secrets = self.endpoint.secrets
        if secrets.says_key(reply.said()):
            return Reply("failed", error=SAID_THE_KEY, stream=reply.stream, http_status=reply.http_status)
        error = None if reply.error is None else secrets.reason(reply.error, prompts)
        fingerprint = None if reply.fingerprint is None else secrets.name(reply.fingerprint, prompts)
        choices = tuple(replace(one, finish_reason=reason_of(one, secrets, prompts)) for one in reply.choices)
        return replace(reply, choices=choices, error=error, fingerprint=fingerprint)

    async def _post(self, path: str, body: dict[str, Any], *, stream: bool, timeout_s: float) -> Reply:
        reading = Reading(stream=stream, secrets=self.endpoint.secrets)
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
            version=self._version_in(mapping(version)),
        )
        return self.abilities

    def _version_in(self, document: dict[str, Any]) -> str | None:
        """What is no version may be anything that the server was ever asked."""
        told = name_of(document.get("version"))
        return self.endpoint.secrets.name(told) if VERSION.fullmatch(told) else None

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


def reason_of(choice: Choice, secrets: Secrets, prompts: list[str]) -> str | None:
    return None if choice.finish_reason is None else secrets.finish_reason(choice.finish_reason, prompts)


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
