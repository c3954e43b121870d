"""Many boots of the benchmark's engine side by side: the same steps as the simulator's, with a column for each boot.

What an engine has to do here is simple: every prompt fits into one step, the cache is never full, and all is answered
before the drain ends. A step is then the same few sums for every boot, and arrays take it for all of them at once. A
boot for which it isn't so is left to the simulator itself. Times differ from the simulator's in their last digits,
since sums are taken in another order; tests hold both against each other.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from decisions.rules.evidence import MISSING, Array, Purpose, TrialEvidence, objects
from loadtests.simulator import Boot
from loadtests.simulator.acceptance import standard_normal
from loadtests.simulator.costs import RoundCost
from loadtests.simulator.model import EngineModel, kv_blocks, speculation_of
from loadtests.simulator.pace import TICK_S, Pace
from loadtests.traffic.arrivals import generator_for
from loadtests.traffic.rows import NANOSECONDS
from tests.benchmarks.decision_world import (
    METHOD,
    Drafter,
    Place,
    configuration_of,
    engine_model,
    evidence,
    level,
    planned,
    speculative,
    trial,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Wanted = tuple[Place, Drafter | None]
# Boots whose steps are taken together: more of them hardly cost less each.
TOGETHER = 300
FIRST_STEPS = 4_096


@dataclass(frozen=True)
class Requests:
    """What a place's requests are in every boot, shape (requests,) each. ``effects`` say how easy they are to draft
    for, in standard deviations; ``columns`` are those of the records that no boot changes."""

    ids: list[str]
    due_s: Floats
    prompt: Integers
    output: Integers
    effects: Floats
    columns: dict[str, Array]


@dataclass(frozen=True)
class Load:
    """What a boot has to do for its requests, shape (requests,): ``rounds`` after the prefill, whose context tokens
    follow each other in ``context`` from ``start`` on."""

    due_s: Floats
    prompt: Integers
    rounds: Integers
    start: Integers
    context: Integers


# A calibration comes back to its places with each drafter.
@lru_cache(1_024)
def requests_of(family: str, number: int, purpose: Purpose, pair: int) -> Requests:
    place = Place(family, number, purpose, pair, "baseline")
    content_seed = place.seed("texts")
    asked, _ = planned(*place.texts)
    boot = Boot(engine_model(0.0, None), seed=0, content_seed=content_seed)
    readings = [boot.reading(one.traffic_row) for one in asked]
    prompt = np.array([one.prompt_tokens for one in readings])
    output = np.array([one.output_tokens for one in readings])
    planned_ns = np.array([one.planned_ns for one in asked])
    effects = [standard_normal("acceptance", content_seed, one.prompt_sha256) for one in readings]
    columns = {
        "row": np.array([one.row for one in asked]),
        "class": objects([one.class_ for one in asked]),
        "prompt_sha256": np.array([one.prompt_sha256 for one in readings], dtype=np.bytes_),
        "prompt_tokens": prompt,
        "planned_ns": planned_ns,
        "due_ns": planned_ns,
        "sent_ns": planned_ns,
        "give_up_ns": np.full(len(asked), MISSING),
        "status": objects(["completed"] * len(asked)),
        "finish_reason": objects([one.finish_reason for one in readings]),
        "output_tokens": output,
        "warm_up": np.zeros(len(asked), bool),
    }
    ids = [one.request_id for one in asked]
    return Requests(ids, planned_ns / NANOSECONDS, prompt, output, np.array(effects), columns)


@lru_cache(1_700)
def draws(place: Place) -> Floats:
    """What the rounds of a place's requests draw in this boot, one request after the other: as many as it has output
    tokens. The same for every drafter; 300 kB."""
    found = requests_of(*place.texts)
    seed = place.boot_seed
    each = zip(found.ids, found.output.tolist(), strict=True)
    return np.concatenate([generator_for("rounds", seed, name).random(count) for name, count in each])


def load_of(place: Place, drafter: Drafter | None) -> Load:
    found = requests_of(*place.texts)
    if drafter is None or place.k is None:
        rounds = found.output - 1
        start = rounds.cumsum() - rounds
        context = np.repeat(found.prompt + 1 - start, rounds) + np.arange(rounds.sum())
        return Load(found.due_s, found.prompt, rounds, start, context)
    count, drawn = found.output, draws(place)
    survival = np.ones(len(count))
    chance = chances(found, drafter)
    kept = np.zeros(len(drawn), np.int64)
    for _ in range(place.k):
        survival = survival * chance
        kept += drawn < np.repeat(survival, count)
    emitted = (kept + 1).cumsum()
    start = count.cumsum() - count
    before = np.concatenate([[0], emitted])[start]
    # The round with the answer's last token; an answer of one token has none.
    rounds = np.where(count > 1, emitted.searchsorted(before + count - 1) - start + 1, 0)
    context = emitted - kept + np.repeat(found.prompt - before, count)
    return Load(found.due_s, found.prompt, rounds, start, context)


def chances(found: Requests, drafter: Drafter) -> Floats:
    """That the request's next draft is kept: as ``ClassAcceptance`` has it for one position."""
    classes = engine_model(0.0, drafter).drafters[METHOD].acceptance.classes
    names = found.columns["class"].tolist()
    chance = np.array([classes[name].positions[0] for name in names])
    spread = np.array([classes[name].spread for name in names])
    sure = (chance == 0) | (chance == 1)
    odds = np.where(sure, 1.0, chance) / np.where(sure, 1.0, 1 - chance) * np.exp(spread * found.effects)
    return np.where(sure, chance, odds / (1 + odds))


@dataclass(slots=True)
class Queue:
    """A load as lists, which are faster one by one; after the last request comes one that is never due. ``following``
    is the request that comes next, ``prefilled_in`` the step that computes each one's prompt."""

    due_s: list[float]
    prompt: list[int]
    rounds: list[int]
    start: list[int]
    context: Integers
    prefilled_in: list[int]
    following: int = 0

    @classmethod
    def of(cls, load: Load) -> "Queue":
        prompt, rounds, start = (one.tolist() for one in (load.prompt, load.rounds, load.start))
        return cls([*load.due_s.tolist(), math.inf], prompt, rounds, start, load.context, [0] * len(prompt))


class Fleet:
    """``width``, ``drafting_s`` and ``per_draft_s``, shape (boots,): tokens that a round checks, and what drafting adds
    to a step and for each draft. Steps are each boot's own."""

    def __init__(
        self,
        cost: RoundCost,
        loads: Sequence[Load],
        paces: Sequence[Pace],
        *,
        width: Integers,
        drafting_s: Floats,
        per_draft_s: Floats,
    ) -> None:
        boots = len(loads)
        self.cost, self.loads, self.paces = cost, loads, paces
        self.width, self.drafting_s, self.per_draft_s = width, drafting_s, per_draft_s
        self.factor = np.array([one.factor for one in paces])
        self.slope = np.array([one.slope for one in paces])
        self.pause_at = np.array([one.pause_at for one in paces])
        self.queues = [Queue.of(one) for one in loads]
        self.next_due = np.array([one.due_s[0] for one in self.queues])
        self.step = 0
        self.now = np.zeros(boots)
        self.decoding = np.zeros(boots, np.int64)
        self.most_decoding = np.zeros(boots, np.int64)
        self.most_tokens = np.zeros(boots, np.int64)
        # With a row for each boot: a request's rounds are laid side by side.
        self.context = np.zeros((boots, FIRST_STEPS), np.int64)
        self.ending = np.zeros((FIRST_STEPS, boots), np.int64)
        self.ends = np.zeros((FIRST_STEPS, boots))

    def run(self) -> list[tuple[Floats, Floats]]:
        """Of each boot when its requests' first and last tokens come, in seconds."""
        while self._go_on():
            self._take_step(*self._admit())
        found = []
        for boot, (load, queue) in enumerate(zip(self.loads, self.queues, strict=True)):
            first = np.array(queue.prefilled_in)
            found.append((self.ends[first, boot], self.ends[first + load.rounds, boot]))
        return found

    def _go_on(self) -> bool:
        """A boot with nothing to do waits for its next request; one that has had all of them stays where it is."""
        idle = (self.decoding == 0) & (self.next_due > self.now)
        done = idle & np.isinf(self.next_due)
        np.copyto(self.now, self.next_due, where=idle & ~done)
        return not done.all()

    def _admit(self) -> tuple[Integers, Integers, Integers]:
        """Of each boot the prompt tokens and the prompts of the step, and how many of these decode after it."""
        prefill, prompts, started = np.zeros((3, len(self.loads)), np.int64)
        arrived = np.flatnonzero(self.next_due <= self.now)
        for boot, now in zip(arrived.tolist(), self.now[arrived].tolist(), strict=True):
            queue = self.queues[boot]
            first, queue.following = queue.following, bisect_right(queue.due_s, now, queue.following)
            self.next_due[boot] = queue.due_s[queue.following]
            came = range(first, queue.following)
            prompts[boot], prefill[boot] = len(came), sum(queue.prompt[first : queue.following])
            started[boot] = sum(self._start(boot, queue, request) for request in came)
        for boot in np.flatnonzero(self.pause_at <= self.now).tolist():
            self.now[boot] = self.paces[boot].after_pauses(float(self.now[boot]))
            self.pause_at[boot] = self.paces[boot].pause_at
        return prefill, prompts, started

    def _start(self, boot: int, queue: "Queue", request: int) -> bool:
        """Compute the prompt in this step, and lay the request's rounds into those after it."""
        queue.prefilled_in[request] = self.step
        rounds, start = queue.rounds[request], queue.start[request]
        if not rounds:
            return False
        while self.step + rounds >= len(self.ends):
            self._lengthen()
        self.context[boot, self.step + 1 : self.step + 1 + rounds] += queue.context[start : start + rounds]
        self.ending[self.step + rounds, boot] += 1
        return True

    def _lengthen(self) -> None:
        self.context = np.concatenate([self.context, np.zeros_like(self.context)], axis=1)
        self.ending, self.ends = (np.concatenate([one, np.zeros_like(one)]) for one in (self.ending, self.ends))

    def _take_step(self, prefill: Integers, prompts: Integers, started: Integers) -> None:
        verified = self.decoding * self.width
        seconds = self.cost.seconds(self.decoding + prompts, verified, self.context[:, self.step] + prefill, prefill)
        seconds = seconds + (self.drafting_s + self.per_draft_s * (verified - self.decoding))
        seconds = seconds * (self.factor * np.exp(self.slope * TICK_S * np.floor(self.now / TICK_S)))
        self.now = self.now + seconds
        self.ends[self.step] = self.now
        np.maximum(self.most_tokens, verified + prefill, out=self.most_tokens)
        self.decoding = self.decoding + started - self.ending[self.step]
        np.maximum(self.most_decoding, self.decoding, out=self.most_decoding)
        self.step += 1


def trials(spread: float, wanted: Sequence[Wanted]) -> list[tuple[TrialEvidence, float]]:
    """As ``trial`` gives them one by one."""
    found: list[tuple[TrialEvidence, float]] = []
    for first in range(0, len(wanted), TOGETHER):
        found += together(spread, wanted[first : first + TOGETHER])
    return found


def together(spread: float, wanted: Sequence[Wanted]) -> list[tuple[TrialEvidence, float]]:
    paces = [Pace(engine_model(spread, None).nuisances, place.boot_seed) for place, _ in wanted]
    lucks = [float(np.log(one.factor)) / spread if spread else 0.0 for one in paces]
    drafting = [drafting_of(place, drafter) for place, drafter in wanted]
    width, drafting_s, per_draft_s = (np.array(one) for one in zip(*drafting, strict=True))
    loads = [load_of(*one) for one in wanted]
    cost = engine_model(spread, None).round
    fleet = Fleet(cost, loads, paces, width=width, drafting_s=drafting_s, per_draft_s=per_draft_s)
    times = fleet.run()
    return [
        (evidence_of(spread, place, *moments, kv_tokens(place, drafter)), luck)
        if is_simple(place, drafter, fleet, boot, moments[1])
        else trial(spread, place, drafter)
        for boot, ((place, drafter), moments, luck) in enumerate(zip(wanted, times, lucks, strict=True))
    ]


def drafting_of(place: Place, drafter: Drafter | None) -> tuple[int, float, float]:
    if drafter is None or place.k is None:
        return 1, 0.0, 0.0
    cost = engine_model(0.0, drafter).drafters[METHOD].cost
    return 1 + place.k, cost.fixed_s + cost.per_position_s * place.k, cost.per_draft_token_s


@lru_cache(64)
def capacity_of(drafter: Drafter | None, k: int | None) -> tuple[EngineModel, int]:
    """The engine's model, and the KV blocks that it has."""
    model = engine_model(0.0, drafter)
    return model, kv_blocks(model, speculation_of(model, speculative(k) if k else None))


def kv_tokens(place: Place, drafter: Drafter | None) -> int:
    model, blocks = capacity_of(drafter, place.k)
    return blocks * model.block_size


def is_simple(place: Place, drafter: Drafter | None, fleet: Fleet, boot: int, last: Floats) -> bool:
    """No prompt had to wait for a later step, none for memory, and all was answered in time."""
    model, blocks = capacity_of(drafter, place.k)
    found = requests_of(*place.texts)
    longest = int((found.prompt + found.output).max()) + (place.k or 0)
    each = -(-longest // model.block_size)
    # A prompt that comes in counts before it decodes.
    held = int(fleet.most_decoding[boot]) + 1
    at = level()
    return (
        not model.prefix_caching
        and fleet.most_tokens[boot] <= model.max_num_batched_tokens
        and held * each <= blocks
        and held <= model.max_num_seqs
        and float(last.max()) < at.duration_s + at.drain_s
    )


def evidence_of(spread: float, place: Place, first: Floats, last: Floats, cache: int) -> TrialEvidence:
    columns = requests_of(*place.texts).columns
    last_ns = np.rint(last * NANOSECONDS).astype(np.int64)
    told = {
        "first_token_ns": np.rint(first * NANOSECONDS).astype(np.int64),
        "last_token_ns": last_ns,
        "ended_ns": last_ns,
        "server_decode_ms": (last - first) * 1e3,
        "fingerprint": objects([configuration_of(spread, place.k)] * len(first)),
    }
    counters = {"vllm:generation_tokens_total": float(columns["output_tokens"].sum())}
    return evidence(spread, place, columns | told, counters | {"vllm:num_preemptions_total": 0.0}, cache)
