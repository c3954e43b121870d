"""The client's own floor: what it adds to a server that answers at once, before any engine is started."""

import asyncio
import os
import resource
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import uvloop

from loadtests.evidence.records import RequestRecord
from loadtests.evidence.summary import NS_PER_MS, percentiles
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.several import run_several
from loadtests.generator.trial import TrialRun
from loadtests.generator.zero_latency import MODEL
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Message, Row

LAG_LIMIT_MS = 10.0
DRAIN_S = 10.0
# What is slower than this is not the client's doing.
SLOWEST_RATE = 0.5
SCHEMA = "draftproof.self-test/1"


@dataclass(frozen=True)
class Floor:
    """What a trial of streams from a zero-latency server in a process of its own showed. Times in ms; those *added* are
    what the client saw beyond what the server says it took itself, the connection included."""

    rate: float
    stream_tokens: int
    gap_ms: float
    duration_s: float
    processes: int
    planned: int
    completed: int
    lag_ms: dict[str, float] | None
    added_first_token_ms: dict[str, float] | None
    added_completion_ms: dict[str, float] | None
    cpu_ms_per_request: float

    def holds(self, limit_ms: float = LAG_LIMIT_MS) -> bool:
        """Can this machine's client send at this rate, with a lag p99 within the limit?"""
        return self.completed == self.planned and self.lag_ms is not None and self.lag_ms["p99"] <= limit_ms

    def refusal(self, limit_ms: float = LAG_LIMIT_MS) -> str:
        """Why a level of this rate can't be measured from here, in a sentence; empty where it can."""
        if self.holds(limit_ms):
            return ""
        by = "one process" if self.processes == 1 else f"{self.processes} processes"
        sending = f"The client can't hold {self.rate:g} requests per second on this machine with {by}: against a server"
        if self.completed < self.planned:
            return f"{sending} that answers at once {self.planned - self.completed} of {self.planned} did not complete."
        late = (self.lag_ms or {})["p99"]
        return f"{sending} that answers at once they left {late:.1f} ms late (p99; limit {limit_ms:g} ms)."

    @property
    def document(self) -> dict[str, Any]:
        return {"schema": SCHEMA} | asdict(self)


class RateNotHeld(ValueError):
    """This machine's client can't send that fast, however many processes it is."""


def sufficient_floor(rate: float, *, limit_ms: float, most_processes: int, duration_s: float) -> Floor:
    """The floor with as many processes as the rate takes, doubled from one; raises RateNotHeld, which says what the
    client could hold."""
    for processes in tries(most_processes):
        floor = self_test(rate, duration_s=duration_s, processes=processes)
        if floor.holds(limit_ms):
            return floor
    held = slower_rate(floor, limit_ms)
    could = f"It held {held:g} per second." if held else "It held no rate: something else keeps this machine busy."
    raise RateNotHeld(f"{floor.refusal(limit_ms)} {could}")


def tries(most_processes: int) -> list[int]:
    """The last one twice: a machine may have been busy for a moment."""
    doubled = [2**power for power in range(most_processes.bit_length()) if 2**power < most_processes]
    return [*doubled, most_processes, most_processes]


def slower_rate(floor: Floor, limit_ms: float) -> float:
    """The first of the halves of a rate that isn't held that is; 0 where none is."""
    rate = floor.rate / 2
    while rate >= SLOWEST_RATE:
        if self_test(rate, duration_s=floor.duration_s, processes=floor.processes).holds(limit_ms):
            return rate
        rate /= 2
    return 0.0


def self_test(
    rate: float,
    *,
    stream_tokens: int = 64,
    gap_ms: float = 5.0,
    duration_s: float = 10.0,
    processes: int = 1,
) -> Floor:
    """Measure the client at a constant rate for ``duration_s``, against streams of ``stream_tokens`` events that come
    ``gap_ms`` apart (0: all at once). It takes some seconds more. Raises OSError where the server can't be started.
    """
    return uvloop.run(measured_floor(rate, stream_tokens, gap_ms, duration_s, processes))


async def measured_floor(rate: float, stream_tokens: int, gap_ms: float, duration_s: float, processes: int) -> Floor:
    planned = constant_plan(rate, duration_s, stream_tokens)
    before = cpu_s()
    async with zero_latency(stream_tokens, gap_ms) as base_url:
        run = await run_several(
            planned,
            Endpoint(base_url, MODEL),
            processes=processes,
            level="self-test",
            window_s=duration_s,
            drain_s=DRAIN_S + stream_tokens * gap_ms / 1_000,
        )
        used_s = cpu_s() - before
    return floor_of(run, rate, stream_tokens, gap_ms, processes, used_s)


def floor_of(run: TrialRun, rate: float, stream_tokens: int, gap_ms: float, processes: int, used_s: float) -> Floor:
    done = [one for one in run.records if one.status == "completed"]
    return Floor(
        rate=rate,
        stream_tokens=stream_tokens,
        gap_ms=gap_ms,
        duration_s=run.window_s,
        processes=processes,
        planned=len(run.records),
        completed=len(done),
        lag_ms=run.lag_ms,
        added_first_token_ms=percentiles(added(done, decoding=False)),
        added_completion_ms=percentiles(added(done, decoding=True)),
        cpu_ms_per_request=round(used_s * 1_000 / max(1, len(run.records)), 3),
    )


def added(records: Iterable[RequestRecord], *, decoding: bool) -> Iterable[float]:
    """Milliseconds from sending to the first or last token, without those that the server says it took."""
    for one in records:
        seen = one.last_token_ns if decoding else one.first_token_ns
        if seen is not None and one.sent_ns is not None and one.server_prefill_ms is not None:
            served = one.server_prefill_ms + (one.server_decode_ms or 0 if decoding else 0)
            yield (seen - one.sent_ns) / NS_PER_MS - served


def constant_plan(rate: float, duration_s: float, max_tokens: int) -> list[PlannedRequest]:
    row = Row(
        id="self-test",
        conversation="self-test",
        arrival_s=0,
        class_="self-test",
        messages=(Message(role="user", content="What is the floor? " * 20),),
        max_tokens=max_tokens,
    )
    times = (round(number * NANOSECONDS / rate) for number in range(max(1, round(rate * duration_s))))
    return [PlannedRequest(f"self-test-{number:06d}", 0, row, at) for number, at in enumerate(times)]


def cpu_s() -> float:
    """Of this process and those it has waited for; the server's isn't in it until it has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@asynccontextmanager
async def zero_latency(stream_tokens: int, gap_ms: float) -> AsyncIterator[str]:
    """The server in a process of its own; yields its address."""
    command = [sys.executable, "-m", "loadtests.generator.zero_latency"]
    options = ["--tokens", str(stream_tokens), "--gap-ms", str(gap_ms)]
    process = await asyncio.create_subprocess_exec(*command, *options, stdout=PIPE)
    try:
        assert process.stdout is not None
        port = (await process.stdout.readline()).decode().strip()
        if not port:
            raise OSError(f"the zero-latency server did not start on {os.uname().nodename}")
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
