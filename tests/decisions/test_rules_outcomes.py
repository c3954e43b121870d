"""What the second version of the rules added: outcomes, guardrails, planned looks; and what no version may allow."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decisions.pages.rows import RequirementRow, requirement_row
from decisions.rules.behaviour import Behaviour
from decisions.rules.brief import BadBrief, Brief
from decisions.rules.evidence import TrialEvidence
from decisions.rules.nomination import nominate
from decisions.rules.verdict import verdict
from decisions.templatetags.draftproof import guardrail_sentence, outcome_sentence
from loadtests.canonical import canonical
from tests.support.judged import (
    BRIEF,
    GUARDRAILS,
    NOMINEE,
    REQUESTS,
    SEED,
    S,
    a_brief,
    changed,
    check,
    evidence,
    failing,
    in_arm,
    row,
    with_columns,
)

PEAK = {"level": "peak"}


def an_outcome(metric: str, **more: Any) -> dict[str, Any]:
    return {
        "metric": metric,
        "improve_in": [PEAK],
        "minimum_improvement": 0.02,
        "non_inferiority_margin": 0.02,
    } | more


def test_slo_goodput_is_requests_within_deadline_per_second_as_a_ratio() -> None:
    brief = a_brief(outcome=an_outcome("slo_goodput"), guardrails=[])
    document = verdict(brief, NOMINEE, evidence(brief))
    assert document["verdict"] == "PASS", document["sentence"]
    found = row(document, "slo_goodput:peak:all")
    attained = [one for one in document["levels"] if (one["level"], one["class"]) == ("peak", "all")]
    baseline, candidate = (next(one for one in attained if one["arm"] == arm) for arm in ("baseline", "candidate"))
    # 240 requests in a window of 120 s
    assert baseline["slo_goodput_per_s"] == pytest.approx(2 * baseline["attainment"])
    assert found["difference"] == pytest.approx(candidate["attainment"] / baseline["attainment"] - 1, abs=2e-3)
    assert (found["unit"], found["scale"]) == ("requests/s", "ratio")
    assert "requests/s within their deadline at peak, against" in document["sentence"]


def test_equal_goodput_in_every_pair_has_the_width_of_its_requests() -> None:
    brief = a_brief(outcome=an_outcome("slo_goodput"), guardrails=[])
    same = [
        with_columns(one, last_token_ns=one.columns["planned_ns"] + S, first_token_ns=one.columns["planned_ns"] + 1)
        for one in evidence(brief)
    ]
    found = row(verdict(brief, NOMINEE, same), "slo_goodput:peak:all")
    assert found["difference"] == 0
    assert found["low"] < 0 < found["high"]


RUNGS = ("quiet", "peak", "rush")
RUNG_RATES = {"quiet": 1.0, "peak": 2.0, "rush": 4.0}


def ladder_brief(**more: Any) -> Brief:
    levels = [
        {"name": name, "arrival": {"process": "poisson", "rate": rate}, "duration_s": 120}
        for name, rate in RUNG_RATES.items()
    ]
    fields = {
        "levels": levels,
        "outcome": an_outcome("capacity", minimum_improvement=0.5, non_inferiority_margin=0.05),
        "capacity": {"levels": list(RUNGS), "target": 0.9},
        "guardrails": [],
    }
    return a_brief(**fields | more)


def at_ladder(brief: Brief, late: dict[str, dict[str, float]]) -> list[TrialEvidence]:
    """Every trial at every rung, with a share of late requests by arm and rung; the noise floor's arms are the
    baseline."""
    trials = []
    for one in evidence(brief):
        for level in RUNGS if one.level == "quiet" else ():
            share = late["candidate" if one.arm == "candidate" else "baseline"].get(level, 0.0)
            last = one.columns["planned_ns"] + np.where(np.arange(REQUESTS) < share * REQUESTS, 100 * S, S)
            found = with_columns(one, last_token_ns=last, ended_ns=last, first_token_ns=one.columns["planned_ns"] + 1)
            trials.append(replace(found, level=level, trial=f"{one.boot}-{level}"))
    return trials


FASTER = {"baseline": {"peak": 0.3, "rush": 0.8}, "candidate": {"rush": 0.02}}


def test_capacity_is_the_rate_shown_to_hold_against_the_one_shown_not_to() -> None:
    brief = ladder_brief()
    document = verdict(brief, NOMINEE, at_ladder(brief, FASTER))
    assert document["verdict"] == "PASS", (document["sentence"], document["settles"])
    assert {one["arm"]: (one["shown"], one["censored"], one["above"]) for one in document["capacity"]} == {
        "baseline": (1.0, False, 2.0),
        "candidate": (4.0, True, None),
    }
    found = row(document, "capacity:peak:all")
    # At least 4/s against less than 2/s.
    assert (found["low"], found["high"], found["difference"]) == (1.0, None, 3.0)
    assert document["sentence"].startswith(
        "On held-out traffic ngram K=4 is shown to carry 4.0 requests/s, against 1.0 requests/s with speculation "
    )
    # The peak is 2 requests/s.
    assert [one["replicas_at_peak"] for one in document["capacity"]] == [2, 1]
    assert document["capacity"][0]["sentence"] == (
        "The baseline is shown to carry 1.0 requests/s, and 2.0 requests/s isn't shown; "
        "the peak takes 2 replicas of it."
    )
    canonical(document)


def test_a_capacity_shown_too_small_fails_and_one_that_is_open_says_which_rungs() -> None:
    brief = ladder_brief()
    slower = {"baseline": {"rush": 0.02}, "candidate": {"peak": 0.3, "rush": 0.8}}
    document = verdict(brief, NOMINEE, at_ladder(brief, slower))
    assert (document["verdict"], document["broken"][0]) == ("FAIL", "capacity:peak:all")
    both: dict[str, dict[str, float]] = {"baseline": {}, "candidate": {}}
    unbounded = verdict(brief, NOMINEE, at_ladder(brief, both))
    assert unbounded["verdict"] == "INCONCLUSIVE"
    assert unbounded["settles"] == [
        "Higher rungs: the baseline wasn't shown to fail at any, so what it carries has no upper bound."
    ]
    close = {"baseline": {"rush": 0.8}, "candidate": {"rush": 0.05}}
    assert verdict(brief, NOMINEE, at_ladder(brief, close))["verdict"] == "INCONCLUSIVE"


def test_a_rung_without_trials_ends_the_ladder() -> None:
    brief = ladder_brief()
    trials = [one for one in at_ladder(brief, FASTER) if one.level != "peak"]
    document = verdict(brief, NOMINEE, trials)
    assert document["verdict"] == "INCONCLUSIVE"
    assert {one["arm"]: one["shown"] for one in document["capacity"]} == {"baseline": 1.0, "candidate": 1.0}


def test_a_nomination_for_capacity_goes_by_attainment_at_the_peak() -> None:
    assert nominate(ladder_brief(), []).candidate is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"capacity": None}, "the outcome is capacity, which needs a ladder: name its levels and target in capacity"),
        (
            {"outcome": an_outcome("capacity", improve_in=[{"level": "rush"}])},
            "capacity improves on the ladder as a whole: improve_in names the peak alone (level peak, class all)",
        ),
        (
            {"capacity": {"levels": ["quiet", "lunch"], "target": 0.9}},
            "capacity: level 'lunch' is not among the levels",
        ),
        (
            {"capacity": {"levels": ["quiet", "quiet"], "target": 0.9}},
            "capacity: level 'quiet' has the rate of another one, or is named twice",
        ),
    ],
)
def test_ladders_that_cannot_be_climbed(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadBrief) as refusal:
        ladder_brief(**fields)
    assert refusal.value.problems == [f"brief: {problem}"]


def a_rail(metric: str, kind: str = "relative", **more: Any) -> dict[str, Any]:
    return {"id": "rail", "metric": metric, "kind": kind, "cell": PEAK, "limit": 0.05} | more


def with_preemptions(trials: list[TrialEvidence], baseline: int | None, candidate: int | None) -> list[TrialEvidence]:
    return [replace(one, preemptions=candidate if in_arm(one, "candidate") else baseline) for one in trials]


@pytest.mark.parametrize(
    ("baseline", "candidate", "shown"), [(2, 3, "shown"), (0, 0, "shown"), (0, 80, "broken"), (0, None, "open")]
)
def test_preemptions_per_request_against_the_baseline(baseline: int, candidate: int | None, shown: str) -> None:
    brief = a_brief(guardrails=[a_rail("preemptions")])
    document = verdict(brief, NOMINEE, with_preemptions(evidence(brief), baseline, candidate))
    found = row(document, "rail")
    assert found["shown"] == shown
    if candidate is not None:
        assert found["difference"] == pytest.approx((candidate - baseline) / REQUESTS)
        assert found["low"] < found["difference"] < found["high"]


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_pairs_whose_engine_does_not_tell_its_preemptions_leave_the_guardrail_open(arm: str) -> None:
    """An engine that died in two of four pairs must not be judged by the two in which it lived."""
    brief = a_brief(guardrails=[a_rail("preemptions")])
    trials = with_preemptions(evidence(brief), 2, 2)
    assert verdict(brief, NOMINEE, trials)["verdict"] == "PASS"
    untold = changed(trials, lambda one: in_arm(one, arm) and one.pair in (1, 3), preemptions=None)
    document = verdict(brief, NOMINEE, untold)
    found = row(document, "rail")
    assert (document["verdict"], found["shown"], found["p_broken"]) == ("INCONCLUSIVE", "open", 1.0)
    assert document["settles"] == [
        "The engine's own figure of preemptions per request at peak in every pair: pairs 2, 4 don't tell it in both "
        "arms."
    ]


def test_one_pair_that_does_not_tell_hides_no_broken_guardrail_as_shown() -> None:
    brief = a_brief(guardrails=[a_rail("preemptions")])
    trials = with_preemptions(evidence(brief), 0, 80)
    untold = changed(trials, lambda one: in_arm(one, "candidate") and one.pair == 0, preemptions=None)
    document = verdict(brief, NOMINEE, untold)
    assert (document["verdict"], row(document, "rail")["shown"]) == ("INCONCLUSIVE", "open")
    assert any("pair 1 doesn't tell it" in one for one in document["settles"])


def given_up(one: TrialEvidence, share: float) -> TrialEvidence:
    which = np.arange(REQUESTS) < share * REQUESTS
    found = failing(one, which, "cancelled")
    give_up = np.where(which, found.columns["planned_ns"] + S, -1)
    return with_columns(found, give_up_ns=give_up, ended_ns=np.where(which, give_up, found.columns["ended_ns"]))


@pytest.mark.parametrize(("kind", "share", "shown"), [("absolute", 0.2, "broken"), ("absolute", 0.0, "shown")])
def test_requests_that_their_users_gave_up(kind: str, share: float, shown: str) -> None:
    brief = a_brief(guardrails=[a_rail("cancelled_share", kind), a_rail("failed_share", "absolute", id="failed")])
    trials = [given_up(one, share) if in_arm(one, "candidate") else one for one in evidence(brief)]
    document = verdict(brief, NOMINEE, trials)
    assert row(document, "rail")["shown"] == shown
    assert row(document, "rail")["candidate"] == pytest.approx(share)
    # The plan wanted it: it is no failure.
    assert row(document, "failed")["shown"] == "shown"


BEHAVIOUR = a_rail("behaviour", "absolute", id="same-output", limit=0)


@pytest.mark.parametrize(
    ("found", "shown", "result"),
    [
        (None, "open", "INCONCLUSIVE"),
        (Behaviour("held", 40, (), "All held.", "e" * 64), "shown", "PASS"),
        (Behaviour("held", 0, (), "All held.", "e" * 64), "open", "INCONCLUSIVE"),
        (Behaviour("not_exercised", 40, (), "Nothing is shown.", "e" * 64), "open", "INCONCLUSIVE"),
        (Behaviour("cannot_tell", 12, (), "It can't be told.", "e" * 64), "open", "INCONCLUSIVE"),
        (Behaviour("failed", 0, (), "The baseline died.", "e" * 64), "open", "INCONCLUSIVE"),
        (Behaviour("broken", 40, ("stop-strings", "min-tokens"), "2 broke.", "e" * 64), "broken", "FAIL"),
    ],
)
def test_preserved_behaviour_as_a_guardrail(found: Behaviour | None, shown: str, result: str) -> None:
    brief = a_brief(guardrails=[*GUARDRAILS, BEHAVIOUR])
    document = verdict(brief, NOMINEE, evidence(brief), behaviour=found)
    assert (document["verdict"], row(document, "same-output")["shown"]) == (result, shown)
    assert document["limits"] == []
    if shown == "broken":
        assert document["sentence"] == (
            "On held-out traffic ngram K=4 breaks guardrail same-output: the output differs from the baseline's in "
            "2 of 40 cases, stop-strings and min-tokens (limit no case broken): leave speculation off."
        )
    canonical(document)


def test_a_candidate_that_died_under_the_suite_is_a_break_without_a_case() -> None:
    brief = a_brief(guardrails=[*GUARDRAILS, BEHAVIOUR])
    died = Behaviour("broken", 12, (), "The candidate stopped answering: it can't be reached any more.", "e" * 64)
    document = verdict(brief, NOMINEE, evidence(brief), behaviour=died)
    assert document["verdict"] == "FAIL"
    assert "breaks guardrail same-output: the output is not preserved: The candidate stopped" in document["sentence"]


def test_a_look_on_the_way_decides_without_the_suite_which_runs_afterwards() -> None:
    brief = a_brief(guardrails=[*GUARDRAILS, BEHAVIOUR])
    look = verdict(brief, NOMINEE, evidence(brief), suite_to_come=True)
    assert (look["verdict"], look["brief"]) == ("PASS", brief.digest)
    assert "same-output" not in {one["id"] for one in look["guardrails"]}
    assert verdict(brief, NOMINEE, evidence(brief))["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("rail", "problem"),
    [
        (
            a_rail("behaviour", "absolute"),
            "guardrail rail: behaviour is absolute, with the limit 0: no case may be broken",
        ),
        (a_rail("preemptions", "absolute"), "guardrail rail: preemptions is relative to the baseline"),
        (
            a_rail("preemptions", cell=PEAK | {"class": "chat"}),
            "guardrail rail: preemptions is the whole engine's: leave its class out",
        ),
    ],
)
def test_guardrails_that_make_no_sense(rail: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadBrief) as refusal:
        a_brief(guardrails=[rail])
    assert refusal.value.problems == [f"guardrails.0: {problem}"]


def looks_brief() -> Brief:
    interim = [{"pairs": 4, "alpha": 0.01}, {"pairs": 6, "alpha": 0.015}]
    return a_brief(rule={"seed": SEED, "pairs": 8, "looks": 3, "interim": interim}, guardrails=[])


@pytest.mark.parametrize(
    ("pairs", "look"),
    [
        (4, {"number": 1, "of": 3, "pairs": 4, "alpha": 0.01}),
        (6, {"number": 2, "of": 3, "pairs": 6, "alpha": 0.015}),
        (8, {"number": 3, "of": 3, "pairs": 8, "alpha": 0.025}),
    ],
)
def test_a_planned_look_has_its_own_share_of_alpha(pairs: int, look: dict[str, Any]) -> None:
    brief = looks_brief()
    document = verdict(brief, NOMINEE, evidence(brief, pairs=pairs))
    assert document["look"] == look
    assert check(document, "pairs")["ok"] is True
    assert row(document, "attainment:peak:all")["interval_confidence"] == pytest.approx(1 - 2 * look["alpha"])
    assert document["confidence"] == 0.95
    # What all pairs can show at the last look, not at this one.
    assert document["noise_floor"]["pairs_planned"] == 8


def test_between_two_looks_nothing_passes_and_the_next_one_is_named() -> None:
    brief = looks_brief()
    early = verdict(brief, NOMINEE, without_pairs(evidence(brief, pairs=4), 3))
    assert (early["verdict"], early["look"]["number"]) == ("INCONCLUSIVE", 1)
    assert early["settles"][0] == (
        "The rest of the planned pairs: 3 of 4 planned pairs are complete, at every level (missing: pair 4)."
    )
    open_yet = verdict(brief, NOMINEE, evidence(brief, pairs=4, speed=0.93))
    assert open_yet["verdict"] == "INCONCLUSIVE"
    assert open_yet["settles"][0] == "The next planned look, after 6 pairs."


@pytest.mark.parametrize("kept", [2, 3])
@pytest.mark.parametrize("rule", [{"seed": SEED}, None])
def test_before_the_first_planned_look_nothing_fails_either(kept: int, rule: dict[str, Any] | None) -> None:
    """Whoever looks after each pair would see many a candidate fail once."""
    brief = looks_brief() if rule is None else a_brief(rule=rule, guardrails=[])
    whole = evidence(brief, pairs=4, speed=1.6)
    early = verdict(brief, NOMINEE, without_pairs(whole, *range(kept, 4)))
    missing = ", ".join(f"pair {pair}" for pair in range(kept + 1, 5))
    assert (early["verdict"], early["settles"][0]) == (
        "INCONCLUSIVE",
        f"The rest of the planned pairs: {kept} of 4 planned pairs are complete, at every level (missing: {missing}).",
    )
    assert early["settles"][0][1:] in early["sentence"]
    assert verdict(brief, NOMINEE, whole)["verdict"] == "FAIL"


def without_pairs(trials: list[TrialEvidence], *pairs: int) -> list[TrialEvidence]:
    return [one for one in trials if one.purpose != "held-out" or one.pair not in pairs]


@pytest.mark.parametrize(("missing", "judged"), [((5, 6, 7), 4), ((7,), 6), ((4,), 4), ((0,), 4)])
@pytest.mark.parametrize("speed", [0.5, 0.93, 1.4])
def test_between_two_looks_the_last_one_reached_is_judged_on_its_own_first_pairs(
    missing: tuple[int, ...], judged: int, speed: float
) -> None:
    """At 1.4 the candidate is slower: a FAIL comes no earlier than the look that it is planned for, and no PASS."""
    brief = looks_brief()
    whole = evidence(brief, pairs=8, speed=speed)
    between = verdict(brief, NOMINEE, without_pairs(whole, *missing))
    assert between["look"]["pairs"] == judged
    assert between["look"]["alpha"] == {4: 0.01, 6: 0.015}[judged]
    own = without_pairs(whole, *missing, *range(judged, 8))
    assert canonical(between) == canonical(verdict(brief, NOMINEE, own))


def test_a_pair_begun_for_a_later_look_is_in_no_number() -> None:
    brief = looks_brief()
    whole = evidence(brief, pairs=6)
    begun = [one for one in whole if one.pair != 5 and not (one.pair == 4 and in_arm(one, "candidate"))]
    four = [one for one in whole if one.purpose != "held-out" or (one.pair or 0) < 4]
    assert canonical(verdict(brief, NOMINEE, begun)) == canonical(verdict(brief, NOMINEE, four))


def test_a_brief_with_one_look_is_written_as_before() -> None:
    assert "interim" not in BRIEF.model_dump(mode="json")["rule"]
    assert "capacity" not in BRIEF.model_dump(mode="json")


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"looks": 2}, "looks is 2, but interim plans 0 before the last one"),
        (
            {"looks": 2, "pairs": 8, "interim": [{"pairs": 8, "alpha": 0.01}]},
            "each look comes after more pairs than the one before, and the last after all of them",
        ),
        (
            {"looks": 2, "pairs": 8, "interim": [{"pairs": 4, "alpha": 0.06}]},
            "the looks on the way spend 0.06 of alpha 0.05: each needs some, the last too",
        ),
        (
            {"looks": 2, "pairs": 6, "interim": [{"pairs": 4, "alpha": 0.05}]},
            "the looks on the way spend 0.05 of alpha 0.05: each needs some, the last too, 0.000001 at least",
        ),
        (
            {"looks": 2, "pairs": 8, "interim": [{"pairs": 5, "alpha": 0.01}]},
            "a look comes after an even number of pairs",
        ),
    ],
)
def test_looks_that_cannot_be_planned(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadBrief) as refusal:
        a_brief(rule={"seed": SEED} | rule)
    assert refusal.value.problems[0].startswith(f"rule: {problem}")


Which = list[tuple[int, int]]
late_requests = st.lists(st.tuples(st.integers(0, 3), st.integers(0, REQUESTS - 1)), min_size=1, max_size=400)


def made_late(trials: list[TrialEvidence], which: Which) -> list[TrialEvidence]:
    """Some of the candidate's requests at peak end long after their deadline."""
    found = []
    for one in trials:
        places = [
            place for pair, place in which if (pair, one.level) == (one.pair, "peak") and in_arm(one, "candidate")
        ]
        last = one.columns["last_token_ns"].copy()
        last[places] = one.columns["planned_ns"][places] + 90 * S
        found.append(with_columns(one, last_token_ns=last))
    return found


LIMITS = [
    {"id": "p90", "metric": "completion_quantile", "kind": "absolute", "cell": PEAK, "limit": 5, "quantile": 0.9},
    {"id": "late", "metric": "late_share", "kind": "absolute", "cell": PEAK, "limit": 0.05},
]


@settings(max_examples=12, deadline=None)
@given(late_requests, st.sampled_from([0.7, 0.9, 1.3]))
def test_more_late_candidate_requests_never_help(which: Which, speed: float) -> None:
    brief = a_brief(guardrails=LIMITS)
    trials = evidence(brief, speed=speed)
    before, after = (verdict(brief, NOMINEE, one) for one in (trials, made_late(trials, which)))
    calm, worse = (row(one, "attainment:peak:all") for one in (before, after))
    assert worse["candidate"] <= calm["candidate"]
    assert worse["difference"] <= calm["difference"]
    for name in ("p90", "late"):
        one, other = row(before, name), row(after, name)
        assert other["over"] >= one["over"]
        assert other["high_over_requests"] >= one["high_over_requests"]
        if one["shown"] != "shown":
            assert other["shown"] != "shown"


def without(trial: TrialEvidence, gone: Any, *, told: bool) -> TrialEvidence:
    """Records left out; ``told``: of what was planned as well."""
    columns = {name: one[~gone] for name, one in trial.columns.items()}
    return replace(trial, columns=columns, planned=len(columns["row"]) if told else trial.planned)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("status", ["failed", "timed_out", "cancelled", "not_sent", "refused"])
def test_failed_requests_cannot_be_dropped(status: str, told: bool) -> None:
    dropped: Callable[[TrialEvidence], TrialEvidence] = lambda one: without(  # noqa: E731
        failing(one, np.arange(REQUESTS) % 9 == 0, status), np.arange(REQUESTS) % 9 == 0, told=told
    )
    trials = [dropped(one) if in_arm(one, "candidate") and one.level == "peak" else one for one in evidence()]
    document = verdict(BRIEF, NOMINEE, trials)
    assert document["verdict"] == "INVALID"
    assert check(document, "same-requests" if told else "issued")["ok"] is False


def test_trials_are_shown_by_themselves_with_intervals_within_them() -> None:
    document = verdict(BRIEF, NOMINEE, evidence())
    assert len(document["trials"]) == 16
    for one in document["trials"]:
        low, high = one["attainment_interval"]
        assert low <= one["attainment"] <= high
        assert one["completion_p50_interval_s"][0] <= one["completion_p50_s"] <= one["completion_p50_interval_s"][1]


def shown_rows(document: dict[str, Any]) -> dict[str, RequirementRow]:
    return {one["id"]: requirement_row(one) for one in [*document["outcome"], *document["guardrails"]]}


def test_pages_can_show_what_is_new() -> None:
    ladder = ladder_brief(guardrails=[BEHAVIOUR, a_rail("preemptions")])
    trials = with_preemptions(at_ladder(ladder, FASTER), 0, 12)
    broken = Behaviour("broken", 40, ("stop-strings", "min-tokens"), "2 broke.", "e" * 64)
    rows = shown_rows(json.loads(canonical(verdict(ladder, NOMINEE, trials, behaviour=broken))))
    capacity, behaviour, preempted = (rows[one] for one in ("capacity:peak:all", "same-output", "rail"))
    assert (capacity.baseline, capacity.candidate, capacity.difference) == (
        "1.0 requests/s",
        "4.0 requests/s",
        "+300.0 %",
    )
    assert (capacity.interval, capacity.limit) == ("+100.0 % or more", "≥ +50.0 %")
    assert capacity.picture is not None
    assert capacity.picture.open_right
    assert (behaviour.candidate, behaviour.difference, behaviour.shown) == ("2 cases", "2 of 40", "broken")
    assert (preempted.difference, preempted.limit) == ("+5.0 points", "≤ +5.0 points")
    open_yet = verdict(ladder, NOMINEE, at_ladder(ladder, {"baseline": {}, "candidate": {}}))
    assert shown_rows(json.loads(canonical(open_yet)))["same-output"].candidate == "not known"


@pytest.mark.parametrize(
    ("brief", "said"),
    [
        (
            ladder_brief(),
            "Capacity (the rate that the ladder shows an arm to carry) must be better by at least 50 % of the "
            "baseline's, and attainment nowhere worse by more than 5 points.",
        ),
        (
            a_brief(outcome=an_outcome("slo_goodput")),
            "SLO goodput (requests within deadline per second) must be better by at least 2 % of the baseline at peak, "
            "and nowhere else worse by more than 2 %.",
        ),
    ],
)
def test_outcomes_in_words(brief: Brief, said: str) -> None:
    assert outcome_sentence(brief.outcome) == said


def test_guardrails_in_words() -> None:
    rails = [
        BEHAVIOUR,
        a_rail("preemptions"),
        a_rail("cancelled_share", id="a"),
        a_rail("cancelled_share", "absolute", id="b"),
        a_rail("failed_share", "absolute", id="c"),
        a_rail("late_share", id="d", limit=0.01),
    ]
    assert [guardrail_sentence(one) for one in a_brief(guardrails=rails).guardrails] == [
        "Preserved behaviour: no case of the suite broken",
        "Preemptions per request at peak: at most 5 points above the baseline",
        "Given up by their users at peak: at most 5 points above the baseline",
        "Given up by their users at peak: at most 5 %",
        "Failed (timed-out not counted) at peak: at most 5 %",
        "Not within deadline at peak: at most 1 point above the baseline",
    ]


@settings(max_examples=12, deadline=None)
@given(
    kept=st.sets(st.integers(0, 47), max_size=48),
    hit=st.dictionaries(st.integers(0, 47), st.sampled_from(["failed", "timed_out", "cancelled"])),
    preempted=st.dictionaries(st.integers(0, 47), st.none() | st.integers(0, 500)),
    interim=st.booleans(),
)
def test_whatever_is_missing_there_is_a_verdict_on_a_ladder(
    kept: set[int], hit: dict[int, str], preempted: dict[int, int | None], interim: bool
) -> None:
    looks = {"pairs": 6, "looks": 2, "interim": [{"pairs": 4, "alpha": 0.02}]} if interim else {}
    rails = [BEHAVIOUR, a_rail("preemptions"), a_rail("cancelled_share", id="given-up")]
    brief = ladder_brief(guardrails=rails, rule={"seed": SEED} | looks)
    trials = [
        replace(failing(one, slice(None), hit[place]) if place in hit else one, preemptions=preempted.get(place, 0))
        for place, one in enumerate(at_ladder(brief, FASTER))
        if place in kept
    ]
    document = verdict(brief, NOMINEE, trials)
    assert document["verdict"] in ("FAIL", "INCONCLUSIVE", "INVALID")
    assert document["sentence"].endswith(".")
    assert bool(document["settles"]) == (document["verdict"] == "INCONCLUSIVE")
    canonical(document)
    canonical(nominate(brief, trials).document)
