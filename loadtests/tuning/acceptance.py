"""How many drafts are kept: counted by position and class from measured requests, and carried over to other K.

A round that drafts keeps a prefix of its drafts. What is carried over is the chance that a draft is kept given that all
before it were, by position. It is taken not to depend on K: exact for a drafter that drafts one token after the other,
an assumption for one that drafts a block.

That holds for one request. Requests differ, and the longer K, the fewer rounds the easy ones take: over all rounds less
is kept at a long K than the chances seen at short ones say. So each request counts by its tokens, which are the same at
any K, and how much less its rounds bring is a figure of its own, the unevenness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.simulator.steps import Floats, rounds_of

# So many tokens count as much as what is known from elsewhere (all classes, the position before): rounds of one
# request are alike, so that few requests tell little, however long they are.
STRENGTH = 200
COUNTED = ("output_tokens", "rounds", "draft_tokens", "accepted_tokens")
COUNTED_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True)
class Tallies:
    """Of requests whose rounds the engine told: decode ``rounds``, ``drafting`` ones among them, ``drafts`` proposed,
    ``accepted`` of them, verified ``tokens`` that came of rounds. ``kept[i]``: drafting rounds that kept at least
    i + 1, as far as every drafting round was meant to draft so many.

    Even tallies count each round of a request as often as the request had tokens a round, all but ``rounds``;
    ``tokens`` is then the count of all rounds too.
    """

    rounds: float = 0.0
    drafting: float = 0.0
    drafts: float = 0.0
    accepted: float = 0.0
    tokens: float = 0.0
    kept: tuple[float, ...] = ()


def tallies_of(records: pa.Table, sure: int | None = None, *, even: bool = False) -> dict[str, Tallies]:
    """By class, warm-up and requests whose rounds weren't told left out. ``sure``: as many drafts as each drafting
    round was meant to have, at least; None: whatever the histograms hold. ``even``: as ``Tallies`` has it."""
    table = records.select(["class", "warm_up", "status", *COUNTED, "accepted_histogram"])
    told = pc.and_(pc.equal(table["status"], "completed"), pc.invert(table["warm_up"]))
    table = table.filter(pc.and_(told, pc.and_(pc.is_valid(table["rounds"]), pc.is_valid(table["output_tokens"]))))
    found: dict[str, list[dict[str, object]]] = {}
    for row in table.to_pylist():
        found.setdefault(row["class"], []).append(row)
    return {class_: tally(rows, sure, even=even) for class_, rows in sorted(found.items())}


def tally(rows: Sequence[Mapping[str, object]], sure: int | None, *, even: bool) -> Tallies:
    columns = {name: np.array([number(one[name]) for one in rows]) for name in COUNTED}
    rounds = rounds_of(columns["output_tokens"], columns["accepted_tokens"], columns["rounds"])
    tokens = columns["output_tokens"] - 1
    weights = tokens / rounds if even else np.ones(len(rows))
    # Positions that no round reached may be left out of its histogram.
    histogram = added([one["accepted_histogram"] for one in rows], weights, least=1 + (sure or 0))
    kept = histogram[::-1].cumsum()[::-1][1:]
    return Tallies(
        rounds=float(rounds.sum()),
        drafting=float(weights @ columns["rounds"]),
        drafts=float(weights @ columns["draft_tokens"]),
        accepted=float(weights @ columns["accepted_tokens"]),
        tokens=float(tokens.sum()),
        kept=tuple(float(one) for one in kept[:sure]),
    )


def number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def added(histograms: Sequence[object], weights: Floats, *, least: int) -> Floats:
    """Their weighed sum, at least so long; missing ones add nothing, short ones count as filled with zeros."""
    lists = [(one, weight) for one, weight in zip(histograms, weights, strict=True) if isinstance(one, list)]
    total = np.zeros(max([least, *(len(one) for one, _ in lists)]))
    for one, weight in lists:
        total[: len(one)] += weight * np.array(one)
    return total


def counted_by_position(counters: Mapping[str, float]) -> tuple[float, ...]:
    """Drafts kept at each position by the engine's counters, from the first on; () where it has none."""
    start = f"{COUNTED_BY_POSITION}{{"
    found = {int(name[len(start) : -1]): value for name, value in counters.items() if name.startswith(start)}
    return tuple(found[position] for position in sorted(found))


def together(several: Sequence[Tallies]) -> Tallies:
    """Their sum; positions that some didn't draft have the sum of those that did."""
    names = [one.name for one in fields(Tallies) if one.name != "kept"]
    width = max((len(one.kept) for one in several), default=0)
    kept = tuple(sum(one.kept[i] for one in several if i < len(one.kept)) for i in range(width))
    return Tallies(**{name: sum(getattr(one, name) for one in several) for name in names}, kept=kept)


def conditional(several: Sequence[Tallies], prior: Sequence[float] = ()) -> tuple[float, ...]:
    """P(draft i + 1 is kept | all before it were) for i from 0 up, each drawn towards ``prior`` at its position or,
    from where that ends, towards the position before it, with the weight of STRENGTH. From even tallies."""
    found: list[float] = []
    for i in range(max((len(one.kept) for one in several), default=0)):
        there = [one for one in several if i < len(one.kept)]
        kept = sum(one.kept[i] for one in there)
        before = sum(one.kept[i - 1] if i else one.drafting for one in there)
        towards = prior[i] if i < len(prior) else found[-1] if found else kept / before if before else 0.0
        found.append((kept + STRENGTH * towards) / (before + STRENGTH))
    return tuple(found)


@dataclass(frozen=True)
class ClassKept:
    """``given[i]``: P(draft i + 1 is kept | all before it were), the last for all later ones; ``proposes``: share of
    rounds in which anything is drafted; both of a request, on average over tokens. ``uneven``: (tokens that drafts
    bring a round, squared coefficient of variation of that between requests), rising, as seen at each K."""

    given: tuple[float, ...]
    proposes: float
    uneven: tuple[tuple[float, float], ...] = ()

    def kept(self, k: int) -> Floats:
        """Share of rounds that keep at least 1 … k drafts."""
        if not self.given:
            return np.zeros(k)
        each = [self.given[min(i, len(self.given) - 1)] for i in range(k)]
        kept = np.asarray(self.proposes * np.cumprod(each), np.float64)
        extra = float(kept.sum())
        return kept * max(0.0, 1 - self.variation(extra) * extra / (1 + extra))

    def variation(self, extra: float) -> float:
        """Between what was seen linear, beyond it the nearest."""
        if not self.uneven:
            return 0.0
        return float(np.interp(extra, [seen for seen, _ in self.uneven], [how for _, how in self.uneven]))


@dataclass(frozen=True)
class Kept:
    """Of one drafter. ``filled``: share of K that a drafting round drafts on average; ``shares``: of each class in the
    verified tokens of the trials. A class that nobody measured is as all together."""

    everything: ClassKept
    classes: Mapping[str, ClassKept] = field(default_factory=dict)
    filled: float = 1.0
    shares: Mapping[str, float] = field(default_factory=dict)

    def kept(self, k: int, mix: Mapping[str, float] | None = None) -> tuple[float, ...]:
        """Share of rounds that keep at least 1 … k drafts. ``mix``: share of each class in the verified tokens."""
        by_class, weights = self.weighed(k, mix)
        return tuple(float(one) for one in weights @ np.stack([one.kept(k) for one in by_class]))

    def drafted(self, k: int, mix: Mapping[str, float] | None = None) -> float:
        """Drafts of a round at draft length K, on average over all rounds."""
        by_class, weights = self.weighed(k, mix)
        return float(weights @ np.array([one.proposes for one in by_class])) * self.filled * k

    def weighed(self, k: int, mix: Mapping[str, float] | None) -> tuple[list[ClassKept], Floats]:
        """Classes with their share of rounds: the tokens of one that keeps more take fewer rounds."""
        shares = {name: share for name, share in (self.shares if mix is None else mix).items() if share > 0}
        if not shares:
            return [self.everything], np.ones(1)
        by_class = [self.classes.get(name, self.everything) for name in shares]
        rounds = np.array(
            [share / (1 + one.kept(k).sum()) for share, one in zip(shares.values(), by_class, strict=True)]
        )
        return by_class, rounds / rounds.sum()


@dataclass(frozen=True)
class TrialTallies:
    """What one trial of a drafter counted. ``k``: its draft length where that never changed, else None; ``always``:
    every round was meant to draft."""

    classes: Mapping[str, Tallies]
    k: int | None
    always: bool


def acceptance_of(trials: Sequence[TrialTallies]) -> Kept:
    """From all trials of one drafter. Raises ValueError where no request's rounds were told."""
    everything = [together(list(one.classes.values())) for one in trials]
    if not sum(one.rounds for one in everything):
        raise ValueError("no completed request told its rounds: the engine must be asked for per-request metrics")
    always = [one for one in trials if one.always] or list(trials)
    pooled = ClassKept(
        conditional(everything),
        proposing([together(list(one.classes.values())) for one in always]),
        unevenness(trials),
    )
    names = sorted({name for one in trials for name in one.classes})
    classes = {name: class_kept(name, trials, always, pooled) for name in names}
    tokens = {name: sum(one.classes[name].tokens for one in trials if name in one.classes) for name in names}
    total = sum(tokens.values())
    return Kept(
        everything=pooled,
        classes=classes,
        filled=filled(trials),
        shares={name: one / total for name, one in tokens.items()} if total > 0 else {},
    )


def class_kept(
    name: str, trials: Sequence[TrialTallies], always: Sequence[TrialTallies], pooled: ClassKept
) -> ClassKept:
    given = conditional([one.classes[name] for one in trials if name in one.classes], pooled.given)
    mine = [one.classes[name] for one in always if name in one.classes]
    return ClassKept(given, proposing(mine, pooled.proposes), pooled.uneven)


def proposing(several: Sequence[Tallies], prior: float | None = None) -> float:
    """Of all rounds, from even tallies."""
    drafting, rounds = sum(one.drafting for one in several), sum(one.tokens for one in several)
    if prior is None:
        return drafting / rounds if rounds else 0.0
    return (drafting + STRENGTH * prior) / (rounds + STRENGTH)


def unevenness(trials: Sequence[TrialTallies]) -> tuple[tuple[float, float], ...]:
    """At each K that was measured, by how far tokens ÷ rounds lie below what a round brings a request on average,
    1 + extra: a harmonic mean is less than the mean by the variance ÷ the mean, about."""
    found = []
    for k in sorted({one.k for one in trials if one.k}):
        one = together([tallies for trial in trials if trial.k == k for tallies in trial.classes.values()])
        extra = sum(one.kept) / one.tokens if one.tokens else 0.0
        if extra > 0:
            less = max(0.0, 1 + extra - one.tokens / one.rounds)
            found.append((extra, less * (1 + extra) / extra**2))
    return tuple(sorted(found))


def filled(trials: Sequence[TrialTallies]) -> float:
    """Prompt lookup may find fewer tokens than K; a model drafts them all."""
    fixed = [(together(list(one.classes.values())), one.k) for one in trials if one.k]
    room = sum(one.drafting * k for one, k in fixed)
    return min(1.0, sum(one.drafts for one, _ in fixed) / room) if room else 1.0
