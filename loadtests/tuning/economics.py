"""What the rounds of one trial came to: how many, how long, how much was kept, what it cost in work and memory.

From the trial's records, the engine's counters and the timeline. Missing is None and never 0: an engine tells a
request's rounds only once it has completed, and not at all where a stop string ended it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.configurations import Speculative
from loadtests.simulator.steps import Floats, numbers, rounds_of
from loadtests.traffic.rows import NANOSECONDS
from loadtests.tuning.acceptance import Tallies, counted_by_position, tallies_of, together

DRAFTING_ROUNDS = "vllm:spec_decode_num_drafts_total"


@dataclass(frozen=True)
class Curve:
    """Acceptance by position: ``kept[i]`` is the share of drafting rounds that kept at least i + 1 drafts; ``rounds``:
    the drafting rounds that this is over. Never rising."""

    rounds: int
    kept: tuple[float, ...]

    @property
    def tokens_per_drafting_round(self) -> float:
        """Verified tokens of a round that drafts: 1 + Σ ``kept``."""
        return 1 + sum(self.kept)

    @property
    def given(self) -> tuple[float | None, ...]:
        """P(draft i + 1 is kept | all before it were); None from where none were."""
        before = (1.0, *self.kept)
        return tuple(after / there if there else None for there, after in zip(before, self.kept, strict=False))


@dataclass(frozen=True)
class RunningBatch:
    """Sequences running in the engine, over the seconds of the trial's window in which it told of at least one.

    ``mean``, ``p50``, ``p95`` in sequences; ``share`` {batch: share of these seconds}; ``seconds`` is their number and
    ``idle_share`` that of the told seconds with none running. ``in_flight``: mean of the client's open requests over
    the same seconds, so that the two can be held side by side; None where nobody counted them.
    """

    seconds: int
    mean: float
    p50: float
    p95: float
    share: Mapping[int, float]
    idle_share: float
    in_flight: float | None


@dataclass(frozen=True)
class RoundEconomics:
    """Of one trial's window, warm-up left out. Every figure may be None: the engine didn't tell it.

    ``requests``: completed ones of more than one token; ``told``: those whose rounds are known, over which all but the
    counters' figures are. ``rounds``: decode rounds, drafting or not; ``drafting_rounds``: those with a draft.
    ``round_s``: decode time ÷ rounds, in seconds: complete, draft and check. ``tokens_per_round``: verified tokens that
    came of rounds ÷ rounds (the first token comes from the prefill). ``rejected_share``: drafts not kept ÷ drafts.
    ``checked_per_token``: tokens that the target computed ÷ verified tokens, both of rounds (1 without speculation);
    ``drafted_per_token``: positions that the drafter proposed ÷ the same. ``acceptance`` from the requests' histograms,
    ``acceptance_counted`` from the engine's counters, which hold the drafts of aborted requests too; ``by_class`` from
    the histograms. ``kv_tokens``: size of the KV cache, ``kv_tokens_lost``: baseline's − it. ``context_tokens``: mean
    context of a running sequence in a round. ``mix``: share of each class in the verified tokens of rounds.
    """

    requests: int
    told: int
    rounds: float | None
    drafting_rounds: int | None
    round_s: float | None
    tokens_per_round: float | None
    draft_tokens: int | None
    accepted_tokens: int | None
    rejected_share: float | None
    checked_per_token: float | None
    drafted_per_token: float | None
    acceptance: Curve | None
    acceptance_counted: Curve | None
    by_class: Mapping[str, Curve]
    kv_tokens: int | None
    kv_tokens_lost: int | None
    context_tokens: float | None
    mix: Mapping[str, float]
    running: RunningBatch | None


def round_economics(
    records: pa.Table,
    speculative: Speculative | None,
    *,
    counters: Mapping[str, float] | None = None,
    timeline: pa.Table | None = None,
    warm_up_s: float = 0.0,
    window_s: float | None = None,
    kv_tokens: int | None = None,
    baseline_kv_tokens: int | None = None,
) -> RoundEconomics:
    """``records`` as ``read_records`` gives them; ``counters``: what the trial added to each of the engine's, by
    exposed name; ``timeline`` as ``read_timeline`` gives it, of which ``warm_up_s`` to ``warm_up_s`` + ``window_s``
    counts (to its end where None). A trial with ``speculative`` None has one round for each token after the first."""
    completed = decoded(records)
    known = completed if speculative is None else completed.filter(pc.is_valid(completed["rounds"]))
    found = nothing_told(completed.num_rows)
    if known.num_rows:
        found = replace(found, told=known.num_rows, **times(known))
    if speculative is not None and known.num_rows:
        found = replace(found, **drafts(tallies_of(known)))
    lost = None if kv_tokens is None or baseline_kv_tokens is None else baseline_kv_tokens - kv_tokens
    return replace(
        found,
        acceptance_counted=counted(counters) if speculative is not None and counters is not None else None,
        kv_tokens=kv_tokens,
        kv_tokens_lost=lost,
        running=None if timeline is None else running_batch(timeline, warm_up_s=warm_up_s, window_s=window_s),
    )


def decoded(records: pa.Table) -> pa.Table:
    """Completed requests of the window that had rounds: a single token comes from the prefill."""
    wanted = pc.and_(pc.equal(records["status"], "completed"), pc.invert(records["warm_up"]))
    return records.filter(pc.and_(wanted, pc.greater(pc.fill_null(records["output_tokens"], 0), 1)))


def nothing_told(requests: int) -> RoundEconomics:
    return RoundEconomics(
        requests=requests,
        told=0,
        rounds=None,
        drafting_rounds=None,
        round_s=None,
        tokens_per_round=None,
        draft_tokens=None,
        accepted_tokens=None,
        rejected_share=None,
        checked_per_token=None,
        drafted_per_token=None,
        acceptance=None,
        acceptance_counted=None,
        by_class={},
        kv_tokens=None,
        kv_tokens_lost=None,
        context_tokens=None,
        mix={},
        running=None,
    )


def times(known: pa.Table) -> dict[str, Any]:
    """What holds with and without a drafter."""
    output, prompt = numbers(known["output_tokens"]), numbers(known["prompt_tokens"])
    rounds = rounds_of(output, numbers(known["accepted_tokens"]), numbers(known["rounds"]))
    decode_s = numbers(known["server_decode_ms"]) / 1e3
    timed, placed = ~np.isnan(decode_s), ~np.isnan(prompt)
    context = (prompt + output / 2)[placed]
    tokens, classes = output - 1, np.array(known["class"].to_pylist())
    return {
        "rounds": float(rounds.sum()),
        "tokens_per_round": float(tokens.sum() / rounds.sum()),
        "round_s": float(decode_s[timed].sum() / rounds[timed].sum()) if timed.any() else None,
        "checked_per_token": float(rounds.sum() / tokens.sum()),
        "drafted_per_token": 0.0,
        "context_tokens": float(context @ rounds[placed] / rounds[placed].sum()) if placed.any() else None,
        "mix": {str(name): float(tokens[classes == name].sum() / tokens.sum()) for name in np.unique(classes)},
    }


def drafts(by_class: Mapping[str, Tallies]) -> dict[str, Any]:
    """What a drafter adds. The target computes each draft, and the token before the first of them."""
    every = together(list(by_class.values()))
    curves = {name: curve(one) for name, one in by_class.items()}
    return {
        "drafting_rounds": int(every.drafting),
        "draft_tokens": int(every.drafts),
        "accepted_tokens": int(every.accepted),
        "rejected_share": 1 - every.accepted / every.drafts if every.drafts else None,
        "checked_per_token": (every.rounds + every.drafts) / every.tokens,
        "drafted_per_token": every.drafts / every.tokens,
        "acceptance": curve(every),
        "by_class": {name: one for name, one in curves.items() if one is not None},
    }


def curve(tallies: Tallies) -> Curve | None:
    if not tallies.drafting or not tallies.kept:
        return None
    return Curve(int(tallies.drafting), tuple(one / tallies.drafting for one in tallies.kept))


def counted(counters: Mapping[str, float]) -> Curve | None:
    """By the engine's counters, of all its requests whatever became of them, warm-up included."""
    return curve(Tallies(drafting=counters.get(DRAFTING_ROUNDS, 0.0), kept=counted_by_position(counters)))


def running_batch(timeline: pa.Table, *, warm_up_s: float, window_s: float | None) -> RunningBatch | None:
    at_s = numbers(timeline["at_ns"]) / NANOSECONDS
    inside = (at_s >= warm_up_s) & (at_s <= warm_up_s + (np.inf if window_s is None else window_s))
    return running_of(numbers(timeline["running"])[inside], numbers(timeline["in_flight"])[inside])


def running_of(running: Floats, in_flight: Floats | None = None) -> RunningBatch | None:
    """From what was running (and, at the client, open) in each second, NaN where nobody told. None where no second had
    a sequence running."""
    told = ~np.isnan(running)
    busy = told & (np.nan_to_num(running) >= 1)
    if not busy.any():
        return None
    batches, seconds = np.unique(running[busy].astype(np.int64), return_counts=True)
    return RunningBatch(
        seconds=int(busy.sum()),
        mean=float(running[busy].mean()),
        p50=float(np.quantile(running[busy], 0.5)),
        p95=float(np.quantile(running[busy], 0.95)),
        share={int(batch): float(one / busy.sum()) for batch, one in zip(batches, seconds, strict=True)},
        idle_share=float(1 - busy.sum() / told.sum()),
        in_flight=None if in_flight is None else float(in_flight[busy].mean()),
    )
