"""``python -m loadtests.generator.zero_latency``: a server that costs next to nothing, to measure a client by.

It answers every request at once with a stream of the size and pace that its options say, whatever was asked, and tells
in the answer's ``metrics`` how long it took itself. Prints its port, and serves until it is ended. GET /times gives,
for every request since the last such question, [received, first token written, last token written]: nanoseconds on
the monotonic clock that all processes of a machine share.
"""

import asyncio
import json
import socket
import sys
import time
from functools import partial
from typing import cast

import click
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
HEAD += b"Connection: close\r\n\r\n"
LAST = b"0\r\n\r\n"
MODEL = "zero-latency"
NS_PER_MS = 1_000_000
Times = list[list[int]]


def piece(document: object) -> bytes:
    """An event as one piece of a chunked body."""
    event = f"data: {document if isinstance(document, str) else json.dumps(document)}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def chunk(**fields: object) -> dict[str, object]:
    """As long as those of vLLM, so that hearing it costs a client as much."""
    frame = {"id": f"chatcmpl-{'0' * 32}", "object": "chat.completion.chunk", "created": 1_800_000_000}
    return frame | {"model": MODEL, "choices": []} | fields


def choice(delta: dict[str, object], finish: str | None = None, **more: object) -> list[dict[str, object]]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish} | more]


ROLE = piece(chunk(choices=choice({"role": "assistant", "content": ""})))
TOKEN = piece(chunk(choices=choice({"content": " word"})))
TOKEN_WITH_ID = piece(chunk(choices=choice({"content": " word"}, token_ids=[2215])))
END = piece(chunk(choices=choice({"content": ""}, "length", stop_reason=None)))
DONE = piece("[DONE]")


class Answering(asyncio.Protocol):
    """One connection, one request, one answer."""

    def __init__(self, tokens: int, gap_ns: int, times: Times) -> None:
        self.tokens, self.gap_ns, self.times = tokens, gap_ns, times
        self.heard = b""
        self.left = tokens
        self.told: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of it.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        head, found, body = self.heard.partition(b"\r\n\r\n")
        if found and head.startswith(b"GET"):
            self.look(head)
        elif found and len(body) >= length_in(head):
            self.answer(body)

    def look(self, head: bytes) -> None:
        if head.startswith(b"GET /times"):
            self.document(self.times)
            self.times.clear()
        else:
            # Clients ask for the model list, and some for metrics.
            self.document({"data": [{"id": MODEL}]})

    def document(self, document: object) -> None:
        content = json.dumps(document).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        self.transport.write(head.encode() + b"Connection: close\r\n\r\n" + content)
        self.transport.close()

    def answer(self, body: bytes) -> None:
        self.told = [time.monotonic_ns()]
        self.times.append(self.told)
        self.token = TOKEN_WITH_ID if b'"return_token_ids":true' in body else TOKEN
        if self.gap_ns:
            self.transport.write(HEAD + ROLE)
            self.say()
        else:
            self.told += [time.monotonic_ns()] * 2
            self.transport.write(HEAD + ROLE + self.token * self.tokens + self.ending())
            self.transport.close()

    def say(self) -> None:
        """One token, and the next when it is due, whenever this one was said."""
        if self.transport.is_closing():
            return
        self.left -= 1
        now_ns = time.monotonic_ns()
        if len(self.told) == 1:
            self.told += [now_ns, now_ns]
        if self.left:
            self.transport.write(self.token)
            due_ns = self.told[1] + (self.tokens - self.left) * self.gap_ns
            asyncio.get_running_loop().call_later(max(0, due_ns - now_ns) / 1e9, self.say)
            return
        self.told[2] = now_ns
        self.transport.write(self.token + self.ending())
        self.transport.close()

    def ending(self) -> bytes:
        received, first, last = self.told
        usage = {"prompt_tokens": 1, "completion_tokens": self.tokens, "total_tokens": 1 + self.tokens}
        took = {"queue_time_ms": 0.0, "time_to_first_token_ms": (first - received) / NS_PER_MS}
        took |= {"generation_time_ms": (last - first) / NS_PER_MS}
        return END + piece(chunk(usage=usage, metrics=took)) + DONE + LAST


def length_in(head: bytes) -> int:
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return next((int(value) for name, _, value in lines if name.lower() == b"content-length"), 0)


async def serve(tokens: int, gap_ms: float) -> None:
    times: Times = []
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    answering = partial(Answering, tokens, round(gap_ms * NS_PER_MS), times)
    server = await asyncio.get_running_loop().create_server(answering, sock=listening, backlog=4096)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@click.command()
@click.option("--tokens", default=64, type=click.IntRange(1))
@click.option("--gap-ms", default=0.0, type=click.FloatRange(0))
def main(tokens: int, gap_ms: float) -> None:
    uvloop.run(serve(tokens, gap_ms))


if __name__ == "__main__":
    main()
