"""An OpenAI-compatible server that misbehaves on request: the last message of a chat names the case.

Written on bare sockets, because a proper HTTP server would not let us break the rules. As a program it prints its
port and serves until it is killed.
"""

import asyncio
import json
import os
import socket
import ssl
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvloop

FINGERPRINT = "f" * 64
SPECULATION = {
    "mean_acceptance_length": 2.0,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [1, 0, 1],
    "num_spec_steps": 2,
    "num_accepted_draft_tokens": 2,
    "num_draft_tokens": 4,
    "num_spec_tokens": 2,
}
METRICS = {
    "queue_time_ms": 1.5,
    "time_to_first_token_ms": 20.25,
    "generation_time_ms": 30.0,
    "mean_itl_ms": 5.0,
    "tokens_per_second": 200.0,
    "speculative_decoding": SPECULATION,
}
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "choices": [choice]}


def usage(tokens: int, total: int | None = None) -> dict[str, Any]:
    counts = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": total or 7 + tokens}
    return {"choices": [], "usage": counts, "system_fingerprint": FINGERPRINT, "metrics": METRICS}


ROLE = delta(role="assistant", content="")
END = delta("stop", content="")


def choice(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": 0, "finish_reason": finish_reason} | fields


def first_ids(prompt_tokens: int) -> dict[str, Any]:
    """The first chunk of a chat that was asked for token ids, as vLLM sends it."""
    return ROLE | {"prompt_token_ids": list(range(prompt_tokens))}


def ids(text: str, token_ids: list[int]) -> list[dict[str, Any]]:
    return [{"choices": [choice(delta={"content": text}, token_ids=token_ids)]}]


def sse(document: Any, end: str = "\n") -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    return f"data: {text}{end}{end}".encode()


def whole(*texts: str) -> list[Any]:
    """A well-formed answer, one event a text."""
    return [ROLE, *(delta(content=text) for text in texts), END, usage(len(texts)), "[DONE]"]


@dataclass
class Wire:
    """One connection, after its request was read."""

    writer: asyncio.StreamWriter
    words: list[str]
    server: "HostileServer"
    asked: dict[str, Any] = field(default_factory=dict)
    head: str = ""

    async def raw(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def packets(self, content: bytes, size: int) -> None:
        for start in range(0, len(content), size):
            await self.piece(content[start : start + size])
            await asyncio.sleep(0)

    async def piece(self, content: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(content), content))

    async def stream(self, *documents: Any, end: str = "\n") -> None:
        """The documents as events, and the proper end of the HTTP body."""
        await self.begin(*documents, end=end)
        await self.raw(b"0\r\n\r\n")

    async def begin(self, *documents: Any, end: str = "\n") -> None:
        contents = [sse(document, end) for document in documents]
        pieces = [b"%x\r\n%b\r\n" % (len(one), one) for one in contents]
        await self.raw(STREAM_HEAD + b"".join(pieces))

    async def plain(self, status: str, content_type: str, body: str, extra: str = "") -> None:
        content = body.encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n{extra}\r\n"
        await self.raw(head.encode() + content)

    def reset(self) -> None:
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass(frozen=True)
class Case:
    status: str
    reason: str | None
    act: Callable[[Wire], Awaitable[None]]


CASES: dict[str, Case] = {}
Act = Callable[[Wire], Awaitable[None]]


def case(status: str, reason: str | None = None) -> Callable[[Act], Act]:
    """Registers what the server does under the function's name, and how the client must call it."""

    def register(act: Act) -> Act:
        CASES[act.__name__.replace("_", "-")] = Case(status, reason, act)
        return act

    return register


@case("completed")
async def plain_answer(wire: Wire) -> None:
    await wire.stream(*whole("Hello", " there", "."))


@case("completed")
async def one_byte_packets(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    await wire.packets(b"".join(sse(one) for one in whole("a")), 1)
    await wire.raw(b"0\r\n\r\n")


@case("completed")
async def odd_packets(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    await wire.packets(b"".join(sse(one) for one in whole("a", "b", "c")), 7)
    await wire.raw(b"0\r\n\r\n")


@case("completed")
async def one_packet(wire: Wire) -> None:
    content = b"".join(sse(one) for one in whole("a", "b", "c"))
    await wire.raw(STREAM_HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content))


@case("completed")
async def comments(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    for document in whole("a", "b"):
        await wire.piece(b": keep-alive\n\n" + sse(document) + b":\nretry: 10\nid: 4\n\n")
    await wire.raw(b"0\r\n\r\n")


@case("completed")
async def carriage_returns(wire: Wire) -> None:
    await wire.stream(*whole("a", "b"), end="\r\n")


@case("completed")
async def byte_order_mark(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    await wire.piece(b"\xef\xbb")
    await wire.piece(b"\xbf" + b"".join(sse(one) for one in whole("a", "b")))
    await wire.raw(b"0\r\n\r\n")


@case("completed")
async def data_over_lines(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    for document in whole("a", "b")[:-1]:
        lines = json.dumps(document, indent=1).split("\n")
        await wire.piece("".join(f"data: {line}\n" for line in lines).encode() + b"\n")
    await wire.piece(sse("[DONE]"))
    await wire.raw(b"0\r\n\r\n")


@case("completed")
async def emoji_in_packets(wire: Wire) -> None:
    content = b"".join(sse(json.dumps(one, ensure_ascii=False)) for one in whole("🙂", "é")[:-1]) + sse("[DONE]")
    await wire.raw(STREAM_HEAD)
    await wire.packets(content, 3)
    await wire.raw(b"0\r\n\r\n")


@case("completed")
async def emoji_in_events(wire: Wire) -> None:
    await wire.stream(*whole("\ud83d", "\ude42"))


@case("completed")
async def several_tokens_a_chunk(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="one two three"), delta("length", content=" four"), usage(5), "[DONE]")


@case("completed")
async def empty_deltas(wire: Wire) -> None:
    nothing = {"choices": [{"index": 0, "delta": {}, "finish_reason": None}]}
    silent = delta(content=None)
    await wire.stream(ROLE, nothing, delta(content=""), silent, delta(content="x"), nothing, END, usage(1), "[DONE]")


@case("completed")
async def content_in_parts(wire: Wire) -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": "image"}, {"type": "text", "text": " there"}, None, 7]
    await wire.stream(ROLE, delta(content=parts), delta(content=[]), END, usage(2), "[DONE]")


@case("completed")
async def everything_in_one_chunk(wire: Wire) -> None:
    """Role, text, finish reason and usage together."""
    await wire.stream(delta("stop", role="assistant", content="all of it") | {"usage": usage(3)["usage"]}, "[DONE]")


@case("completed")
async def tool_calls(wire: Wire) -> None:
    def call(**function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": 0, "function": function}])

    pieces = [call(name="look_up"), call(arguments='{"q": '), call(arguments='"x"}')]
    await wire.stream(ROLE, *pieces, delta("tool_calls"), usage(9), "[DONE]")


@case("completed")
async def usage_in_the_finish_chunk(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"), END | {"usage": usage(1)["usage"]}, "[DONE]")


@case("completed")
async def usage_that_contradicts_itself(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"), END, usage(1, total=99), "[DONE]")


@case("completed")
async def usage_of_floats(wire: Wire) -> None:
    floats = {"choices": [], "usage": {"prompt_tokens": 7.5, "completion_tokens": 1.0, "total_tokens": 8}}
    await wire.stream(ROLE, delta(content="x"), END, floats, "[DONE]")


@case("completed")
async def usage_that_falls(wire: Wire) -> None:
    chunks = [delta(content="x") | {"usage": usage(tokens)["usage"]} for tokens in (1, 2, 1)]
    await wire.stream(ROLE, *chunks, END, usage(3), "[DONE]")


@case("completed")
async def token_ids(wire: Wire) -> None:
    await wire.stream(first_ids(7), *ids("Hello", [5, 6]), *ids("", [7]), END, usage(3), "[DONE]")


@case("completed")
async def token_ids_that_disagree(wire: Wire) -> None:
    await wire.stream(first_ids(8), *ids("Hello", [5, 6]), END, usage(3), "[DONE]")


@case("completed")
async def token_ids_without_usage(wire: Wire) -> None:
    await wire.stream(ROLE, *ids("Hello", [5, 6]), END, "[DONE]")


@case("completed")
async def token_ids_of_some_chunks(wire: Wire) -> None:
    await wire.stream(ROLE, *ids("Hello", [5, 6]), delta(content="!"), END, "[DONE]")


@case("completed")
async def as_asked(wire: Wire) -> None:
    """An answer of either API, streamed or whole, as the request has it."""
    chat, counts = "messages" in wire.asked, usage(2)
    if wire.asked["stream"]:
        texts = [delta(content=one) if chat else {"choices": [choice(text=one)]} for one in ("Hello", " there")]
        end = END if chat else {"choices": [choice(text="", finish_reason="stop")]}
        await wire.stream(*([ROLE] if chat else []), *texts, end, counts, "[DONE]")
    else:
        said = {"message": {"role": "assistant", "content": "Hello there"}} if chat else {"text": "Hello there"}
        await wire.plain("200 OK", "application/json", json.dumps(counts | {"choices": [choice("stop", **said)]}))


@case("completed")
async def interim_answers_first(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
    await wire.stream(*whole("a"))


@case("completed")
async def body_until_the_end(wire: Wire) -> None:
    content = b"".join(sse(one) for one in whole("a", "b"))
    await wire.raw(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + content)


@case("completed")
async def odd_chunks(wire: Wire) -> None:
    """Sizes with extensions and leading zeros, events across chunks, a trailer."""
    content = b"".join(sse(one) for one in whole("a", "b"))
    head, tail = content[:50], content[50:]
    await wire.raw(STREAM_HEAD + b"0032;name=value\r\n" + head + b"\r\n%X\r\n" % len(tail) + tail)
    await wire.raw(b"\r\n0\r\nX-Trailer: 1\r\n\r\n")


@case("completed")
async def no_reason_phrase(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD.replace(b"200 OK", b"200"))
    await wire.piece(b"".join(sse(one) for one in whole("a")))
    await wire.raw(b"0\r\n\r\n")


@case("failed", "compressed, which was not asked for: gzip")
async def compressed(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + b"2\r\n\x1f\x8b\r\n")


@case("failed", "size of a chunk is no number")
async def size_that_is_no_number(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD + b"+5\r\nabcde\r\n")


@case("failed", "closed in the middle of the answer")
async def shorter_than_promised(wire: Wire) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9000\r\n\r\n"
    await wire.raw(head + sse(ROLE))


@case("failed", "no sensible Content-Length")
async def two_lengths(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")


@case("failed", "head of the answer is longer than")
async def endless_head(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 OK\r\n" + b"X-Padding: aaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 4_000)
    await asyncio.sleep(60)


@case("failed", "head of the answer is longer than")
async def endless_interim_answers(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 4_000)
    await asyncio.sleep(60)


@case("failed", "line of the chunked answer is longer than")
async def long_line_between_chunks(wire: Wire) -> None:
    """However it is cut into packets: whether its end came with the packet must not matter."""
    await wire.raw(STREAM_HEAD + b"2;" + b"x" * 5_000 + b"\r\n\n\n\r\n0\r\n\r\n")


@case("refused", r"HTTP 400 Bad Request: error, code 400: can't take \[prompt\]")
async def echo(wire: Wire) -> None:
    """``echo WORDS…``: repeats the prompt in the reason."""
    document = {"error": {"message": f"can't take {wire.asked['messages'][-1]['content']}", "code": 400}}
    await wire.plain("400 Bad Request", "application/json", json.dumps(document))


@case("completed")
async def stays_open_after_done(wire: Wire) -> None:
    await wire.begin(*whole("a"))
    await asyncio.sleep(60)


@case("completed")
async def slow_answer(wire: Wire) -> None:
    await asyncio.sleep(0.5)
    await wire.stream(*whole("late", " indeed"))


@case("completed")
async def no_usage(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"), END, "[DONE]")


@case("completed")
async def senseless_usage(wire: Wire) -> None:
    broken = {"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": -3}, "metrics": [1]}
    await wire.stream(ROLE, delta(content="x"), END, broken, "[DONE]")


@case("failed", "without a finish reason")
async def no_finish_reason(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"), usage(1), "[DONE]")


@case("failed", r"without \[DONE\]")
async def no_done(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"), END, usage(1))


@case("failed", r"without a finish reason, \[DONE\]")
async def clean_end_at_once(wire: Wire) -> None:
    await wire.stream()


@case("failed", r"without a finish reason, \[DONE\]")
async def clean_end_mid_stream(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"))


@case("failed", "gave the request up: finish reason abort")
async def aborted_by_the_engine(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"), delta("abort"), usage(1), "[DONE]")


@case("refused", "error inside HTTP 200, code 400: min_p is not supported")
async def error_400_inside_200(wire: Wire) -> None:
    await wire.stream({"error": {"message": "min_p is not supported", "code": 400}}, "[DONE]")


@case("failed", "error inside HTTP 200, code 500: engine died")
async def error_500_inside_200(wire: Wire) -> None:
    await wire.stream({"error": {"message": "engine died", "code": 500}}, "[DONE]")


@case("failed", "error inside HTTP 200, code 500: boom")
async def error_mid_stream(wire: Wire) -> None:
    await wire.stream(ROLE, delta(content="x"), {"error": {"message": "boom", "code": 500}}, "[DONE]")


@case("refused", "error inside HTTP 200, code 404: no such model")
async def error_as_object(wire: Wire) -> None:
    await wire.stream({"object": "error", "message": "no such model", "code": 404}, "[DONE]")


@case("failed", "error inside HTTP 200, code None: odd")
async def error_without_code(wire: Wire) -> None:
    await wire.stream({"error": {"message": "odd"}}, "[DONE]")


@case("failed", "an error event: overloaded")
async def named_error_event(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    await wire.piece(b"event: error\ndata: overloaded\n\n")
    await wire.raw(b"0\r\n\r\n")


@case("refused", "error inside HTTP 200, code 422: no")
async def json_error_with_200(wire: Wire) -> None:
    await wire.plain("200 OK", "application/json", '{"error": {"message": "no", "code": 422}}')


@case("failed", "HTTP 200 carried application/json")
async def not_streaming(wire: Wire) -> None:
    await wire.plain("200 OK", "application/json", '{"choices": [{"message": {"content": "x"}}]}')


@case("failed", "HTTP 200 carried text/html")
async def page_with_200(wire: Wire) -> None:
    await wire.plain("200 OK", "text/html", "<html>welcome</html>")


@case("failed", "no JSON object: {broken")
async def broken_json(wire: Wire) -> None:
    await wire.stream(ROLE, "{broken", END, usage(1), "[DONE]")


@case("failed", "no JSON object")
async def json_that_is_no_object(wire: Wire) -> None:
    await wire.stream("[1, 2]", END, usage(1), "[DONE]")


@case("failed", "longer than")
async def endless_line(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    with suppress(ConnectionError):
        while True:
            await wire.piece(b"x" * (256 << 10))


@case("refused", "HTTP 400 Bad Request: error, code 400: too long")
async def http_400_json(wire: Wire) -> None:
    body = '{"error": {"message": "too long", "code": 400}}'
    await wire.plain("400 Bad Request", "application/json", body)


@case("refused", "HTTP 401 Unauthorized: error, code invalid_api_key: who are you?")
async def http_401_without_the_key(wire: Wire) -> None:
    body = '{"error": {"message": "who are you?", "code": "invalid_api_key"}}'
    known = "authorization: bearer " in wire.head.lower()
    await (wire.stream(*whole("a")) if known else wire.plain("401 Unauthorized", "application/json", body))


@case("refused", "HTTP 429 Too Many Requests: <p>slow down</p>")
async def http_429_page(wire: Wire) -> None:
    await wire.plain("429 Too Many Requests", "text/html", "<p>slow\n down</p>")


@case("failed", "HTTP 500 Internal Server Error: error, code 500: engine")
async def http_500_json(wire: Wire) -> None:
    body = '{"object": "error", "message": "engine", "code": 500}'
    await wire.plain("500 Internal Server Error", "application/json", body)


@case("failed", "HTTP 502 Bad Gateway: <html>")
async def http_502_page(wire: Wire) -> None:
    await wire.plain("502 Bad Gateway", "text/html", "<html>bad gateway</html>")


@case("failed", "HTTP 503 Service Unavailable")
async def http_503_that_stalls(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\nsorr")
    await asyncio.sleep(60)


@case("failed", "HTTP 204")
async def no_content(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 204 No Content\r\n\r\n")


@case("refused", "HTTP 307 Temporary Redirect: redirect to /elsewhere, not followed")
async def redirect(wire: Wire) -> None:
    await wire.plain("307 Temporary Redirect", "text/plain", "", "Location: /elsewhere\r\n")


@case("refused", "HTTP 301 Moved Permanently: redirect to http://127.0.0.1:9/v1, not followed")
async def redirect_to_another_host(wire: Wire) -> None:
    await wire.plain("301 Moved Permanently", "text/html", "<p>gone</p>", "Location: http://127.0.0.1:9/v1\r\n")


@case("failed", "size of a chunk is no number")
async def garbage_after_an_event(wire: Wire) -> None:
    """In one packet: what came before the fault was heard."""
    event = sse(delta(content="x"))
    await wire.raw(STREAM_HEAD + b"%x\r\n%b\r\n+5\r\nabcde\r\n" % (len(event), event))


@case("completed")
async def garbage_after_done(wire: Wire) -> None:
    """In one packet with the end, which settles everything."""
    content = b"".join(sse(one) for one in whole("a"))
    await wire.raw(STREAM_HEAD + b"%x\r\n%b\r\n+5\r\nabcde\r\n" % (len(content), content))


@case("failed", ".")
async def reset_before_headers(wire: Wire) -> None:
    wire.reset()


@case("failed", ".")
async def closed_before_headers(wire: Wire) -> None:
    wire.writer.close()


@case("failed", ".")
async def reset_after_headers(wire: Wire) -> None:
    await wire.begin()
    await asyncio.sleep(0.01)
    wire.reset()


@case("failed", ".")
async def reset_mid_stream(wire: Wire) -> None:
    await wire.begin(ROLE, delta(content="x"))
    await asyncio.sleep(0.01)
    wire.reset()


@case("failed", ".")
async def closed_inside_a_chunk(wire: Wire) -> None:
    await wire.begin(ROLE)
    await wire.raw(b"ff\r\ndata: {")


@case("failed", ".")
async def no_http(wire: Wire) -> None:
    await wire.raw(b"SSH-2.0-OpenSSH_9.2\r\n")


@case("timed_out", "still open at the end of the drain")
async def never_answers(wire: Wire) -> None:
    await asyncio.sleep(60)


@case("timed_out", "still open at the end of the drain")
async def headers_then_silence(wire: Wire) -> None:
    await wire.begin()
    await asyncio.sleep(60)


@case("timed_out", "still open at the end of the drain")
async def stall_mid_stream(wire: Wire) -> None:
    await wire.begin(ROLE, delta(content="x"))
    await asyncio.sleep(60)


@case("timed_out", "still open at the end of the drain")
async def only_comments(wire: Wire) -> None:
    await wire.raw(STREAM_HEAD)
    while True:
        await wire.piece(b": keep-alive\n\n")
        await asyncio.sleep(0.05)


async def steady(wire: Wire) -> None:
    """``steady TOKENS GAP_MS``: a well-behaved stream at an even pace."""
    tokens, gap = int(wire.words[1]), float(wire.words[2]) / 1000
    await wire.begin(ROLE)
    start = asyncio.get_running_loop().time()
    for number in range(1, tokens + 1):
        await asyncio.sleep(start + number * gap - asyncio.get_running_loop().time())
        words = ids(" word", [number]) if wire.asked.get("return_token_ids") else [delta(content=" word")]
        await wire.piece(sse(words[0]))
    for document in (END, usage(tokens), "[DONE]"):
        await wire.piece(sse(document))
    await wire.raw(b"0\r\n\r\n")


async def together(wire: Wire) -> None:
    """``together N``: nobody is answered before N requests are here, so a client that waits its turn waits for ever."""
    await wire.server.has_received(int(wire.words[1]))
    await wire.stream(*whole("at last"))


async def echo_everything(wire: Wire) -> None:
    """Repeats head and body of the request in a page of HTTP 400."""
    page = f"<pre>{wire.head}{json.dumps(wire.asked)}</pre>"
    await wire.plain("400 Bad Request", "text/html", page)


async def refuse_token_ids(wire: Wire) -> None:
    if "return_token_ids" in wire.asked:
        message = "Unrecognized request argument supplied: return_token_ids"
        await wire.plain("400 Bad Request", "application/json", json.dumps({"error": {"message": message}}))
    else:
        await wire.stream(*whole("a"))


async def die(wire: Wire) -> None:
    """The server's process ends on the spot."""
    os._exit(1)


async def no_such_case(wire: Wire) -> None:
    """Whoever names no case is told so: a test that misspells one must not wait for an answer."""
    body = json.dumps({"error": {"message": f"no such case: {' '.join(wire.words)}", "code": 404}})
    await wire.plain("404 Not Found", "application/json", body)


def words_of(content: Any) -> list[str]:
    """Other clients send a content in parts."""
    parts = content if isinstance(content, list) else [content]
    return " ".join(str(one.get("text", "")) if isinstance(one, dict) else str(one) for one in parts).split()


# Well-behaved, or beyond any status of one request.
UNUSUAL: dict[str, Act] = {"steady": steady, "together": together, "die": die}
UNUSUAL |= {"echo-everything": echo_everything, "refuse-token-ids": refuse_token_ids}


@dataclass
class HostileServer:
    """``received`` has, for each chat, when it arrived (monotonic ns) and its body; ``open`` counts those in work."""

    port: int = 0
    received: list[tuple[int, bytes]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    open: int = 0
    scheme: str = "http"
    owner: str = "somebody"
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def has_received(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.received) >= count)

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.answer(reader, writer)
        finally:
            self.open -= 1
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET"):
            models = json.dumps({"data": [{"id": "hostile", "owned_by": self.owner}]})
            await Wire(writer, [], self).plain("200 OK", "application/json", models, "Connection: close\r\n")
            return
        lengths = [line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length")]
        body = await reader.readexactly(int(lengths[0]))
        self.heads.append(head)
        self.received.append((time.monotonic_ns(), body))
        async with self.arrived:
            self.arrived.notify_all()
        asked = json.loads(body)
        words = words_of(asked["messages"][-1]["content"] if "messages" in asked else asked["prompt"])
        name = words[0] if words else ""
        act = CASES[name].act if name in CASES else UNUSUAL.get(name, no_such_case)
        await act(Wire(writer, words, self, asked, head))


@asynccontextmanager
async def hostile_server(tls: ssl.SSLContext | None = None, owner: str = "somebody") -> AsyncIterator["HostileServer"]:
    server = HostileServer(scheme="https" if tls else "http", owner=owner)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1024, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def waiting_cases() -> list[str]:
    """The cases that only the end of the drain ends."""
    return [name for name, one in CASES.items() if one.status == "timed_out" or name == "http-503-that-stalls"]


async def main() -> None:
    async with hostile_server() as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
