"""The rule itself: exact where it says so, and shown not to be where it isn't."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtests.behaviour.reference import (
    EXACT,
    Drafter,
    Floats,
    Prefix,
    Rule,
    Target,
    above_threshold,
    first_output,
    lenient,
    output_distribution,
    shifted,
    speculative_step,
)

WIDTH, LENGTH = 3, 3
# Chances with zeros, and some so small that a ratio of two overflows.
weights = st.sampled_from([0.0, 0.0, 5e-324, 1e-300, 1e-17, 0.01, 0.3, 1.0, 1.0, 7.0])
rows = (
    st.lists(weights, min_size=WIDTH, max_size=WIDTH)
    .filter(lambda row: max(row) >= 0.01)
    .map(lambda row: np.array(row) / sum(row))
)
one_hot = st.integers(0, WIDTH - 1).map(lambda token: np.eye(WIDTH)[token])
prefixes = [one for many in range(LENGTH) for one in itertools.product(range(WIDTH), repeat=many)]
tables = st.lists(rows, min_size=len(prefixes), max_size=len(prefixes))
drafter_tables = st.lists(rows | one_hot, min_size=2 * len(prefixes), max_size=2 * len(prefixes))


def target_of(table: Sequence[Floats]) -> Target:
    return dict(zip(prefixes, table, strict=True)).__getitem__


def drafter_of(table: Sequence[Floats]) -> Drafter:
    """Another row for each prefix and place in the round, as a drafter of whole blocks has."""
    places = dict(zip(itertools.product(prefixes, range(2)), table, strict=True))
    return lambda prefix, place: places[prefix, place]


def own_distribution(target: Target) -> Floats:
    """The target's, by the chain rule and nothing else."""

    def chance(sequence: Prefix) -> float:
        return float(np.prod([target(sequence[:place])[token] for place, token in enumerate(sequence)]))

    sequences = itertools.product(range(WIDTH), repeat=LENGTH)
    return np.array([chance(one) for one in sequences]).reshape((WIDTH,) * LENGTH)


def distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum() / 2)


@given(rows, rows | one_hot)
def test_the_first_token_is_distributed_as_the_targets_own_whatever_the_drafter(p: Floats, q: Floats) -> None:
    assert first_output(p, q) == pytest.approx(p, abs=1e-12)


@given(tables, drafter_tables, st.integers(0, 2), st.booleans())
def test_whole_sequences_are_distributed_as_the_targets_own_over_rounds(
    table: list[Floats], drafts: list[Floats], draft_length: int, prefill: bool
) -> None:
    target = target_of(table)
    out = output_distribution(target, drafter_of(drafts), draft_length=draft_length, length=LENGTH, prefill=prefill)
    assert out == pytest.approx(own_distribution(target), abs=1e-12)


@given(st.lists(one_hot, min_size=len(prefixes), max_size=len(prefixes)), drafter_tables)
def test_a_greedy_target_gives_its_own_sequence_with_certainty(table: list[Floats], drafts: list[Floats]) -> None:
    target, sequence = target_of(table), list[int]()
    for _ in range(LENGTH):
        sequence.append(int(target(tuple(sequence)).argmax()))
    out = output_distribution(target, drafter_of(drafts), draft_length=2, length=LENGTH)
    assert out[tuple(sequence)] == pytest.approx(1.0, abs=1e-12)


def cut(logits: Floats, *, temperature: float, top_k: int, top_p: float) -> Floats:
    """The row after temperature, top-k and top-p, in the engine's order."""
    chances = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-chances, kind="stable")
    chances[order[top_k:]] = 0
    chances /= chances.sum()
    before = np.cumsum(chances[order]) - chances[order]
    chances[order[before >= top_p]] = 0
    return np.asarray(chances / chances.sum())


@given(
    st.lists(st.floats(-8, 8), min_size=WIDTH, max_size=WIDTH),
    rows | one_hot,
    st.floats(0.1, 2),
    st.integers(1, WIDTH),
    st.floats(0.05, 1),
)
def test_sampling_settings_are_in_the_target_and_may_lack_in_the_drafter(
    logits: list[float], q: Floats, temperature: float, top_k: int, top_p: float
) -> None:
    p = cut(np.array(logits), temperature=temperature, top_k=top_k, top_p=top_p)
    assert first_output(p, q) == pytest.approx(p, abs=1e-12)


P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        # by hand: kept 0.2, 0.2 and 0.6 (1/3 + 0.1); the rest goes to the first two, 0.75 to 0.25
        (lenient(0.1), [0.2 + 0.34 * 0.75, 0.2 + 0.34 * 0.25, 0.26]),
        # all drafts are kept, so the drafter's own
        (above_threshold(0.1), [0.2, 0.2, 0.6]),
        # the third never is; its 0.6 go by the target
        (above_threshold(0.25), [0.2 + 0.3, 0.2 + 0.18, 0.12]),
    ],
)
def test_a_rule_that_is_not_exact_is_seen_not_to_preserve(rule: Rule, first: list[float]) -> None:
    out = first_output(P, Q, rule=rule)
    assert out == pytest.approx(first, abs=1e-12)
    assert distance(out, P) > 0.01
    joint = output_distribution(lambda prefix: P, lambda prefix, place: Q, draft_length=2, length=2, rule=rule)
    assert distance(joint, np.outer(P, P)) > 0.01


def test_the_prefills_token_is_the_targets_own_under_any_rule() -> None:
    out = output_distribution(
        lambda prefix: P, lambda prefix, place: Q, draft_length=2, length=2, rule=above_threshold(0.1), prefill=True
    )
    assert out == pytest.approx(np.outer(P, Q), abs=1e-12)


def test_nothing_survives_the_first_rejection() -> None:
    target = np.eye(4)[[1, 2, 3, 0]]
    draft = np.full((3, 4), 0.25)
    rng = np.random.default_rng(1)
    # the second is wrong; the third would be right, had the second been
    step = speculative_step(target, draft, [1, 0, 3], rng)
    assert (step.accepted, step.tokens.tolist()) == (1, [1, 2])
    assert speculative_step(target, draft, [0, 2, 3], rng).tokens.tolist() == [1]


def test_the_target_adds_a_token_where_all_drafts_are_kept() -> None:
    step = speculative_step(np.eye(4)[[1, 2, 3, 0]], np.full((3, 4), 0.25), [1, 2, 3], np.random.default_rng(1))
    assert (step.accepted, step.tokens.tolist()) == (3, [1, 2, 3, 0])
    none = speculative_step([[0.0, 1.0]], np.zeros((0, 2)), [], np.random.default_rng(1))
    assert (none.accepted, none.tokens.tolist()) == (0, [1])


@pytest.mark.parametrize("rule", [EXACT, lenient(0.2), above_threshold(0.25)])
def test_rounds_that_are_drawn_agree_with_what_is_enumerated(rule: Rule) -> None:
    rng, drawn = np.random.default_rng(3), 4_000
    target, draft = np.array([P, P, P]), np.array([Q, Q])
    firsts = np.zeros(3)
    for _ in range(drawn):
        step = speculative_step(target, draft, rng.choice(3, size=2, p=Q).tolist(), rng, rule=rule)
        assert len(step.tokens) == step.accepted + 1
        firsts[step.tokens[0]] += 1
    assert stats.chisquare(firsts, drawn * first_output(P, Q, rule=rule)).pvalue > 0.001


@given(rows, st.integers(0, WIDTH - 1), st.floats(0, 1))
def test_a_planted_shift_moves_as_much_as_it_says(row: Floats, token: int, part: float) -> None:
    mass = part * float(row[token])
    if np.delete(row, token).sum() == 0:
        with pytest.raises(ValueError, match="can't be moved"):
            shifted(row, token=token, mass=mass)
        return
    out = shifted(row, token=token, mass=mass)
    assert out.sum() == pytest.approx(1)
    assert (out >= 0).all()
    assert distance(out, row) == pytest.approx(mass, abs=1e-12)
    assert out[token] == pytest.approx(row[token] - mass, abs=1e-12)


def test_bad_input_is_refused_with_its_place() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match=r"target, row 1: chances are at least 0 and add up to 1, not 0\.9"):
        speculative_step([[0.5, 0.5], [0.5, 0.4]], [[0.5, 0.5]], [0], rng)
    with pytest.raises(ValueError, match="draft, row 0"):
        speculative_step([[0.5, 0.5], [0.5, 0.5]], [[1.5, -0.5]], [0], rng)
    with pytest.raises(ValueError, match="1 drafts need"):
        speculative_step([[0.5, 0.5]], [[0.5, 0.5]], [0], rng)
    for token in (1, 2, -1):
        with pytest.raises(ValueError, match=f"token {token}, drafted at place 0, has no chance"):
            speculative_step([[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0]], [token], rng)
    with pytest.raises(ValueError, match="can't be moved away from token 0"):
        shifted([0.5, 0.5], token=0, mass=0.6)
