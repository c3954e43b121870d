"""A trial in virtual time: planned requests in; records, counters and gauges as of a real trial out."""

import math
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loadtests.canonical import digest_of
from loadtests.configurations import Speculative
from loadtests.evidence.records import RequestRecord, Status
from loadtests.simulator.counters import exposed, phases, with_open
from loadtests.simulator.engine import Engine, Sample
from loadtests.simulator.model import EngineModel, Speculation, speculation_of
from loadtests.simulator.pace import Pace
from loadtests.simulator.prompts import natural_length, pieces, prefix_blocks, rendered, too_long
from loadtests.simulator.sequence import Demand, FinishReason, Sequence
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import NANOSECONDS, Row, request_body

# Between two trials of a boot, in seconds.
SETTLE_S = 10.0
ENDED, DEPARTED, GAVE_UP = range(3)


@dataclass(frozen=True)
class SimulatedTrial:
    """Records in plan order, the engine's counters before and after, and in ``timeline`` its gauges in each second from
    the trial's start, with the preemptions counted from there. ``began_s`` is on the boot's clock."""

    records: list[RequestRecord]
    began_s: float
    before: dict[str, float]
    after: dict[str, float]
    timeline: list[Sample]

    @property
    def counters(self) -> dict[str, float]:
        """What the trial added to them."""
        return {name: value - self.before[name] for name, value in self.after.items()}


@dataclass(frozen=True, slots=True)
class Reading:
    """What the engine makes of a row, however often the row is sent."""

    prompt_sha256: str
    prompt_tokens: int
    output_tokens: int
    finish_reason: FinishReason
    prefix: tuple[bytes, ...]


# By the row's id; the row is kept beside its reading, so that no other row can come by its id.
Readings = dict[int, tuple[Row, Reading]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is the same about a row in every boot. ``blocks``: see ``prefix_blocks``; none where ``block_size`` is 0."""

    sha256: str
    tokens: int
    blocks: tuple[bytes, ...]


@lru_cache(2_048)
def prompt_of(row: Row, block_size: int) -> Prompt:
    prompt = pieces(rendered((message.role, message.content) for message in row.messages))
    content = digest_of(request_body(row, "")["messages"])
    return Prompt(content, len(prompt), prefix_blocks(prompt, block_size) if block_size else ())


@dataclass(slots=True, eq=False)
class Visit:
    """One planned request on its way; times are seconds of the boot's clock."""

    planned: PlannedRequest
    reading: Reading
    queued: bool = False
    due: float | None = None
    sequence: Sequence | None = None
    status: Status | None = None
    error: str | None = None
    ended: float | None = None
    chunks: int = 0
    first: float | None = None
    last: float | None = None


class Boot:
    """One start of one configuration in virtual time. Equal arguments and equal plans give equal records, in every
    process. ``seed`` is the boot's own: its speed, its pauses and what its rounds accept. ``content_seed`` belongs to
    the texts: which are easy to draft for and how long their answers are, the same in every boot. Boots of one content
    seed whose models differ in nothing but drafters and nuisances may share their ``readings``.

    Raises ValueError where the model can't run the speculative setting.
    """

    def __init__(
        self,
        model: EngineModel,
        speculative: Speculative | None = None,
        *,
        seed: int,
        content_seed: int = 0,
        fingerprint: str | None = None,
        readings: Readings | None = None,
    ) -> None:
        self.model, self.content_seed, self.fingerprint = model, content_seed, fingerprint
        self.engine = Engine(
            model,
            speculation_of(model, speculative),
            pace=Pace(model.nuisances, seed),
            seed=seed,
            content_seed=content_seed,
        )
        self._readings: Readings = {} if readings is None else readings

    def run_trial(
        self,
        planned: Several[PlannedRequest],
        *,
        level: str,
        window_s: float,
        drain_s: float,
        warm_up_s: float = 0.0,
        max_concurrency: int | None = None,
    ) -> SimulatedTrial:
        """Every planned request in exactly one status, as ``loadtests.generator.run_trial`` has it, without lag."""
        engine = self.engine
        before = self.counters()
        base, preemptions = engine.now, engine.totals.preemptions
        engine.samples, engine.next_sample = [], base
        visits = [Visit(one, self.reading(one.traffic_row)) for one in planned]
        close = base + warm_up_s + window_s + drain_s
        Client(self, visits, base=base, close=close, most_open=max_concurrency).run()
        engine.idle_until(base + warm_up_s + window_s)
        engine.next_sample = math.inf
        after = self.counters()
        records = [record_of(self, visit, level, base) for visit in visits]
        timeline = [relative(one, base, preemptions) for one in engine.samples if one.at_s <= close]
        engine.idle_until(engine.now + SETTLE_S)
        return SimulatedTrial(records, base, before, after, timeline)

    def counters(self) -> dict[str, float]:
        return counters_of(self.engine)

    def reading(self, row: Row) -> Reading:
        found = self._readings.get(id(row))
        if found is None:
            found = self._readings[id(row)] = (row, self.read(row))
        return found[1]

    def read(self, row: Row) -> Reading:
        prompt = prompt_of(row, self.model.block_size if self.model.prefix_caching else 0)
        natural = natural_length(self.model.lengths, row.class_, self.content_seed, prompt.sha256)
        reason: FinishReason = "stop" if natural <= row.max_tokens else "length"
        return Reading(prompt.sha256, prompt.tokens, min(natural, row.max_tokens), reason, prompt.blocks)


def counters_of(engine: Engine) -> dict[str, float]:
    """As the engine's /metrics would tell them now."""
    tally = with_open(engine.totals, engine.running, engine.step)
    cache = (engine.cache.queries, engine.cache.hits) if engine.cache else None
    return exposed(engine.totals, tally, cache=cache, speculating=engine.speculation is not None)


class Client:
    """The open-loop client without a wire: no lag, no latency of its own."""

    def __init__(self, boot: Boot, visits: list[Visit], *, base: float, close: float, most_open: int | None) -> None:
        self.boot, self.engine = boot, boot.engine
        self.visits, self.close = visits, close
        self.most_open = math.inf if most_open is None else most_open
        self.open = 0
        self.backlog: deque[Visit] = deque()
        self.visiting: dict[Sequence, Visit] = {}
        self.coming = sorted(events(visits, base), key=lambda event: event[:3], reverse=True)

    def run(self) -> None:
        while self.engine.now < self.close and (self.coming or self.open or self.backlog):
            until = min(self.coming[-1][0], self.close) if self.coming else self.close
            if self.engine.busy:
                self.engine.advance(until, stop_at_an_end=bool(self.backlog))
            else:
                self.engine.idle_until(until)
            self.settle()
        for visit in self.visits:
            if visit.status is None:
                self.cut(visit, self.close, "timed_out", "still open at the end of the drain")
        self.engine.finished.clear()

    def settle(self) -> None:
        """What has happened up to the engine's clock, in its order; nothing happens once the client has closed."""
        now = min(self.engine.now, self.close)
        moments: list[tuple[float, int, int, Visit]] = []
        for sequence in self.engine.finished:
            visit = self.visiting.pop(sequence)
            moments.append((sequence.ended_at or now, ENDED, sequence.number, visit))
        self.engine.finished.clear()
        while self.coming and self.coming[-1][0] <= now:
            moments.append(self.coming.pop())
        for at, kind, _, visit in sorted(moments, key=lambda event: event[:3]):
            if at <= self.close and visit.status is None:
                self.take(visit, kind, at)

    def take(self, visit: Visit, kind: int, at: float) -> None:
        if kind == DEPARTED:
            self.depart(visit, at)
        elif kind == GAVE_UP:
            waited_s = ((visit.planned.give_up_ns or 0) - visit.planned.planned_ns) / NANOSECONDS
            self.cut(visit, at, "cancelled", f"gave up as planned after {waited_s:g} s")
        else:
            self.complete(visit, at)

    def depart(self, visit: Visit, at: float) -> None:
        if self.open >= self.most_open:
            visit.queued = True
            self.backlog.append(visit)
        else:
            self.send(visit, at)

    def send(self, visit: Visit, at: float) -> None:
        row, reading = visit.planned.traffic_row, visit.reading
        visit.due = at
        refusal = too_long(self.boot.model.max_model_len, reading.prompt_tokens, row.max_tokens)
        if refusal is not None:
            visit.status, visit.ended = "refused", at
            visit.error = f"error inside HTTP 200, code 400: {refusal}"
            return
        demand = Demand(
            visit.planned.request_id,
            row.class_,
            reading.prompt_sha256,
            reading.prompt_tokens,
            reading.output_tokens,
            reading.finish_reason,
            reading.prefix,
        )
        self.open += 1
        visit.sequence = self.engine.submit(demand, at)
        self.visiting[visit.sequence] = visit

    def complete(self, visit: Visit, at: float) -> None:
        sequence = visit.sequence
        visit.status, visit.ended = "completed", at
        if sequence is not None:
            visit.chunks, visit.first, visit.last = sequence.chunks, sequence.first_token_at, sequence.last_token_at
        self.free(at)

    def free(self, at: float) -> None:
        self.open -= 1
        while self.backlog and self.open < self.most_open:
            self.send(self.backlog.popleft(), at)

    def cut(self, visit: Visit, at: float, status: Status, error: str) -> None:
        """Close the request's connection: the engine stops it, and it keeps what came until then."""
        visit.status, visit.error, visit.ended = status, error, at
        if visit.sequence is None:
            if visit in self.backlog:
                self.backlog.remove(visit)
            if status == "timed_out":
                visit.error = "still waiting for a free slot at the end of the drain"
            return
        visit.chunks, visit.first, visit.last = heard(self.engine, visit.sequence, at)
        self.engine.abort(visit.sequence)
        self.visiting.pop(visit.sequence, None)
        if status == "cancelled":
            self.free(at)
        else:
            self.open -= 1


def events(visits: Several[Visit], base: float) -> Iterator[tuple[float, int, int, Visit]]:
    for number, visit in enumerate(visits):
        yield base + visit.planned.planned_ns / NANOSECONDS, DEPARTED, number, visit
        if visit.planned.give_up_ns is not None:
            yield base + visit.planned.give_up_ns / NANOSECONDS, GAVE_UP, number, visit


def heard(engine: Engine, sequence: Sequence, at: float) -> tuple[int, float | None, float | None]:
    """Chunks that had come by then, with the times of the first and the last. At most the engine's last step has
    ended since."""
    first = sequence.first_token_at
    if first is None or first > at:
        return 0, None, None
    late = engine.now > at
    boundary = engine.last_boundary if late else engine.now
    course = sequence.course
    if course is not None and course.start < engine.step:
        step = engine.step - late
        chunks = sequence.chunks_by(step)
        return chunks, first, boundary if step > course.start else max(first, sequence.last_token_at or first)
    # Between two courses, or just ended: only a token of the very last step can be too late.
    last = sequence.last_token_at or first
    missed = late and last > at
    return sequence.chunks - missed, first, min(last, boundary) if missed else last


def record_of(boot: Boot, visit: Visit, level: str, base: float) -> RequestRecord:
    planned = visit.planned
    if visit.status is None:
        raise RuntimeError(f"request {planned.request_id} has no status: a fault of the simulator")
    completed = visit.sequence if visit.status == "completed" else None
    return RequestRecord(
        request_id=planned.request_id,
        row=planned.row,
        class_=planned.class_,
        level=level,
        prompt_sha256=visit.reading.prompt_sha256,
        planned_ns=planned.planned_ns,
        sent_ns=nanoseconds(visit.due, base),
        first_token_ns=nanoseconds(visit.first, base),
        last_token_ns=nanoseconds(visit.last, base),
        ended_ns=nanoseconds(visit.ended, base),
        status=visit.status,
        chunks=visit.chunks,
        # There is no text in virtual time.
        output_sha256=None,
        error=visit.error,
        fingerprint=boot.fingerprint if completed else None,
        due_ns=nanoseconds(visit.due, base),
        give_up_ns=planned.give_up_ns,
        warm_up=planned.warm_up,
        **told_at_the_end(completed, boot.engine.speculation),
    )


NOT_TOLD: dict[str, Any] = dict.fromkeys(
    (
        *("prompt_tokens", "output_tokens", "finish_reason"),
        *("server_queue_ms", "server_prefill_ms", "server_decode_ms"),
        *("rounds", "draft_tokens", "accepted_tokens", "accepted_histogram"),
    )
)


def told_at_the_end(sequence: Sequence | None, speculation: Speculation | None) -> dict[str, Any]:
    """What an engine tells in the last chunk, which only a completed request has heard."""
    if sequence is None:
        return NOT_TOLD
    queue, prefill, decode, _, _ = phases(sequence)
    told = NOT_TOLD | {
        "prompt_tokens": sequence.demand.prompt_tokens,
        "output_tokens": sequence.output,
        "finish_reason": sequence.demand.finish_reason,
        "server_queue_ms": queue * 1e3,
        "server_prefill_ms": prefill * 1e3,
        "server_decode_ms": decode * 1e3,
    }
    if speculation is None:
        return told
    tally = sequence.tally
    return told | {
        "rounds": tally.rounds,
        "draft_tokens": tally.drafts,
        "accepted_tokens": tally.accepted,
        "accepted_histogram": tally.kept.tolist(),
    }


def nanoseconds(moment: float | None, base: float) -> int | None:
    return None if moment is None else round((moment - base) * NANOSECONDS)


def relative(sample: Sample, base: float, preemptions: int) -> Sample:
    return Sample(
        round(sample.at_s - base, 6), sample.running, sample.waiting, sample.kv_use, sample.preemptions - preemptions
    )
