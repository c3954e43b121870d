"""Greedy parity: what a tie excuses, what is counted, and how often it errs."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtests.behaviour.greedy import (
    ENDED,
    NAMED,
    Continuation,
    Counts,
    Divergence,
    GreedyParity,
    exchange_p,
    greedy_parity,
    prompts_needed,
    run_power,
)

TEN = list(range(100, 110))
CLEAR = {7: -4.0, 8: -5.0}


def continuation(
    prompt: str = "a",
    *,
    prefix: int = 0,
    candidate: Sequence[int] = TEN,
    repeat: Sequence[int] = TEN,
    top: Mapping[int, float] | None = CLEAR,
    drafted: bool = True,
) -> Continuation:
    """The baseline says TEN, each with a chance near 1; ``top`` has the others that it lists."""
    listed = None if top is None else [{token: -0.02, **top} for token in TEN]
    return Continuation(prompt, prefix, TEN, candidate, repeat, listed, drafted)


def flipped(place: int, token: int = 7) -> list[int]:
    """TEN, but another token at ``place`` (from 0), and others after it."""
    return [*TEN[:place], token, *[50] * (len(TEN) - place - 1)]


def many(candidate: Sequence[Sequence[int]], *, repeat: Sequence[int] = TEN, prompts: int = 80) -> list[Continuation]:
    """One continuation a prompt; the candidate's first answers as given, the others as the baseline's."""
    answers = [*candidate, *[TEN] * (prompts - len(candidate))]
    return [continuation(f"p{place:03}", candidate=one, repeat=repeat) for place, one in enumerate(answers)]


def test_the_same_tokens_are_shown_to_agree() -> None:
    found = greedy_parity(many([]))
    assert (found.found, found.p, found.p_at_worst) == ("shown", 1.0, 1.0)
    assert (found.prompts, found.continuations, found.drafted) == (80, 80, 80)
    assert found.candidate == found.control == Counts(800, 0, 0, 0, 0)
    assert found.unexcused == ()
    assert found.power > 0.9


def test_positions_count_up_to_the_first_divergence() -> None:
    found = greedy_parity([continuation(candidate=flipped(3), repeat=flipped(8))])
    assert (found.candidate.positions, found.control.positions) == (4, 9)
    assert found.unexcused == (Divergence("a", 0, 4, 103, 7, -0.02 + 4.0, False, "unexcused"),)


@pytest.mark.parametrize(
    ("top", "token", "judged"),
    [
        ({7: -0.15, 8: -5.0}, 7, "excused"),
        ({7: -0.16, 8: -5.0}, 7, "unexcused"),
        # the best two tie, but a third came
        ({7: -0.05, 8: -5.0}, 8, "unexcused"),
        ({7: -0.05, 8: -5.0}, 9, "unexcused"),
        # three tie
        ({7: -0.05, 8: -0.06}, 8, "excused"),
        # all that are listed tie, and one came that isn't listed
        ({7: -0.05, 8: -0.06}, 9, "unjudged"),
        ({}, 9, "unjudged"),
        (None, 7, "unjudged"),
    ],
)
def test_only_a_tie_with_the_very_token_excuses(top: dict[int, float] | None, token: int, judged: str) -> None:
    found = greedy_parity([continuation(candidate=flipped(2, token), top=top)]).candidate
    counted = {name: getattr(found, name) for name in ("excused", "unexcused", "unjudged")}
    assert counted == {name: int(name == judged) for name in counted}
    assert found.divergences == 1


def test_the_threshold_is_the_briefs() -> None:
    tie = [continuation(candidate=flipped(2), top={7: -0.145})]
    assert greedy_parity(tie).candidate.excused == 1
    assert greedy_parity(tie, tie_nats=0.1).candidate.unexcused == 1


def test_an_answer_that_ends_early_diverges_where_it_ends() -> None:
    found = greedy_parity([continuation(candidate=TEN[:6])])
    assert [(one.position, one.baseline_token, one.other_token) for one in found.unexcused] == [(7, 106, ENDED)]
    # there the baseline lists nothing, so nothing is known
    longer = greedy_parity([continuation(candidate=[*TEN, 5])])
    assert longer.candidate == Counts(11, 1, 0, 0, 1)


def test_divergences_beyond_the_controls_are_broken_and_named() -> None:
    found = greedy_parity(many([flipped(place % 10) for place in range(30)]))
    assert found.found == "broken"
    assert found.p == pytest.approx(2.0**-30)
    assert found.candidate.unexcused == 30
    assert [one.prompt_id for one in found.unexcused] == [f"p{place:03}" for place in range(NAMED)]


def test_the_baseline_diverges_from_itself_as_often() -> None:
    both = [replace(one, repeat=flipped(5)) for one in many([flipped(5)] * 40)]
    found = greedy_parity(both)
    assert found.p > 0.5
    assert found.found == "cannot tell"
    assert "chance to notice" in found.reason


def test_ties_break_nothing() -> None:
    tied = [replace(one, top=[{token: -0.7, 7: -0.7} for token in TEN]) for one in many([flipped(5)] * 40, prompts=90)]
    found = greedy_parity(tied)
    assert (found.candidate.excused, found.candidate.unexcused, found.p) == (40, 0, 1.0)
    assert found.found == "shown"


def test_divergences_without_log_probabilities_are_not_called_broken() -> None:
    untold = [replace(one, top=None) for one in many([flipped(5)] * 40)]
    found = greedy_parity(untold)
    assert (found.found, found.p) == ("cannot tell", 1.0)
    assert found.p_at_worst < 0.001
    assert "log-probabilities" in found.reason
    # so few that they would be no break at worst
    assert greedy_parity([replace(one, top=None) for one in many([flipped(5)] * 3)]).found == "shown"


def test_what_the_control_leaves_unjudged_does_not_break_the_candidate() -> None:
    untold = [replace(one, top=[{} for _ in TEN], repeat=flipped(4)) for one in many([flipped(5)] * 20)]
    told = many([flipped(5)] * 10)
    both = [*untold, *[replace(one, prompt_id=f"t{one.prompt_id}") for one in told]]
    assert greedy_parity(told).found == "broken"
    assert greedy_parity(both).found == "cannot tell"


def test_no_drafts_exercise_nothing() -> None:
    untouched = [replace(one, drafted=False) for one in many([flipped(5)] * 30)]
    assert greedy_parity(untouched).found == "not exercised"
    assert greedy_parity([]).found == "not exercised"


def test_continuations_without_drafts_do_not_count_in_the_power() -> None:
    some = [replace(one, drafted=place < 20) for place, one in enumerate(many([]))]
    assert greedy_parity(some).drafted == 20
    assert greedy_parity(some).power == pytest.approx(greedy_parity(many([], prompts=20)).power)
    assert greedy_parity(some).found == "cannot tell"


def test_the_continuations_of_one_prompt_are_one_witness() -> None:
    """Thirty divergences of one prompt may have one cause, and could be the repeat's as well."""
    one_prompt = [continuation("a", prefix=place, candidate=flipped(2)) for place in range(30)]
    assert greedy_parity(one_prompt).p == 0.5


def test_bad_input_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match="prompt a, prefix 3: given twice"):
        greedy_parity([continuation(prefix=3), continuation(prefix=3)])
    with pytest.raises(ValueError, match="prompt a, prefix 0: log-probabilities at 1 positions for 10 tokens"):
        greedy_parity([replace(continuation(), top=[{1: 0.0}])])
    with pytest.raises(ValueError, match="prompt a, prefix 0: a log-probability at position 2 is no number"):
        greedy_parity([replace(continuation(), top=[{1: 0.0}, {1: float("nan")}, *[{}] * 8])])


@given(st.lists(st.integers(-3, 3), max_size=9))
def test_the_exchange_test_counts_all_exchanges(differences: list[int]) -> None:
    sums = [sum(ways) for ways in itertools.product(*[(one, -one) for one in differences])]
    assert exchange_p(differences) == pytest.approx(sum(one >= sum(differences) for one in sums) / len(sums))


@given(st.integers(0, 12), st.integers(0, 12))
def test_with_one_continuation_a_prompt_it_is_mcnemars_exact_test(candidate: int, control: int) -> None:
    differing = candidate + control
    expected = stats.binomtest(candidate, differing, alternative="greater").pvalue if differing else 1.0
    assert exchange_p([1] * candidate + [-1] * control) == pytest.approx(expected)


@given(st.lists(st.integers(-3, 3), max_size=9))
def test_the_order_of_prompts_changes_nothing(differences: list[int]) -> None:
    assert exchange_p(differences) == pytest.approx(exchange_p(sorted(differences)))


def simulated(
    rng: np.random.Generator, *, flip: float, tie: float, control: float, shape: tuple[int, int, int]
) -> GreedyParity:
    """``shape``: prompts, continuations of each, tokens. Ties strike the candidate alone, as seen with speculation;
    prompts differ in how often they flip, half of them never and half twice as often."""
    prompts, each, length = shape

    def answer(rate: float, ties: float) -> tuple[list[int], int | None]:
        strikes = rng.random(length - 1)
        places = np.flatnonzero(strikes < rate + ties)
        if not len(places):
            return list(range(length)), None
        place = int(places[0]) + 1
        token = 900 if strikes[place - 1] < rate else 901
        return [*range(place), token, *[3] * (length - place - 1)], place

    asked = []
    for prompt in range(prompts):
        factor = 2 * (prompt % 2)
        for prefix in range(each):
            candidate, _ = answer(flip * factor, tie)
            repeat, _ = answer(control * factor, 0.0)
            top = [{token: -0.7, 901: -0.72, 900: -4.0} for token in range(length)]
            asked.append(Continuation(f"{prompt:03}", prefix, list(range(length)), candidate, repeat, top, True))
    return greedy_parity(asked, alpha=0.05)


def test_false_alarms_stay_within_the_declared_rate() -> None:
    """The candidate flips as often as the baseline does, prompts differ, and ties cut the candidate alone."""
    rng, runs = np.random.default_rng(11), 300
    alarms = sum(
        simulated(rng, flip=0.02, tie=0.02, control=0.02, shape=(20, 3, 12)).found == "broken" for _ in range(runs)
    )
    assert stats.binom.sf(alarms - 1, runs, 0.05) > 0.01


def test_flips_of_two_percent_are_noticed_with_the_planned_number_of_prompts() -> None:
    rng, runs, length = np.random.default_rng(12), 200, 16
    prompts = prompts_needed(length - 1, alpha=0.05)
    noticed = 0
    for _ in range(runs):
        asked = [
            continuation_of_length(f"{prompt:03}", length, (np.flatnonzero(rng.random(length - 1) < 0.02) + 1).tolist())
            for prompt in range(prompts)
        ]
        noticed += greedy_parity(asked, alpha=0.05).found == "broken"
    assert stats.binom.cdf(noticed, runs, 0.9) > 0.01


def continuation_of_length(prompt: str, length: int, flips: Sequence[int]) -> Continuation:
    own = list(range(length))
    candidate = [*own[: flips[0]], *[900] * (length - flips[0])] if len(flips) else own
    return Continuation(prompt, 0, own, candidate, own, [{token: -0.1, 900: -6.0} for token in own], True)


def test_the_number_of_prompts_needed() -> None:
    # 1 %: seven prompts, since 2^-7 is below and 2^-6 is not
    assert prompts_needed(10**6) == 7
    assert prompts_needed(15) == 38
    # a control that diverges twice itself
    assert prompts_needed(15, control=2) > 38
    with pytest.raises(ValueError, match="no such plan"):
        prompts_needed(0)
    with pytest.raises(ValueError, match="more than"):
        prompts_needed(1, flip_rate=1e-6)


@given(st.integers(1, 40), st.sampled_from([0.01, 0.05]), st.sampled_from([0.01, 0.02, 0.2]))
def test_one_prompt_fewer_has_too_little_power(positions: int, alpha: float, flip_rate: float) -> None:
    needed = prompts_needed(positions, flip_rate=flip_rate, alpha=alpha)
    assert run_power([positions] * needed, 0, flip_rate=flip_rate, alpha=alpha) >= 0.9
    assert run_power([positions] * (needed - 1), 0, flip_rate=flip_rate, alpha=alpha) < 0.9
