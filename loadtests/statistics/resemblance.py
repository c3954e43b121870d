"""Does the held-out part still look like the part that was tuned on?

What a split deals to the parts are whole blocks, and the requests of one block aren't independent: a burst says the
same many times. So what is permuted are whole blocks: the distance between the parts is held against the distances
between parts that get the same blocks by chance (Good, Permutation, Parametric and Bootstrap Tests of Hypotheses, 3rd
ed. 2005, ch. 3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtests.statistics.multiplicity import holm

MATERIAL = 0.1
ALPHA = 0.01
PERMUTATIONS = 999
SEED = 1
MOST_BINS = 512
# Beyond these, neighbours of one part are permuted together, so that a million conversations take seconds.
MOST_BLOCKS = 2_000
# Between shares that are equal.
ROUNDING = 1e-12
ALIKE, DIFFERS, TOO_FEW = "alike", "differs", "too few to tell"
Values = NDArray[Any]
Floats = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Sample:
    """One side: per request its prompt's length in ``unit``, output limit in tokens, class as a place in
    ``class_names`` and the number of the block that it was dealt with; per gap between arrivals the seconds (none
    without times) and its block."""

    prompt_lengths: Values
    unit: str
    output_limits: Values
    classes: Values
    class_names: Sequence[str]
    blocks: Numbers
    gaps_s: Values
    gap_blocks: Numbers


class Difference(NamedTuple):
    """``distance`` and ``p`` of a test over ``blocks``, and what is said where it differs. ``enough``: could the
    smallest p that so many blocks can give be small enough?"""

    name: str
    test: str
    distance: float
    p: float
    blocks: int
    enough: bool
    words: str


def comparison(tuning: Sample, held_out: Sample, *, dealt: str = "time blocks") -> dict[str, Any]:
    """Where held-out differs from tuning, in JSON types; ``p`` is adjusted for the number of measures (Holm).

    ``dealt`` names the blocks. A measure differs where the distance is material (above 0.1 of at most 1) and p is
    below 0.01: with a million requests, p alone would find a difference between any two parts. It is alike where the
    distance isn't material. Where it is, but blocks dealt by chance may be as far apart, or where there are so few
    blocks that no distance could be told from chance, they are "too few to tell"; no distance at all is alike with any
    number. ``resembles`` is None where there are so few that nothing can be told of the rest. Both sides hold at least
    one request.
    """
    found = differences(tuning, held_out)
    adjusted = holm([one.p for one in found])
    measures = [
        {
            "name": one.name,
            "test": one.test,
            "distance": one.distance,
            "p": p,
            "blocks": one.blocks,
            "found": (told := word(one, p)),
            "differs": told == DIFFERS,
        }
        for one, p in zip(found, adjusted, strict=True)
    ]
    differing = [one.words for one, measure in zip(found, measures, strict=True) if measure["differs"]]
    few = [one.blocks for one in found if not one.enough]
    return {
        "measures": measures,
        "dealt": dealt,
        "resembles": False if differing else None if few else True,
        "warning": warning(differing) or too_few(min(few, default=0), dealt),
    }


def word(one: Difference, p: float) -> str:
    if one.distance <= (MATERIAL if one.enough else ROUNDING):
        return ALIKE
    return DIFFERS if one.enough and p < ALPHA else TOO_FEW


def warning(words: Sequence[str]) -> str:
    if not words:
        return ""
    return (
        f"Held-out doesn't resemble tuning in {'; '.join(words)}. What is tuned on one may not hold on the other: "
        "choose another seed, or shorter blocks."
    )


def too_few(blocks: int, dealt: str) -> str:
    if not blocks:
        return ""
    shorter = "choose shorter blocks, or " if dealt == "time blocks" else ""
    return (
        f"Tuning and held-out have {blocks} {dealt} together, too few to tell whether held-out resembles tuning: "
        f"{shorter}import more traffic."
    )


def differences(tuning: Sample, held_out: Sample) -> list[Difference]:
    timed = len(tuning.gaps_s) > 0 and len(held_out.gaps_s) > 0
    measures = 4 if timed else 3
    requests = Dealt(tuning.blocks, held_out.blocks, measures)
    found = [
        of_values("prompt length", requests, tuning.prompt_lengths, held_out.prompt_lengths, tuning.unit),
        of_values("output limit", requests, tuning.output_limits, held_out.output_limits, "tokens"),
        of_classes(requests, tuning, held_out),
    ]
    if timed:
        gaps = Dealt(tuning.gap_blocks, held_out.gap_blocks, measures)
        found.append(of_values("inter-arrival time", gaps, tuning.gaps_s, held_out.gaps_s, "s"))
    return found


class Dealt:
    """The blocks of both sides, tuning's first, and other ways to deal them: which of them tuning gets, shape (1 +
    permutations, blocks), the first row as it was."""

    def __init__(self, tuning: Numbers, held_out: Numbers, measures: int) -> None:
        sides = [np.unique(side, return_inverse=True) for side in (tuning, held_out)]
        counts = [len(names) for names, _ in sides]
        together = math.ceil(sum(counts) / MOST_BLOCKS)
        own, other = (places // together for _, places in sides)
        first = int(own.max()) + 1
        self.count, self._permuted = sum(counts), first + int(other.max()) + 1
        self.block_of = np.concatenate([own, first + other])
        # One of so few deals is as it was, and comes up again as often as that: p can't be smaller.
        self.enough = measures / math.comb(self._permuted, first) < ALPHA
        as_it_was = np.arange(self._permuted) < first
        shuffled = np.random.Generator(np.random.PCG64(SEED)).permuted(np.tile(as_it_was, (PERMUTATIONS, 1)), axis=1)
        self._deals = np.vstack([as_it_was, shuffled]).astype(np.float64)

    def shares(self, bins: Numbers) -> tuple[Floats, Floats]:
        """For each deal the share of both sides' values in each bin. Counts are whole, so the sums are exact."""
        width = int(bins.max()) + 1
        cells = np.bincount(self.block_of * width + bins, minlength=self._permuted * width)
        counts = cells.reshape(self._permuted, width).astype(np.float64)
        own = self._deals @ counts
        other = counts.sum(axis=0) - own
        return own / own.sum(axis=1, keepdims=True), other / other.sum(axis=1, keepdims=True)


def p_of(distances: Floats) -> float:
    """The share of the deals, the first among them, that are at least as far apart as the first."""
    return int((distances >= distances[0] - ROUNDING).sum()) / len(distances)


def of_values(name: str, dealt: Dealt, tuning: Values, held_out: Values, unit: str) -> Difference:
    """The largest difference of the cumulative shares, at 512 quantiles of all values at most."""
    values = np.concatenate([tuning, held_out])
    edges = np.unique(np.sort(values)[np.linspace(0, len(values) - 1, MOST_BINS).round().astype(np.int64)])
    own, other = dealt.shares(np.searchsorted(edges, values))
    distances = np.abs(own.cumsum(axis=1) - other.cumsum(axis=1)).max(axis=1)
    medians = [float(np.median(side)) for side in (tuning, held_out)]
    words = f"{name} (median {medians[0]:,.4g} {unit} in tuning, {medians[1]:,.4g} {unit} in held-out)"
    distance, p = float(distances[0]), p_of(distances)
    return Difference(name, "Kolmogorov–Smirnov", distance, p, dealt.count, dealt.enough, words)


def of_classes(dealt: Dealt, tuning: Sample, held_out: Sample) -> Difference:
    """The total variation: half the sum of the differences of the classes' shares."""
    own, other = dealt.shares(np.concatenate([tuning.classes, held_out.classes]))
    distances = np.abs(own - other).sum(axis=1) / 2
    furthest = int(np.abs(own[0] - other[0]).argmax())
    words = (
        f"class ({tuning.class_names[furthest]} is {100 * own[0, furthest]:.0f} % of the requests in tuning, "
        f"{100 * other[0, furthest]:.0f} % in held-out)"
    )
    distance, p = float(distances[0]), p_of(distances)
    return Difference("class", "total variation", distance, p, dealt.count, dealt.enough, words)
