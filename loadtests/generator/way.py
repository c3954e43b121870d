"""The way to a server: its addresses, and one connection for each request."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from loadtests.generator.endpoint import Endpoint

AGENT = "draftproof"


class Listener(Protocol):
    """Who hears the answer. ``take`` says whether all is said, ``end`` that no more will come; both may raise."""

    def take(self, data: bytes) -> bool: ...

    def end(self) -> None: ...


class Conversation(asyncio.Protocol):
    """Sends the request as soon as there is a connection, and passes on what comes, as it comes: nothing is queued
    between the socket and the listener, so a moment that the listener notes is that of the packet."""

    def __init__(self, request: bytes, listener: Listener) -> None:
        self.request, self.listener = request, listener
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over.add_done_callback(heard)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of it.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.over.done():
            return
        try:
            if self.listener.take(data):
                self.over.set_result(None)
        except Exception as error:
            self.over.set_exception(error)

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.over.done():
            return
        try:
            if error is not None:
                raise error
            self.listener.end()
            self.over.set_result(None)
        except Exception as fault:
            self.over.set_exception(fault)


def heard(over: asyncio.Future[None]) -> None:
    """The loop would print the fault of an answer whose request was given up meanwhile, in the server's own words."""
    if not over.cancelled():
        over.exception()


class Way:
    """Every request gets a connection of its own. A kept connection may be reset by the server's idle timer just as we
    write to it; that is no failure of the server, yet nobody can tell the two apart, and sending a POST again could
    generate twice. The price is one handshake per request, the same in both arms.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.tls = tls_of(endpoint)
        self.addresses: list[tuple[str, int]] = []

    async def find(self) -> None:
        """Look the host's addresses up, once for all requests; raises OSError."""
        host, port = self.endpoint.host, self.endpoint.port
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.addresses = list(dict.fromkeys((str(one[4][0]), port) for one in found))

    async def ask(self, request: bytes, listener: Listener) -> None:
        """Send a request and hear its answer out; raises OSError and what the listener raises. Cancelled, it closes the
        connection at once."""
        conversation = await self.connect(lambda: Conversation(request, listener))
        try:
            await conversation.over
        finally:
            conversation.transport.abort()

    async def connect(self, make: Callable[[], Conversation]) -> Conversation:
        if not self.addresses:
            await self.find()
        loop, refused = asyncio.get_running_loop(), OSError("the host has no address")
        for address in list(self.addresses):
            try:
                _, conversation = await loop.create_connection(
                    make, *address, ssl=self.tls, server_hostname=self.endpoint.host if self.tls else None
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                # Whoever answers at another address is asked there first from now on.
                refused = error
                self.addresses.append(self.addresses.pop(0))
            else:
                return conversation
        raise refused


def tls_of(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Raises ValueError where the CA bundle can't be read, or nothing would be checked against it."""
    if not endpoint.secure:
        if endpoint.ca_bundle is not None:
            raise ValueError(
                f"{endpoint.base_url} is asked without TLS, so nothing would be checked against the CA bundle "
                f"{endpoint.ca_bundle}: give an https:// address, or leave the bundle out"
            )
        return None
    try:
        return ssl.create_default_context(cafile=endpoint.ca_bundle)
    except OSError as error:
        raise ValueError(f"the CA bundle {endpoint.ca_bundle} can't be used: {error}") from None


def request_of(endpoint: Endpoint, method: str, path: str, body: bytes = b"") -> bytes:
    """The bytes of a request. Compression would let a proxy hold events back until its block is full."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {endpoint.authority}",
        f"User-Agent: {AGENT}",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        "Connection: close",
    ]
    lines += [f"Authorization: Bearer {endpoint.api_key}"] if endpoint.api_key else []
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if method == "POST" else []
    return "\r\n".join([*lines, "", ""]).encode() + body
