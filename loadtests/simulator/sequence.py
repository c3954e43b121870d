"""One request inside the engine: what it asks for, how far it is, and what it will do if it is left alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from loadtests.simulator.acceptance import Rounds
from loadtests.simulator.future import BLOCKS, CONTEXT, SEQUENCES, VERIFIED, Plan

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request needs of the engine. ``output_tokens`` is its whole answer, of which prefill gives the first;
    ``content`` names its text, ``prefix`` the blocks of its prompt from the first on (for the prefix cache)."""

    request_id: str
    class_: str
    content: str
    prompt_tokens: int
    output_tokens: int
    finish_reason: FinishReason
    prefix: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Course:
    """The decode rounds of a sequence from the step ``start`` on, up to its end or the next change of ``k``.

    ``emitted`` are tokens after each round, counted from the course's start; the last round may bring more than the
    answer needs, and ``surplus`` of it is thrown away.
    """

    start: int
    k: int
    emitted: NDArray[np.int64]
    drafts: NDArray[np.int64] | None
    kept: NDArray[np.int64] | None
    surplus: int
    plan: Plan

    @property
    def rounds(self) -> int:
        return len(self.emitted)


@dataclass(slots=True)
class Tally:
    """What the rounds of a sequence, or of all of them, came to. ``kept`` counts rounds with drafts by how many of
    them were kept; ``plain`` are decode rounds without a draft."""

    kept: NDArray[np.int64]
    drafts: int = 0
    plain: int = 0
    surplus: int = 0

    @property
    def rounds(self) -> int:
        return int(self.kept.sum())

    @property
    def accepted(self) -> int:
        return int(self.kept @ np.arange(self.kept.size))

    def add(self, other: "Tally") -> None:
        self.kept += other.kept
        self.drafts += other.drafts
        self.plain += other.plain
        self.surplus += other.surplus


@dataclass(slots=True, eq=False)
class Sequence:
    """Times are seconds of the engine's clock; ``ended_at`` is set when the last token has come."""

    demand: Demand
    number: int
    arrived_at: float
    tally: Tally
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    ended_at: float | None = None
    output: int = 0
    chunks: int = 0
    rounds_done: int = 0
    preemptions: int = 0
    cached: int = 0
    prefilled: int = 0
    held_blocks: int = 0
    rounds: Rounds | None = None
    course: Course | None = None
    running: bool = False
    gone: bool = False

    @property
    def known_tokens(self) -> int:
        """Tokens that a (new) prefill must go through: after a preemption the output so far is among them."""
        return self.demand.prompt_tokens + self.output

    @property
    def missing(self) -> int:
        return self.demand.output_tokens - self.output

    def emitted_by(self, step: int) -> int:
        """Tokens of the answer that have come when the steps before ``step`` are done."""
        course = self.course
        if course is None or step <= course.start:
            return self.output
        rounds = min(step - course.start, course.rounds)
        last = course.surplus if rounds == course.rounds else 0
        return self.output + int(course.emitted[rounds - 1]) - last

    def chunks_by(self, step: int) -> int:
        course = self.course
        return self.chunks + (0 if course is None else max(0, min(step - course.start, course.rounds)))

    def close_course(self, step: int) -> Tally:
        """Settle what was done of the course by ``step``; the sequence has none afterwards."""
        course, self.course = self.course, None
        done = 0 if course is None else min(step - course.start, course.rounds)
        if course is None or done <= 0:
            return Tally(np.zeros_like(self.tally.kept))
        return self._settle(course, done)

    def _settle(self, course: Course, done: int) -> Tally:
        tally = course_tally(course, done, self.tally.kept.size)
        self.output += int(course.emitted[done - 1]) - tally.surplus
        self.chunks += done
        self.rounds_done += done
        self.tally.add(tally)
        return tally


def course_tally(course: Course, done: int, width: int) -> Tally:
    """Of the first ``done`` rounds; as the engine counts, drafts that were kept but are past the end stay in it."""
    surplus = course.surplus if done == course.rounds else 0
    if course.drafts is None or course.kept is None:
        return Tally(np.zeros(width, np.int64), plain=done, surplus=surplus)
    drafting = int(np.count_nonzero(course.drafts[:done]))
    kept = np.bincount(course.kept[:done], minlength=width)
    # A round without drafts keeps none, and isn't one of those that had some.
    kept[0] -= done - drafting
    return Tally(kept, drafting * course.k, done - drafting, surplus)


def course_of(sequence: Sequence, *, start: int, k: int, block_size: int) -> Course:
    """The course from ``start`` on at draft length K. The sequence has at least one token of its answer."""
    before = sequence.known_tokens - 1
    if k == 0 or sequence.rounds is None:
        return plain_course(sequence.missing, before, start=start, block_size=block_size)
    first = sequence.rounds_done
    drafts = sequence.rounds.proposed[first : first + sequence.missing] * k
    kept = np.minimum(sequence.rounds.kept[first : first + sequence.missing], drafts)
    emitted = (kept + 1).cumsum()
    rounds = int(emitted.searchsorted(sequence.missing)) + 1
    drafts, kept, emitted = drafts[:rounds], kept[:rounds], emitted[:rounds]
    context = before + emitted - kept
    # Blocks are never given back while a sequence runs, even where its drafts were thrown away.
    blocks = np.maximum.accumulate((context + drafts + block_size - 1) // block_size)
    plan = np.empty((4, rounds), np.int64)
    plan[SEQUENCES], plan[VERIFIED], plan[CONTEXT], plan[BLOCKS] = 1, drafts + 1, context, blocks
    return Course(start, k, emitted, drafts, kept, int(emitted[-1]) - sequence.missing, plan)


def plain_course(rounds: int, before: int, *, start: int, block_size: int) -> Course:
    emitted = np.arange(1, rounds + 1)
    context = before + emitted
    plan = np.empty((4, rounds), np.int64)
    plan[SEQUENCES] = plan[VERIFIED] = 1
    plan[CONTEXT], plan[BLOCKS] = context, (context + block_size - 1) // block_size
    return Course(start, 0, emitted, None, None, 0, plan)
