"""Does a candidate sample from the baseline's distribution? (design §7, T3)

Each prompt is sampled many times, with seeds of their own in every batch, and tokens 2 to 6 are counted. The first
comes from the prefill and is never drafted: only samples with the same first token are compared, so a difference there
neither shows nor hides another. Were the two arms one, then their samples with the same first token could as well
change arms. So whole samples are permuted within first tokens, which keeps what binds the tokens of one sample, and two
statistics are held against the permuted ones:

- for each prompt, its largest standardised difference in the count of one token at one position (corrected over prompts
  by Holm). It names the token, and sees a shift at one place;
- for all prompts together, the sum of the squares of all of them (with the weights that make it Pearson's chi-square).
  It sees a shift that is small everywhere.

Each has half of the false-alarm rate. Rare tokens of a position are one cell; what is rare is decided on both arms
together, before any arm is looked at, so that the permutation stays exact.

Sources: Good, Permutation, Parametric and Bootstrap Tests of Hypotheses, 3rd ed. 2005, ch. 3; Phipson & Smyth, Stat.
Appl. Genet. Mol. Biol. 9 (2010) art. 39, for p = (1 + as extreme) / (1 + permutations); Mantel & Haenszel, J. Natl.
Cancer Inst. 22 (1959) 719-748, for counts within strata.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from loadtests.behaviour.greedy import ENDED, Found
from loadtests.statistics.multiplicity import holm

Samples = NDArray[np.int64]
Floats = NDArray[np.float64]
FIRST, LAST = 2, 6
ALPHA = 0.01
NOTICED = 0.05
CHANCE = 0.9
PERMUTATIONS = 9_999
SEED = 1
# A token that the candidate alone has, in 5 % of its samples, has 1.7 % of them and of the baseline's two batches.
LEAST_SHARE = 0.015
LEAST_COUNT = 10
# Samples that a cell must vary by within first tokens: one that hangs on a stray sample jumps, and hides the others.
LEAST_VARYING = 5
# Labels that are held at once, as 4-byte floats.
CHUNK = 4_000_000
# Between statistics that are equal.
ROUNDING = 1e-9


@dataclass(frozen=True)
class PromptSamples:
    """What three batches sampled after one prompt: arrays of shape (n, 6) as ``as_samples`` gives, no two batches with
    a seed in common (a repeat with the baseline's own seeds is no control).

    ``repeat``: the baseline again. ``drafted``: in how many of the candidate's samples drafts were proposed, of the
    ``told`` ones, all by default, of which that is known. Samples without drafts belong here too: whether a drafter
    proposes may depend on what was sampled (prompt lookup), so to leave them out of one arm would make two equal arms
    differ.
    """

    prompt_id: str
    candidate: Samples
    baseline: Samples
    repeat: Samples
    drafted: int
    told: int | None = None

    @property
    def share(self) -> float:
        """Of the samples with drafts."""
        return self.drafted / (self.told or len(self.candidate))


@dataclass(frozen=True)
class Shift:
    """How much oftener the arm has ``token`` at ``position`` than the baseline after the same first tokens: a share of
    1, negative where less often. ``token`` is None for the rare ones together, ENDED where the answer was over."""

    prompt_id: str
    position: int
    token: int | None
    shift: float


@dataclass(frozen=True)
class PromptTest:
    """``samples``: of the arm and of what it is compared with; ``effective``: the samples that could be compared, n m /
    (n + m) summed over first tokens, so half of an arm where all begin alike and both are as large. ``cells``: counted
    tokens over all positions, as far as they vary. ``largest``: what stands out most, None where nothing varies. ``p``
    by permutation, ``p_adjusted`` by Holm over the prompts."""

    prompt_id: str
    samples: tuple[int, int]
    effective: float
    cells: int
    largest: Shift | None
    p: float
    p_adjusted: float


@dataclass(frozen=True)
class Comparison:
    """One arm against the baseline. ``p_together``: all prompts at once. ``p``: of both tests, twice the smaller."""

    prompts: tuple[PromptTest, ...]
    p_together: float
    p: float

    @property
    def largest(self) -> Shift | None:
        return min(self.prompts, key=lambda one: (one.p, -abs(one.largest.shift) if one.largest else 0.0)).largest


@dataclass(frozen=True)
class SampledParity:
    """``candidate`` and ``control`` are None where no prompt was exercised; ``not_exercised`` names those without
    drafts, which aren't compared.

    What the run had the ``chance`` to notice, as a share of mass moved from or to one token at one position among
    samples with drafts: ``smallest_shift`` where every prompt has it, ``smallest_shift_alone`` where whichever prompt
    shows it worst alone has it; None where even all of the mass could go unnoticed."""

    found: Found
    reason: str
    candidate: Comparison | None
    control: Comparison | None
    not_exercised: tuple[str, ...]
    smallest_shift: float | None
    smallest_shift_alone: float | None
    noticed: float
    alpha: float
    chance: float
    permutations: int
    seed: int

    @property
    def largest(self) -> Shift | None:
        return self.candidate.largest if self.candidate else None


def as_samples(sequences: Iterable[Sequence[int]]) -> Samples:
    """The first six tokens of each sampled answer, shape (n, 6); ENDED from where it was over."""
    rows = [[*sequence[:LAST], *[ENDED] * (LAST - len(sequence))] for sequence in sequences]
    return np.array(rows, dtype=np.int64).reshape(-1, LAST)


def sampled_parity(
    prompts: Sequence[PromptSamples],
    *,
    alpha: float = ALPHA,
    noticed: float = NOTICED,
    chance: float = CHANCE,
    permutations: int = PERMUTATIONS,
    seed: int = SEED,
) -> SampledParity:
    """Judge the candidate with a chance ≤ ``alpha`` of a false alarm over all prompts and both tests together.

    Parity is shown only if the run had the ``chance`` to notice a shift of the mass ``noticed`` (share of 1)
    in every prompt. The control goes through the same test; where it differs, nothing is told of the candidate.
    ``permutations`` are raised to what the smallest p must be able to show. The result depends on neither the order of
    prompts nor that of samples. Raises ValueError, naming the prompt, where one comes twice, has another shape than
    (n, 6), an arm without samples, or more drafted samples than samples.
    """
    check(prompts)
    exercised = sorted((one for one in prompts if one.drafted), key=lambda one: one.prompt_id)
    unexercised = tuple(one.prompt_id for one in prompts if not one.drafted)
    permutations = max(permutations, math.ceil(2 * len(exercised) / alpha))
    candidate = control = None
    shifts: tuple[float | None, float | None] = (None, None)
    if exercised:
        # Where the control shows that the baseline's two batches are one distribution, both are what to compare with.
        both = [np.concatenate([one.baseline, one.repeat]) for one in exercised]
        arms = [(one.prompt_id, one.candidate, reference) for one, reference in zip(exercised, both, strict=True)]
        repeats = [(one.prompt_id, one.repeat, one.baseline) for one in exercised]
        candidate = comparison(arms, permutations=permutations, seed=seed)
        control = comparison(repeats, permutations=permutations, seed=seed)
        shares = [one.share for one in exercised]
        shifts = smallest_shifts(candidate.prompts, shares, alpha=alpha, chance=chance)
    found, reason = settled(candidate, control, shifts[0], alpha, noticed, chance)
    return SampledParity(
        found=found,
        reason=reason,
        candidate=candidate,
        control=control,
        not_exercised=unexercised,
        smallest_shift=shifts[0],
        smallest_shift_alone=shifts[1],
        noticed=noticed,
        alpha=alpha,
        chance=chance,
        permutations=permutations,
        seed=seed,
    )


def check(prompts: Sequence[PromptSamples]) -> None:
    seen: set[str] = set()
    for one in prompts:
        where = f"prompt {one.prompt_id}"
        if one.prompt_id in seen:
            raise ValueError(f"{where}: given twice; put all samples of a prompt together")
        seen.add(one.prompt_id)
        for name, samples in (("candidate", one.candidate), ("baseline", one.baseline), ("repeat", one.repeat)):
            if samples.ndim != 2 or samples.shape[1] != LAST or not len(samples):
                raise ValueError(f"{where}, {name}: samples of {LAST} tokens are needed, not shape {samples.shape}")
        told = len(one.candidate) if one.told is None else one.told
        if not 0 <= one.drafted <= told <= len(one.candidate):
            raise ValueError(f"{where}: {one.drafted} samples with drafts of {told}, and {len(one.candidate)} samples")


def comparison(arms: Sequence[tuple[str, Samples, Samples]], *, permutations: int, seed: int) -> Comparison:
    """Prompt, arm and baseline of each (at least one); the permutations of each prompt are its own."""
    together = np.zeros(1 + permutations)
    tests = []
    for place, (prompt_id, own, baseline) in enumerate(arms):
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, place])))
        test, sums = prompt_test(prompt_id, own, baseline, permutations, rng)
        tests.append(test)
        together += sums
    adjusted = holm([one.p for one in tests])
    tests = [replace(one, p_adjusted=p) for one, p in zip(tests, adjusted, strict=True)]
    p_together = p_of(together)
    return Comparison(tuple(tests), p_together, min(1.0, 2 * min(p_together, *adjusted)))


def p_of(statistics: Floats) -> float:
    """The share of the permutations, the first row being what was seen, that are at least as extreme as it."""
    return int((statistics >= statistics[0] * (1 - ROUNDING)).sum()) / len(statistics)


def prompt_test(
    prompt_id: str, own: Samples, baseline: Samples, permutations: int, rng: np.random.Generator
) -> tuple[PromptTest, Floats]:
    """The prompt's own test, not adjusted yet, and its sum of squares as seen and under each permutation."""
    table = Table(own, baseline)
    largest, statistics = None, np.zeros((1 + permutations, 2))
    if table.varying:
        statistics = np.concatenate([table.statistics(table.seen[None]), *table.permuted(permutations, rng)])
        position, token, shift = table.largest()
        largest = Shift(prompt_id, position, token, shift)
    p = p_of(statistics[:, 0])
    samples = len(own), len(baseline)
    return PromptTest(prompt_id, samples, table.effective, table.varying, largest, p, p), statistics[:, 1]


class Cell(NamedTuple):
    position: int
    token: int | None


class Table:
    """The counts of one prompt, in strata of one first token each; first tokens that one arm alone has are left out.

    ``indicators`` (samples, cells): which cells a sample is counted in. Samples lie sorted, and what is drawn is always
    the same of the two arms, so that neither their order nor which of them is called the candidate changes any p.
    """

    def __init__(self, own: Samples, baseline: Samples) -> None:
        own, baseline = in_order(own), in_order(baseline)
        self._drawn_is_own = (len(own), own.tobytes()) <= (len(baseline), baseline.tobytes())
        drawn, other = (own, baseline) if self._drawn_is_own else (baseline, own)
        firsts = np.intersect1d(drawn[:, 0], other[:, 0])
        drawn, other = (one[np.isin(one[:, 0], firsts)] for one in (drawn, other))
        rows = np.concatenate([drawn, other])
        order = sorted_order(rows)
        rows, is_drawn = rows[order], order < len(drawn)
        self.cells, self._indicators = cells_of(rows)
        self._drawn = counts_of(drawn[:, 0], firsts)
        self._sizes = counts_of(rows[:, 0], firsts)
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)[:-1]]).astype(np.int64)
        within = np.zeros((0, len(self.cells)))
        if len(firsts):
            within = np.add.reduceat(self._indicators, self._starts, axis=0, dtype=np.float64)
        share = self._drawn / self._sizes
        self._expected: Floats = share @ within
        spread = share * (1 - share) / (self._sizes - 1)
        varying = within * (self._sizes[:, None] - within)
        enough = (varying / self._sizes[:, None]).sum(axis=0) >= LEAST_VARYING
        self._variance: Floats = np.where(enough, spread @ varying, 0.0)
        self.effective = float((share * (self._sizes - self._drawn)).sum())
        self._weights = 1 - within.sum(axis=0) / max(1, len(rows))
        self.seen: Floats = self._indicators[is_drawn].sum(axis=0, dtype=np.float64)

    @property
    def varying(self) -> int:
        """The number of cells that can tell anything."""
        return int((self._variance > 0).sum())

    def standardised(self, counts: Floats) -> Floats:
        """(n, cells) counts of the drawn arm, less what is expected within strata, by its standard deviation."""
        root = np.sqrt(self._variance)
        return np.divide(counts - self._expected, root, out=np.zeros_like(counts), where=root > 0)

    def statistics(self, counts: Floats) -> Floats:
        """The largest standardised difference and the weighted sum of squares, shape (n, 2)."""
        z = self.standardised(counts)
        return np.column_stack([np.abs(z).max(axis=1), np.square(z) @ self._weights])

    def permuted(self, permutations: int, rng: np.random.Generator) -> list[Floats]:
        chunk = max(1, CHUNK // len(self._indicators))
        sizes = [min(chunk, permutations - done) for done in range(0, permutations, chunk)]
        return [self.statistics((self._labels(size, rng) @ self._indicators).astype(np.float64)) for size in sizes]

    def _labels(self, permutations: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Which samples are drawn in each permutation, shape (permutations, samples); whole numbers, so sums are
        exact."""
        labels = np.zeros((permutations, len(self._indicators)), dtype=np.float32)
        for start, size, drawn in zip(self._starts, self._sizes, self._drawn, strict=True):
            stratum = labels[:, start : start + size]
            stratum[:, :drawn] = 1
            rng.permuted(stratum, axis=1, out=stratum)
        return labels

    def largest(self) -> tuple[int, int | None, float]:
        """Position and token that stand out most, and by how much of the mass (Mantel-Haenszel difference of shares:
        Greenland & Robins, Biometrics 41 (1985) 55-68)."""
        place = int(np.abs(self.standardised(self.seen[None])[0]).argmax())
        shift = float(self.seen[place] - self._expected[place]) / self.effective
        return *self.cells[place], shift if self._drawn_is_own else -shift


def in_order(samples: Samples) -> Samples:
    return np.ascontiguousarray(samples[sorted_order(samples)])


def sorted_order(samples: Samples) -> NDArray[np.intp]:
    """By the first token, then the second, and so on."""
    return np.lexsort(samples.T[::-1])


def counts_of(values: Samples, names: Samples) -> Samples:
    """How often each of ``names``, which are sorted and hold all ``values``, comes."""
    return np.bincount(np.searchsorted(names, values), minlength=len(names)).astype(np.int64)


def cells_of(rows: Samples) -> tuple[list[Cell], NDArray[np.float32]]:
    """The cells of positions 2 to 6, and which of them each row is counted in, shape (rows, cells)."""
    cells: list[Cell] = []
    indicators = []
    for position in range(FIRST, LAST + 1):
        tokens, codes = pooled(rows[:, position - 1])
        cells.extend(Cell(position, token) for token in tokens)
        indicators.append(codes[:, None] == np.arange(len(tokens)))
    return cells, np.concatenate(indicators, axis=1).astype(np.float32)


def pooled(column: Samples) -> tuple[list[int | None], Samples]:
    """A cell for each token that has ``LEAST_SHARE`` of the samples and at least ``LEAST_COUNT``; None, last, for the
    others together, with the rarest of those kept where they would be rare themselves. And the cell of each sample."""
    tokens, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    least = max(LEAST_COUNT, LEAST_SHARE * len(column))
    kept = int((counts >= least).sum())
    rest = int(counts[order[kept:]].sum())
    if 0 < rest < least:
        kept = max(0, kept - 1)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    names: list[int | None] = [int(one) for one in tokens[order[:kept]]]
    return names + [None] * (kept < len(order)), np.minimum(rank[codes], kept)


def smallest_shifts(
    tests: Sequence[PromptTest], shares: Sequence[float], *, alpha: float, chance: float
) -> tuple[float | None, float | None]:
    """The smallest shifts that the prompts' own tests notice with ``chance``: in every prompt, and in one alone, the
    one that shows it worst. ``shares``: of the candidate's samples, those with drafts; the shift is one among these.

    Normal approximation for a token that has half of the mass, where a shift is hardest to see, at the level of Holm's
    first step, divided by the cells (Bonferroni, Dunn, J. Am. Stat. Assoc. 56 (1961) 52-64). The test of all prompts
    together only adds to it, and prompts are sampled independently. Source: the two-sample comparison of shares,
    Fleiss, Levin & Paik, Statistical Methods for Rates and Proportions, 3rd ed. 2003, ch. 4.
    """
    limits = np.array([critical(one.cells, len(tests), alpha) for one in tests])
    steps = np.array([2 * math.sqrt(one.effective) * share for one, share in zip(tests, shares, strict=True)])

    def unnoticed(shift: float) -> float:
        return float(np.prod(stats.norm.cdf(limits - steps * shift)))

    alone = max(
        (limit + stats.norm.ppf(chance)) / step if step > 0 else math.inf
        for limit, step in zip(limits, steps, strict=True)
    )
    return smallest(unnoticed, 1 - chance), float(alone) if alone <= 1 else None


def critical(cells: int, prompts: int, alpha: float) -> float:
    """What a standardised difference must exceed: half of ``alpha``, by prompts, by cells, two-sided."""
    return float(stats.norm.isf(alpha / 2 / prompts / max(1, cells) / 2))


def smallest(unnoticed: Callable[[float], float], most: float) -> float | None:
    if unnoticed(1.0) > most:
        return None
    return float(optimize.brentq(lambda shift: unnoticed(shift) - most, 0.0, 1.0))


def samples_needed(shift: float, *, prompts: int, cells: int, alpha: float = ALPHA, chance: float = CHANCE) -> int:
    """Samples an arm and prompt with which a shift of mass ``shift`` in every prompt is noticed with ``chance``.

    Of a candidate and two batches of the baseline, all of one size, with drafts in every sample and one first token;
    ``cells`` counted tokens over the five positions (six a position are usual). Source: ``smallest_shifts`` solved for
    the number. Raises ValueError out of range.
    """
    if prompts < 1 or cells < 1 or not (0 < shift <= 1 and 0 < alpha < 1 and 0 < chance < 1):
        plan = f"shift {shift}, {prompts} prompts, {cells} cells, alpha {alpha}, chance {chance}"
        raise ValueError(f"no such plan: {plan}")
    each = 1 - (1 - chance) ** (1 / prompts)
    wanted = critical(cells, prompts, alpha) + float(stats.norm.ppf(each))
    # Compared are n · 2n / (n + 2n) samples of a token with half of the mass.
    return math.ceil(1.5 * max(0.0, wanted) ** 2 / (4 * shift**2))


def settled(
    candidate: Comparison | None,
    control: Comparison | None,
    smallest_shift: float | None,
    alpha: float,
    noticed: float,
    chance: float,
) -> tuple[Found, str]:
    if candidate is None or control is None:
        return "not exercised", "No drafts were proposed."
    if control.p <= alpha:
        return "cannot tell", (
            f"The baseline differs from itself (p {control.p:.2g}{told(control.largest)}): its batches aren't samples "
            "of one distribution, so nothing can be told of the candidate. Look at their seeds, load and prefix cache."
        )
    if candidate.p <= alpha:
        return "broken", f"The candidate samples otherwise (p {candidate.p:.2g}{told(candidate.largest)})."
    if smallest_shift is None or smallest_shift > noticed:
        seen = "No shift at all" if smallest_shift is None else f"Only a shift of {smallest_shift:.1%} of the mass"
        return "cannot tell", (
            f"{seen} in every prompt would have been noticed with a chance of {chance:.2g}, not {noticed:.1%}: take "
            "more samples, or prompts in which more drafts are proposed."
        )
    return "shown", (
        f"No shift was noticed (p {candidate.p:.2g}); one of {smallest_shift:.1%} of the mass in every prompt would "
        f"have been, with a chance of {chance:.2g}."
    )


def told(shift: Shift | None) -> str:
    if shift is None:
        return ""
    token = "rare tokens" if shift.token is None else "its end" if shift.token == ENDED else f"token {shift.token}"
    return f"; prompt {shift.prompt_id}, position {shift.position}: {token} {shift.shift:+.1%}"
