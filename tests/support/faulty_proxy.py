"""An OpenAI-compatible proxy that plants one named fault (``tests.support.faults``) in what a real server answers.

Without a fault it hands on every byte as it comes. With one, an answer is read to its end, changed, and told again in
the same manner, streamed or whole; times are not kept.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web

from tests.support.exchanges import CHAT, COMPLETIONS, Answer, Asked, Exchange
from tests.support.faults import FAULTS, Fault

HOST = "127.0.0.1"
MAX_BODY_BYTES = 64 << 20
STREAM = "text/event-stream"


class FaultyProxy:
    """``plant`` sets the fault, or none, for the requests that come from then on."""

    def __init__(self, upstream: str, *, seed: int = 0) -> None:
        self.upstream = upstream.rstrip("/")
        self.base_url = ""
        self.seed = seed
        self.texts: dict[tuple[int, ...], str] = {}
        self.plant(None)

    def plant(self, name: str | None) -> None:
        """Everything that the proxy has counted begins again."""
        self.fault: Fault | None = None if name is None else FAULTS[name]
        self.draw = np.random.default_rng(self.seed)
        self.number = self.together = 0
        self.seen: Counter[str] = Counter()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FaultyProxy"]:
        # The upstream's connections are not counted: whoever asks through the proxy has its own limit.
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self.session:
            app = web.Application(client_max_size=MAX_BODY_BYTES)
            app.router.add_route("*", "/{path:.*}", self.handle)
            runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            try:
                await web.TCPSite(runner, HOST, 0).start()
                self.base_url = "http://{}:{}".format(*runner.addresses[0][:2])
                yield self
            finally:
                await runner.cleanup()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        if self.fault is None or request.method != "POST" or request.path not in (CHAT, COMPLETIONS):
            return await self.relay(request, content)
        try:
            body = json.loads(content)
        except ValueError:
            return await self.relay(request, content)
        return await reply(request, await self.faulty(self.fault, Asked(request.path, body)))

    async def relay(self, request: web.Request, content: bytes) -> web.StreamResponse:
        kind = {"Content-Type": request.content_type} if content else {}
        address = f"{self.upstream}{request.path_qs}"
        async with self.session.request(request.method, address, data=content, headers=kind) as heard:
            response = web.StreamResponse(status=heard.status, headers=kind_of(heard))
            await response.prepare(request)
            async for piece in heard.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    async def faulty(self, fault: Fault, asked: Asked) -> Answer:
        repeats = self.seen[asked.prompt]
        self.seen[asked.prompt] += 1
        self.number += 1
        self.together += 1
        exchange = Exchange(
            asked,
            send=self.send,
            decode=partial(self.decode, asked.body.get("model")),
            draw=self.draw,
            number=self.number,
            together=self.together,
            repeats=repeats,
        )
        try:
            return await fault.act(exchange)
        finally:
            self.together -= 1

    async def send(self, asked: Asked) -> Answer:
        async with self.session.post(f"{self.upstream}{asked.path}", json=asked.body) as heard:
            text = await heard.text()
            if heard.content_type == STREAM:
                return Answer(heard.status, True, events(text))
            try:
                return Answer(heard.status, False, [json.loads(text)])
            except ValueError:
                return Answer(heard.status, False, [{"error": {"message": text, "code": heard.status}}])

    async def decode(self, model: str | None, ids: tuple[int, ...]) -> str:
        """By the server's own tokenizer."""
        if ids not in self.texts:
            body = {"model": model, "tokens": list(ids)}
            async with self.session.post(f"{self.upstream}/detokenize", json=body) as heard:
                self.texts[ids] = (await heard.json())["prompt"]
        return self.texts[ids]


def kind_of(heard: aiohttp.ClientResponse) -> dict[str, str]:
    kind = heard.headers.get("Content-Type")
    return {} if kind is None else {"Content-Type": kind}


def events(text: str) -> list[dict[str, Any]]:
    said = [line.removeprefix("data:").strip() for line in text.split("\n") if line.startswith("data:")]
    return [json.loads(one) for one in said if one != "[DONE]"]


async def reply(request: web.Request, answer: Answer) -> web.StreamResponse:
    if not answer.streamed:
        return web.json_response(answer.documents[0], status=answer.status)
    response = web.StreamResponse(status=answer.status, headers={"Content-Type": f"{STREAM}; charset=utf-8"})
    await response.prepare(request)
    for document in answer.documents:
        await response.write(f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode("utf-8", "replace"))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


@contextmanager
def proxy_before(upstream: str, *, seed: int = 0) -> Iterator[FaultyProxy]:
    """In a thread of its own, for clients that have a loop of their own."""
    proxy = FaultyProxy(upstream, seed=seed)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    entered = proxy.serving()
    asyncio.run_coroutine_threadsafe(entered.__aenter__(), loop).result(30)
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(entered.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
