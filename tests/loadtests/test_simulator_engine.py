"""The engine in virtual time against closed forms, conservation laws and itself step by step."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.configurations import Speculative
from loadtests.simulator.acceptance import Acceptance, ClassAcceptance, expected_tokens
from loadtests.simulator.costs import DrafterCost, RoundCost
from loadtests.simulator.counters import exposed, tokens_of, with_open
from loadtests.simulator.engine import Engine
from loadtests.simulator.future import BLOCKS
from loadtests.simulator.model import Drafter, EngineModel, Nuisances, changed, lengths_by_batch, speculation_of
from loadtests.simulator.pace import Pace
from loadtests.simulator.sequence import Demand, Sequence

ROUND = RoundCost(
    fixed_s=0.001,
    per_sequence_s=0.0001,
    weights_s=0.009,
    per_token_s=0.0005,
    per_prefill_token_s=0.0001,
    per_context_token_s=1e-6,
)


def drafter(*positions: float, spread: float = 0.0, proposes: float = 1.0, kv_tokens: int = 0) -> Drafter:
    return Drafter(
        cost=DrafterCost(fixed_s=0.0005, per_position_s=0.0002, per_draft_token_s=0.0001, idle_s=0.0003),
        acceptance=Acceptance(default=ClassAcceptance(positions=positions, spread=spread, proposes=proposes)),
        kv_tokens=kv_tokens,
    )


def model_of(**fields: Any) -> EngineModel:
    return EngineModel.model_validate(
        {
            "name": "test",
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            "max_model_len": 400,
            "block_size": 16,
            "kv_tokens": 4_000,
            "round": ROUND,
            "drafters": {"ngram": drafter(0.6, proposes=0.4, spread=0.5), "eagle3": drafter(0.7, spread=0.8)},
        }
        | fields
    )


def speculative(k: int, method: str = "eagle3", schedule: list[tuple[int, int, int]] | None = None) -> Speculative:
    return Speculative.model_validate(
        {
            "method": method,
            "num_speculative_tokens": k,
            "num_speculative_tokens_per_batch_size": schedule,
        }
    )


def engine_of(model: EngineModel, setting: Speculative | None = None, seed: int = 1) -> Engine:
    return Engine(model, speculation_of(model, setting), pace=Pace(model.nuisances, seed), seed=seed)


def demand(number: int = 0, *, prompt: int = 20, output: int = 50) -> Demand:
    return Demand(f"r{number}", "chat", f"text {number}", prompt, output, "stop")


def run_out(engine: Engine, most: int = 4_096) -> list[Sequence]:
    while engine.busy:
        engine.advance(most=most)
    return engine.finished


def counters(engine: Engine) -> dict[str, float]:
    tally = with_open(engine.totals, engine.running, engine.step)
    return exposed(engine.totals, tally, cache=None, speculating=engine.speculation is not None)


def test_alone_and_without_speculation_a_token_takes_a_round() -> None:
    model = model_of(round=RoundCost(fixed_s=0.001, weights_s=0.009, per_token_s=0.0005, per_prefill_token_s=0.0001))
    engine = engine_of(model)
    engine.submit(demand(output=101), 0.0)
    (done,) = run_out(engine)
    assert done.first_token_at == pytest.approx(0.010)
    assert done.last_token_at == pytest.approx(0.010 + 100 * 0.010)


def test_a_round_costs_what_the_model_says() -> None:
    engine = engine_of(model_of())
    for number in range(4):
        engine.submit(demand(number, prompt=10, output=3), 0.0)
    done = run_out(engine)
    prefill = 0.001 + 4 * 0.0001 + max(0.009, 40 * 0.0001) + 40e-6
    rounds = [0.001 + 4 * 0.0001 + 0.009 + 4 * context * 1e-6 for context in (11, 12)]
    assert [one.last_token_at for one in done] == pytest.approx([prefill + sum(rounds)] * 4)


def test_the_arithmetic_is_free_up_to_the_knee_and_linear_beyond() -> None:
    assert ROUND.knee_tokens == 18
    seconds = ROUND.seconds(1, np.array([1, 18, 36, 72]), 0)
    assert seconds == pytest.approx([0.0101, 0.0101, 0.0191, 0.0371])


@given(st.integers(0, 300), st.integers(0, 8), st.integers(0, 100_000), st.integers(0, 9_000))
def test_one_step_costs_to_the_last_digit_what_it_costs_among_several(
    sequences: int, k: int, context: int, prefill: int
) -> None:
    verified = sequences * (k + 1)
    among = [np.array([one, 1]) for one in (sequences, verified, context)]
    several = ROUND.seconds(among[0], among[1], among[2], prefill)
    assert ROUND.seconds(sequences, verified, context, prefill) == several[0]


def test_a_drafter_that_waits_costs_its_idle_price_and_one_that_drafts_the_whole() -> None:
    cost = drafter(0.5).cost
    assert [cost.seconds(0, 0), cost.seconds(12, 4)] == pytest.approx([0.0003, 0.0005 + 4 * 0.0002 + 12 * 0.0001])


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("chance", [0.3, 0.7, 0.95])
def test_tokens_per_round_follow_the_closed_form(k: int, chance: float) -> None:
    model = model_of(drafters={"eagle3": drafter(chance)}, max_num_batched_tokens=256, max_model_len=3_000)
    engine = engine_of(model, speculative(k))
    for number in range(30):
        engine.submit(demand(number, output=900), 0.0)
    run_out(engine)
    tally = engine.totals.tally
    per_round = 1 + tally.accepted / tally.rounds
    expected = (1 - chance ** (k + 1)) / (1 - chance)
    assert expected_tokens(ClassAcceptance(positions=(chance,)), k) == pytest.approx(expected)
    # Five standard errors of the mean; a round's tokens lie between 1 and K + 1.
    assert abs(per_round - expected) < 5 * (k / 2) / math.sqrt(tally.rounds)


def test_requests_differ_and_the_rounds_of_one_are_alike() -> None:
    model = model_of(drafters={"eagle3": drafter(0.6, spread=1.0)}, max_model_len=3_000, max_num_batched_tokens=256)
    engine = engine_of(model, speculative(4))
    for number in range(60):
        engine.submit(demand(number, output=900), 0.0)
    means = [one.tally.accepted / one.tally.rounds for one in run_out(engine)]
    # Without an effect of the request the means of some 400 rounds would differ by less than 0.1.
    assert np.std(means) > 0.5


def test_a_class_has_its_own_acceptance() -> None:
    acceptance = Acceptance(
        default=ClassAcceptance(positions=(0.0,)), classes={"code": ClassAcceptance(positions=(1.0,))}
    )
    model = model_of(drafters={"eagle3": Drafter(cost=DrafterCost(), acceptance=acceptance)})
    engine = engine_of(model, speculative(3))
    engine.submit(Demand("a", "code", "x", 10, 81, "stop"), 0.0)
    engine.submit(Demand("b", "chat", "y", 10, 81, "stop"), 0.0)
    code, chat = run_out(engine)
    assert (code.tally.kept.tolist(), chat.tally.kept.tolist()) == ([0, 0, 0, 20], [80, 0, 0, 0])


def test_the_sequence_that_came_last_is_preempted_when_the_cache_is_full() -> None:
    engine = engine_of(model_of(kv_tokens=400))
    sequences = [engine.submit(demand(number, prompt=100, output=90), 0.0) for number in range(3)]
    done = run_out(engine)
    assert [one.preemptions for one in sequences] == [0, 0, 1]
    assert done == sequences
    assert engine.totals.preemptions == 1
    assert [one.output for one in done] == [90, 90, 90]


def test_a_drafter_takes_its_price_from_the_cache() -> None:
    model = model_of(kv_tokens=800, drafters={"eagle3": drafter(0.7, kv_tokens=320)})
    assert (engine_of(model).capacity, engine_of(model, speculative(2)).capacity) == (50, 30)


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks_beside_the_others() -> None:
    engine = engine_of(model_of())
    short = engine.submit(demand(0, prompt=10, output=40), 0.0)
    engine.advance()
    long = engine.submit(demand(1, prompt=200, output=2), engine.now)
    steps = 0
    while long.first_token_at is None:
        engine.advance(most=1)
        steps += 1
    # 63 tokens a step beside one decoding sequence.
    assert steps == 4
    assert short.emitted_by(engine.step) == 1 + 4


def test_an_abort_gives_memory_and_seat_back_at_once() -> None:
    engine = engine_of(model_of(max_num_seqs=1), speculative(2))
    first, second = (engine.submit(demand(number), 0.0) for number in range(2))
    engine.advance()
    engine.advance(most=2)
    engine.abort(first)
    engine.abort(first)
    assert engine.future.window(engine.step, 200)[BLOCKS].sum() == 0
    assert run_out(engine) == [second]


def test_a_full_batch_lets_the_others_wait_in_their_order() -> None:
    engine = engine_of(model_of(max_num_seqs=2))
    sequences = [engine.submit(demand(number, output=10 + number), 0.0) for number in range(6)]
    run_out(engine)
    starts = [one.scheduled_at or 0.0 for one in sequences]
    assert starts == sorted(starts)
    assert starts[:2] == [0.0, 0.0]
    assert starts[2] == sequences[0].ended_at


wild_demands = st.lists(st.tuples(st.integers(1, 150), st.integers(1, 120), st.floats(0, 0.5)), min_size=1, max_size=25)
wild_settings = st.sampled_from(
    [
        None,
        speculative(4),
        speculative(3, "ngram"),
        speculative(5, schedule=[(1, 2, 5), (3, 4, 2), (5, 8, 0)]),
    ]
)


def walk(
    demands: list[tuple[int, int, float]], setting: Speculative | None, most: int, kv_tokens: int, seed: int
) -> Engine:
    nuisances = Nuisances(boot_sd=0.2, drift_sd_per_hour=1, pauses_per_hour=3_600, pause_mean_s=0.05)
    engine = engine_of(model_of(kv_tokens=kv_tokens, nuisances=nuisances), setting, seed)
    engine.next_sample = 0.0
    arrivals = sorted((at, number, prompt, output) for number, (prompt, output, at) in enumerate(demands))
    while arrivals or engine.busy:
        until = arrivals[0][0] if arrivals else math.inf
        if engine.busy:
            engine.advance(until, most)
            assert engine.future.window(engine.step, 1)[BLOCKS, 0] >= 0
        else:
            engine.idle_until(until)
        while arrivals and arrivals[0][0] <= engine.now:
            at, number, prompt, output = arrivals.pop(0)
            engine.submit(demand(number, prompt=prompt, output=output), at)
    return engine


@settings(max_examples=60)
@given(wild_demands, wild_settings, st.integers(420, 1_500), st.integers(0, 10))
def test_summed_steps_are_the_same_as_single_ones(
    demands: list[tuple[int, int, float]], setting: Speculative | None, kv_tokens: int, seed: int
) -> None:
    summed, single = (walk(demands, setting, most, kv_tokens, seed) for most in (4_096, 1))
    assert (summed.step, summed.totals.preemptions) == (single.step, single.totals.preemptions)
    assert counters(summed) == pytest.approx(counters(single))
    assert [one.demand.request_id for one in summed.finished] == [one.demand.request_id for one in single.finished]
    for one, other in zip(summed.finished, single.finished, strict=True):
        assert (one.scheduled_at, one.first_token_at, one.ended_at) == pytest.approx(
            (other.scheduled_at, other.first_token_at, other.ended_at)
        )
        assert one.tally.kept.tolist() == other.tally.kept.tolist()
        assert (one.chunks, one.preemptions) == (other.chunks, other.preemptions)
    assert [one.running for one in summed.samples] == [one.running for one in single.samples]


@settings(max_examples=60)
@given(wild_demands, wild_settings, st.integers(420, 1_500), st.integers(0, 10))
def test_nothing_is_lost_and_nothing_is_made_up(
    demands: list[tuple[int, int, float]], setting: Speculative | None, kv_tokens: int, seed: int
) -> None:
    engine = walk(demands, setting, 4_096, kv_tokens, seed)
    assert len(engine.finished) == len(demands)
    assert not engine.future.window(engine.step, 500).any()
    for one in engine.finished:
        assert one.output == one.demand.output_tokens
        # The first token, and one more for each preemption, comes from a prefill.
        assert 1 + one.preemptions >= one.output - tokens_of(one.tally) >= 1
        assert one.tally.surplus <= (setting.num_speculative_tokens if setting else 0)
    assert all(0 <= one.kv_use <= 1 for one in engine.samples)
    assert engine.totals.generation_tokens == sum(output for _, output, _ in demands)
    assert engine.totals.prompt_tokens == sum(prompt for prompt, _, _ in demands)


def test_a_schedule_follows_the_running_batch() -> None:
    setting = speculative(4, schedule=[(1, 2, 9), (4, 5, 1)])
    # K is clamped; 3 lies in a gap, 6 and above are named nowhere.
    assert lengths_by_batch(setting, 7) == (4, 4, 4, 4, 1, 1, 1, 1)
    engine = engine_of(model_of(), setting)
    for number in range(5):
        engine.submit(demand(number, output=20 + 30 * number), 0.0)
    seen = set()
    while engine.busy:
        engine.advance()
        seen.add((len(engine.running), engine.k))
    assert {k for _, k in seen} == {1, 4}


@pytest.mark.parametrize(
    ("fields", "setting", "said"),
    [
        ({}, speculative(2, "medusa"), "has no drafter for medusa; it has eagle3, ngram"),
        ({}, speculative(8), "8 sequences with 8 drafts need 72 tokens a step and max_num_batched_tokens is 64"),
        ({}, speculative(2, schedule=[(2, 8, 1)]), "starts at 1 running sequence"),
        ({"drafters": {"eagle3": drafter(0.5, kv_tokens=3_800)}}, speculative(2), "the drafter's price of 3800 tokens"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(fields: Any, setting: Speculative, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        speculation_of(model_of(**fields), setting)


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"kv_tokens": 300}, "can't hold one sequence of 400"), ({"max_num_batched_tokens": 7}, "8 sequences need one")],
)
def test_a_model_that_does_not_fit_itself_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        changed(model_of(), fields)


def test_boots_differ_by_a_log_normal_factor_around_one() -> None:
    factors = [math.log(Pace(Nuisances(boot_sd=0.06), seed).factor) for seed in range(2_000)]
    assert np.mean(factors) == pytest.approx(0, abs=0.006)
    assert np.std(factors) == pytest.approx(0.06, rel=0.06)


def test_pauses_come_as_often_and_last_as_long_as_said() -> None:
    pace = Pace(Nuisances(pauses_per_hour=60, pause_mean_s=0.5), 3)
    now, paused, count = 0.0, 0.0, 0
    while now < 100 * 3_600:
        began = pace.pause_at
        now = pace.after_pauses(began)
        paused, count = paused + now - began, count + 1
    assert count == pytest.approx(6_000, rel=0.05)
    assert paused / count == pytest.approx(0.5, rel=0.05)


def test_the_drift_is_slow_and_the_same_for_all_steps_between_two_ticks() -> None:
    pace = Pace(Nuisances(drift_sd_per_hour=0.5), 1)
    assert pace.factor_at(0.0) == pace.factor_at(9.9) == pace.factor
    assert pace.factor_at(3_600.0) == pytest.approx(math.exp(pace.slope * 3_600) * pace.factor)
    assert pace.changes_at(12.0) == 20.0
