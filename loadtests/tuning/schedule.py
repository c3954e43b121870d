"""A schedule: the draft length K by the number of running sequences, as one object that belongs to no engine.

The axis is the engine's running batch, not the clients' concurrency. K = 0 in a step drafts nothing in it and is not
the same as no speculation: the drafter stays loaded, and the step pays for its being there.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from loadtests.configurations import LONGEST_DRAFT, Speculative

# No number of it has more digits than any that may stand there, with one to spare.
TEXT = re.compile(r"[1-9][0-9]{0,6}x[0-9]{1,3}(?:-[1-9][0-9]{0,6}x[0-9]{1,3})*")
LONGEST_QUOTE = 200  # characters
MOST_RUNNING = 100_000


class BadSchedule(ValueError):
    """A schedule that can't be; the text says which step and what to do."""


@dataclass(frozen=True, slots=True)
class Step:
    """K drafts while ``lo`` to ``hi`` sequences run, both ends included; ``hi`` None is everything above."""

    lo: int
    hi: int | None
    k: int


@dataclass(frozen=True)
class Schedule:
    """Steps from 1 running sequence up, without a gap; the last is open, and neighbours differ in K.

    Raises BadSchedule where they don't. A fixed K is the schedule of one step.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        check(self.steps)

    @classmethod
    def of(cls, starts: Mapping[int, int] | Iterable[tuple[int, int]]) -> "Schedule":
        """From {lo: K}, or (lo, K) in rising order: each step reaches up to the next one's start, the last has no end.
        Neighbours with the same K become one step. Raises BadSchedule."""
        pairs = merged(sorted(starts.items()) if isinstance(starts, Mapping) else list(starts))
        ends = [lo - 1 for lo, _ in pairs[1:]]
        return cls(tuple(Step(lo, hi, k) for (lo, k), hi in zip(pairs, [*ends, None], strict=True)) if pairs else ())

    @classmethod
    def fixed(cls, k: int) -> "Schedule":
        return cls((Step(1, None, k),))

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """The inverse of ``text``. Raises BadSchedule for any other way to write it."""
        if not TEXT.fullmatch(text):
            shown = text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
            raise BadSchedule(f"{shown!r} is no schedule: write lo x K, joined by hyphens, as in 1x8-5x2-17x0")
        pairs = [tuple(int(number) for number in one.split("x")) for one in text.split("-")]
        found = cls.of((lo, k) for lo, k in pairs)
        if found.text != text:
            raise BadSchedule(f"{text!r} has neighbours with the same K or leading zeros: write {found.text}")
        return found

    @classmethod
    def of_document(cls, document: Any) -> "Schedule":
        """From the JSON list [{"lo", "hi" (null in the last), "k"}, …]. Raises BadSchedule."""
        if not isinstance(document, list):
            raise BadSchedule('a schedule is a list of steps, as in [{"lo": 1, "hi": null, "k": 4}]')
        return cls(tuple(step_of(one, number) for number, one in enumerate(document, 1)))

    @classmethod
    def of_vllm(cls, ranges: Sequence[Sequence[int]], most: int | None = None) -> "Schedule":
        """What vLLM makes of ``num_speculative_tokens_per_batch_size``: [[lo, hi, K], …].

        As there, ranges are taken in the order of their starts, K is at most ``most`` (``num_speculative_tokens``), and
        a gap between two ranges, as everything above the last, has the K of the range before it. Raises BadSchedule.
        """
        previous, rising = 0, sorted(ranges, key=lambda one: one[0])
        for lo, hi, _ in rising:
            if not previous < lo <= hi:
                raise BadSchedule(f"range [{lo}, {hi}] overlaps the one before it, or ends before it begins")
            previous = hi
        return cls.of((lo, k if most is None else min(k, most)) for lo, _, k in rising)

    @property
    def text(self) -> str:
        """Short and for a candidate's name: ``1x8-5x2-17x0`` is K = 8 from 1, 2 from 5 and 0 from 17 on."""
        return "-".join(f"{one.lo}x{one.k}" for one in self.steps)

    @property
    def document(self) -> list[dict[str, int | None]]:
        """As JSON; the inverse of ``of_document``."""
        return [{"lo": one.lo, "hi": one.hi, "k": one.k} for one in self.steps]

    @property
    def most(self) -> int:
        """The largest K: what the engine is started with."""
        return max(one.k for one in self.steps)

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """Every K that occurs, from the smallest up, each once."""
        return tuple(sorted({one.k for one in self.steps}))

    def k_at(self, batch: int) -> int:
        """K with so many sequences running. With none running that of the first step holds."""
        return next(one.k for one in reversed(self.steps) if one.lo <= max(batch, 1))

    def within(self, trained_block: int | None) -> "Schedule":
        """Itself, once no K is above what the drafter was trained for (None: nobody says). Raises BadSchedule."""
        if trained_block is not None and self.most > trained_block:
            raise BadSchedule(f"K = {self.most} is above the drafter's trained block of {trained_block}")
        return self

    def __str__(self) -> str:
        return self.text


def check(steps: tuple[Step, ...]) -> None:
    if not steps:
        raise BadSchedule("a schedule needs at least one step")
    if steps[0].lo != 1:
        raise BadSchedule(f"a schedule starts at 1 running sequence, not at {steps[0].lo}")
    for number, one in enumerate(steps, 1):
        if not 0 <= one.k <= LONGEST_DRAFT:
            raise BadSchedule(f"step {number}: K = {one.k} is not in 0 … {LONGEST_DRAFT}")
        if one.lo > MOST_RUNNING or (one.hi is not None and not one.lo <= one.hi <= MOST_RUNNING):
            raise BadSchedule(f"step {number}: {one.lo} to {one.hi} is no range of 1 to {MOST_RUNNING:,} sequences")
    for number, (left, right) in enumerate(pairwise(steps), 1):
        if left.hi is None or right.lo != left.hi + 1:
            end = "no end" if left.hi is None else f"its end at {left.hi}"
            raise BadSchedule(
                f"step {number} has {end} and step {number + 1} begins at {right.lo}: leave no gap and no overlap"
            )
        if left.k == right.k:
            raise BadSchedule(f"steps {number} and {number + 1} both have K = {left.k}: write them as one")
    if steps[-1].hi is not None:
        raise BadSchedule(f"the last step ends at {steps[-1].hi}: leave its end open (null)")


def merged(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without those that have the K of the pair before them."""
    return [pair for number, pair in enumerate(pairs) if number == 0 or pair[1] != pairs[number - 1][1]]


def step_of(document: Any, number: int) -> Step:
    if not isinstance(document, dict) or set(document) != {"lo", "hi", "k"}:
        raise BadSchedule(f"step {number} needs lo, hi and k, and nothing else")
    lo, hi, k = document["lo"], document["hi"], document["k"]
    if any(isinstance(one, bool) or not isinstance(one, int) for one in (lo, k, 1 if hi is None else hi)):
        raise BadSchedule(f"step {number}: lo, hi and k are whole numbers (hi may be null)")
    return Step(lo, hi, k)


def schedule_of(speculative: Speculative) -> Schedule:
    """The schedule that a speculative setting runs; a fixed K is a schedule of one step. Raises BadSchedule."""
    most, ranges = speculative.num_speculative_tokens, speculative.num_speculative_tokens_per_batch_size
    return Schedule.fixed(most) if ranges is None else Schedule.of_vllm(ranges, most)


def with_schedule(speculative: Speculative, schedule: Schedule, *, max_num_seqs: int) -> Speculative:
    """The setting under a schedule instead of its own K, its last range closed at ``max_num_seqs`` (steps above it
    are left out, as nothing runs there). Raises BadSchedule for one that never drafts."""
    steps = [one for one in schedule.steps if one.lo <= max_num_seqs]
    most = max(one.k for one in steps)
    if most == 0:
        raise BadSchedule(f"{schedule} never drafts: that is a server without speculation, not a schedule")
    ranges = tuple((one.lo, min(one.hi or max_num_seqs, max_num_seqs), one.k) for one in steps)
    fields = {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": ranges}
    if len(steps) == 1:
        fields["num_speculative_tokens_per_batch_size"] = None
    return Speculative.model_validate(speculative.model_dump() | fields)
