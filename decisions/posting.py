"""Posts one message to an address: within the hosts that are allowed, following nothing, and never for long."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Timer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from decisions.rules.delivery import address_problem, reach_problem
from loadtests.generator.said import brief_text, printable

CONNECT_S, WHOLE_S = 5.0, 15.0
MOST_TRIED = 2
# Of an answer: what a page shows of it.
MOST_READ = 2_000
SUCCESS = range(200, 300)


@dataclass(frozen=True)
class Posted:
    """``status`` None: there was no answer, and ``words`` says why; else they are the beginning of it."""

    status: int | None
    words: str

    @property
    def arrived(self) -> bool:
        return self.status in SUCCESS


def post(
    address: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    hosts: Collection[str],
    plain_loopback: bool,
    whole_s: float = WHOLE_S,
) -> Posted:
    """The host is looked up once, and what it leads to is what is connected to. Proxies of the environment are not
    asked. An answer that leads elsewhere is an answer like another, and no success."""
    problem = address_problem(address, hosts, plain_loopback=plain_loopback)
    if problem:
        return Posted(None, problem)
    parts = urlsplit(address)
    try:
        return exchanged(parts, body, headers, hosts, plain_loopback, whole_s)
    except (OSError, http.client.HTTPException) as error:
        return Posted(None, one_line(said(error)))


def exchanged(
    parts: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    hosts: Collection[str],
    plain_loopback: bool,
    whole_s: float,
) -> Posted:
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    plain = connected(reachable(host, port, hosts, plain_loopback), port)
    spoken = tls(plain, host) if secure else plain
    with spoken, ended_after(spoken, whole_s):
        if isinstance(spoken, ssl.SSLSocket):
            spoken.do_handshake()
        connection = http.client.HTTPConnection(host, port)
        connection.sock = spoken
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, {"Host": parts.netloc, **headers})
        answer = connection.getresponse()
        return Posted(answer.status, one_line(answer.read(MOST_READ).decode("utf-8", "replace")))


def reachable(host: str, port: int, hosts: Collection[str], plain_loopback: bool) -> list[str]:
    """The addresses of the host. One that is refused refuses them all: which of them comes first is not ours to say."""
    found = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for one in found:
        problem = reach_problem(one, hosts, plain_loopback=plain_loopback)
        if problem:
            raise OSError(problem)
    return found


def connected(addresses: list[str], port: int) -> socket.socket:
    for one in addresses[: MOST_TRIED - 1]:
        with suppress(OSError):
            return socket.create_connection((one, port), timeout=CONNECT_S)
    return socket.create_connection((addresses[-1], port), timeout=CONNECT_S)


def tls(plain: socket.socket, host: str) -> ssl.SSLSocket:
    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
    except BaseException:
        plain.close()
        raise


@contextmanager
def ended_after(spoken: socket.socket, seconds: float) -> Iterator[None]:
    """A time-out of a socket is between two bytes: one that sends a byte a second would be heard for hours."""
    over: list[bool] = []

    def end() -> None:
        over.append(True)
        with suppress(OSError):
            # The socket's own: that of TLS would take its state away from under the thread that reads.
            socket.socket.shutdown(spoken, socket.SHUT_RDWR)

    timer = Timer(seconds, end)
    spoken.settimeout(seconds)
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if over or isinstance(error, TimeoutError):
            raise TimeoutError(f"no whole answer within {seconds:g} s") from None
        raise
    finally:
        timer.cancel()


def said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return str(error) if "answer" in str(error) else f"no connection within {CONNECT_S:g} s"
    if isinstance(error, socket.gaierror):
        return f"its host can't be found: {error.strerror}"
    if isinstance(error, http.client.HTTPException):
        return f"no HTTP answer came ({type(error).__name__})"
    return str(error)


def one_line(text: str) -> str:
    """What a page and a database can hold of it."""
    return printable(brief_text(text)) if text.strip() else ""


def encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
