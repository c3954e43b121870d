"""How many drafts of a round the target keeps: by class, by position, and by what the request is about."""

import math
import operator
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from loadtests.traffic.arrivals import generator_for, label_bytes
from loadtests.traffic.levels import Frozen

Probability = Annotated[float, Field(ge=0, le=1)]
NORMAL = NormalDist()


class ClassAcceptance(Frozen):
    """``positions[i]`` is the chance that draft i + 1 is kept, given that all before it were; its last value holds
    for every later position. ``spread`` is the standard deviation of a request's own effect on the logit, one draw
    for all its rounds, so that the rounds of one request are alike. ``proposes`` is the share of rounds in which the
    drafter has anything to propose: 1 for a model, less for prompt lookup."""

    positions: tuple[Probability, ...] = Field(min_length=1, max_length=64)
    spread: float = Field(0.0, ge=0, le=10)
    proposes: Probability = 1.0

    def survival(self, k: int, effect: float) -> NDArray[np.float64]:
        """P(at least i drafts are kept) for i = 1 … k, for a request with this standard-normal effect."""
        given = [self.positions[min(index, len(self.positions) - 1)] for index in range(k)]
        kept = accumulate((shifted(one, self.spread * effect) for one in given), operator.mul)
        return np.array(list(kept), np.float64)


class Acceptance(Frozen):
    default: ClassAcceptance
    classes: dict[str, ClassAcceptance] = Field(default_factory=dict)

    def of(self, class_: str) -> ClassAcceptance:
        return self.classes.get(class_, self.default)


def shifted(probability: float, by: float) -> float:
    """The probability whose logit is ``by`` higher; 0 and 1 stay what they are."""
    if by == 0 or probability in (0, 1):
        return probability
    odds = probability / (1 - probability) * math.exp(by)
    return odds / (1 + odds)


@lru_cache(100_000)
def standard_normal(*labels: str | int) -> float:
    """A standard-normal draw that belongs to the labels: the same text is as easy to draft for in both arms."""
    number = int.from_bytes(label_bytes(*labels)[:6], "big")
    return NORMAL.inv_cdf((number + 0.5) / 2**48)


@lru_cache(1_024)
def uniforms(count: int, *labels: str | int) -> NDArray[np.float64]:
    """Two uniform draws for each of ``count`` rounds, shape (2, count), that belong to the labels. Where several
    drafters are tried in the same boot, one after the other asks for the same."""
    drawn = generator_for(*labels).random((2, count))
    drawn.flags.writeable = False
    return drawn


def expected_tokens(acceptance: ClassAcceptance, k: int) -> float:
    """Tokens of a round with k drafts when the request has no effect of its own: 1 + Σ P(at least i kept).

    For one chance a at all positions this is (1 − a^(k+1)) / (1 − a): Leviathan, Kalman & Matias, "Fast inference
    from transformers via speculative decoding", ICML 2023, equation 1.
    """
    return 1 + acceptance.proposes * float(np.sum(acceptance.survival(k, 0.0)))


class Rounds:
    """What the rounds of one request would accept, drawn ahead: round r keeps min(``kept[r]``, K) drafts.

    ``draws`` are uniform, shape (2, rounds). They don't depend on when a round takes place or on K, so that a schedule
    may change K between two rounds.
    """

    def __init__(self, acceptance: ClassAcceptance, *, most: int, effect: float, draws: NDArray[np.float64]) -> None:
        survival = acceptance.survival(most, effect)
        self.kept = most - survival[::-1].searchsorted(draws[0], side="right")
        share = shifted(acceptance.proposes, acceptance.spread * effect)
        self.proposed = (draws[1] < share).astype(np.int64)
