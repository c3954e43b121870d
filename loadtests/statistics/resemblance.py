"""Does the held-out part still look like the part that was tuned on?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loadtests.statistics.multiplicity import holm

MATERIAL = 0.1
ALPHA = 0.01
LEAST_EXPECTED = 5
# Of fewer values than this the exact distribution is at hand; the asymptotic one has no p at all for one against one.
FEW = 50
Values = NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """One side: lengths in ``unit`` and tokens, requests per class, seconds between arrivals (empty without times)."""

    prompt_lengths: Values
    unit: str
    output_limits: Values
    classes: Mapping[str, int]
    gaps_s: Values


class Difference(NamedTuple):
    """``distance`` and ``p`` of a test, and what is said where it differs."""

    name: str
    test: str
    distance: float
    p: float
    words: str


def comparison(tuning: Sample, held_out: Sample) -> dict[str, Any]:
    """Where held-out differs from tuning, in JSON types; ``p`` is adjusted for the number of measures (Holm).

    A measure differs where the distance is material (above 0.1 of at most 1) and p is below 0.01: with a million
    requests, p alone would find a difference between any two parts. Requests of one block and one conversation aren't
    independent, so p is too small rather than too large, and errs on the side of a warning. Both sides hold at least
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
            "differs": one.distance > MATERIAL and p < ALPHA,
        }
        for one, p in zip(found, adjusted, strict=True)
    ]
    words = [one.words for one, measure in zip(found, measures, strict=True) if measure["differs"]]
    return {"measures": measures, "resembles": not words, "warning": warning(words)}


def differences(tuning: Sample, held_out: Sample) -> list[Difference]:
    found = [
        of_values("prompt length", tuning.prompt_lengths, held_out.prompt_lengths, tuning.unit),
        of_values("output limit", tuning.output_limits, held_out.output_limits, "tokens"),
        of_classes(tuning.classes, held_out.classes),
    ]
    if len(tuning.gaps_s) and len(held_out.gaps_s):
        found.append(of_values("inter-arrival time", tuning.gaps_s, held_out.gaps_s, "s"))
    return found


def warning(words: list[str]) -> str:
    if not words:
        return ""
    return (
        f"Held-out doesn't resemble tuning in {'; '.join(words)}. What is tuned on one may not hold on the other: "
        "choose another seed, or shorter blocks."
    )


def of_values(name: str, tuning: Values, held_out: Values, unit: str) -> Difference:
    """The two-sample Kolmogorov–Smirnov test, with the asymptotic p-value, or the exact one for few values (Hodges,
    Ark. Mat. 3 (1958) 469-486): on values with ties it is too large rather than too small."""
    few = max(len(tuning), len(held_out)) < FEW
    result: Any = stats.ks_2samp(tuning, held_out, method="exact" if few else "asymp")
    medians = [float(np.median(side)) for side in (tuning, held_out)]
    words = f"{name} (median {medians[0]:,.4g} {unit} in tuning, {medians[1]:,.4g} {unit} in held-out)"
    return Difference(name, "Kolmogorov–Smirnov", float(result.statistic), float(result.pvalue), words)


def of_classes(tuning: Mapping[str, int], held_out: Mapping[str, int]) -> Difference:
    """Pearson's χ² test of the classes' mix; the distance is the total variation, half the sum of the differences."""
    names = sorted({*tuning, *held_out})
    counts = np.array([[side.get(name, 0) for name in names] for side in (tuning, held_out)])
    mixes = counts / counts.sum(axis=1, keepdims=True)
    apart = np.abs(mixes[0] - mixes[1])
    furthest = int(apart.argmax())
    words = (
        f"class ({names[furthest]} is {mixes[0, furthest]:.0%} of the requests in tuning, "
        f"{mixes[1, furthest]:.0%} in held-out)"
    )
    return Difference("class", "χ²", float(apart.sum() / 2), chi_squared_p(pooled(counts)), words)


def pooled(counts: Values) -> Values:
    """Classes of which fewer than five would be expected on a side, as one; where even that is too few, with the
    smallest of the others."""
    expected = counts.sum(axis=0) * counts.sum(axis=1).min() / counts.sum()
    order = np.argsort(expected, kind="stable")
    few = int((expected < LEAST_EXPECTED).sum())
    if few and expected[order[:few]].sum() < LEAST_EXPECTED:
        few += 1
    rest = counts[:, order[:few]].sum(axis=1, keepdims=True)
    return np.hstack([rest, counts[:, order[few:]]]) if few else counts


def chi_squared_p(counts: Values) -> float:
    if counts.shape[1] < 2:
        return 1.0
    result: Any = stats.chi2_contingency(counts, correction=False)
    return float(result.pvalue)
