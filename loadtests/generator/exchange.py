"""One request and its answer over the wire."""

import errno
import time
from dataclasses import dataclass, field

import aiohttp

from loadtests.generator.answer import Answer, Outcome, brief_text, error_outcome, outcome_of_code, parse
from loadtests.generator.endpoint import describe
from loadtests.generator.sse import EventParser, EventTooLong

MAX_BODY_BYTES = 64 << 10
# Errors that say the client's own machine ran out of something: never the server's failure.
CLIENT_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


class Clock:
    """Nanoseconds from the trial's start on the monotonic clock."""

    def __init__(self, zero_ns: int) -> None:
        self.zero_ns = zero_ns

    def now(self) -> int:
        return time.monotonic_ns() - self.zero_ns


@dataclass(slots=True)
class Exchange:
    """What happened to one request so far. ``outcome`` stays None while it is open; one is ``queued`` from when it
    finds no free slot."""

    body: bytes
    queued: bool = False
    due_ns: int | None = None
    sent_ns: int | None = None
    ended_ns: int | None = None
    outcome: Outcome | None = None
    answer: Answer = field(default_factory=Answer)
    client_fault: str | None = None


async def converse(exchange: Exchange, session: aiohttp.ClientSession, url: str, clock: Clock) -> None:
    """Send the request and hear it out; afterwards the exchange has its outcome, unless we were cancelled first."""
    exchange.sent_ns = clock.now()
    try:
        async with session.post(url, data=exchange.body, allow_redirects=False) as response:
            await hear(exchange, response, clock)
    except (aiohttp.ClientError, OSError, EventTooLong) as error:
        broken(exchange, error)
    except Exception as error:
        exchange.client_fault = f"the client failed: {type(error).__name__}: {error}"
        exchange.outcome = Outcome("failed", brief_text(exchange.client_fault))
    finally:
        exchange.ended_ns = clock.now()


def broken(exchange: Exchange, error: Exception) -> None:
    if getattr(error, "errno", None) in CLIENT_ERRNOS:
        exchange.client_fault = f"the client's machine ran out of something: {describe(error)}"
    exchange.outcome = exchange.outcome or Outcome("failed", brief_text(describe(error)))


async def hear(exchange: Exchange, response: aiohttp.ClientResponse, clock: Clock) -> None:
    if response.status != 200:
        # Settled before its text is read: a body that stalls changes nothing.
        reason = f"HTTP {response.status} {response.reason or ''}".strip()
        exchange.outcome = outcome_of_code(response.status, reason)
        exchange.outcome = outcome_of_code(response.status, f"{reason}: {await told(response)}")
    elif response.content_type in ("application/json", "text/html"):
        exchange.outcome = Outcome("failed", f"HTTP 200 carried {response.content_type}, no stream of events")
        exchange.outcome = error_outcome(parse(await body_of(response)), "error inside HTTP 200") or exchange.outcome
    else:
        await listen(response, exchange.answer, clock)
        exchange.outcome = exchange.answer.conclude()


async def listen(response: aiohttp.ClientResponse, answer: Answer, clock: Clock) -> None:
    """Hear the stream until it ends, or until nothing in it can matter any more."""
    parser = EventParser()
    async for packet in response.content.iter_any():
        now_ns = clock.now()
        for event in parser.feed(packet):
            answer.take(event, now_ns)
        if answer.settled:
            return


async def body_of(response: aiohttp.ClientResponse) -> str:
    content = b""
    async for packet in response.content.iter_any():
        content += packet
        if len(content) >= MAX_BODY_BYTES:
            break
    return content[:MAX_BODY_BYTES].decode("utf-8", "replace")


async def told(response: aiohttp.ClientResponse) -> str:
    """The reason in the body of an HTTP error, whether it is JSON or a page; where a redirect points to."""
    if "Location" in response.headers:
        return f"redirect to {response.headers['Location']}, not followed"
    text = await body_of(response)
    said = error_outcome(parse(text), "error")
    return (said.error if said else None) or text
