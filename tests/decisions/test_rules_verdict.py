"""The verdict on synthetic evidence: one planted fault or effect per test."""

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decisions.rules.brief import Brief
from decisions.rules.evidence import MISSING, TrialEvidence, columns_of, digests_of, window_and_warm_up, within
from decisions.rules.nomination import nominate
from decisions.rules.states import approval_refusal
from decisions.rules.validity import shared_requests
from decisions.rules.verdict import FIRST_CODE, VERDICT_CODE, verdict
from decisions.rules.wording import digits_apart, interval
from loadtests.canonical import canonical
from loadtests.evidence.records import RequestRecord, read_records, records_content
from loadtests.planning import plan_boots
from loadtests.statistics.order import arm_orders
from loadtests.traffic.rows import Row
from tests.support.judged import (
    BRIEF,
    FASTER,
    GUARDRAILS,
    NOMINEE,
    RATES,
    REQUESTS,
    SEED,
    S,
    a_brief,
    a_trial,
    changed,
    check,
    evidence,
    failing,
    in_arm,
    row,
    with_columns,
)


def test_pass() -> None:
    document = verdict(BRIEF, NOMINEE, evidence())
    assert document["verdict"] == "PASS", document["sentence"]
    assert document["code"] == VERDICT_CODE == "draftproof.verdict/2"
    assert document["settles"] == document["broken"] == []
    assert [one["ok"] for one in document["validity"]] == [True] * 13
    assert {one["shown"] for one in [*document["outcome"], *document["guardrails"]] if one["role"] != "reported"} == {
        "shown"
    }
    peak = row(document, "attainment:peak:all")
    assert (peak["role"], peak["required"], peak["required_text"]) == ("improve", 0.02, "≥ +2.0 points")
    assert 0.02 <= peak["low"] < peak["difference"] < peak["high"]
    assert peak["difference"] == pytest.approx(peak["candidate"] - peak["baseline"])
    assert peak["interval_confidence"] == 0.9
    assert [one["pair"] for one in peak["pairs"]] == [0, 1, 2, 3]
    assert document["noise_floor"]["ok"] is True
    assert document["noise_floor"]["cells"][0]["smallest_effect"] < 0.02
    assert document["evidence_class"] == "measured"
    assert approval_refusal(document) is None


def test_pass_sentence_has_the_figures() -> None:
    document = verdict(BRIEF, NOMINEE, evidence())
    peak = row(document, "attainment:peak:all")
    before, after = (f"{100 * peak[arm]:.1f} %" for arm in ("baseline", "candidate"))
    low, high, change = (f"+{100 * peak[one]:.1f}" for one in ("low", "high", "difference"))
    assert document["sentence"] == (
        f"On held-out traffic ngram K=4 lets {after} of requests finish within their deadline at peak, against "
        f"{before} with speculation disabled: {change} points (90 % interval {low} to {high}; the brief asked for "
        "+2.0 points). All 4 guardrails hold, and no other level is worse by more than its margin."
    )


def test_the_document_is_canonical_and_does_not_depend_on_the_order_of_trials() -> None:
    trials = evidence()
    expected = canonical(verdict(BRIEF, NOMINEE, trials))
    for seed in range(3):
        shuffled = random.Random(seed).sample(trials, len(trials))
        assert canonical(verdict(BRIEF, NOMINEE, shuffled)) == expected
    assert json.loads(expected)["verdict"] == "PASS"


@settings(max_examples=3, deadline=None)
@given(st.randoms(use_true_random=False))
def test_permuting_the_requests_changes_nothing(draw: random.Random) -> None:
    trials = evidence()
    order = np.array(draw.sample(range(REQUESTS), REQUESTS))
    permuted = [with_columns(one, **{name: found[order] for name, found in one.columns.items()}) for one in trials]
    assert canonical(verdict(BRIEF, NOMINEE, permuted)) == canonical(verdict(BRIEF, NOMINEE, trials))


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 3), st.lists(st.integers(0, REQUESTS - 1), min_size=1, max_size=REQUESTS))
def test_more_failed_candidate_requests_never_look_better(pair: int, which: list[int]) -> None:
    trials = evidence()
    worse = [
        failing(one, which) if in_arm(one, "candidate") and (one.pair, one.level) == (pair, "peak") else one
        for one in trials
    ]
    before, after = (row(verdict(BRIEF, NOMINEE, one), "attainment:peak:all") for one in (trials, worse))
    assert after["candidate"] <= before["candidate"]
    assert after["difference"] <= before["difference"]


def test_swapping_the_arms_flips_the_sign() -> None:
    other = {"baseline": "candidate", "candidate": "baseline"}
    trials = evidence()
    swapped = [replace(one, arm=other[one.arm]) if one.purpose == "held-out" else one for one in trials]
    straight, turned = (row(verdict(BRIEF, NOMINEE, one), "attainment:peak:all") for one in (trials, swapped))
    assert turned["difference"] == pytest.approx(-straight["difference"])
    assert (turned["low"], turned["high"]) == pytest.approx((-straight["high"], -straight["low"]), rel=1e-6)


def test_improvement_shown_too_small_fails() -> None:
    document = verdict(BRIEF, NOMINEE, evidence(speed=0.99))
    assert document["verdict"] == "FAIL"
    assert document["broken"] == ["attainment:peak:all"]
    assert document["sentence"].endswith("which is shown to be too small: leave speculation off.")
    assert approval_refusal(document) == "The verdict is FAIL: only a PASS can be approved."


def test_a_slower_candidate_fails_at_the_level_that_need_not_improve() -> None:
    slower_when_quiet = [
        with_columns(
            one,
            last_token_ns=one.columns["planned_ns"] + 3 * (one.columns["last_token_ns"] - one.columns["planned_ns"]),
        )
        if in_arm(one, "candidate") and one.level == "quiet"
        else one
        for one in evidence()
    ]
    document = verdict(a_brief(guardrails=[]), NOMINEE, slower_when_quiet)
    assert (document["verdict"], document["broken"]) == ("FAIL", ["attainment:quiet:all"])
    assert row(document, "attainment:quiet:all")["shown"] == "broken"
    assert "the margin of a level that need not improve" in document["sentence"]


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        (
            "kv",
            {"kv_cache_tokens": 80_000},
            "breaks guardrail kv: the KV cache at peak changes by −14.1 % (limit ≥ −10.0 %): leave",
        ),
        ("kv", {"kv_cache_tokens": None}, None),
    ],
)
def test_kv_cache_is_exact(name: str, fields: dict[str, Any], said: str | None) -> None:
    document = verdict(BRIEF, NOMINEE, evidence(**fields))
    found = row(document, name)
    if said is None:
        assert (document["verdict"], found["shown"]) == ("INCONCLUSIVE", "open")
        assert any("the KV cache for every boot" in one for one in document["settles"])
    else:
        assert (document["verdict"], found["shown"]) == ("FAIL", "broken")
        assert said in document["sentence"]


def test_figures_have_the_digits_that_tell_them_from_a_limit_they_miss() -> None:
    trials = changed(evidence(kv_cache_tokens=89_980), lambda one: one.arm == "baseline", kv_cache_tokens=100_000)
    found = verdict(BRIEF, NOMINEE, trials)["sentence"]
    assert "the KV cache at peak changes by −10.02 % (limit ≥ −10.00 %): leave" in found
    first = verdict(BRIEF, NOMINEE, trials, code=FIRST_CODE)["sentence"]
    assert "the KV cache at peak changes by −10.0 % (limit ≥ −10.0 %): leave" in first


@pytest.mark.parametrize(
    ("number", "limit", "digits"),
    [(-6.0, -6.0, 1), (-6.04, -6.0, 2), (2.0, 2.0001, 4), (2.0, 2.000_000_1, 1), (None, 2.0, 1), (math.inf, 2.0, 1)],
)
def test_digits_that_tell_a_number_from_its_limit(number: float | None, limit: float, digits: int) -> None:
    assert digits_apart(limit, number) == digits


def test_bounds_that_there_are_not() -> None:
    assert interval(0.024, 0.05, "difference") == "+2.4 to +5.0"
    assert interval(0.024, None, "difference") == "+2.4 points or more"
    assert interval(-math.inf, 0.0, "ratio") == "0.0 % or less"
    assert interval(None, math.inf, "ratio") == "no bound either way"


def test_a_candidate_that_never_got_there_has_no_change_to_tell() -> None:
    dead = [
        failing(one, slice(None)) if in_arm(one, "candidate") and one.level == "peak" else one for one in evidence()
    ]
    outcome = {"metric": "completion_quantile", "quantile": 0.5, "improve_in": [{"level": "quiet"}]}
    brief = a_brief(
        outcome=outcome | {"minimum_improvement": 0.1, "non_inferiority_margin": 0.05}, guardrails=[GUARDRAILS[1]]
    )
    said = verdict(brief, NOMINEE, dead)["sentence"]
    assert re.search(
        r"breaks guardrail first-token: first token p50 at peak never came, against \d\.\d\d s with speculation "
        r"disabled \(limit ≤ \+20\.0 %\)",
        said,
    ), said
    assert "no bound" not in said


def test_two_guardrails_are_both() -> None:
    assert "Both guardrails hold, and" in verdict(a_brief(guardrails=GUARDRAILS[:2]), NOMINEE, evidence())["sentence"]


def test_a_kv_cache_exactly_at_its_limit_holds() -> None:
    trials = changed(evidence(kv_cache_tokens=90_000), lambda one: one.arm == "baseline", kv_cache_tokens=100_000)
    assert row(verdict(BRIEF, NOMINEE, trials), "kv")["shown"] == "shown"


def test_failures_break_a_guardrail_and_are_named() -> None:
    trials = [
        failing(one, np.arange(REQUESTS) % 20 == 0) if in_arm(one, "candidate") and one.level == "peak" else one
        for one in evidence()
    ]
    document = verdict(BRIEF, NOMINEE, trials)
    assert (document["verdict"], document["broken"][0]) == ("FAIL", "failed")
    assert document["sentence"].startswith(
        "On held-out traffic ngram K=4 breaks guardrail failed: the share of failed requests at peak is 5.0 % "
        "(limit ≤ 1.0 %)"
    )
    found = row(document, "failed")
    assert (found["over"], found["requests"]) == (48, 960)
    assert "at least that" in check(document, "engine-tokens")["sentence"]


def test_an_engine_that_dies_is_a_result() -> None:
    """It could not even start in any pair: every request failed, nothing is invalid, the candidate is refused."""
    trials = [
        replace(failing(one, slice(None)), died=True, engine_tokens=None, kv_cache_tokens=None, warm_up_completed=0)
        if in_arm(one, "candidate")
        else one
        for one in evidence()
    ]
    document = verdict(BRIEF, NOMINEE, trials)
    assert document["verdict"] == "FAIL"
    assert not [one for one in document["validity"] if one["ok"] is False]
    assert row(document, "attainment:peak:all")["candidate"] == 0
    first_token = row(document, "first-token")
    assert (first_token["shown"], first_token["candidate"], first_token["high"]) == ("broken", None, None)
    died = [one for one in document["levels"] if one["arm"] == "candidate" and one["class"] == "all"]
    assert [(one["died"], one["statuses"]["failed"], one["completion_p50_s"]) for one in died] == [(4, 960, None)] * 2
    canonical(document)


def test_an_engine_that_dies_in_one_pair_of_four_leaves_it_open() -> None:
    late_half = np.arange(REQUESTS) >= 40
    trials = [
        replace(failing(one, late_half), died=True) if in_arm(one, "candidate") and one.pair == 2 else one
        for one in evidence()
    ]
    document = verdict(BRIEF, NOMINEE, trials)
    assert document["verdict"] == "INCONCLUSIVE"
    found = row(document, "first-token")
    assert (found["shown"], found["low"], found["high"], found["difference"]) == ("open", None, None, None)


def test_inconclusive_says_what_would_settle_it() -> None:
    document = verdict(BRIEF, NOMINEE, evidence(speed=0.93))
    assert document["verdict"] == "INCONCLUSIVE", document["sentence"]
    assert document["sentence"].startswith(
        "On held-out traffic ngram K=4 can't be accepted or refused yet: attainment at peak +"
    )
    assert any("pairs in all" in one for one in document["settles"])


def test_too_few_requests_for_a_percentile_are_inconclusive_with_the_number_needed() -> None:
    rail = GUARDRAILS[2] | {"quantile": 0.999, "limit": 200}
    brief = a_brief(guardrails=[rail])
    document = verdict(brief, NOMINEE, evidence(brief))
    assert document["verdict"] == "INCONCLUSIVE"
    assert document["settles"] == [
        "At least 2,035 more requests (2,995 in all) with no more over the limit and about 10 more boots of each arm "
        "(14 in all), for completion p99.9 at quiet: 0 of 960 requests are over the limit."
    ]
    found = row(document, "completion-p90")
    assert (found["requests_needed"], found["boots_needed"]) == (2_035, 10)


def test_a_noise_floor_above_the_minimum_improvement_is_inconclusive() -> None:
    trials = [
        failing(one, np.arange(REQUESTS) < 30 * (one.pair or 0), "timed_out")
        if in_arm(one, "control", "noise-floor")
        else one
        for one in evidence()
    ]
    document = verdict(BRIEF, NOMINEE, trials)
    assert document["verdict"] == "INCONCLUSIVE"
    cell = document["noise_floor"]["cells"][0]
    assert cell["ok"] is False
    assert cell["pairs_needed"] > 4
    assert cell["sentence"] in document["settles"]


def test_without_a_noise_floor_nothing_passes() -> None:
    trials = [one for one in evidence() if one.purpose == "held-out"]
    document = verdict(BRIEF, NOMINEE, trials)
    assert (document["verdict"], check(document, "control")["ok"]) == ("INCONCLUSIVE", None)


def test_a_missing_pair_is_inconclusive_and_a_surplus_one_invalid() -> None:
    short = verdict(BRIEF, NOMINEE, [one for one in evidence() if not (one.purpose == "held-out" and one.pair == 3)])
    assert (short["verdict"], check(short, "pairs")["number"]) == ("INCONCLUSIVE", 3)
    surplus = verdict(BRIEF, NOMINEE, evidence(pairs=6))
    assert (surplus["verdict"], check(surplus, "pairs")["ok"]) == ("INVALID", False)


def test_nothing_measured_at_all_is_inconclusive() -> None:
    for nominee in (NOMINEE, None):
        document = verdict(BRIEF, nominee, [])
        assert document["verdict"] == "INCONCLUSIVE"
        assert document["settles"]
        canonical(document)


def first_of(trials: list[TrialEvidence]) -> TrialEvidence:
    return next(one for one in trials if in_arm(one, "candidate"))


def never_sent(one: TrialEvidence) -> TrialEvidence:
    return failing(one, [3], "not_sent")


def lagging(one: TrialEvidence) -> TrialEvidence:
    return with_columns(one, sent_ns=one.columns["planned_ns"] + S // 5)


def other_prompts(one: TrialEvidence) -> TrialEvidence:
    prompts = np.array(one.columns["prompt_sha256"], copy=True)
    prompts[7] = "another"
    return with_columns(one, prompt_sha256=prompts)


def other_class(one: TrialEvidence) -> TrialEvidence:
    classes = np.array(one.columns["class"], copy=True)
    classes[7] = "rewrite" if classes[7] == "chat" else "chat"
    return with_columns(one, **{"class": classes})


def other_fingerprint(one: TrialEvidence) -> TrialEvidence:
    echoed = np.array(one.columns["fingerprint"], copy=True)
    echoed[0] = None
    return with_columns(one, fingerprint=echoed)


FAULTS: dict[str, tuple[str, Callable[[TrialEvidence], TrialEvidence]]] = {
    "a request was never sent": ("issued", never_sent),
    "a record is missing": ("issued", lambda one: replace(one, planned=REQUESTS + 1)),
    "the client lagged": ("client-lag", lagging),
    "the client ran out of files": (
        "client-lag",
        lambda one: replace(one, client_faults=("3 requests: the client's machine ran out of something: OSError",)),
    ),
    "the arms got different prompts": ("same-requests", other_prompts),
    "the arms got a prompt in different classes": ("same-requests", other_class),
    "a server was used twice": ("fresh-server", lambda one: replace(one, server="server of held-out-0-baseline-")),
    "two boots in one arm": ("fresh-server", lambda one: replace(one, boot="another", server="another")),
    "a response without fingerprint": ("fingerprint", other_fingerprint),
    "another configuration": ("fingerprint", lambda one: replace(one, configuration="c" * 64)),
    "another candidate": ("fingerprint", lambda one: replace(one, candidate="ngram-8")),
    "warm-up cut short": ("warm-up", lambda one: replace(one, warm_up_completed=1)),
    "the engine counted more": ("engine-tokens", lambda one: replace(one, engine_tokens=(one.engine_tokens or 0) + 5)),
    "the engine counted less": ("engine-tokens", lambda one: replace(one, engine_tokens=10)),
    "a neighbour": ("neighbours", lambda one: replace(one, neighbour_cpu_share=0.4)),
    "an unplanned trial": ("pairs", lambda one: replace(one, pair=9)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_makes_it_invalid(fault: str) -> None:
    name, plant = FAULTS[fault]
    trials = evidence()
    victim = first_of(trials)
    document = verdict(BRIEF, NOMINEE, [plant(one) if one is victim else one for one in trials])
    assert document["verdict"] == "INVALID"
    assert check(document, name)["ok"] is False
    assert document["sentence"].startswith("These measurements can't be judged: ")
    canonical(document)


def test_servers_that_ran_at_the_same_time_are_invalid() -> None:
    document = verdict(BRIEF, NOMINEE, changed(evidence(), lambda one: True, boot_stopped_ns=2**62))
    assert check(document, "fresh-server")["ok"] is False


def test_an_order_that_was_not_drawn_is_invalid() -> None:
    trials = changed(evidence(), lambda one: in_arm(one, "baseline"), boot_started_ns=S, boot_stopped_ns=2 * S)
    document = verdict(BRIEF, NOMINEE, trials)
    assert (document["verdict"], check(document, "arm-order")["number"]) == ("INVALID", 2)
    assert check(document, "fresh-server")["ok"] is True


def test_an_output_length_shown_outside_is_invalid_and_an_unclear_one_inconclusive() -> None:
    longer = verdict(BRIEF, NOMINEE, evidence(tokens=1.3))
    assert (longer["verdict"], check(longer, "output-length")["ok"]) == ("INVALID", False)
    assert check(longer, "output-length")["number"] == pytest.approx(0.3, abs=0.01)
    mixed = evidence()
    mixed = [one for one in mixed if not (in_arm(one, "candidate") and one.pair == 1)] + [
        one for one in evidence(tokens=1.3) if in_arm(one, "candidate") and one.pair == 1
    ]
    unclear = verdict(BRIEF, NOMINEE, mixed)
    assert (unclear["verdict"], check(unclear, "output-length")["ok"]) == ("INCONCLUSIVE", None)


def test_a_prefix_cache_advantage_is_invalid_unless_there_is_no_cache() -> None:
    document = verdict(BRIEF, NOMINEE, evidence(prefix_hits=6_000))
    assert (document["verdict"], check(document, "prefix-cache")["number"]) == ("INVALID", 0.4)
    without = a_brief(
        baseline=BRIEF.baseline.model_dump(mode="json", by_alias=True) | {"arguments": {"enable_prefix_caching": False}}
    )
    trials = evidence(without, prefix_hits=None)
    assert check(verdict(without, NOMINEE, trials), "prefix-cache")["ok"] is True


def test_a_pair_whose_prefix_cache_is_not_told_rules_out_a_pass() -> None:
    """Not one whose engine died, which is a result of its own."""
    silent = changed(evidence(), lambda one: in_arm(one, "candidate") and one.pair == 1, prefix_hits=None)
    document = verdict(BRIEF, NOMINEE, silent)
    assert (document["verdict"], check(document, "prefix-cache")["ok"]) == ("INCONCLUSIVE", None)
    assert check(document, "prefix-cache")["sentence"] == (
        "The prefix cache's hit rate is not known in 2 pairs of trials, first beside held-out trial "
        "held-out-1-candidate-ngram-4-quiet (candidate at quiet of pair 2)."
    )
    dead = [replace(one, died=True) if one.prefix_hits is None else one for one in silent]
    assert check(verdict(BRIEF, NOMINEE, dead), "prefix-cache")["ok"] is True


def test_the_first_rules_compared_no_classes() -> None:
    trials = evidence()
    victim = first_of(trials)
    document = verdict(BRIEF, NOMINEE, [other_class(one) if one is victim else one for one in trials], code=FIRST_CODE)
    assert check(document, "same-requests")["ok"] is True


def test_a_difference_between_baseline_and_baseline_is_invalid() -> None:
    slow = [
        failing(one, np.arange(REQUESTS) < 60, "timed_out") if in_arm(one, "control", "noise-floor") else one
        for one in evidence()
    ]
    document = verdict(BRIEF, NOMINEE, slow)
    assert (document["verdict"], check(document, "control")["ok"]) == ("INVALID", False)
    assert check(document, "control")["number"] < 0.01


def test_fewer_control_pairs_than_planned_are_inconclusive_and_surplus_ones_invalid() -> None:
    brief = a_brief(rule={"seed": SEED, "noise_floor_pairs": 6})
    trials = evidence(brief)
    assert verdict(brief, NOMINEE, trials)["verdict"] == "PASS"
    short = [one for one in trials if not (one.purpose == "noise-floor" and one.pair == 5)]
    document = verdict(brief, NOMINEE, short)
    found = check(document, "control")
    assert (document["verdict"], found["ok"], found["number"], found["limit"]) == ("INCONCLUSIVE", None, 5, 6)
    assert found["sentence"] == "5 of 6 planned A/A pairs are complete, at every level (missing: pair 6)."
    assert document["settles"] == [f"The rest of the planned A/A pairs: {found['sentence']}"]
    one_level = [one for one in trials if (one.purpose, one.pair, one.level) != ("noise-floor", 5, "quiet")]
    assert check(verdict(brief, NOMINEE, one_level), "control")["sentence"] == (
        "5 of 6 planned A/A pairs are complete, at every level (missing: the baseline at quiet of pair 6, the control "
        "at quiet of pair 6)."
    )
    few = [one for one in trials if not (one.purpose == "noise-floor" and (one.pair or 0) > 1)]
    assert check(verdict(brief, NOMINEE, few), "control")["sentence"] == (
        "Baseline against baseline has 2 complete pairs; it takes at least 4 (missing: pair 3, pair 4, pair 5, pair 6)."
    )
    surplus = [*evidence(), *(one for one in trials if one.purpose == "noise-floor" and (one.pair or 0) > 3)]
    document = verdict(BRIEF, NOMINEE, surplus)
    assert (document["verdict"], check(document, "control")["ok"]) == ("INVALID", False)
    assert check(document, "control")["sentence"] == (
        "Noise-floor trials that the brief didn't plan are among the evidence: pair 5."
    )
    assert check(verdict(BRIEF, NOMINEE, surplus, code=FIRST_CODE), "control")["ok"] is True


@pytest.mark.parametrize(
    ("name", "fields"), [("engine-tokens", {"engine_tokens": None}), ("neighbours", {"neighbour_cpu_share": None})]
)
def test_what_was_not_measured_rules_out_a_pass(name: str, fields: dict[str, Any]) -> None:
    document = verdict(BRIEF, NOMINEE, evidence(**fields))
    assert (document["verdict"], check(document, name)["ok"]) == ("INCONCLUSIVE", None)
    assert document["settles"] == [f"The missing figures: {check(document, name)['sentence']}"]


@pytest.mark.parametrize("told", [math.nan, -0.5, -math.inf])
def test_a_share_of_the_machine_that_cannot_be_one_is_not_quiet(told: float) -> None:
    trials = evidence()
    odd = [replace(one, neighbour_cpu_share=told) if one is first_of(trials) else one for one in trials]
    document = verdict(BRIEF, NOMINEE, odd)
    assert (document["verdict"], check(document, "neighbours")["ok"]) == ("INCONCLUSIVE", None)
    said = "Whether something else ran on the machine is not known for 1 of 32 trials."
    assert check(document, "neighbours")["sentence"] == said


def test_completed_responses_that_tell_no_tokens_leave_the_counter_open() -> None:
    """With them left out, any number of tokens would do."""
    trials = evidence()
    victim = first_of(trials)
    tokens = np.array(victim.columns["output_tokens"], copy=True)
    tokens[:2] = MISSING
    document = verdict(
        BRIEF, NOMINEE, [with_columns(one, output_tokens=tokens) if one is victim else one for one in trials]
    )
    found = check(document, "engine-tokens")
    assert (document["verdict"], found["ok"]) == ("INCONCLUSIVE", None)
    assert found["sentence"].startswith("2 completed responses told no number of tokens, first in ")
    assert document["settles"] == [f"The missing figures: {found['sentence']}"]


def with_rows_of(trials: list[TrialEvidence], pair: int, other: int, share: float) -> list[TrialEvidence]:
    """So many of a pair's requests, of both arms, are those of another pair."""
    there = {(one.arm, one.level): one for one in trials if one.purpose == "held-out" and one.pair == other}
    chosen = np.arange(REQUESTS) < share * REQUESTS
    return [
        with_columns(
            one,
            **{
                name: np.where(chosen, there[one.arm, one.level].columns[name], one.columns[name])
                for name in ("row", "prompt_sha256")
            },
        )
        if one.purpose == "held-out" and one.pair == pair
        else one
        for one in trials
    ]


def test_pairs_that_share_more_than_a_tenth_of_their_requests_are_invalid() -> None:
    document = verdict(BRIEF, NOMINEE, with_rows_of(evidence(), 2, 0, 0.2))
    found = check(document, "pairs")
    assert (document["verdict"], found["ok"], found["number"], found["limit"]) == ("INVALID", False, 0.2, 0.1)
    assert found["sentence"] == (
        "20.0 % of the requests of held-out pair 3 came in another pair too (limit 10.0 %), most of them in pair 1: "
        "each pair has its own."
    )
    assert verdict(BRIEF, NOMINEE, with_rows_of(evidence(), 2, 0, 0.05))["verdict"] == "PASS"
    assert check(verdict(BRIEF, NOMINEE, with_rows_of(evidence(), 2, 0, 0.2), code=FIRST_CODE), "pairs")["ok"] is True


@pytest.mark.parametrize("process", [{"process": "poisson", "rate": 0.5}, {"process": "replay"}])
def test_held_out_pairs_as_a_campaign_plans_them_share_nothing(process: dict[str, Any]) -> None:
    """On a part that is hardly long enough; the same prompt in every row."""
    levels = [{"name": name, "arrival": process, "duration_s": 40} for name in RATES]
    brief = a_brief(levels=levels)
    rows = [
        Row.model_validate(
            {"id": f"r{n}", "conversation": f"c{n}", "arrival_s": 2.0 * n, "class": "chat", "max_tokens": 8}
            | {"messages": [{"role": "user", "content": "And then?"}]}
        )
        for n in range(190)
    ]
    placed = plan_boots(
        "held-out",
        baseline="a",
        candidates={NOMINEE: "b"},
        rows=rows,
        levels=brief.levels,
        peak="peak",
        pairs=4,
        seed=5,
    )
    trials = [
        planned_trial(brief, boot.pair or 0, boot.arm, trial.level, trial.segment.rows)
        for boot in placed
        for trial in boot.trials
    ]
    assert len(trials) == 16
    assert shared_requests(trials) == []
    # Of pairs that do share, the same is said.
    moved = [replace(one, pair=3 - (one.pair or 0)) for one in trials]
    assert {one.share for one in shared_requests([*trials, *moved])} == {1.0}


def planned_trial(brief: Brief, pair: int, arm: str, level: str, rows: tuple[int, ...]) -> TrialEvidence:
    prompts = np.full(len(rows), "d" * 64, dtype=object)
    return with_columns(a_trial(brief, "held-out", pair, arm, level, 1.0, 0), row=np.array(rows), prompt_sha256=prompts)


def test_a_stop_string_lets_the_engine_count_more() -> None:
    trials = evidence()
    victim = first_of(trials)
    decode = np.array(victim.columns["server_decode_ms"], copy=True)
    decode[4] = np.nan
    stopped = replace(with_columns(victim, server_decode_ms=decode), engine_tokens=(victim.engine_tokens or 0) + 3)
    document = verdict(BRIEF, NOMINEE, [stopped if one is victim else one for one in trials])
    assert (document["verdict"], check(document, "engine-tokens")["ok"]) == ("PASS", True)


def test_simulated_evidence_can_pass_but_not_be_approved() -> None:
    document = verdict(BRIEF, NOMINEE, changed(evidence(), lambda one: one.pair == 0, evidence_class="simulated"))
    assert (document["verdict"], document["evidence_class"]) == ("PASS", "simulated")
    assert approval_refusal(document) == "The evidence is simulated: only measured evidence can carry an approval."


@pytest.mark.parametrize(
    ("outcome", "unit", "said"),
    [
        ({"metric": "completion_quantile", "quantile": 0.5}, "s", "brings completion p50 at peak to 1."),
        ({"metric": "output_tokens_per_s"}, "tokens/s", "breaks"),
    ],
)
def test_ratios(outcome: dict[str, Any], unit: str, said: str) -> None:
    rule = {"improve_in": [{"level": "peak"}], "minimum_improvement": 0.1, "non_inferiority_margin": 0.05}
    brief = a_brief(outcome=outcome | rule, guardrails=[])
    document = verdict(brief, NOMINEE, evidence(brief))
    peak = document["outcome"][0]
    assert (peak["unit"], peak["scale"]) == (unit, "ratio")
    if unit == "s":
        assert document["verdict"] == "PASS"
        assert said in document["sentence"]
        assert peak["required_text"] == "≤ −10.0 %"
        assert peak["high"] <= -0.1
        assert peak["difference"] == pytest.approx(FASTER - 1, abs=0.03)
    else:
        # an open loop that keeps up delivers the same tokens in both arms: shown too small, and not by a zero width
        assert document["verdict"] == "FAIL"
        assert abs(peak["difference"]) < 0.05
        assert peak["high"] > peak["low"]


def test_classes_are_reported_and_do_not_gate() -> None:
    document = verdict(BRIEF, NOMINEE, evidence())
    reported = [one for one in document["outcome"] if one["role"] == "reported"]
    assert {(one["level"], one["class"]) for one in reported} == {
        (level, class_) for level in RATES for class_ in ("chat", "rewrite")
    }
    assert {one["shown"] for one in reported} == {None}
    quiet = [one for one in document["levels"] if one["level"] == "quiet" and one["arm"] == "baseline"]
    assert [one["class"] for one in quiet] == ["all", "chat", "rewrite"]
    assert quiet[0]["planned"] == 960 == quiet[1]["planned"] + quiet[2]["planned"]


def test_from_six_pairs_on_the_sign_flip_test_must_agree() -> None:
    brief = a_brief(rule={"seed": SEED, "pairs": 6, "confidence": 0.99})
    document = verdict(brief, NOMINEE, evidence(brief, pairs=6))
    peak = row(document, "attainment:peak:all")
    # six pairs that all agree give 1/64, above 1 %, whatever the t bound says
    assert peak["low"] > 0.02
    assert (peak["p_holds"], peak["shown"]) == (1 / 64, "open")


def test_pairs_are_listed_as_they_ran() -> None:
    document = verdict(BRIEF, NOMINEE, evidence())
    assert [tuple(one["order"]) for one in document["pairs"]] == arm_orders(4, SEED)
    boots = [boot for one in document["pairs"] for boot in one["boots"]]
    assert len({one["server"] for one in boots}) == 8
    assert all(len(one["trials"]) == 2 for one in boots)


def test_an_unknown_nominee_is_refused() -> None:
    with pytest.raises(ValueError, match="not a candidate"):
        verdict(BRIEF, "eagle-9", [])


def test_columns_come_from_the_records_file() -> None:
    done = RequestRecord(
        *("r-0", 0, "chat", "peak", "d" * 64, 12, 0, 5, 10**9, 2 * 10**9, 2 * 10**9, 1.0, 2.0, 3.0),
        *("completed", "stop", 7, 4, None, None, None, None, "e" * 64, None, "f" * 64),
    )
    lost = replace(
        done,
        request_id="r-1",
        status="failed",
        sent_ns=None,
        first_token_ns=None,
        last_token_ns=None,
        output_tokens=None,
        server_decode_ms=None,
        fingerprint=None,
    )
    columns = columns_of(read_records(records_content([done, lost])))
    assert columns["sent_ns"].tolist() == [5, MISSING]
    assert columns["output_tokens"].tolist() == [7, MISSING]
    assert columns["rounds"].tolist() == [MISSING, MISSING]
    assert np.isnan(columns["server_decode_ms"]).tolist() == [False, True]
    assert columns["fingerprint"].tolist() == ["f" * 64, None]
    assert columns["row"].dtype == np.int64
    trial = replace(a_trial(BRIEF, "held-out", 0, "baseline", "peak", 1.0, 0), columns=columns)
    assert within(trial, BRIEF).tolist() == [True, False]


@given(st.lists(st.lists(st.none() | st.sampled_from(["", "a", "b", "é"]), max_size=5)), st.integers(0, 3))
def test_digests_are_the_bytes_of_what_a_file_holds(chunks: list[list[str | None]], without: int) -> None:
    """However the column is laid out, and whatever it was filled with: of one width as a rule."""
    column = pa.chunked_array([pa.array(one, pa.string()) for one in chunks], pa.string()).slice(without)
    assert digests_of(column).tolist() == [(one or "").encode() for one in column.to_pylist()]


@given(st.lists(st.booleans(), max_size=8))
def test_the_window_is_what_is_no_warm_up(warm: list[bool]) -> None:
    """As a rule the warm-up comes first in a file."""
    for one in (warm, sorted(warm, reverse=True)):
        columns = {"row": np.arange(len(one)), "warm_up": np.array(one, dtype=bool)}
        window, before = window_and_warm_up(columns)
        assert window["row"].tolist() == [place for place, told in enumerate(one) if not told]
        assert before["row"].tolist() == [place for place, told in enumerate(one) if told]


def tuning(brief: Brief, speeds: dict[str, float], rounds: int = 2) -> list[TrialEvidence]:
    """Rounds of baseline and every candidate, all on the same stretch of tuning traffic within a round."""
    trials = []
    for pair in range(rounds):
        for place, (name, speed) in enumerate([("baseline", 1.0), *speeds.items()]):
            for level in RATES:
                arm, candidate = ("baseline", None) if name == "baseline" else ("candidate", name)
                start = (10 * pair + place) * 400 * S
                trials.append(a_trial(brief, "tuning", pair, arm, level, speed, start, candidate=candidate))
    return trials


def floor(brief: Brief = BRIEF) -> list[TrialEvidence]:
    return [one for one in evidence(brief) if one.purpose == "noise-floor"]


def test_the_best_in_the_improve_cells_is_nominated() -> None:
    found = nominate(BRIEF, floor() + tuning(BRIEF, {"ngram-2": 0.95, "ngram-4": 0.7, "ngram-8": 0.9}))
    assert found.candidate == "ngram-4"
    assert found.reason.startswith("ngram-4 did best in the cells that must improve (+")
    assert found.reason.endswith(
        "Tuning is exploratory: the best score of many is too good, and only held-out traffic decides."
    )
    assert [(one["candidate"], one["draft_length"], one["level"], one["improves"]) for one in found.rows] == [
        (f"ngram-{k}", k, level, level == "peak") for k in (2, 4, 8) for level in ("peak", "quiet")
    ]
    assert all(one["boots"] == 2 and one["value"] > one["baseline"] for one in found.rows if one["improves"])
    canonical(found.document)


def test_a_tie_within_the_noise_goes_to_the_smaller_draft_length() -> None:
    trials = tuning(BRIEF, {"ngram-2": 0.73, "ngram-4": 0.7, "ngram-8": 0.9})
    found = nominate(BRIEF, floor() + trials)
    assert found.candidate == "ngram-2"
    assert "is within the noise of the best, ngram-4" in found.reason
    assert nominate(BRIEF, trials).candidate == "ngram-4"


def test_nobody_is_nominated_where_nobody_is_better() -> None:
    trials = floor() + tuning(BRIEF, {"ngram-2": 1.05, "ngram-4": 1.2, "ngram-8": 1.5})
    found = nominate(BRIEF, trials)
    assert found.candidate is None
    assert "ngram-2 came closest (−" in found.reason
    document = verdict(BRIEF, None, trials)
    assert document["verdict"] == "FAIL"
    assert document["configuration"] == BRIEF.baseline.digest
    assert document["sentence"].startswith(
        "No candidate did better than no speculation, so leave speculation off: the best of 3 candidates, ngram K=2, "
    )
    assert document["sentence"].endswith("over 2 boots of tuning traffic; no held-out traffic was used.")


def test_a_verdict_on_nobody_still_needs_valid_trials() -> None:
    trials = changed(tuning(BRIEF, {"ngram-2": 1.1}), lambda one: one.arm == "baseline", neighbour_cpu_share=0.9)
    assert verdict(BRIEF, None, trials)["verdict"] == "INVALID"


def test_a_candidate_that_dies_is_not_nominated() -> None:
    trials = [
        replace(failing(one, slice(None)), died=True) if one.candidate == "ngram-4" else one
        for one in tuning(BRIEF, {"ngram-2": 0.9, "ngram-4": 0.5})
    ]
    assert nominate(BRIEF, trials).candidate == "ngram-2"
    latency = {"metric": "completion_quantile", "quantile": 0.5} | {
        "improve_in": [{"level": "peak"}],
        "minimum_improvement": 0.1,
        "non_inferiority_margin": 0.05,
    }
    brief = a_brief(outcome=latency, guardrails=[])
    found = nominate(brief, trials)
    assert found.candidate == "ngram-2"
    canonical(found.document)


def test_no_tuning_trial_no_nominee() -> None:
    assert nominate(BRIEF, []).candidate is None


def where_it_must_improve(*cells: dict[str, str], metric: str, share: float | None) -> dict[str, Any]:
    return {
        "metric": metric,
        "quantile": share,
        "improve_in": list(cells),
        "minimum_improvement": 0.05,
        "non_inferiority_margin": 0.05,
    }


OUTCOMES = [
    where_it_must_improve({"level": "peak"}, {"level": "quiet", "class": "chat"}, metric="attainment", share=None),
    where_it_must_improve({"level": "peak", "class": "rewrite"}, metric="completion_quantile", share=0.99),
    where_it_must_improve({"level": "quiet"}, metric="output_tokens_per_s", share=None),
    where_it_must_improve({"level": "peak"}, {"level": "quiet", "class": "chat"}, metric="slo_goodput", share=None),
]
ENDS = ["failed", "timed_out", "refused", "cancelled"]


@settings(max_examples=12, deadline=None)
@given(
    outcome=st.sampled_from(OUTCOMES),
    kept=st.sets(st.integers(0, 31), max_size=32),
    hit=st.dictionaries(st.integers(0, 31), st.sampled_from(ENDS)),
    nominee=st.sampled_from(["ngram-2", "ngram-4", None]),
)
def test_whatever_is_missing_or_failed_there_is_a_verdict_with_a_sentence(
    outcome: dict[str, Any], kept: set[int], hit: dict[int, str], nominee: str | None
) -> None:
    brief = a_brief(outcome=outcome)
    trials = [
        failing(one, np.arange(REQUESTS) % 3 > 0 if place % 2 else slice(None), hit[place]) if place in hit else one
        for place, one in enumerate(evidence(brief))
        if place in kept
    ]
    document = verdict(brief, nominee, trials)
    assert document["verdict"] in ("FAIL", "INCONCLUSIVE", "INVALID")
    assert document["sentence"].endswith(".")
    assert bool(document["settles"]) == (document["verdict"] == "INCONCLUSIVE")
    canonical(document)
    canonical(nominate(brief, trials).document)
