"""What the steps of a measured trial held: from the engine's own times of each request.

A request is in every step from its first token to its last, so its decode time is the sum of as many steps as it had
rounds. What else was in these steps follows from the other requests: one that decodes in between spreads its rounds
evenly over its own decode time, and one whose first token came in between had its prompt in a step of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadtests.traffic.rows import NANOSECONDS

Floats = NDArray[np.float64]
# Of one trial: with fewer, hardly anything is known of what ran beside what.
FEWEST_REQUESTS = 4
NEEDED = ("sent_ns", "server_queue_ms", "server_prefill_ms", "server_decode_ms", "prompt_tokens", "output_tokens")
COLUMNS = (*NEEDED, "first_token_ns", "last_token_ns", "chunks", "draft_tokens", "accepted_tokens", "rounds")
SAME_MOMENT_S = 1e-5
# So many requests and prefills of a trial are looked at, evenly over it: more tell nothing new and take time.
MOST_REQUESTS = 300
MOST_PREFILLS = 150
# Steps with a prompt are put together in so many groups by its length.
PROMPT_GROUPS = 6


@dataclass(frozen=True)
class Requests:
    """Requests of one trial, shape (n,) each; times in seconds of the trial's clock. ``told``: completed ones with the
    engine's own times; of the others, which were in its steps too, the client's times stand in."""

    told: NDArray[np.bool_]
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
    observation ``of[i]``, which lasted ``seconds``, shape (observations,), in all and had ``rounds`` (0: a prefill).

    ``k`` is the draft length, ``drafting`` the share of steps with one above 0 and ``idle`` that of steps with K = 0
    of a schedule.
    """

    of: NDArray[np.int64]
    count: Floats
    sequences: Floats
    verified: Floats
    context: Floats
    prefill: Floats
    drafted: Floats
    k: Floats
    drafting: Floats
    idle: Floats
    seconds: Floats
    rounds: Floats


BY_GROUP = ("count", "sequences", "verified", "context", "prefill", "drafted", "k", "drafting", "idle")


def longest_draft(records: pa.Table) -> int:
    widths = [len(one) - 1 for one in records["accepted_histogram"].to_pylist() if one]
    if widths:
        return max(widths)
    rounds, drafts = numbers(records["rounds"]), numbers(records["draft_tokens"])
    with np.errstate(invalid="ignore", divide="ignore"):
        each = drafts / rounds
    return max(1, math.ceil(np.nanmax(each))) if np.isfinite(each).any() else 1


def requests_of(records: pa.Table) -> Requests:
    table = records.select([*COLUMNS, "status"])
    columns = {name: numbers(table[name]) for name in COLUMNS}
    told = np.array(table["status"].to_pylist()) == "completed"
    for name in NEEDED:
        told &= ~np.isnan(columns[name])
    told &= np.nan_to_num(columns["output_tokens"]) > 1
    if not np.isnan(columns["rounds"]).all():
        # Where rounds are told at all, one that has none was ended by a stop string: its rounds are unknown, not few.
        told &= ~np.isnan(columns["rounds"])
    if told.sum() < FEWEST_REQUESTS:
        raise ValueError(
            f"a trial needs {FEWEST_REQUESTS} completed requests of more than one token with the engine's own times "
            f"(server_queue_ms, server_prefill_ms, server_decode_ms), and {int(told.sum())} have them"
        )
    # Cut off before its end, but in the engine's steps until then.
    company = ~told & ~np.isnan(columns["first_token_ns"]) & (columns["last_token_ns"] > columns["first_token_ns"])
    return joined(told_ones(columns, told), company_of(columns, told, company))


def told_ones(columns: Mapping[str, Floats], told: NDArray[np.bool_]) -> Requests:
    kept = {name: one[told] for name, one in columns.items()}
    start = kept["sent_ns"] / NANOSECONDS + kept["server_queue_ms"] / 1e3
    first = start + kept["server_prefill_ms"] / 1e3
    output = kept["output_tokens"]
    return Requests(
        told=np.ones(len(start), np.bool_),
        start=start,
        first=first,
        last=first + kept["server_decode_ms"] / 1e3,
        prompt=kept["prompt_tokens"],
        output=output,
        rounds=rounds_of(output, kept["accepted_tokens"], kept["rounds"]),
        drafts=np.nan_to_num(kept["draft_tokens"]),
    )


def rounds_of(output: Floats, accepted: Floats, drafting: Floats) -> Floats:
    """Rounds of completed requests, drafting or not. Each gives one token beside the drafts that it keeps; what was
    kept past the end is not among the output."""
    return np.maximum(np.maximum(output - 1 - np.nan_to_num(accepted), np.nan_to_num(drafting)), 1)


def company_of(columns: Mapping[str, Floats], told: NDArray[np.bool_], company: NDArray[np.bool_]) -> Requests:
    """A chunk came of each round; what the engine didn't tell of them is as of the told ones on average."""
    kept = {name: one[company] for name, one in columns.items()}
    rounds = np.maximum(np.nan_to_num(kept["chunks"]) - 1, 1)
    drafts, counted = columns["draft_tokens"][told], columns["chunks"][told]
    a_round = float(np.nansum(drafts) / max(1.0, float(np.nansum(counted - 1))))
    prompt = np.where(np.isnan(kept["prompt_tokens"]), np.nanmedian(columns["prompt_tokens"]), kept["prompt_tokens"])
    first = kept["first_token_ns"] / NANOSECONDS
    return Requests(
        told=np.zeros(len(first), np.bool_),
        start=first,
        first=first,
        last=kept["last_token_ns"] / NANOSECONDS,
        prompt=prompt,
        output=np.where(np.isnan(kept["output_tokens"]), rounds + 1, kept["output_tokens"]),
        rounds=rounds,
        drafts=rounds * a_round,
    )


def joined(left: Requests, right: Requests) -> Requests:
    names = ("told", "start", "first", "last", "prompt", "output", "rounds", "drafts")
    return Requests(**{name: np.concatenate([getattr(left, name), getattr(right, name)]) for name in names})


def numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def steps_of(one: Requests, by_batch: Sequence[int] | None) -> Steps:
    """Some requests' decode as plain steps and steps with a prompt in them, then some prefills as one step each.

    ``by_batch``: K by running sequences from 0 up, the last for all above; None without a drafter.
    """
    every = evenly(np.flatnonzero(one.told), MOST_REQUESTS)
    lengths = DraftLengths(one, by_batch)
    held = decode_steps(one, every)
    moments, prompts, count = prefills(one)
    begin = np.searchsorted(moments, one.first[every] + SAME_MOMENT_S, side="right")
    within = np.searchsorted(moments, one.last[every], side="right") - begin
    of, number, extra, prompt = grouped(begin, within, prompts, count)
    owners = np.concatenate([np.arange(len(every)), of])
    decoding = {name: values[owners] for name, values in held.items()}
    decoding["sequences"][len(every) :] += extra
    decoding["context"][len(every) :] += prompt
    spent = lengths.between(one.first[every], one.last[every])
    return together(
        [
            Steps(
                of=owners,
                count=np.concatenate([np.maximum(one.rounds[every] - within, 0.0), number]),
                prefill=np.concatenate([np.zeros(len(every)), prompt]),
                **decoding,
                **{name: values[owners] for name, values in spent.items()},
                seconds=one.decode[every],
                rounds=one.rounds[every],
            ),
            prefill_steps(one, moments, prompts, count, lengths),
        ]
    )


def evenly(of: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of them, evenly spread."""
    if len(of) <= most:
        return of
    return of[np.linspace(0, len(of) - 1, most).round().astype(np.int64)]


class DraftLengths:
    """K over a trial, which under a schedule follows the number of decoding sequences."""

    def __init__(self, one: Requests, by_batch: Sequence[int] | None) -> None:
        self.speculating = by_batch is not None
        changes = np.concatenate([one.first, one.last])
        order = np.argsort(changes, kind="stable")
        self.times = changes[order]
        running = np.cumsum(np.concatenate([np.ones(len(one.first)), -np.ones(len(one.last))])[order]).astype(np.int64)
        table = np.array(by_batch or (0,), np.int64)
        self.k = table[np.clip(running, 0, len(table) - 1)].astype(np.float64)

    def between(self, begin: Floats, end: Floats) -> dict[str, Floats]:
        """Means over each stretch of time."""
        if not self.speculating:
            return {name: np.zeros(len(begin)) for name in ("k", "drafting", "idle")}
        begin, end = np.clip([begin, end], self.times[0], self.times[-1])
        drafting = self.mean(self.k > 0, begin, end)
        return {"k": self.mean(self.k, begin, end), "drafting": drafting, "idle": 1 - drafting}

    def mean(self, values: NDArray[np.float64] | NDArray[np.bool_], begin: Floats, end: Floats) -> Floats:
        lasted = np.diff(self.times, append=self.times[-1])
        summed = np.concatenate([[0.0], np.cumsum(values * lasted)])[:-1]
        whole = np.interp(end, self.times, summed) - np.interp(begin, self.times, summed)
        at = np.clip(np.searchsorted(self.times, begin, side="right") - 1, 0, len(self.times) - 1)
        length = end - begin
        return np.where(length > SAME_MOMENT_S, whole / np.maximum(length, SAME_MOMENT_S), values[at])


def decode_steps(one: Requests, every: NDArray[np.int64]) -> dict[str, Floats]:
    """What a step held on average while each of these requests decoded: sequences, tokens checked, context, drafts."""
    begin = np.maximum(one.first[every, None], one.first[None, :])
    end = np.minimum(one.last[every, None], one.last[None, :])
    decode = np.maximum(one.decode, 1e-9)
    share = np.clip(end - begin, 0, None) / decode
    done = np.clip(((begin + end) / 2 - one.first) / decode, 0, 1)
    context = one.prompt + one.output * done
    held = {
        "sequences": share @ one.rounds,
        "verified": share @ (one.rounds + one.drafts),
        "context": (share * context) @ one.rounds,
        "drafted": share @ one.drafts,
    }
    return {name: values / one.rounds[every] for name, values in held.items()}


def prefills(one: Requests) -> tuple[Floats, Floats, Floats]:
    """The moments at which prompts were through, with the tokens and the number of those that shared the step."""
    order = np.argsort(one.first)
    moments = one.first[order]
    group = np.concatenate([[0], np.cumsum(np.diff(moments) > SAME_MOMENT_S)])
    prompts = np.asarray(np.bincount(group, one.prompt[order]), np.float64)
    first = np.flatnonzero(np.concatenate([[True], np.diff(group) > 0]))
    return moments[first], prompts, np.bincount(group).astype(np.float64)


def grouped(
    begin: NDArray[np.int64], within: NDArray[np.int64], prompts: Floats, count: Floats
) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """The prefills within each request's decode, those of alike prompts as one group: whose they are, how many, and
    the sequences and prompt tokens of one."""
    owner = np.repeat(np.arange(len(begin)), within)
    # The prefills begin, begin + 1, … of each request, one after the other.
    event = np.arange(len(owner)) + np.repeat(begin - (np.cumsum(within) - within), within)
    edges = np.quantile(prompts, np.linspace(0, 1, PROMPT_GROUPS + 1)[1:-1])
    key = owner * PROMPT_GROUPS + np.searchsorted(edges, prompts)[event]
    keys, place = np.unique(key, return_inverse=True)
    number = np.bincount(place, minlength=len(keys)).astype(np.float64)
    means = [np.bincount(place, values[event], len(keys)) / number for values in (count, prompts)]
    return keys // PROMPT_GROUPS, number, means[0], means[1]


def prefill_steps(one: Requests, moments: Floats, prompts: Floats, count: Floats, lengths: DraftLengths) -> Steps:
    """Some prefills, of requests whose times the engine told, as a step of their own with what decoded meanwhile."""
    order = np.argsort(one.first)
    found = order[np.searchsorted(one.first[order], moments - SAME_MOMENT_S / 2)]
    every = evenly(np.flatnonzero(one.told[found]), MOST_PREFILLS)
    begun, ended = one.start[found[every]], moments[every]
    decoding = (one.first <= begun[:, None] + SAME_MOMENT_S) & (one.last >= ended[:, None])
    done = np.clip((begun[:, None] - one.first) / np.maximum(one.decode, 1e-9), 0, 1)
    sequences = decoding.sum(axis=1).astype(np.float64)
    drafted = decoding @ (one.drafts / one.rounds)
    return Steps(
        of=np.arange(len(every)),
        count=np.ones(len(every)),
        sequences=sequences + count[every],
        verified=sequences + drafted,
        context=np.where(decoding, one.prompt + one.output * done, 0.0).sum(axis=1) + prompts[every],
        prefill=prompts[every],
        drafted=drafted,
        **lengths.between(begun, ended),
        seconds=ended - begun,
        rounds=np.zeros(len(every)),
    )


def together(several: Sequence[Steps]) -> Steps:
    """As one, with the observations numbered through."""
    shifts = np.concatenate([[0], np.cumsum([len(one.seconds) for one in several])[:-1]])
    columns = {name: np.concatenate([getattr(one, name) for one in several]) for name in BY_GROUP}
    columns |= {name: np.concatenate([getattr(one, name) for one in several]) for name in ("seconds", "rounds")}
    of = np.concatenate([one.of + shift for one, shift in zip(several, shifts, strict=True)])
    return Steps(of=of, **columns)
