"""What the rounds of a trial came to, by hand, on the simulator, and with what the engine leaves out."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from loadtests.configurations import Speculative
from loadtests.evidence.records import RequestRecord, records_table
from loadtests.evidence.timeline import Sample, timeline_table
from loadtests.simulator import preset
from loadtests.tuning.economics import Curve, nothing_told, round_economics, running_of
from tests.support.tuning import simulated, speculative, without_nuisances

SECOND = 1_000_000_000
NGRAM = Speculative(method="ngram", num_speculative_tokens=2)


def record(number: int, **fields: Any) -> RequestRecord:
    one = RequestRecord(
        request_id=f"r{number}",
        row=number,
        class_="chat",
        level="quiet",
        prompt_sha256=None,
        prompt_tokens=100,
        planned_ns=0,
        sent_ns=0,
        first_token_ns=SECOND,
        last_token_ns=2 * SECOND,
        ended_ns=2 * SECOND,
        server_queue_ms=0.0,
        server_prefill_ms=1_000.0,
        server_decode_ms=1_000.0,
        status="completed",
        finish_reason="stop",
        output_tokens=21,
        chunks=11,
        rounds=None,
        draft_tokens=None,
        accepted_tokens=None,
        accepted_histogram=None,
        output_sha256=None,
        error=None,
    )
    return replace(one, **fields)


# 20 tokens of rounds: 8 drafting rounds of 2 drafts kept 0, 1 or 2 of them, 9 in all, and 3 rounds drafted nothing.
DRAFTED = {"rounds": 8, "draft_tokens": 16, "accepted_tokens": 9, "accepted_histogram": [2, 3, 3]}
# 10 tokens of rounds: 5 drafting rounds kept 5 of 10 drafts.
CODE = {
    "class_": "code",
    "output_tokens": 11,
    "server_decode_ms": 400.0,
    "rounds": 5,
    "draft_tokens": 10,
    "accepted_tokens": 5,
    "accepted_histogram": [2, 1, 2],
}


def test_a_trial_by_hand() -> None:
    found = round_economics(records_table([record(0, **DRAFTED), record(1, **CODE)]), NGRAM)
    assert (found.requests, found.told) == (2, 2)
    # 11 rounds of the first request (8 that drafted), 5 of the second; 30 verified tokens.
    assert (found.rounds, found.drafting_rounds) == (16, 13)
    assert found.tokens_per_round == pytest.approx(30 / 16)
    assert found.round_s == pytest.approx(1.4 / 16)
    assert (found.draft_tokens, found.accepted_tokens) == (26, 14)
    assert found.rejected_share == pytest.approx(12 / 26)
    assert found.checked_per_token == pytest.approx((16 + 26) / 30)
    assert found.drafted_per_token == pytest.approx(26 / 30)
    assert found.acceptance == Curve(13, (9 / 13, 5 / 13))
    assert found.by_class == {"chat": Curve(8, (6 / 8, 3 / 8)), "code": Curve(5, (3 / 5, 2 / 5))}
    assert found.mix == {"chat": pytest.approx(20 / 30), "code": pytest.approx(10 / 30)}
    # 110.5 tokens over 11 rounds and 105.5 over 5.
    assert found.context_tokens == pytest.approx((110.5 * 11 + 105.5 * 5) / 16)
    assert found.acceptance.tokens_per_drafting_round == pytest.approx(1 + 14 / 13)
    assert found.acceptance.given == pytest.approx((9 / 13, 5 / 9))


def test_without_speculation_each_token_after_the_first_is_a_round() -> None:
    found = round_economics(records_table([record(0)]), None)
    assert (found.told, found.rounds, found.tokens_per_round, found.round_s) == (1, 20, 1, 0.05)
    assert (found.checked_per_token, found.drafted_per_token) == (1, 0)
    assert (found.draft_tokens, found.acceptance, found.rejected_share) == (None, None, None)


def test_a_stop_string_leaves_rounds_untold_and_never_zero() -> None:
    """Its engine tells nothing of the rounds: the request is in no figure but the number of requests."""
    stopped = record(2, output_tokens=300, server_decode_ms=9_000.0)
    found = round_economics(records_table([record(0, **DRAFTED), stopped]), NGRAM)
    alone = round_economics(records_table([record(0, **DRAFTED)]), NGRAM)
    assert (found.requests, found.told) == (2, 1)
    assert replace(found, requests=1) == alone
    assert round_economics(records_table([stopped]), NGRAM) == nothing_told(1)


@pytest.mark.parametrize(
    "left_out",
    [{"warm_up": True}, {"status": "cancelled"}, {"output_tokens": 1}, {"output_tokens": None}],
    ids=["warm-up", "cancelled", "one token", "untold"],
)
def test_who_had_no_rounds_in_the_window_is_in_no_figure(left_out: dict[str, Any]) -> None:
    other = record(1, **(CODE | left_out))
    assert round_economics(records_table([record(0, **DRAFTED), other]), NGRAM) == round_economics(
        records_table([record(0, **DRAFTED)]), NGRAM
    )


def test_missing_times_are_missing() -> None:
    silent = record(0, **(DRAFTED | {"server_decode_ms": None, "prompt_tokens": None}))
    found = round_economics(records_table([silent]), NGRAM)
    assert (found.round_s, found.context_tokens, found.kv_tokens_lost, found.running) == (None, None, None, None)
    assert found.tokens_per_round == pytest.approx(20 / 11)


def test_the_price_in_memory_is_what_the_baseline_has_more() -> None:
    found = round_economics(records_table([record(0)]), NGRAM, kv_tokens=40_000, baseline_kv_tokens=46_000)
    assert (found.kv_tokens, found.kv_tokens_lost) == (40_000, 6_000)


def test_counters_hold_the_drafts_of_aborted_requests_too() -> None:
    counters = {
        "vllm:spec_decode_num_drafts_total": 20.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{0}": 10.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{1}": 5.0,
    }
    found = round_economics(records_table([record(0, **DRAFTED)]), NGRAM, counters=counters)
    assert found.acceptance_counted == Curve(20, (0.5, 0.25))
    assert round_economics(records_table([record(0, **DRAFTED)]), NGRAM, counters={}).acceptance_counted is None


def test_the_running_batch_is_over_the_busy_seconds_of_the_window() -> None:
    running = {1: 9, 2: 2, 3: 4, 4: None, 5: 0, 6: 2, 7: 9}
    samples = [
        Sample(at * SECOND, at * SECOND, {} if one is None else {"running": float(one)}) for at, one in running.items()
    ]
    table = timeline_table(samples, [record(0, ended_ns=10 * SECOND)], end_ns=7 * SECOND)
    found = round_economics(records_table([record(0)]), None, timeline=table, warm_up_s=2, window_s=4).running
    # Seconds 2, 3 and 6; the engine told of second 5 that nothing ran, and of 4 nothing.
    assert found is not None
    assert asdict(found) == {
        "seconds": 3,
        "mean": pytest.approx(8 / 3),
        "p50": 2.0,
        "p95": pytest.approx(3.8),
        "share": {2: pytest.approx(2 / 3), 4: pytest.approx(1 / 3)},
        "idle_share": pytest.approx(1 / 4),
        "in_flight": 1.0,
    }
    assert running_of(np.array([np.nan, 0.0])) is None


def test_on_the_simulator_records_and_counters_say_the_same() -> None:
    model = without_nuisances("gpu-8b")
    trial = simulated(model, speculative("eagle3", 4), seed=1)["ordinary"]
    found = round_economics(records_table(trial.records), speculative("eagle3", 4), counters=trial.counters)
    assert found.told == found.requests > 100
    # A model drafts in every round.
    assert found.rounds == found.drafting_rounds
    assert found.drafting_rounds is not None
    assert found.draft_tokens == 4 * found.drafting_rounds
    assert found.acceptance == found.acceptance_counted
    assert found.acceptance is not None
    kept = found.acceptance.kept
    assert list(kept) == sorted(kept, reverse=True)
    assert found.tokens_per_round == pytest.approx(1 + sum(kept), rel=0.02)
    assert set(found.by_class) == {"chat", "code"}


def test_on_the_simulator_the_running_batch_grows_with_the_rate() -> None:
    trials = simulated(preset("cpu-2core"), None, seed=1)
    found = [running_of(np.array([one.running for one in trial.timeline], float)) for trial in trials.values()]
    means = [one.mean for one in found if one is not None]
    assert len(means) == len(trials)
    assert means == sorted(means)
