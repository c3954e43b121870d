"""Planned looks: how often the evidence may be judged on the way, and how much of alpha each look may spend."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_LOOKS = 3
FEWEST_PAIRS = 4
# In doubles 1 − 0.95 − 0.05 is 4e-17 and not 0; no campaign that is ever run decides at less than this.
LEAST_ALPHA = 1e-6


@dataclass(frozen=True)
class Look:
    """The ``number``-th look (from 1), after ``pairs`` pairs, each test at ``alpha``."""

    number: int
    pairs: int
    alpha: float


def planned_looks(pairs: int, alpha: float, interim: Sequence[tuple[int, float]] = ()) -> tuple[Look, ...]:
    """Every look in order: those on the way as (pairs, alpha), and the last, after all ``pairs``, with what is left.

    The chance that any look errs is at most the sum of their alphas, whatever the earlier ones said and whether or not
    they were taken. Raises ValueError for more than three looks, pairs that are odd, below four or don't rise, and
    where a look, be it the last, has less than LEAST_ALPHA.
    Source: Bonferroni's inequality, with alpha split in advance as in Peto et al., "Design and analysis of randomized
    clinical trials requiring prolonged observation of each patient", British Journal of Cancer 34 (1976) 585-612.
    """
    if len(interim) >= MOST_LOOKS:
        raise ValueError(f"{len(interim) + 1} looks are planned; at most {MOST_LOOKS} may be")
    counts = [*(count for count, _ in interim), pairs]
    if any(count < FEWEST_PAIRS or count % 2 for count in counts):
        raise ValueError("a look comes after an even number of pairs, at least 4")
    if any(later <= earlier for earlier, later in pairwise(counts)):
        raise ValueError("each look comes after more pairs than the one before, and the last after all of them")
    spent = [share for _, share in interim]
    left = alpha - sum(spent)
    if any(share < LEAST_ALPHA for share in (*spent, left)):
        raise ValueError(
            f"the looks on the way spend {sum(spent):g} of alpha {alpha:g}: each needs some, the last too, "
            f"{LEAST_ALPHA:f} at least"
        )
    return tuple(Look(place, *one) for place, one in enumerate(zip(counts, [*spent, left], strict=True), start=1))


def look_after(looks: Sequence[Look], pairs: int) -> Look:
    """The look that ``pairs`` complete pairs are on the way to, or have reached; the last one beyond all of them.

    Source: design §6, "looks": only those that were planned.
    """
    return next((one for one in looks if pairs <= one.pairs), looks[-1])
