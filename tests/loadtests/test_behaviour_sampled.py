"""Sampled parity: how often it errs, what it notices, and what it must not be moved by."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtests.behaviour.greedy import ENDED
from loadtests.behaviour.reference import (
    EXACT,
    Floats,
    Prefix,
    Rule,
    above_threshold,
    lenient,
    output_distribution,
    shifted,
)
from loadtests.behaviour.sampled import (
    LAST,
    LEAST_COUNT,
    LEAST_SHARE,
    Comparison,
    PromptSamples,
    Samples,
    Table,
    as_samples,
    comparison,
    pooled,
    sampled_parity,
    samples_needed,
)

WIDTH = 4
START = np.array([0.4, 0.3, 0.2, 0.1])
# What follows each token, and what a drafter thinks follows it.
NEXT = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.05, 0.8, 0.1], [0.3, 0.3, 0.3, 0.1]])
GUESS = np.array([[0.4, 0.3, 0.2, 0.1], [0.3, 0.4, 0.2, 0.1], [0.2, 0.2, 0.5, 0.1], [0.25, 0.25, 0.25, 0.25]])
HALF = np.array([0.5, 0.25, 0.15, 0.1])


def after(prefix: Prefix) -> Floats:
    return NEXT[prefix[-1]] if prefix else START


@cache
def chances(rule: Rule = EXACT) -> Floats:
    """Of each answer of six tokens by a target whose tokens depend on the last, drafted for with K = 2."""
    return output_distribution(
        after, lambda prefix, place: GUESS[prefix[-1]], draft_length=2, length=LAST, rule=rule, prefill=True
    )


def drawn(joint: Floats, size: int, rng: np.random.Generator) -> Samples:
    places = rng.choice(joint.size, size=size, p=joint.ravel() / joint.sum())
    return np.column_stack(np.unravel_index(places, joint.shape)).astype(np.int64)


def rows_of(size: int, rng: np.random.Generator, *, planted: tuple[int, ...] = (), mass: float = 0.0) -> Samples:
    """Tokens that don't depend on each other, each by HALF; ``mass`` less of the first at the ``planted`` positions."""
    biased = shifted(HALF, token=0, mass=mass)
    columns = [rng.choice(WIDTH, size=size, p=biased if place in planted else HALF) for place in range(1, LAST + 1)]
    return np.column_stack(columns).astype(np.int64)


def prompt(
    name: str, candidate: Samples, baseline: Samples, repeat: Samples, drafted: int | None = None
) -> PromptSamples:
    return PromptSamples(name, candidate, baseline, repeat, len(candidate) if drafted is None else drafted)


def prompts_by(
    draw: Callable[[np.random.Generator], Samples],
    *,
    candidate: Callable[[np.random.Generator], Samples] | None = None,
    repeat: Callable[[np.random.Generator], Samples] | None = None,
    count: int = 3,
    seed: int = 5,
) -> list[PromptSamples]:
    rng = np.random.default_rng(seed)
    return [prompt(f"p{place}", (candidate or draw)(rng), draw(rng), (repeat or draw)(rng)) for place in range(count)]


def compared(
    own: Callable[[np.random.Generator], Samples],
    baseline: Callable[[np.random.Generator], Samples],
    *,
    prompts: int,
    permutations: int,
    rng: np.random.Generator,
) -> Comparison:
    arms = [(f"p{place}", own(rng), baseline(rng)) for place in range(prompts)]
    return comparison(arms, permutations=permutations, seed=int(rng.integers(2**31)))


@pytest.mark.parametrize("sizes", [(150, 150), (120, 260)])
def test_false_alarms_stay_within_the_declared_rate(sizes: tuple[int, int]) -> None:
    """The exact rule against the target itself, three prompts, arms of equal and of unequal size."""
    rng, runs = np.random.default_rng(21), 120
    target = output_distribution(after, lambda prefix, place: START, draft_length=0, length=LAST)
    alarms = 0
    for _ in range(runs):
        found = compared(
            lambda rng: drawn(chances(), sizes[0], rng),
            lambda rng: drawn(target, sizes[1], rng),
            prompts=3,
            permutations=239,
            rng=rng,
        )
        alarms += found.p <= 0.05
    assert stats.binom.sf(alarms - 1, runs, 0.05) > 0.01


def test_a_bias_of_the_first_token_is_not_counted() -> None:
    """It changes all that follows, since what follows depends on it; the prefill's token isn't speculation's."""
    other = np.einsum("abcdef,a->abcdef", chances(), np.array([0.1, 0.2, 0.3, 0.4]) / START)
    rng, runs = np.random.default_rng(22), 80
    alarms = 0
    for _ in range(runs):
        found = compared(
            lambda rng: drawn(other, 300, rng),
            lambda rng: drawn(chances(), 300, rng),
            prompts=2,
            permutations=159,
            rng=rng,
        )
        alarms += found.p <= 0.05
    assert stats.binom.sf(alarms - 1, runs, 0.05) > 0.01


def test_what_follows_another_first_token_would_be_counted() -> None:
    """The test above can fail: without its strata the same samples differ plainly."""
    other = np.einsum("abcdef,a->abcdef", chances(), np.array([0.1, 0.2, 0.3, 0.4]) / START)
    rng = np.random.default_rng(22)

    def same_first(joint: Floats) -> Samples:
        samples = drawn(joint, 1_000, rng)
        samples[:, 0] = 0
        return samples

    found = comparison([("p0", same_first(other), same_first(chances()))], permutations=999, seed=1)
    assert found.p <= 0.01


def test_five_percent_at_one_position_of_every_prompt_are_noticed_with_3700_samples() -> None:
    """Of a token with half of the mass, where it is hardest to see; four prompts, false alarms at 1 %."""
    rng, runs = np.random.default_rng(23), 20
    noticed = 0
    for _ in range(runs):
        found = compared(
            lambda rng: rows_of(3_700, rng, planted=(4,), mass=0.05),
            lambda rng: rows_of(3_700, rng),
            prompts=4,
            permutations=799,
            rng=rng,
        )
        noticed += found.p <= 0.01
    assert noticed >= 0.9 * runs


def test_a_run_notices_what_it_says_that_it_would() -> None:
    rng, runs = np.random.default_rng(24), 60
    told = sampled_parity(prompts_by(lambda rng: rows_of(400, rng), count=2), alpha=0.05, permutations=99)
    assert told.smallest_shift is not None
    mass, noticed = told.smallest_shift, 0
    for _ in range(runs):
        found = compared(
            lambda rng: rows_of(400, rng, planted=(6,), mass=mass),
            # both batches of the baseline
            lambda rng: rows_of(800, rng),
            prompts=2,
            permutations=399,
            rng=rng,
        )
        noticed += found.p <= 0.05
    assert stats.binom.cdf(noticed, runs, 0.9) > 0.01


@pytest.mark.parametrize("rule", [lenient(0.2), above_threshold(0.1), above_threshold(0.25)])
def test_rules_that_are_not_exact_are_broken(rule: Rule) -> None:
    def by(rule: Rule) -> Callable[[np.random.Generator], Samples]:
        return lambda rng: drawn(chances(rule), 2_000, rng)

    found = sampled_parity(prompts_by(by(EXACT), candidate=by(rule)), permutations=999)
    assert found.found == "broken"
    assert found.control is not None
    assert found.control.p > 0.01


def test_a_small_shift_everywhere_is_seen_by_all_prompts_together() -> None:
    """Too small for the test of any prompt by itself."""
    every = tuple(range(2, LAST + 1))
    found = compared(
        lambda rng: rows_of(1_000, rng, planted=every, mass=0.03),
        lambda rng: rows_of(1_000, rng),
        prompts=10,
        permutations=2_999,
        rng=np.random.default_rng(26),
    )
    assert min(one.p_adjusted for one in found.prompts) > 0.005
    assert found.p_together <= 0.005


def test_the_largest_shift_is_named() -> None:
    given = prompts_by(lambda rng: rows_of(1_500, rng))
    rng = np.random.default_rng(9)
    given[1] = replace(given[1], candidate=rows_of(1_500, rng, planted=(5,), mass=0.2))
    found = sampled_parity(given, permutations=999)
    assert found.found == "broken"
    assert found.candidate is not None
    largest = found.candidate.largest
    assert largest is not None
    assert (largest.prompt_id, largest.position, largest.token) == ("p1", 5, 0)
    assert largest.shift == pytest.approx(-0.2, abs=0.05)
    assert "prompt p1, position 5: token 0 -" in found.reason


def test_what_varies_nowhere_is_the_same() -> None:
    """A target that leaves no choice; and answers that are over after three tokens."""
    fixed = as_samples([[1, 2, 3]] * 4_000)
    found = sampled_parity([prompt(name, fixed, fixed, fixed) for name in "abc"])
    assert found.found == "shown"
    assert found.candidate is not None
    assert found.candidate.p == 1.0
    assert found.candidate.largest is None


def test_answers_that_end_earlier_are_a_shift() -> None:
    def over(share: float) -> Samples:
        many = round(1_000 * share)
        return as_samples([[1, 2, 3]] * many + [[1, 2, 3, 4]] * (1_000 - many))

    found = sampled_parity([prompt("a", over(0.3), over(0.1), over(0.1))], permutations=999)
    assert found.found == "broken"
    assert found.candidate is not None
    assert found.candidate.largest is not None
    assert found.candidate.largest.position == 4
    assert abs(found.candidate.largest.shift) == pytest.approx(0.2)


def test_neither_the_order_of_samples_nor_of_prompts_changes_anything() -> None:
    given = prompts_by(lambda rng: drawn(chances(), 200, rng), candidate=lambda rng: drawn(chances(), 150, rng))
    rng = np.random.default_rng(2)
    mixed = [
        PromptSamples(
            one.prompt_id,
            rng.permutation(one.candidate),
            rng.permutation(one.baseline),
            rng.permutation(one.repeat),
            one.drafted,
        )
        for one in reversed(given)
    ]
    assert sampled_parity(given, permutations=199) == sampled_parity(mixed, permutations=199)


@given(st.integers(0, 2**32), st.integers(20, 60), st.integers(20, 60))
def test_exchanged_arms_give_the_same_p_and_the_opposite_shift(seed: int, own: int, other: int) -> None:
    rng = np.random.default_rng(seed)
    one, two = rows_of(own, rng, planted=(2, 3), mass=0.3), rows_of(other, rng)
    found, back = (
        comparison([("a", *arms)], permutations=99, seed=seed).prompts[0] for arms in ((one, two), (two, one))
    )
    assert (found.p, found.samples) == (back.p, back.samples[::-1])
    if found.largest is None:
        assert back.largest is None
    else:
        assert back.largest == replace(found.largest, shift=-found.largest.shift)


def test_the_sum_is_pearsons_chi_square() -> None:
    rng = np.random.default_rng(4)
    own, baseline = rows_of(300, rng), rows_of(500, rng)
    own[:, 0] = baseline[:, 0] = 7
    table = Table(own, baseline)
    expected = 0.0
    for place in range(1, LAST):
        counts = [np.bincount(arm[:, place], minlength=WIDTH) for arm in (own, baseline)]
        expected += stats.chi2_contingency(counts, correction=False).statistic * 799 / 800
    assert table.statistics(table.seen[None])[0, 1] == pytest.approx(expected)
    assert table.effective == pytest.approx(300 * 500 / 800)


def test_a_cell_that_hangs_on_a_stray_sample_tells_nothing() -> None:
    """What follows is settled by the first token, but for one sample."""
    steady = [[0, 1, 1, 1, 1, 1]] * 500 + [[2, 3, 3, 3, 3, 3]] * 40
    assert Table(as_samples([*steady, [2, 1, 1, 1, 1, 1]]), as_samples(steady)).varying == 0
    assert Table(as_samples([*steady, *[[2, 1, 1, 1, 1, 1]] * 10]), as_samples(steady)).varying == 10


@given(st.lists(st.integers(-1, 12).map(lambda one: one // 3), min_size=1, max_size=300))
def test_no_cell_is_rare_and_none_is_lost(column: list[int]) -> None:
    names, codes = pooled(np.array(column, dtype=np.int64))
    least = max(LEAST_COUNT, LEAST_SHARE * len(column))
    counts = np.bincount(codes, minlength=len(names))
    assert counts.sum() == len(column)
    assert len(counts) == len(names)
    assert len(names) == 1 or (counts >= least).all()
    kept = {token for token in names if token is not None}
    assert all(names[code] == (token if token in kept else None) for token, code in zip(column, codes, strict=True))


def test_nothing_is_exercised_without_drafts() -> None:
    given = [replace(one, drafted=0) for one in prompts_by(lambda rng: rows_of(50, rng))]
    found = sampled_parity(given, permutations=99)
    assert (found.found, found.not_exercised) == ("not exercised", ("p0", "p1", "p2"))
    assert (found.candidate, found.control, found.smallest_shift) == (None, None, None)
    assert sampled_parity([]).found == "not exercised"


def test_prompts_without_drafts_are_left_out() -> None:
    given = prompts_by(lambda rng: rows_of(500, rng))
    broken = replace(given[0], candidate=rows_of(500, np.random.default_rng(1), planted=(3,), mass=0.3), drafted=0)
    found = sampled_parity([broken, *given[1:]], permutations=299)
    assert found.not_exercised == ("p0",)
    assert found.candidate is not None
    assert [one.prompt_id for one in found.candidate.prompts] == ["p1", "p2"]
    assert found.found == "cannot tell"


def test_a_baseline_that_differs_from_itself_settles_nothing() -> None:
    def off(rng: np.random.Generator) -> Samples:
        return rows_of(1_000, rng, planted=(2, 3), mass=0.25)

    for candidate in (None, off):
        given = prompts_by(lambda rng: rows_of(1_000, rng), candidate=candidate, repeat=off)
        found = sampled_parity(given, permutations=999)
        assert found.found == "cannot tell"
        assert "differs from itself" in found.reason


def test_too_few_samples_settle_nothing() -> None:
    few = sampled_parity(prompts_by(lambda rng: rows_of(100, rng)), permutations=299)
    assert few.found == "cannot tell"
    assert "take more samples" in few.reason
    # the same samples settle a brief that asks for less
    assert sampled_parity(prompts_by(lambda rng: rows_of(100, rng)), permutations=299, noticed=0.5).found == "shown"


def test_the_power_is_that_of_samples_with_drafts() -> None:
    given = prompts_by(lambda rng: rows_of(400, rng))
    every = sampled_parity(given, permutations=99, alpha=0.1)
    half = sampled_parity([replace(one, drafted=200) for one in given], permutations=99, alpha=0.1)
    assert every.smallest_shift is not None
    assert every.smallest_shift_alone is not None
    assert half.smallest_shift == pytest.approx(2 * every.smallest_shift)
    assert every.smallest_shift_alone > every.smallest_shift


def test_the_number_of_samples_needed() -> None:
    # three quarters of the textbook's two-sided comparison of 50 and 45 %, at 0.25 % and 90 % (3,707 in either of two
    # equal arms): the other arm is twice as large
    assert samples_needed(0.05, prompts=1, cells=1, alpha=0.005) == 2_780
    assert 2_250 < samples_needed(0.05, prompts=4, cells=30) < 2_800
    assert samples_needed(0.05, prompts=1, cells=30) > 3_750
    with pytest.raises(ValueError, match="no such plan"):
        samples_needed(0.0, prompts=1, cells=30)


def test_a_share_of_drafts_may_be_told_by_some_samples_alone() -> None:
    rng = np.random.default_rng(31)
    own, baseline, repeat = (rows_of(400, rng) for _ in range(3))
    all_told = sampled_parity([PromptSamples("p", own, baseline, repeat, drafted=200)])
    some_told = sampled_parity([PromptSamples("p", own, baseline, repeat, drafted=16, told=32)])
    assert some_told.smallest_shift == all_told.smallest_shift
    assert some_told.candidate is not None
    assert some_told.candidate.prompts[0].samples == (400, 800)
    with pytest.raises(ValueError, match="33 samples with drafts of 32"):
        sampled_parity([PromptSamples("p", own, baseline, repeat, drafted=33, told=32)])


def test_as_many_permutations_are_taken_as_the_smallest_p_needs() -> None:
    given = prompts_by(lambda rng: rows_of(30, rng), count=5)
    assert sampled_parity(given, permutations=9, alpha=0.01).permutations == 1_000


def test_answers_are_cut_and_filled() -> None:
    found = as_samples([[1, 2, 3, 4, 5, 6, 7], [8], []])
    assert found.tolist() == [[1, 2, 3, 4, 5, 6], [8, *[ENDED] * 5], [ENDED] * 6]
    assert as_samples([]).shape == (0, 6)


def test_first_tokens_that_one_arm_alone_has_cannot_be_compared() -> None:
    ones, twos = as_samples([[1, 2, 3]] * 20), as_samples([[2, 3, 4]] * 20)
    found = sampled_parity([prompt("a", ones, twos, twos)], permutations=99)
    assert (found.found, found.smallest_shift) == ("cannot tell", None)
    assert found.candidate is not None
    assert found.candidate.prompts[0].effective == 0


def test_bad_input_is_refused_with_its_place() -> None:
    good = rows_of(10, np.random.default_rng(1))
    with pytest.raises(ValueError, match="prompt a: given twice"):
        sampled_parity([prompt("a", good, good, good)] * 2)
    with pytest.raises(ValueError, match=r"prompt a, repeat: samples of 6 tokens are needed, not shape \(10, 5\)"):
        sampled_parity([prompt("a", good, good, good[:, :5])])
    with pytest.raises(ValueError, match="prompt a, baseline"):
        sampled_parity([prompt("a", good, good[:0], good)])
    with pytest.raises(ValueError, match="prompt a: 11 samples with drafts of 10"):
        sampled_parity([prompt("a", good, good, good, drafted=11)])
