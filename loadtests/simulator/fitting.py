"""A cost model from evidence: what the engine's own times of each request say about the cost of one step.

A request is in every step from its first token to its last, so its decode time is the sum of as many steps as it had
rounds. What else was in these steps follows from the other requests: one that decodes in between spreads its rounds
evenly over its own decode time, and one whose first token came in between had its prompt in a step of its own. The
costs are those under which these sums, and the times of the prefills, come out. They are the boot's: its luck is in
them, and so is whatever else its machine did.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import optimize

from loadtests.simulator.costs import Costs, DrafterCost, RoundCost
from loadtests.traffic.rows import NANOSECONDS

Floats = NDArray[np.float64]
FEWEST_REQUESTS = 20
NEEDED = ("sent_ns", "server_queue_ms", "server_prefill_ms", "server_decode_ms", "prompt_tokens", "output_tokens")
# Relative residuals beyond this weigh less: a pause of the engine is no cost of a step.
TYPICAL_RESIDUAL = 0.02
SAME_MOMENT_S = 1e-5
TARGET = ("fixed_s", "per_sequence_s", "weights_s", "per_token_s", "per_prefill_token_s", "per_context_token_s")
COSTS = (*TARGET, "drafter_s", "per_draft_token_s")
# So many requests against all others at a time: the overlaps of 10,000 don't fit into memory at once.
AT_ONCE = 500


@dataclass(frozen=True)
class Requests:
    """Completed requests of one trial, shape (n,) each; times in seconds of the trial's clock."""

    start: Floats
    first: Floats
    last: Floats
    prompt: Floats
    output: Floats
    rounds: Floats
    drafts: Floats

    @property
    def decode(self) -> Floats:
        return self.last - self.first


@dataclass(frozen=True)
class Steps:
    """Groups of alike steps, shape (groups,) each: ``count`` of them, and what one holds. Group i is part of the
    observation ``of[i]``, which lasted ``seconds``, shape (observations,), in all."""

    of: NDArray[np.int64]
    count: Floats
    sequences: Floats
    verified: Floats
    context: Floats
    prefill: Floats
    drafted: Floats
    drafting: Floats
    seconds: Floats


def fit_costs(plain: Iterable[pa.Table], speculating: Iterable[pa.Table] = (), *, method: str = "") -> Costs:
    """Costs of a step from the records of trials without speculation; with trials in which ``method`` drafted also the
    drafter's, both at once: drafts are what tells the price of a checked token from that of a sequence.

    Records as ``read_records`` gives them, of one boot each. Below the knee a token's arithmetic is hidden by the
    weights, so only a load that gets beyond it, or prompts, tell the two apart. A prompt longer than one step's budget
    isn't modelled, and one draft length can't tell what each position costs. Raises ValueError where too few requests
    have the engine's own times.
    Source: the shape is that of ``RoundCost`` and ``DrafterCost``; least squares with a soft L1 loss.
    """
    without = [steps_of(requests_of(one), drafting=False) for one in plain]
    if not without:
        raise ValueError("a fit needs at least one trial without speculation")
    drafted = [steps_of(requests_of(one), drafting=True) for one in speculating]
    if drafted and not method:
        raise ValueError("trials with speculation need the name of the method that drafted in them")
    found = dict(zip(COSTS, fitted(together([*without, *drafted])), strict=True))
    fixed, per_draft = found.pop("drafter_s"), found.pop("per_draft_token_s")
    # A schedule's idle step was not seen; what a drafting step costs at least is the nearest to it.
    drafter = DrafterCost(fixed_s=fixed, per_draft_token_s=per_draft, idle_s=fixed)
    return Costs(round=RoundCost(**found), drafters={method: drafter} if drafted else {})


def requests_of(records: pa.Table) -> Requests:
    table = records.select([*NEEDED, "status", "draft_tokens", "accepted_tokens", "rounds"])
    keep = np.array(table["status"].to_pylist()) == "completed"
    columns = {name: numbers(table[name]) for name in table.column_names if name != "status"}
    for name in NEEDED:
        keep &= ~np.isnan(columns[name])
    keep &= np.nan_to_num(columns["output_tokens"]) > 1
    if keep.sum() < FEWEST_REQUESTS:
        raise ValueError(
            f"a fit needs {FEWEST_REQUESTS} completed requests of more than one token with the engine's own times "
            f"(server_queue_ms, server_prefill_ms, server_decode_ms), and {int(keep.sum())} have them"
        )
    kept = {name: one[keep] for name, one in columns.items()}
    start = kept["sent_ns"] / NANOSECONDS + kept["server_queue_ms"] / 1e3
    first = start + kept["server_prefill_ms"] / 1e3
    output, accepted = kept["output_tokens"], np.nan_to_num(kept["accepted_tokens"])
    # Each round gives one token beside the drafts that it keeps; what was kept past the end is not among the output.
    rounds = np.maximum(np.maximum(output - 1 - accepted, np.nan_to_num(kept["rounds"])), 1)
    drafts = np.nan_to_num(kept["draft_tokens"])
    return Requests(start, first, first + kept["server_decode_ms"] / 1e3, kept["prompt_tokens"], output, rounds, drafts)


def numbers(column: pa.ChunkedArray) -> Floats:
    return np.array([np.nan if one is None else one for one in column.to_pylist()], np.float64)


def steps_of(one: Requests, *, drafting: bool) -> Steps:
    """Each request's decode as its plain steps and those with a prompt in them, then each prefill as one step."""
    alone, content = decode_steps(one)
    moments, prompts, count = prefills(one)
    begin = np.searchsorted(moments, one.first + SAME_MOMENT_S, side="right")
    within = np.searchsorted(moments, one.last, side="right") - begin
    every = np.arange(len(one.rounds))
    owner = np.repeat(every, within)
    # The moments begin, begin + 1, … of each request, one after the other.
    event = np.arange(len(owner)) + np.repeat(begin - (np.cumsum(within) - within), within)
    plain = np.maximum(one.rounds - within, 0.0)
    decoding = {name: np.concatenate([values, values[owner]]) for name, values in content.items()}
    decoding["sequences"][len(every) :] += count[event]
    decoding["context"][len(every) :] += prompts[event]
    started = prefill_steps(one, moments, prompts, count, drafting=drafting)
    return together(
        [
            Steps(
                of=np.concatenate([every, owner]),
                count=np.concatenate([plain, np.ones(len(owner))]),
                prefill=np.concatenate([np.zeros(len(every)), prompts[event]]),
                drafting=np.full(len(every) + len(owner), float(drafting)),
                seconds=alone,
                **decoding,
            ),
            started,
        ]
    )


def decode_steps(one: Requests) -> tuple[Floats, dict[str, Floats]]:
    """Each request's decode seconds, and what a step of its decode held on average."""
    pieces = [overlaps(one, slice(at, at + AT_ONCE)) for at in range(0, len(one.rounds), AT_ONCE)]
    summed = np.concatenate(pieces, axis=1) / one.rounds
    names = ("sequences", "verified", "context", "drafted")
    return one.decode, dict(zip(names, summed, strict=True))


def overlaps(one: Requests, some: slice) -> Floats:
    """Of all requests together, while each of ``some`` decodes: rounds, tokens checked, context, drafts."""
    begin = np.maximum(one.first[some, None], one.first[None, :])
    end = np.minimum(one.last[some, None], one.last[None, :])
    decode = np.maximum(one.decode, 1e-9)
    share = np.clip(end - begin, 0, None) / decode
    done = np.clip(((begin + end) / 2 - one.first) / decode, 0, 1)
    context = one.prompt + one.output * done
    return np.stack(
        [
            share @ one.rounds,
            share @ (one.rounds + one.drafts),
            (share * context) @ one.rounds,
            share @ one.drafts,
        ]
    )


def prefills(one: Requests) -> tuple[Floats, Floats, Floats]:
    """The moments at which prompts were through, with the tokens and the number of those that shared the step."""
    order = np.argsort(one.first)
    moments = one.first[order]
    group = np.concatenate([[0], np.cumsum(np.diff(moments) > SAME_MOMENT_S)])
    prompts = np.asarray(np.bincount(group, one.prompt[order]), np.float64)
    first = np.flatnonzero(np.concatenate([[True], np.diff(group) > 0]))
    return moments[first], prompts, np.bincount(group).astype(np.float64)


def prefill_steps(one: Requests, moments: Floats, prompts: Floats, count: Floats, *, drafting: bool) -> Steps:
    """Each prefill as a step of its own, with what decoded meanwhile."""
    order = np.argsort(one.first)
    begun = one.start[order][np.searchsorted(one.first[order], moments - SAME_MOMENT_S / 2)]
    pieces = [slice(at, at + AT_ONCE) for at in range(0, len(moments), AT_ONCE)]
    found = np.concatenate([decoding_at(one, begun[piece], moments[piece]) for piece in pieces], axis=1)
    sequences, drafted, context = found
    return Steps(
        of=np.arange(len(moments)),
        count=np.ones(len(moments)),
        sequences=sequences + count,
        verified=sequences + drafted,
        context=context + prompts,
        prefill=prompts,
        drafted=drafted,
        drafting=np.full(len(moments), float(drafting)),
        seconds=moments - begun,
    )


def decoding_at(one: Requests, begun: Floats, ended: Floats) -> Floats:
    """Of the requests that decode in each step: their number, drafts and context."""
    decoding = (one.first <= begun[:, None] + SAME_MOMENT_S) & (one.last >= ended[:, None])
    done = np.clip((begun[:, None] - one.first) / np.maximum(one.decode, 1e-9), 0, 1)
    context = np.where(decoding, one.prompt + one.output * done, 0.0)
    return np.stack([decoding.sum(axis=1), decoding @ (one.drafts / one.rounds), context.sum(axis=1)])


def together(several: Sequence[Steps]) -> Steps:
    """As one, with the observations numbered through."""
    shifts = np.concatenate([[0], np.cumsum([len(one.seconds) for one in several])[:-1]])
    names = ("count", "sequences", "verified", "context", "prefill", "drafted", "drafting", "seconds")
    columns = {name: np.concatenate([getattr(one, name) for one in several]) for name in names}
    of = np.concatenate([one.of + shift for one, shift in zip(several, shifts, strict=True)])
    return Steps(of=of, **columns)


def seconds_at(steps: Steps, costs: Floats) -> Floats:
    """Of each observation, at these COSTS."""
    fixed, sequence, weights, token, prefill, context, drafter, draft = costs
    roof = np.maximum(weights, token * steps.verified + prefill * steps.prefill)
    target = fixed + sequence * steps.sequences + roof + context * steps.context
    each = target + drafter * steps.drafting + draft * steps.drafted
    return np.asarray(np.bincount(steps.of, steps.count * each, len(steps.seconds)), np.float64)


def fitted(steps: Steps) -> list[float]:
    """The COSTS under which the observations' relative residuals are least."""
    known = steps.seconds > 0
    counted = np.maximum(np.bincount(steps.of, steps.count, len(steps.seconds)), 1)
    least = float(np.quantile((steps.seconds / counted)[known], 0.05))
    tokens = max(1.0, float(np.median(steps.verified)))
    # What each could cost at most, about, so that all parameters are of one size.
    scale = least / np.array([1, tokens, 1, tokens, 500, 1e5, 1, tokens])
    begun = np.array([0.3, 0.02, 0.6, 0.3, 0.5, 0.1, 0.1, 0.02])
    told = len(COSTS) if steps.drafting.any() else len(TARGET)

    def costs_at(point: Floats) -> Floats:
        return np.pad(point, (0, len(COSTS) - told)) * scale

    def off(point: Floats) -> Floats:
        return np.asarray(seconds_at(steps, costs_at(point))[known] / steps.seconds[known] - 1)

    found = optimize.least_squares(
        off, begun[:told], bounds=(0, np.inf), loss="soft_l1", f_scale=TYPICAL_RESIDUAL, max_nfev=200
    )
    return [float(one) for one in costs_at(found.x)]
