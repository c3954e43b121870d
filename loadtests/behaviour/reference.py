"""The exact accept/correct rule of speculative sampling, rules that are not exact, and what each makes of a target.

Drafts are checked in order; the first that is rejected is replaced by a token of the target's own, and nothing after
it survives; where all are kept, one more comes from the target. Under ``EXACT`` the output is distributed as the
target's own, whatever the drafter. Temperature, top-k and top-p are taken to be in the rows already.

Sources: Leviathan, Kalman & Matias, "Fast inference from transformers via speculative decoding", ICML 2023, algorithm 1
and appendix A.1; Chen et al., "Accelerating large language model decoding with speculative sampling", arXiv 2302.01318,
algorithm 2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]
Prefix = tuple[int, ...]
Target = Callable[[Prefix], Floats]
Drafter = Callable[[Prefix, int], Floats]
OfTwo = Callable[[Floats, Floats], Floats]
# Of the sum of a distribution.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Rule:
    """Rows of shape (V,): target p, drafter q. ``acceptance(p, q)``: for each token, the chance that it is kept once it
    is drafted. ``correction(p, q)``: the distribution that the first rejected token's replacement is drawn from."""

    acceptance: OfTwo
    correction: OfTwo


def ratio(p: Floats, q: Floats) -> Floats:
    """min(1, p/q); 1 for a token that is never drafted."""
    return np.divide(p, q, out=np.ones_like(p), where=p < q)


def residual(p: Floats, q: Floats) -> Floats:
    """norm(max(p − q, 0)); p where nothing is left of it, since then nothing is rejected."""
    left = np.maximum(p - q, 0.0)
    total = left.sum()
    return left / total if total > 0 else p


EXACT = Rule(ratio, residual)


def lenient(epsilon: float) -> Rule:
    """A planted fault: the exact rule, but each draft is kept with a chance larger by ``epsilon``, a share of 1."""
    return Rule(lambda p, q: np.minimum(1.0, ratio(p, q) + epsilon), residual)


def above_threshold(least: float) -> Rule:
    """A lossy rule: a draft is kept if the target gives it ``least``, a share of 1, or more.

    Its kind: typical acceptance with a fixed threshold (Cai et al., "Medusa", arXiv 2401.10774, section 3.3.1).
    """
    return Rule(lambda p, q: (p >= least).astype(np.float64), lambda p, q: p)


def shifted(row: ArrayLike, *, token: int, mass: float) -> Floats:
    """A planted fault: ``row`` (V,) with ``mass``, a share of 1, moved from ``token`` to the others, in their
    proportion.

    Its distance in total variation from ``row`` is ``mass``. Raises ValueError where the token has less, or where no
    other has any.
    """
    kept = distributions(np.atleast_2d(row), "row")[0]
    others = np.where(np.arange(len(kept)) == token, 0.0, kept)
    if not 0 <= mass <= kept[token] + ROUNDING or others.sum() <= 0:
        raise ValueError(f"{mass} can't be moved away from token {token}, which has {kept[token]:.4g}")
    moved: Floats = kept + mass * (others / others.sum())
    moved[token] = max(0.0, kept[token] - mass)
    return moved


@dataclass(frozen=True)
class Step:
    """One round: how many drafts were kept, and its output, shape (accepted + 1,)."""

    accepted: int
    tokens: Tokens


def speculative_step(
    target: ArrayLike, draft: ArrayLike, drafted: Sequence[int], rng: np.random.Generator, *, rule: Rule = EXACT
) -> Step:
    """Check K drafted tokens: ``target`` (K + 1, V), ``draft`` (K, V), each row a distribution; ``drafted`` (K,).

    Raises ValueError for rows that are no distributions, for shapes that don't fit, and for a token that the drafter
    gives no chance: its declared distribution isn't the one it drew from, and then no rule preserves anything.
    """
    ps, qs = distributions(target, "target"), distributions(draft, "draft")
    if len(qs) != len(drafted) or len(ps) != len(drafted) + 1 or ps.shape[1] != qs.shape[1]:
        shapes = f"{qs.shape} and {ps.shape}"
        raise ValueError(f"{len(drafted)} drafts need as many rows of draft and one more of target, not {shapes}")
    kept = np.asarray(drafted, dtype=np.int64)
    for place, token in enumerate(kept):
        p, q = ps[place], qs[place]
        if not 0 <= token < len(q) or q[token] <= 0:
            raise ValueError(f"token {token}, drafted at place {place}, has no chance under the drafter")
        if rng.random() >= rule.acceptance(p, q)[token]:
            return Step(place, np.append(kept[:place], rng.choice(len(p), p=rule.correction(p, q))))
    return Step(len(kept), np.append(kept, rng.choice(ps.shape[1], p=ps[-1])))


def first_output(p: ArrayLike, q: ArrayLike, *, rule: Rule = EXACT) -> Floats:
    """The exact distribution (V,) of a round's first token; ``p``, ``q`` (V,) are the target's and the drafter's
    rows."""
    target, draft = distributions(np.stack([np.asarray(p), np.asarray(q)]), "row")
    kept = draft * rule.acceptance(target, draft)
    corrected: Floats = kept + (1.0 - kept.sum()) * rule.correction(target, draft)
    return corrected


def output_distribution(
    target: Target, drafter: Drafter, *, draft_length: int, length: int, rule: Rule = EXACT, prefill: bool = False
) -> Floats:
    """The exact joint distribution of the first ``length`` tokens over all rounds, shape (V,) * length.

    ``target(prefix)`` and ``drafter(prefix, place)`` give rows (V,) after the tokens of ``prefix``, ``place`` of which
    are drafts of the round going on; ``draft_length`` is K, and 0 is the target by itself. ``prefill``: the first token
    comes from the target, as in an engine. Work grows as V to the ``length``: for short sequences.
    Source: the rule followed over every sequence, with the chance of each place in the round (forward algorithm).
    """
    start = np.zeros(draft_length + 1)
    start[draft_length if prefill else 0] = 1.0
    reached: dict[Prefix, Floats] = {(): start}
    for _ in range(length):
        reached = {
            (*prefix, token): chances
            for prefix, before in reached.items()
            for token, chances in enumerate(one_more(target(prefix), drafter, prefix, before, rule))
        }
    return np.array([chances.sum() for chances in reached.values()]).reshape((len(target(())),) * length)


def one_more(p: Floats, drafter: Drafter, prefix: Prefix, before: Floats, rule: Rule) -> Floats:
    """``before`` (K + 1,): the chance that ``prefix`` came out with so many drafts of the round kept. The same after
    one more token, for each token: shape (V, K + 1)."""
    after = np.zeros((len(p), len(before)))
    after[:, 0] = before[-1] * p
    for place in np.flatnonzero(before[:-1]):
        q = drafter(prefix, int(place))
        kept = q * rule.acceptance(p, q)
        after[:, place + 1] += before[place] * kept
        after[:, 0] += before[place] * (1.0 - kept.sum()) * rule.correction(p, q)
    return after


def distributions(rows: ArrayLike, name: str) -> Floats:
    """``rows`` (n, V) as floats that add up to 1. Raises ValueError, naming the row, where they are no
    distributions."""
    found = np.asarray(rows, dtype=np.float64)
    if found.ndim != 2:
        raise ValueError(f"{name}: rows of one length are needed, not shape {found.shape}")
    sums = found.sum(axis=1)
    wrong = np.flatnonzero(~((found >= 0).all(axis=1) & (np.abs(sums - 1) <= ROUNDING)))
    if len(wrong):
        raise ValueError(f"{name}, row {wrong[0]}: chances are at least 0 and add up to 1, not {sums[wrong[0]]:.6g}")
    normed: Floats = found / sums[:, None]
    return normed
