"""The engine's own counters, under the names in which vLLM exposes them and evidence keeps them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from loadtests.simulator.sequence import Sequence, Tally, course_tally

# Of a histogram evidence keeps sum and count alone.
TIMES = (
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:time_to_first_token_seconds",
    "vllm:e2e_request_latency_seconds",
)


@dataclass(slots=True)
class Totals:
    """What has come about since the boot. ``prefill_tokens`` are answer tokens that came from a prefill."""

    tally: Tally
    preemptions: int = 0
    prompt_tokens: int = 0
    prefill_tokens: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMES, 0.0))

    @classmethod
    def none(cls, most: int) -> "Totals":
        return cls(Tally(np.zeros(most + 1, np.int64)))

    def count(self, tally: Tally) -> None:
        self.tally.add(tally)

    def end(self, sequence: Sequence) -> None:
        self.reasons[sequence.demand.finish_reason] += 1
        for name, seconds in zip(TIMES, phases(sequence), strict=True):
            self.seconds[name] += seconds

    @property
    def generation_tokens(self) -> int:
        return self.prefill_tokens + tokens_of(self.tally)


def tokens_of(tally: Tally) -> int:
    """Tokens of the answer that decode rounds gave: one for each round, the drafts kept, less what was past the end."""
    return tally.rounds + tally.plain + tally.accepted - tally.surplus


def phases(sequence: Sequence) -> tuple[float, float, float, float, float]:
    """Seconds in queue, prefill and decode, to the first token, and in all."""
    scheduled, first, last = sequence.scheduled_at, sequence.first_token_at, sequence.last_token_at
    if scheduled is None or first is None or last is None:
        raise ValueError(f"{sequence.demand.request_id} has not ended")
    arrived = sequence.arrived_at
    return scheduled - arrived, first - scheduled, last - first, first - arrived, last - arrived


def with_open(totals: Totals, running: Iterable[Sequence], step: int) -> Tally:
    """The totals together with the rounds that sequences still running have done."""
    tally = Tally(np.zeros_like(totals.tally.kept))
    tally.add(totals.tally)
    for sequence in running:
        course = sequence.course
        if course is not None and step > course.start:
            tally.add(course_tally(course, min(step - course.start, course.rounds), tally.kept.size))
    return tally


def exposed(totals: Totals, tally: Tally, *, cache: tuple[int, int] | None, speculating: bool) -> dict[str, float]:
    """{exposed name: value}; a kept label stands in braces, as ``workers.engines.metrics`` reads it."""
    values: dict[str, float] = {
        "vllm:generation_tokens_total": totals.prefill_tokens + tokens_of(tally),
        "vllm:prompt_tokens_total": totals.prompt_tokens,
        "vllm:num_preemptions_total": totals.preemptions,
        "vllm:prefix_cache_queries_total": cache[0] if cache else 0,
        "vllm:prefix_cache_hits_total": cache[1] if cache else 0,
    }
    for reason in ("stop", "length", "abort"):
        values[f"vllm:request_success_total{{{reason}}}"] = totals.reasons[reason]
    for name, seconds in totals.seconds.items():
        values |= {f"{name}_sum": seconds, f"{name}_count": totals.reasons.total()}
    return values | (speculative(tally) if speculating else {})


def speculative(tally: Tally) -> dict[str, float]:
    # A round that kept j drafts kept those at positions 0 … j − 1.
    at_least = tally.kept[::-1].cumsum()[::-1][1:]
    values: dict[str, float] = {
        "vllm:spec_decode_num_drafts_total": tally.rounds,
        "vllm:spec_decode_num_draft_tokens_total": tally.drafts,
        "vllm:spec_decode_num_accepted_tokens_total": tally.accepted,
    }
    for position, count in enumerate(at_least):
        values[f"vllm:spec_decode_num_accepted_tokens_per_pos_total{{{position}}}"] = int(count)
    return values
