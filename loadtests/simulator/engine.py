"""Continuous batching in virtual time: the scheduler of a vLLM V1 engine on a stated cost model.

Each step checks one round of every decoding sequence and, with what is left of its token budget, goes on with
prompts (chunked prefill), first come first served. When the KV cache is full, the sequence that came last is
preempted and computed again later. Between two decisions nothing is walked through: the steps are summed.
"""

import heapq
import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadtests.simulator.acceptance import Rounds, standard_normal, uniforms
from loadtests.simulator.counters import Totals
from loadtests.simulator.future import BLOCKS, VERIFIED, Future
from loadtests.simulator.model import EngineModel, Speculation, kv_blocks
from loadtests.simulator.pace import Pace
from loadtests.simulator.prefix_cache import PrefixCache
from loadtests.simulator.sequence import Demand, Sequence, Tally, course_of

MOST_STEPS = 4_096


@dataclass(frozen=True, slots=True)
class Sample:
    """The engine's gauges at one moment; ``preemptions`` is a counter."""

    at_s: float
    running: int
    waiting: int
    kv_use: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class Chunk:
    sequence: Sequence
    tokens: int


class Engine:
    """``seed`` draws what rounds accept, ``content_seed`` which texts are easy to draft for."""

    def __init__(
        self, model: EngineModel, speculation: Speculation | None, *, pace: Pace, seed: int, content_seed: int = 0
    ) -> None:
        self.model, self.speculation, self.pace = model, speculation, pace
        self.seed, self.content_seed = seed, content_seed
        self.capacity = kv_blocks(model, speculation)
        self.cache = PrefixCache(model.block_size) if model.prefix_caching else None
        self.now = 0.0
        # The end of the step before the last: where a client that left in the meantime stopped hearing.
        self.last_boundary = 0.0
        self.step = 0
        self.k = speculation.k(0) if speculation else 0
        self.future = Future()
        self.running: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.finished: list[Sequence] = []
        self.totals = Totals.none(speculation.most if speculation else 0)
        self.samples: list[Sample] = []
        self.next_sample = math.inf
        self._ends: list[tuple[int, int, Sequence]] = []
        # The step after the last in which a sequence is still to decode.
        self._beyond = 0
        self._numbers = 0
        self._preempted_now = False
        self._last_duration = 1.0

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def kv_use(self) -> float:
        """Share of the KV cache that sequences hold."""
        return self._used_blocks() / self.capacity

    def submit(self, demand: Demand, at: float) -> Sequence:
        """Queue a request; ``at`` is not after the engine's clock. It must fit into the model's length."""
        total = demand.prompt_tokens + demand.output_tokens
        if total > self.model.max_model_len or demand.output_tokens < 1 or demand.prompt_tokens < 1:
            raise ValueError(f"{demand.request_id}: {total} tokens don't fit into {self.model.max_model_len}")
        self._numbers += 1
        width = self.speculation.most + 1 if self.speculation else 1
        sequence = Sequence(demand, self._numbers, at, Tally(np.zeros(width, np.int64)))
        self.waiting.append(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """Take a request out, wherever it is; one that has ended stays as it is."""
        if sequence.ended_at is not None or sequence.gone:
            return
        if sequence.running:
            self._leave(sequence)
        else:
            self.waiting.remove(sequence)
        sequence.gone = True

    def idle_until(self, moment: float) -> None:
        """Nothing is to do until then."""
        while self.next_sample <= moment:
            self.samples.append(Sample(self.next_sample, 0, 0, 0.0, self.totals.preemptions))
            self.next_sample += 1
        self.now = max(self.now, moment)

    def advance(self, until: float = math.inf, most: int = MOST_STEPS, *, stop_at_an_end: bool = False) -> None:
        """Run one step or more: to the first step's end at or after ``until``, or to where a decision is due.

        ``stop_at_an_end`` makes every end of a sequence a decision. Asks for work to be there: see ``busy``.
        """
        self.now = self.pace.after_pauses(self.now)
        self._choose_draft_length()
        chunks = self._schedule()
        ends = [self._end_with(chunks)] if chunks else self._ends_ahead(most, until, stop_at_an_end)
        self._sample(ends)
        self._pass(ends)
        self._end_chunks(chunks)
        self._collect(ends)
        self.future.forget(self.step)

    # What a step holds

    def _choose_draft_length(self) -> None:
        if self.speculation is None or not self.speculation.scheduled:
            return
        k = self.speculation.k(len(self.running))
        if k == self.k:
            return
        self.k = k
        for sequence in self.running:
            if sequence.course is not None:
                self._withdraw(sequence)
                self._start_course(sequence)

    def _schedule(self) -> list[Chunk]:
        """Make room for the decoding sequences, then hand what is left of the budget to prompts."""
        self._preempted_now = False
        while self._used_blocks() > self.capacity:
            self._preempt(self.running[-1])
        chunks: list[Chunk] = []
        if not self.prefilling and not self.waiting:
            return chunks
        budget = self.model.max_num_batched_tokens - self.future.at(self.step)[VERIFIED]
        for sequence in list(self.prefilling):
            budget -= self._take_chunk(sequence, budget, chunks)
        while self.waiting and budget > 0 and self._can_admit(self.waiting[0]):
            sequence = self._admit()
            budget -= self._take_chunk(sequence, budget, chunks)
        return chunks

    def _used_blocks(self) -> int:
        return self.future.blocks(self.step) + sum(one.held_blocks for one in self.prefilling)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.model.block_size)

    def _take_chunk(self, sequence: Sequence, budget: int, chunks: list[Chunk]) -> int:
        """Give the sequence its next piece of prompt; returns the tokens that it takes of the budget."""
        tokens = min(sequence.known_tokens - sequence.prefilled, budget)
        if tokens <= 0 or not sequence.running:
            return 0
        needed = self._blocks_for(sequence.prefilled + tokens)
        while self._used_blocks() - sequence.held_blocks + needed > self.capacity:
            last = self.running[-1]
            self._preempt(last)
            chunks[:] = [one for one in chunks if one.sequence is not last]
            if last is sequence:
                return 0
        sequence.held_blocks = needed
        chunks.append(Chunk(sequence, tokens))
        return tokens

    def _can_admit(self, sequence: Sequence) -> bool:
        """As in vLLM: not in a step that preempted, and only where the whole prompt fits."""
        if self._preempted_now or len(self.running) >= self.model.max_num_seqs:
            return False
        growth = sum(self._blocks_for(one.known_tokens) - one.held_blocks for one in self.prefilling)
        return self._used_blocks() + growth + self._blocks_for(sequence.known_tokens) <= self.capacity

    def _admit(self) -> Sequence:
        sequence = self.waiting.popleft()
        sequence.running = True
        self.running.append(sequence)
        self.prefilling.append(sequence)
        if sequence.scheduled_at is None:
            sequence.scheduled_at = self.now
        if self.cache is not None:
            free = self.capacity - self._used_blocks()
            sequence.prefilled = self.cache.cached_tokens(sequence.demand.prefix, sequence.known_tokens, free)
            sequence.cached = sequence.prefilled
            sequence.held_blocks = self._blocks_for(sequence.prefilled)
        return sequence

    def _preempt(self, sequence: Sequence) -> None:
        self._leave(sequence)
        sequence.preemptions += 1
        self.totals.preemptions += 1
        self._preempted_now = True
        self.waiting.appendleft(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """Take a running sequence out of the batch; its memory is free at once."""
        self._withdraw(sequence)
        self.running.remove(sequence)
        if sequence in self.prefilling:
            self.prefilling.remove(sequence)
        sequence.running, sequence.prefilled, sequence.held_blocks = False, 0, 0

    def _withdraw(self, sequence: Sequence) -> None:
        """Settle the course so far and take what was to come of it out of the future."""
        course = sequence.course
        if course is None:
            return
        done = self.step - course.start
        if done < course.rounds:
            self.future.take(self.step, course.plan[:, done:])
        self.totals.count(sequence.close_course(self.step))
        if done > 0:
            sequence.last_token_at = self.now
        if course.start + course.rounds == self._beyond:
            courses = (one.course for one in self.running)
            self._beyond = max((one.start + one.rounds for one in courses if one is not None), default=0)

    def _start_course(self, sequence: Sequence) -> None:
        if self.speculation is not None and sequence.rounds is None:
            sequence.rounds = self._draw_rounds(sequence.demand, self.speculation)
        course = course_of(sequence, start=self.step, k=self.k, block_size=self.model.block_size)
        sequence.course = course
        self.future.add(self.step, course.plan)
        beyond = self.step + course.rounds
        self._beyond = max(self._beyond, beyond)
        heapq.heappush(self._ends, (beyond - 1, sequence.number, sequence))

    def _draw_rounds(self, demand: Demand, speculation: Speculation) -> Rounds:
        return Rounds(
            speculation.drafter.acceptance.of(demand.class_),
            most=speculation.most,
            effect=standard_normal("acceptance", self.content_seed, demand.content),
            draws=uniforms(demand.output_tokens, "rounds", self.seed, demand.request_id),
        )

    # How long steps take, and what comes of them

    def _next_end(self) -> int | None:
        """The step in which the next sequence ends; entries of courses that were withdrawn are thrown away."""
        while self._ends:
            step, _, sequence = self._ends[0]
            course = sequence.course
            if course is not None and course.start + course.rounds - 1 == step:
                return step
            heapq.heappop(self._ends)
        return None

    def _steps_ahead(self, most: int, until: float, stop_at_an_end: bool) -> int:
        """How many steps may be summed: none of them needs a decision before it. An estimate bounds the time."""
        end = self._next_end()
        if end is None:
            raise RuntimeError("the engine was asked to advance without work")
        scheduled = self.speculation is not None and self.speculation.scheduled
        if self._preempted_now:
            # Nobody was let in, whatever room there is now: that is decided anew after this step.
            most = 1
        elif self.waiting or scheduled or stop_at_an_end:
            most = min(most, end - self.step + 1)
        else:
            most = min(most, self._beyond - self.step)
        horizon = min(until, self.pace.changes_at(self.now)) - self.now
        if horizon < most * self._last_duration:
            most = min(most, int(max(0.0, horizon) / self._last_duration) + 2)
        blocks = self.future.window(self.step, most)[BLOCKS]
        return most if blocks.max() <= self.capacity else int((blocks > self.capacity).argmax())

    def _end_with(self, chunks: list[Chunk]) -> float:
        """When the one step ends that holds these pieces of prompts."""
        decoding, verified, context, _ = self.future.at(self.step)
        prefill = sum(one.tokens for one in chunks)
        context += sum(one.sequence.prefilled + one.tokens for one in chunks)
        seconds = self.model.round.seconds(decoding + len(chunks), verified, context, prefill)
        return self.now + float(self._with_drafts(seconds, verified - decoding))

    def _ends_ahead(self, most: int, until: float, stop_at_an_end: bool) -> list[float]:
        """When each of the coming steps ends, up to the first at or after ``until`` or a change of pace."""
        decoding, verified, context, _ = self.future.window(self.step, self._steps_ahead(most, until, stop_at_an_end))
        seconds = self.model.round.seconds(decoding, verified, context)
        ends = self.now + self._with_drafts(seconds, verified - decoding).cumsum()
        before = min(until, self.pace.changes_at(self.now))
        found: list[float] = ends[: int(ends.searchsorted(before)) + 1].tolist()
        return found

    def _with_drafts(self, seconds: Any, drafted: Any) -> Any:
        """A step's seconds, or those of each of several, with the drafter's share and at the boot's pace."""
        if self.speculation is not None:
            seconds = seconds + self.speculation.drafter.cost.seconds(drafted, self.k)
        return seconds * self.pace.factor_at(self.now)

    def _sample(self, ends: list[float]) -> None:
        while self.next_sample <= ends[-1]:
            running, _, _, blocks = self.future.at(self.step + bisect_left(ends, self.next_sample))
            running += len(self.prefilling)
            use = (blocks + sum(one.held_blocks for one in self.prefilling)) / self.capacity
            self.samples.append(Sample(self.next_sample, running, len(self.waiting), use, self.totals.preemptions))
            self.next_sample += 1

    def _pass(self, ends: list[float]) -> None:
        self.last_boundary = ends[-2] if len(ends) > 1 else self.now
        self.now = ends[-1]
        self.step += len(ends)
        self._last_duration = max(1e-9, self.now - self.last_boundary)

    def _end_chunks(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            sequence = chunk.sequence
            sequence.prefilled += chunk.tokens
            if sequence.prefilled == sequence.known_tokens:
                self._end_prefill(sequence)

    def _end_prefill(self, sequence: Sequence) -> None:
        """The step that has computed the whole prompt samples a token from it."""
        self.prefilling.remove(sequence)
        sequence.held_blocks = 0
        if self.cache is not None:
            self.cache.keep(sequence.demand.prefix, self.capacity - self._used_blocks())
        if sequence.first_token_at is None:
            sequence.first_token_at = self.now
            self.totals.prompt_tokens += sequence.demand.prompt_tokens
        sequence.output += 1
        sequence.chunks += 1
        self.totals.prefill_tokens += 1
        if sequence.missing:
            self._start_course(sequence)
        else:
            self._end(sequence, self.now)

    def _collect(self, ends: list[float]) -> None:
        first = self.step - len(ends)
        while (end := self._next_end()) is not None and end < self.step:
            sequence = heapq.heappop(self._ends)[2]
            self.totals.count(sequence.close_course(self.step))
            self._end(sequence, ends[end - first])

    def _end(self, sequence: Sequence, at: float) -> None:
        sequence.last_token_at = sequence.ended_at = at
        self.running.remove(sequence)
        sequence.running = False
        self.totals.end(sequence)
        self.finished.append(sequence)
