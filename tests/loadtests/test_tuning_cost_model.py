"""The cost model on an engine whose truth is stated: what it predicts must be true of that engine."""

from functools import cache

import numpy as np
import pytest

from loadtests.configurations import Checkpoint, Speculative
from loadtests.simulator import preset
from loadtests.simulator.costs import Costs, DrafterCost, RoundCost
from loadtests.simulator.fitting import Observed, fit, seconds_at
from loadtests.simulator.steps import Steps
from loadtests.tuning.acceptance import ClassKept, Kept
from loadtests.tuning.cost_model import (
    CostModel,
    ObservedTrial,
    drafter_of,
    fit_cost_model,
    observe,
    prediction_errors,
)
from loadtests.tuning.schedule import Schedule, with_schedule
from tests.support.tuning import (
    CONTEXT,
    RATES,
    measured,
    speculative,
    true_round_s,
    true_tokens,
    tuned,
    without_nuisances,
)

PAIRS = [("gpu-8b", "eagle3"), ("cpu-2core", "dflash"), ("cpu-2core", "ngram")]
BATCHES = {"gpu-8b": (1, 2, 4, 8, 16, 32), "cpu-2core": (1, 2, 4, 8, 16)}


@cache
def trials(name: str, method: str) -> tuple[ObservedTrial, ...]:
    return tuple(observe(one) for one in tuned(name, method, (1, 3, 8)))


@cache
def model(name: str, method: str) -> CostModel:
    return fit_cost_model(trials(name, method))


# Golden values, by hand.

BY_HAND = CostModel(
    costs=Costs(
        round=RoundCost(
            fixed_s=0.001,
            per_sequence_s=0.0001,
            weights_s=0.010,
            per_token_s=0.001,
            per_prefill_token_s=0.001,
            per_context_token_s=1e-6,
        ),
        drafters={"eagle3": DrafterCost(fixed_s=0.0005, per_position_s=0.0002, per_draft_token_s=1e-5, idle_s=0.0007)},
    ),
    acceptance={"eagle3": Kept(ClassKept(given=(0.8, 0.5), proposes=1.0))},
    measured={"eagle3": (2,)},
    boots={},
    boot_sd=None,
    most_checked=30.0,
    assumptions=(),
)


def test_a_prediction_by_hand() -> None:
    """4 sequences at K = 2: 12 tokens checked, above the knee of 10; 8 drafts; 1 + 0.8 + 0.4 tokens a round."""
    found = BY_HAND.predict(4, 2, drafter="eagle3", context_tokens=100)
    round_s = 0.001 + 0.0004 + 0.012 + 0.0004 + (0.0005 + 0.0004 + 8e-5)
    assert found.round_s == pytest.approx(round_s)
    assert found.tokens_per_round == pytest.approx(2.2)
    assert found.tokens_per_s_each == pytest.approx(2.2 / round_s)
    assert found.tokens_per_s == pytest.approx(4 * 2.2 / round_s)
    assert not found.beyond
    plain = 0.001 + 0.0004 + 0.010 + 0.0004
    assert BY_HAND.speed_up(4, 2, drafter="eagle3", context_tokens=100) == pytest.approx(2.2 * plain / round_s)


def test_a_step_of_zero_is_no_server_without_speculation() -> None:
    none = BY_HAND.predict(4, 0, drafter=None, context_tokens=100)
    zero = BY_HAND.predict(4, 0, drafter="eagle3", context_tokens=100)
    assert zero.round_s == pytest.approx(none.round_s + 0.0007)
    assert zero.tokens_per_round == none.tokens_per_round == 1
    assert BY_HAND.speed_up(4, 0, drafter="eagle3", context_tokens=100) < 1


def test_beyond_the_measured_positions_the_last_chance_holds_and_a_crowd_is_marked() -> None:
    assert BY_HAND.kept("eagle3", 4) == pytest.approx((0.8, 0.4, 0.2, 0.1))
    assert BY_HAND.predict(8, 4, drafter="eagle3", context_tokens=100).beyond
    assert not BY_HAND.predict(6, 4, drafter="eagle3", context_tokens=100).beyond


@pytest.mark.parametrize(("batch", "k", "drafter"), [(0, 1, "eagle3"), (1, -1, "eagle3"), (1, 2, None)])
def test_what_cant_be_predicted(batch: int, k: int, drafter: str | None) -> None:
    with pytest.raises(ValueError, match="at least 1 sequence, and K = 0 without a drafter"):
        BY_HAND.predict(batch, k, drafter=drafter, context_tokens=1)


def test_an_unknown_drafter_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="no trial of the drafter ngram was measured; there are eagle3"):
        BY_HAND.predict(1, 1, drafter="ngram", context_tokens=1)


def test_drafters_are_told_apart_by_all_but_their_draft_length() -> None:
    first, second = (Checkpoint(name="d", weights_sha256=x * 64, tokenizer_sha256="b" * 64) for x in "12")
    eagle = Speculative(method="eagle3", num_speculative_tokens=2, drafter=first)
    longer = with_schedule(eagle, Schedule.parse("1x8-5x2"), max_num_seqs=16)
    other = eagle.model_copy(update={"drafter": second})
    assert drafter_of(eagle) == drafter_of(longer) == "eagle3 d (11111111)"
    assert drafter_of(other) != drafter_of(eagle)
    lookup = Speculative(method="ngram", num_speculative_tokens=2, prompt_lookup_max=3)
    assert drafter_of(lookup) == "ngram prompt_lookup_max=3"


# Recovery.


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_round_times_of_trials_outside_the_fit_are_predicted(name: str, method: str) -> None:
    """Within 15 % in the median, whether the boot's own speed is known from its other trials or not."""
    for found in (
        prediction_errors(trials(name, method)),
        prediction_errors(trials(name, method), left_out="boot"),
    ):
        assert len(found.round_times) == len(trials(name, method))
        assert found.median is not None
        assert found.median < 0.15


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_round_times_and_tokens_are_those_of_the_engine_also_at_a_k_that_nobody_measured(
    name: str, method: str
) -> None:
    truth, fitted = preset(name), model(name, method)
    errors = []
    for k in (1, 2, 4, 8):
        for batch in BATCHES[name]:
            found = fitted.predict(batch, k, drafter=method, context_tokens=CONTEXT[name])
            errors.append(abs(found.round_s / true_round_s(truth, method, batch, k, CONTEXT[name]) - 1))
        assert found.tokens_per_round == pytest.approx(true_tokens(truth, method, k), rel=0.1)
    # The boots' own spread, 6 or 8 %, is in what a handful of boots can tell.
    assert np.median(errors) < 0.1
    assert max(errors) < 0.25


def test_a_boots_luck_is_its_factor_and_no_cost() -> None:
    """The same engine, once at its own speed and once 20 % slower in one boot: the costs stay, the factor says it."""
    still = without_nuisances("cpu-2core")
    found = [observe(one) for seed in range(4) for one in measured(still, None, seed=seed)]
    slow = [slower(one, 1.2) if one.boot == "boot 3" else one for one in found]
    costs = [fit_cost_model(one).costs.round.seconds(8, 8, 2_000) for one in (found, slow)]
    fitted = fit_cost_model(slow)
    assert costs[1] == pytest.approx(costs[0], rel=0.06)
    others = np.mean([fitted.boots[f"boot {seed}"] for seed in range(3)])
    assert fitted.boots["boot 3"] / others == pytest.approx(1.2, rel=0.02)
    assert fitted.boot_sd is not None
    assert fitted.boot_sd > 0.08


def slower(one: ObservedTrial, factor: float) -> ObservedTrial:
    steps = one.observed.steps
    fields = {name: getattr(steps, name) for name in Steps.__dataclass_fields__}
    slow = Steps(**(fields | {"seconds": steps.seconds * factor}))
    return ObservedTrial(one.boot, one.level, None, Observed(one.boot, "", "", slow), None)


def test_several_draft_lengths_tell_what_a_position_costs() -> None:
    still = without_nuisances("gpu-8b")
    found = [observe(one) for one in measured(still, None, seed=0)]
    for seed, k in enumerate((2, 4, 8), 1):
        found += [observe(one) for one in measured(still, speculative("eagle3", k), seed=seed)]
    fitted = fit_cost_model(found)
    cost, truth = fitted.costs.drafters["eagle3"], still.drafters["eagle3"].cost
    for k in (1, 6, 12):
        assert cost.seconds(k, k) == pytest.approx(truth.seconds(k, k), rel=0.25)
    assert fitted.measured == {"eagle3": (2, 4, 8)}
    assert not any("one draft length" in said for said in fitted.assumptions)


def test_one_draft_length_is_said_to_tell_no_position() -> None:
    still = without_nuisances("gpu-8b")
    found = [observe(one) for setting in (None, speculative("eagle3", 4)) for one in measured(still, setting, seed=1)]
    fitted = fit_cost_model(found)
    assert any("one draft length was measured, and each position costs the same" in one for one in fitted.assumptions)
    assert fitted.costs.drafters["eagle3"].fixed_s == 0


def test_a_schedule_with_a_step_of_zero_tells_its_price() -> None:
    still = without_nuisances("cpu-2core")
    schedule = with_schedule(speculative("dflash", 4), Schedule.parse("1x4-3x0"), max_num_seqs=16)
    found = [observe(one) for one in measured(still, None, seed=0)]
    found += [
        observe(one) for setting in (speculative("dflash", 4), schedule) for one in measured(still, setting, seed=1)
    ]
    fitted = fit_cost_model(found)
    assert not any("K = 0" in said for said in fitted.assumptions)
    for batch in (4, 8, 12):
        predicted = fitted.predict(batch, 0, drafter="dflash", context_tokens=CONTEXT["cpu-2core"])
        truth = true_round_s(still, "dflash", batch, 0, CONTEXT["cpu-2core"])
        assert predicted.round_s == pytest.approx(truth, rel=0.05)


def test_a_fit_without_a_baseline_is_refused() -> None:
    spec = [one for one in trials("cpu-2core", "ngram") if one.speculative is not None]
    with pytest.raises(ValueError, match="at least one trial without speculation"):
        fit_cost_model(spec)


def test_leaving_the_only_baseline_out_leaves_it_out_of_the_answer() -> None:
    few = [one for one in trials("cpu-2core", "ngram") if one.level == "ordinary" and one.boot in ("boot 0", "boot 2")]
    assert [one.speculative for one in few] == [None, speculative("ngram", 1)]
    found = prediction_errors(few)
    assert (found.round_times, found.median) == ((), None)


def test_what_a_fit_says_of_its_own_trials_is_what_was_measured() -> None:
    found = trials("gpu-8b", "eagle3")
    fitted = fit([one.observed for one in found])
    for one in found:
        expected = seconds_at(one.observed.steps, fitted.costs, one.observed.drafter) * fitted.factor(one.boot)
        assert expected.sum() == pytest.approx(one.observed.steps.seconds.sum(), rel=0.1)


def test_the_levels_reach_the_crowds_that_the_tests_speak_of() -> None:
    for name, method in PAIRS:
        plain = [one for one in trials(name, method) if one.speculative is None]
        running = {one.level: float(one.observed.steps.sequences.max()) for one in plain if one.boot == "boot 0"}
        assert list(running) == list(RATES[name])
        assert running["quiet"] < running["peak"]
