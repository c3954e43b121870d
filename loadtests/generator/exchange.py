"""One request and its answer over the wire."""

import errno
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from loadtests.generator.answer import Answer, Outcome
from loadtests.generator.endpoint import describe
from loadtests.generator.hearing import Hearing
from loadtests.generator.http_answer import BadAnswer
from loadtests.generator.said import Clean, Secrets, brief_text
from loadtests.generator.sse import EventTooLong
from loadtests.generator.way import Way

# Errors that say the client's own machine ran out of something: never the server's failure.
CLIENT_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
NO_SECRETS = Secrets()
RAN_OUT, BROKE = "the client's machine ran out of something", "the client failed"


def client_faults(findings: Iterable[str]) -> list[str]:
    """Those of a trial's findings that say that a request failed by the client's own fault."""
    return [one for one in findings if one.partition(" requests: ")[2].startswith((RAN_OUT, BROKE))]


class Clock:
    """Nanoseconds from the trial's start on the monotonic clock."""

    def __init__(self, zero_ns: int) -> None:
        self.zero_ns = zero_ns

    def now(self) -> int:
        return time.monotonic_ns() - self.zero_ns


class Names(NamedTuple):
    finish_reason: Clean | None
    fingerprint: Clean | None


class Said(NamedTuple):
    """The words of a server that are kept of one request, and no other are: the rest is numbers and a digest."""

    error: Clean | None
    finish_reason: Clean | None
    fingerprint: Clean | None


@dataclass(slots=True)
class Exchange:
    """What happened to one request so far. ``outcome`` stays None while it is open; one is ``queued`` from when it
    finds no free slot."""

    request: bytes
    stream: bool = True
    queued: bool = False
    due_ns: int | None = None
    sent_ns: int | None = None
    ended_ns: int | None = None
    outcome: Outcome | None = None
    answer: Answer = field(default_factory=Answer)
    client_fault: str | None = None
    secrets: Secrets = NO_SECRETS

    def said(self, prompts: Sequence[str]) -> Said:
        """Without what it repeats of the request. Not while requests are under way, for it takes its time."""
        error = self.outcome.error if self.outcome else None
        return Said(None if error is None else self.secrets.reason(error, prompts), *self.names(prompts))

    def names(self, prompts: Sequence[str]) -> Names:
        """What is said without a sentence, and can be told in no time: also while requests are under way."""
        reason, fingerprint = self.answer.finish_reason, self.answer.fingerprint
        return Names(
            finish_reason=None if reason is None else self.secrets.finish_reason(reason, prompts),
            fingerprint=None if fingerprint is None else self.secrets.name(fingerprint, prompts),
        )

    def fault(self, prompts: Sequence[str]) -> Clean | None:
        """How the client itself failed: what it stumbled over may be the server's words."""
        return None if self.client_fault is None else self.secrets.reason(self.client_fault, prompts)


class Listening:
    """Hears an exchange's answer: each packet at the moment at which it came."""

    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        self.exchange, self.clock = exchange, clock
        self.hearing = Hearing(exchange.answer, stream=exchange.stream, secrets=exchange.secrets)

    def take(self, data: bytes) -> bool:
        now_ns = self.clock.now()
        try:
            over = self.hearing.take(data, now_ns)
        finally:
            # An error that is known stays what it is, whatever its text turns out to be.
            self.exchange.outcome = self.hearing.outcome
        if over:
            self.exchange.ended_ns = now_ns
        return over

    def end(self) -> None:
        self.exchange.ended_ns = self.clock.now()
        self.hearing.end(self.exchange.ended_ns)
        self.exchange.outcome = self.hearing.outcome


async def converse(exchange: Exchange, way: Way, clock: Clock) -> None:
    """Send the request and hear it out; afterwards the exchange has its outcome, unless we were cancelled first."""
    exchange.sent_ns = clock.now()
    try:
        await way.ask(exchange.request, Listening(exchange, clock))
    except (OSError, BadAnswer, EventTooLong) as error:
        broken(exchange, error)
    except Exception as error:
        exchange.client_fault = brief_text(f"{BROKE}: {type(error).__name__}: {error}")
        exchange.outcome = Outcome("failed", exchange.client_fault)
    finally:
        exchange.ended_ns = exchange.ended_ns or clock.now()


def broken(exchange: Exchange, error: Exception) -> None:
    if getattr(error, "errno", None) in CLIENT_ERRNOS:
        exchange.client_fault = f"{RAN_OUT}: {describe(error)}"
    exchange.outcome = exchange.outcome or Outcome("failed", brief_text(describe(error)))
