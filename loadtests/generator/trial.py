"""A trial: every planned request leaves at its time, and each ends in exactly one status."""

import asyncio
import gc
import resource
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from loadtests.canonical import canonical, digest
from loadtests.evidence.records import RequestRecord, Status, measured
from loadtests.evidence.summary import lag_ms
from loadtests.generator.alarm import Alarm, alarm
from loadtests.generator.answer import Outcome, count_of, counts_of, milliseconds_of
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.exchange import Clock, Exchange, Names, Said, converse
from loadtests.generator.progress import Progress, Tell, end_tasks, telling
from loadtests.generator.slots import Slots
from loadtests.generator.spool import Spool
from loadtests.generator.way import Way, request_of
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row, messages_of, request_body

# Time to get going before the trial's zero, so that a request planned at 0 isn't late.
LEAD_NS = 50_000_000
# Timers that bound how long a user waits are rounded to milliseconds either way: nobody gives up too early.
ROUNDED_S = 0.002
SERVER_ENDED = Outcome("failed", "the server's process had ended before this request was to leave")
# The end of the finding on a trial with a think time.
THOUGHT = "the answer before them: fit for exploring alone"
NO_TURN = "its turn did not come: the answer before it was late, or never came"


@dataclass(frozen=True)
class TrialRun:
    """The records in plan order, and what is true of the whole trial. ``started_at`` is UTC in ns since 1970; lag and
    fingerprints are those of the window."""

    records: list[RequestRecord]
    started_at: int
    window_s: float
    drain_s: float
    stopped: bool
    lag_ms: dict[str, float] | None
    fingerprints: dict[str | None, int]
    findings: list[str]


@dataclass(frozen=True)
class WarmUp:
    planned: int
    completed: int
    errors: list[str] = field(default_factory=list)


def prepared(row: Row, endpoint: Endpoint) -> tuple[bytes, str]:
    """The exact bytes sent for a row, and the digest of its messages. Raises ValueError where it can't be asked so."""
    body = request_body(row, endpoint.model, api=endpoint.api, stream=endpoint.stream, token_ids=endpoint.token_ids)
    return request_of(endpoint, "POST", endpoint.path, canonical(body)), digest(canonical(messages_of(row)))


def raise_file_limit() -> None:
    """Each open request is a file descriptor, and the soft limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Trial:
    def __init__(
        self,
        planned: Sequence[PlannedRequest],
        endpoint: Endpoint,
        server_alive: Callable[[], bool] | None = None,
        most_open: int | None = None,
        think_s: float | None = None,
    ) -> None:
        self.planned = list(planned)
        self.slots = Slots(most_open)
        self.endpoint = endpoint
        self.way = Way(endpoint)
        self.server_alive = server_alive
        # By the row itself, not by its index: what is sent must be what the plan holds.
        rows = {id(one.traffic_row): one.traffic_row for one in planned}
        sent = {key: prepared(row, endpoint) for key, row in rows.items()}
        self.prompts = [sent[id(one.traffic_row)][1] for one in planned]
        bodies = (sent[id(one.traffic_row)][0] for one in planned)
        self.exchanges = [Exchange(body, endpoint.stream, secrets=endpoint.secrets) for body in bodies]
        self.think_s = think_s
        self.next_turn = {} if think_s is None else next_turns(planned)
        self.open: set[asyncio.Task[None]] = set()
        # Of this program: what becomes of a request is in its exchange.
        self.faults: list[BaseException] = []
        self.sent = 0
        self.ended: Counter[str] = Counter()
        # Those that the spool has not got yet.
        self.unspooled: deque[int] = deque()
        self.clock = Clock(time.monotonic_ns())
        self.started_at = time.time_ns()

    async def depart(self, wake: Alarm) -> None:
        """Set each request off at its planned time. One that is overdue leaves at once; none is dropped."""
        later = set(self.next_turn.values())
        first = [index for index in range(len(self.planned)) if index not in later]
        for index in sorted(first, key=lambda one: self.planned[one].planned_ns):
            await wake.at(self.clock.zero_ns + self.planned[index].planned_ns)
            self.set_off(index)

    def set_off(self, index: int) -> None:
        task = asyncio.create_task(self.carry(index))
        self.open.add(task)
        task.add_done_callback(self.closed)

    def closed(self, task: asyncio.Task[None]) -> None:
        self.open.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            self.faults.append(fault)

    async def carry(self, index: int) -> None:
        """See one request through, until it has ended or its user gives up: then its connection is closed."""
        one, exchange = self.planned[index], self.exchanges[index]
        try:
            async with asyncio.timeout(self.patience_s(one)):
                await self.served(one, exchange)
        except TimeoutError:
            waited_s = ((one.give_up_ns or 0) - one.planned_ns) / NANOSECONDS
            exchange.ended_ns = exchange.ended_ns or self.clock.now()
            exchange.outcome = exchange.outcome or Outcome("cancelled", f"gave up as planned after {waited_s:g} s")
        self.ended.update([exchange.outcome.status] if exchange.outcome else [])
        self.unspooled.append(index)
        if index in self.next_turn:
            await self.think(self.next_turn[index], exchange.ended_ns or self.clock.now())

    async def think(self, index: int, answered_ns: int) -> None:
        """The next turn is planned anew, from the answer before it; one that falls behind the window isn't sent."""
        leaves_ns = answered_ns + round((self.think_s or 0) * NANOSECONDS)
        moved_ns = leaves_ns - self.planned[index].planned_ns
        give_up_ns = self.planned[index].give_up_ns
        if leaves_ns >= self.window_end_ns:
            return
        self.planned[index] = replace(
            self.planned[index],
            planned_ns=leaves_ns,
            give_up_ns=None if give_up_ns is None else give_up_ns + moved_ns,
        )
        await asyncio.sleep(max(0, leaves_ns - self.clock.now()) / NANOSECONDS)
        self.set_off(index)

    def patience_s(self, one: PlannedRequest) -> float | None:
        if one.give_up_ns is None:
            return None
        return (one.give_up_ns - self.clock.now()) / NANOSECONDS + ROUNDED_S

    async def served(self, one: PlannedRequest, exchange: Exchange) -> None:
        exchange.queued = self.slots.full
        exchange.due_ns = max(one.planned_ns, await self.slots.take())
        try:
            if self.server_alive is not None and not self.server_alive():
                exchange.outcome = SERVER_ENDED
                return
            self.sent += 1
            await converse(exchange, self.way, self.clock)
        finally:
            exchange.ended_ns = exchange.ended_ns or self.clock.now()
            self.slots.give_back(exchange.ended_ns)

    def end(self, exchange: Exchange, outcome: Outcome) -> None:
        exchange.outcome = outcome
        self.ended[outcome.status] += 1

    async def to_the_end(self) -> None:
        with alarm() as wake:
            await self.depart(wake)
        while self.open:
            await asyncio.wait(self.open)

    async def run(self, *, window_end_s: float, drain_s: float, stop: asyncio.Event, zero_ns: int | None) -> bool:
        """Until all have ended, the drain is over, or we are stopped; says whether we were."""
        with suppress(OSError):
            # Where the name can't be resolved, every request says so.
            await self.way.find()
        self.start(zero_ns or time.monotonic_ns() + LEAD_NS, window_end_s)
        everything = asyncio.create_task(self.to_the_end())
        stopping = asyncio.create_task(stop.wait())
        try:
            left_s = window_end_s + drain_s - self.clock.now() / NANOSECONDS
            await asyncio.wait({everything, stopping}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            self.close("cancelled" if stop.is_set() else "timed_out")
        finally:
            await end_tasks(everything, stopping, *self.open)
        if self.faults:
            raise self.faults[0]
        if not everything.cancelled():
            everything.result()
        return stop.is_set()

    def start(self, zero_ns: int, window_end_s: float) -> None:
        self.clock = Clock(zero_ns)
        self.started_at = time.time_ns() + zero_ns - time.monotonic_ns()
        self.window_end_ns = round(window_end_s * NANOSECONDS)

    def close(self, status: Status) -> None:
        """Give what is still open its status. What has its outcome keeps it."""
        reason = "stopped" if status == "cancelled" else "still open at the end of the drain"
        later = set(self.next_turn.values())
        for index, exchange in enumerate(self.exchanges):
            if exchange.outcome is None and exchange.sent_ns is not None:
                exchange.outcome = Outcome(status, reason)
            elif exchange.outcome is None and exchange.queued and status == "timed_out":
                # The client had done its part: it is the server that let this one wait.
                exchange.outcome = Outcome("timed_out", "still waiting for a free slot at the end of the drain")
            elif exchange.outcome is None:
                exchange.outcome = Outcome("not_sent", NO_TURN if index in later else reason)
        self.ended = Counter(one.outcome.status for one in self.exchanges if one.outcome)

    def just_ended(self) -> Iterator[tuple[str, Exchange, Names]]:
        """Asked from another thread, so one by one."""
        while self.unspooled:
            index = self.unspooled.popleft()
            one, exchange = self.planned[index], self.exchanges[index]
            yield one.request_id, exchange, exchange.names(contents_of(one))

    def progress(self) -> Progress:
        return Progress(len(self.planned), self.sent, dict(self.ended), max(0, self.clock.now()) / NANOSECONDS)

    def records(self, level: str) -> list[RequestRecord]:
        triples = zip(self.planned, self.prompts, self.exchanges, strict=True)
        return [
            record_of(one, prompt, exchange, level, exchange.said(contents_of(one)))
            for one, prompt, exchange in triples
        ]

    def findings(self) -> list[str]:
        found: Counter[str] = Counter()
        for one, exchange in zip(self.planned, self.exchanges, strict=True):
            found.update(exchange.answer.contradictions())
            fault = exchange.fault(contents_of(one))
            found.update([] if fault is None else [fault])
        counted = [f"{count} requests: {text}" for text, count in sorted(found.items())]
        if self.think_s is None:
            return counted
        return [*counted, f"later turns left {self.think_s:g} s after {THOUGHT}"]


def next_turns(planned: Sequence[PlannedRequest]) -> dict[int, int]:
    """From a request to the one that continues its conversation, by their places in the plan."""
    turns: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(planned)), key=lambda one: (planned[one].planned_ns, planned[one].traffic_row.turn)):
        turns[planned[index].traffic_row.conversation].append(index)
    return {one: other for indices in turns.values() for one, other in pairwise(indices)}


def contents_of(planned: PlannedRequest) -> list[str]:
    return [message.content for message in planned.traffic_row.messages]


def record_of(planned: PlannedRequest, prompt_sha256: str, exchange: Exchange, level: str, said: Said) -> RequestRecord:
    answer, outcome = exchange.answer, exchange.outcome
    if outcome is None:
        raise RuntimeError(f"request {planned.request_id} has no status: a fault of the generator")
    return RequestRecord(
        request_id=planned.request_id,
        row=planned.row,
        class_=planned.class_,
        level=level,
        prompt_sha256=prompt_sha256,
        prompt_tokens=answer.prompt_tokens,
        planned_ns=planned.planned_ns,
        sent_ns=exchange.sent_ns,
        first_token_ns=answer.first_token_ns,
        last_token_ns=answer.last_token_ns,
        ended_ns=exchange.ended_ns,
        server_queue_ms=milliseconds_of(answer.metrics.get("queue_time_ms")),
        server_prefill_ms=milliseconds_of(answer.metrics.get("time_to_first_token_ms")),
        server_decode_ms=milliseconds_of(answer.metrics.get("generation_time_ms")),
        status=outcome.status,
        finish_reason=said.finish_reason,
        output_tokens=answer.output_tokens,
        chunks=answer.chunks,
        rounds=count_of(answer.speculation.get("num_spec_steps")),
        draft_tokens=count_of(answer.speculation.get("num_draft_tokens")),
        accepted_tokens=count_of(answer.speculation.get("num_accepted_draft_tokens")),
        accepted_histogram=counts_of(answer.speculation.get("acceptance_histogram")),
        output_sha256=answer.output_sha256,
        error=said.error,
        fingerprint=said.fingerprint,
        due_ns=exchange.due_ns,
        give_up_ns=planned.give_up_ns,
        warm_up=planned.warm_up,
    )


@contextmanager
def steady_memory() -> Iterator[None]:
    """Keep the garbage collector from walking everything that was there before the trial: a pause is lag."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def spooling(trial: Trial, path: str | None, tell: Tell | None) -> Tell | None:
    if path is None:
        return tell
    spool = Spool(Path(path))

    def spool_and_tell(progress: Progress) -> None:
        spool.write(trial.just_ended(), trial.started_at)
        if tell is not None:
            tell(progress)

    return spool_and_tell


async def run_trial(
    planned: Sequence[PlannedRequest],
    endpoint: Endpoint,
    *,
    level: str,
    window_s: float,
    drain_s: float,
    warm_up_s: float = 0.0,
    max_concurrency: int | None = None,
    on_progress: Tell | None = None,
    stop: asyncio.Event | None = None,
    server_alive: Callable[[], bool] | None = None,
    think_s: float | None = None,
    zero_ns: int | None = None,
    spool: str | None = None,
) -> TrialRun:
    """Run the plan against the endpoint. The records are in plan order, one for each planned request, always.

    The window begins after ``warm_up_s``. With ``max_concurrency`` a request whose slot isn't free waits its turn.
    ``on_progress`` is called every second and at the end, always from the same thread, which is not the loop's.
    ``stop`` ends the trial early: open requests are cancelled, the rest not sent. While ``server_alive`` says no,
    requests fail at their planned time without a connection. ``think_s`` is for exploring alone: a conversation's later
    turns leave that long after the answer before them, whatever their planned time. ``zero_ns`` is the trial's zero
    on the monotonic clock, where somebody else has set it. ``spool`` names a file that is told every second what has
    ended. Raises ValueError where a row can't be asked so.
    """
    raise_file_limit()
    trial = Trial(planned, endpoint, server_alive, max_concurrency, think_s)
    end_s, stop = warm_up_s + window_s, stop or asyncio.Event()
    with steady_memory():
        async with telling(spooling(trial, spool, on_progress), trial.progress) as told:
            stopped = await trial.run(window_end_s=end_s, drain_s=drain_s, stop=stop, zero_ns=zero_ns)
    records = trial.records(level)
    return TrialRun(
        records=records,
        started_at=trial.started_at,
        window_s=window_s,
        drain_s=drain_s,
        stopped=stopped,
        lag_ms=lag_ms(records),
        fingerprints=dict(Counter(one.fingerprint for one in measured(records) if one.status == "completed")),
        findings=trial.findings() + told,
    )


async def warm_up(
    endpoint: Endpoint, requests: Sequence[dict[str, object]], *, concurrency: int = 4, timeout_s: float = 120
) -> WarmUp:
    """Send the request bodies, at most ``concurrency`` at a time, and wait for all; they are in no record."""
    path = replace(endpoint, api="chat").path
    exchanges = [
        Exchange(
            request_of(endpoint, "POST", path, canonical(body)), bool(body.get("stream")), secrets=endpoint.secrets
        )
        for body in requests
    ]
    slots, clock, way = asyncio.Semaphore(concurrency), Clock(time.monotonic_ns()), Way(endpoint)

    async def one(exchange: Exchange) -> None:
        async with slots:
            await converse(exchange, way, clock)

    tasks = [asyncio.create_task(one(exchange)) for exchange in exchanges]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
    finally:
        await end_tasks(*tasks)
    for exchange in exchanges:
        exchange.outcome = exchange.outcome or Outcome("timed_out", f"no answer in {timeout_s:g} s")
    errors = [
        f"{exchange.outcome.status}: {exchange.said(list(texts_in(body))).error}"
        for body, exchange in zip(requests, exchanges, strict=True)
        if exchange.outcome and exchange.outcome.status != "completed"
    ]
    return WarmUp(len(exchanges), len(exchanges) - len(errors), errors)


def texts_in(document: object) -> Iterator[str]:
    """Whatever a body says may be a prompt."""
    if isinstance(document, str):
        yield document
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    for one in inner:
        yield from texts_in(one)
