"""A server that messages are posted to, which answers as a test says, and a check of signatures by the words of the
Standard Webhooks specification alone."""

from __future__ import annotations

import hmac
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE_S = 300


@dataclass(frozen=True)
class Got:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """``drip``: the body a byte at a time, for ever. ``hang``: no answer until the receiver is closed."""

    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    drip: bool = False
    hang: bool = False


class Receiver:
    """Answers in turn as ``replies`` say, and 200 once they are over."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.got: list[Got] = []
        self.replies: list[Reply] = []
        self.heard, self.closed = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?for=draftproof"

    def take(self, got: Got) -> Reply:
        with self._lock:
            self.got.append(got)
            self.heard.set()
            return self.replies.pop(0) if self.replies else Reply()


@contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer(self, found.take(Got(self.path, headers, body)), found.closed)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        found.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


def answer(handler: BaseHTTPRequestHandler, reply: Reply, closed: threading.Event) -> None:
    try:
        if reply.hang:
            closed.wait()
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if not reply.drip:
            handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)
        while reply.drip and not closed.wait(0.05):
            handler.wfile.write(b".")
    except OSError:
        pass  # whoever asked is gone


def is_signed(got: Got, secret: str) -> bool:
    """By the specification: any of the signatures, over id, time and body, and not an old time."""
    key = b64decode(secret.removeprefix("whsec_"))
    name, at = got.headers["webhook-id"], got.headers["webhook-timestamp"]
    wanted = b64encode(hmac.new(key, f"{name}.{at}.".encode() + got.body, sha256).digest()).decode()
    given = [one.partition(",") for one in got.headers["webhook-signature"].split(" ")]
    fresh = abs(time.time() - int(at)) <= TOLERANCE_S
    return fresh and any(version == "v1" and hmac.compare_digest(signature, wanted) for version, _, signature in given)
