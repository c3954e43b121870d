"""A load that neither arm carries, or both carry with ease, is named as what it is."""

from typing import Any

import pytest

from decisions.rules.brief import Brief
from decisions.rules.saturation import baseline_saturated, saturated, saturated_before, saturated_cells
from decisions.rules.verdict import FIRST_CODE, verdict
from tests.support.judged import NOMINEE, a_brief, evidence, row

FLOOR = (
    "At peak neither arm carries the load, so this level can't tell them apart: choose a lighter load or longer "
    "deadlines, at which the baseline serves some requests in time and others late."
)
CEILING = (
    "At peak both arms carry the load with hardly a request late, so this level can't tell them apart: choose a "
    "heavier load or shorter deadlines, at which the baseline serves some requests in time and others late."
)
OUT_OF_REACH, EASY = 0.001, 1000


def brief_with(deadline_s: float, **changes: Any) -> Brief:
    deadlines = {"default": {"first_token_s": deadline_s, "completion_s": deadline_s}}
    return a_brief(deadlines=deadlines, **changes)


GOODPUT = {
    "metric": "slo_goodput",
    "improve_in": [{"level": "peak"}],
    "minimum_improvement": 0.02,
    "non_inferiority_margin": 0.02,
}


@pytest.mark.parametrize(
    ("shares", "asked", "found"),
    [
        ((0.0, 0.019), 0.02, "floor"),
        ((0.0, 0.02), 0.02, None),
        ((0.0, 0.06), 0.5, None),
        ((0.01, 0.04), 0.5, "floor"),
        ((0.981, 1.0), 0.02, "ceiling"),
        ((0.98, 1.0), 0.02, None),
        ((0.96, 0.99), 0.5, "ceiling"),
        ((0.4, 0.6), 0.02, None),
        ((0.0, None), 0.02, None),
        ((), 0.02, None),
    ],
)
def test_about_none_or_about_all(shares: tuple[float | None, ...], asked: float, found: str | None) -> None:
    assert saturated(shares, asked) == found


@pytest.mark.parametrize(("deadline_s", "name", "said"), [(OUT_OF_REACH, "floor", FLOOR), (EASY, "ceiling", CEILING)])
def test_too_small_an_improvement_names_the_load_where_that_is_why(deadline_s: float, name: str, said: str) -> None:
    brief = brief_with(deadline_s)
    document = verdict(brief, NOMINEE, evidence(brief))
    assert document["verdict"] == "FAIL"
    reached = "0.0 %" if name == "floor" else "100.0 %"
    assert document["sentence"] == (
        f"On held-out traffic ngram K=4 lets {reached} of requests finish within their deadline at peak, against "
        f"{reached} with speculation disabled: 0.0 points (90 % interval −0.3 to +0.3; the brief asked for +2.0 "
        f"points), which is shown to be too small: leave speculation off. {said}"
    )
    assert row(document, "attainment:peak:all")["saturated"] == name
    assert saturated_cells(document) == [said]


def test_a_level_that_tells_the_arms_apart_says_nothing_of_it() -> None:
    document = verdict(a_brief(), NOMINEE, evidence(speed=0.99))
    assert document["verdict"] == "FAIL"
    assert document["sentence"].endswith("leave speculation off.")
    assert row(document, "attainment:peak:all")["saturated"] is None
    assert saturated_cells(document) == []


def test_a_ratio_of_nothing_is_open_and_asks_for_another_load_instead_of_more_pairs() -> None:
    brief = brief_with(OUT_OF_REACH, outcome=GOODPUT)
    document = verdict(brief, NOMINEE, evidence(brief))
    assert (document["verdict"], row(document, "slo_goodput:peak:all")["saturated"]) == ("INCONCLUSIVE", "floor")
    assert FLOOR in document["settles"]


def test_the_first_rules_knew_nothing_of_it() -> None:
    brief = brief_with(OUT_OF_REACH)
    document = verdict(brief, NOMINEE, evidence(brief), code=FIRST_CODE)
    assert document["sentence"].endswith("leave speculation off.")
    assert "saturated" not in row(document, "attainment:peak:all")


def test_the_noise_floor_warns_before_held_out_traffic_is_spent() -> None:
    brief = brief_with(OUT_OF_REACH)
    control = [one for one in evidence(brief) if one.purpose == "noise-floor"]
    assert baseline_saturated(brief, control) == [
        "The baseline served 0.0 % of requests within their deadline at peak in the noise floor: unless a candidate "
        "changes that, this level can't tell it from the baseline. Choose a lighter load or longer deadlines, at which "
        "the baseline serves some requests in time and others late."
    ]
    assert baseline_saturated(a_brief(), control) == []
    latency = {"metric": "output_tokens_per_s", "improve_in": [{"level": "peak"}]}
    tokens = brief_with(OUT_OF_REACH, outcome=latency | {"minimum_improvement": 0.1, "non_inferiority_margin": 0.1})
    assert baseline_saturated(tokens, control) == []


def test_a_draft_is_warned_by_what_was_measured_for_the_same_load_and_deadlines() -> None:
    brief = brief_with(EASY)
    document = verdict(brief, NOMINEE, evidence(brief))
    assert saturated_before(brief, brief, document) == [
        "The baseline served 100.0 % of requests within their deadline at peak when this brief was measured before: no "
        "candidate can be better there by as much as the brief asks. Choose a heavier load or shorter deadlines, at "
        "which the baseline serves some requests in time and others late."
    ]
    heavier = [one.model_dump(mode="json") | {"arrival": {"process": "poisson", "rate": 4}} for one in brief.levels]
    assert saturated_before(brief_with(EASY, levels=heavier), brief, document) == []
    assert saturated_before(brief_with(30), brief, document) == []
