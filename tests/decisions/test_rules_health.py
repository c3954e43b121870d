"""The numbers behind the validity checks, and what numbers of pairs can show."""

from dataclasses import replace
from typing import Any

import pytest

from decisions.rules.evidence import UNKNOWN_SERVER
from decisions.rules.health import Basis, Line, bases, boots_named
from decisions.rules.measures import trial_measure
from decisions.rules.noise_floor import noise_floor
from decisions.rules.power import Power, looks_taken, missing_evidence, powers
from decisions.rules.verdict import FIRST_CODE, verdict
from decisions.selectors.verdict_pictures import deciding, forests, ladder, proof, trials
from loadtests.statistics.effects import pairs_needed, smallest_detectable_effect
from tests.support.judged import BRIEF, NOMINEE, a_brief, changed, evidence, failing, in_arm

OVER_PAIRS = {"output-length", "prefix-cache", "pairs"}


def basis(name: str, trials_: Any) -> Basis:
    return bases(BRIEF, NOMINEE, trials_)[name]


def test_every_check_of_a_verdict_has_its_numbers() -> None:
    found = bases(BRIEF, NOMINEE, evidence())
    document = verdict(BRIEF, NOMINEE, evidence())
    assert sorted(found) == sorted(check["id"] for check in document["validity"])
    assert all(one.lines and {len(line.numbers) for line in one.lines} == {len(one.headers)} for one in found.values())
    assert all(line.ok is not False for one in found.values() for line in one.lines)


def test_without_a_nominee_there_are_no_held_out_pairs_to_tell_of() -> None:
    assert set(bases(BRIEF, NOMINEE, evidence())) - set(bases(BRIEF, None, evidence())) == OVER_PAIRS


def test_what_is_wrong_comes_first_and_names_its_trial_and_boot() -> None:
    found = basis(
        "neighbours",
        changed(evidence(), lambda one: in_arm(one, "candidate") and one.pair == 2, neighbour_cpu_share=0.33),
    )
    assert [line.ok for line in found.lines[:3]] == [False, False, True]
    first = found.lines[0]
    assert (first.place, first.numbers) == ("held out, pair 3, ngram-4 at peak", ("33.0 %", "10.0 %"))
    assert (first.trial, first.boot) == ("held-out-2-candidate-ngram-4-peak", "held-out-2-candidate-ngram-4")
    assert boots_named({"neighbours": found})[first.trial] == first.boot


def test_what_nobody_told_is_neither_right_nor_wrong() -> None:
    found = basis("engine-tokens", changed(evidence(), lambda one: in_arm(one, "baseline"), engine_tokens=None))
    assert (found.lines[0].ok, found.lines[0].numbers) == (None, ("not known", "–"))


def test_requests_that_a_dead_server_never_got_are_its_own_result() -> None:
    def lost(died: bool) -> Basis:
        return basis(
            "issued",
            [
                failing(one, slice(0, 5), "not_sent") if in_arm(one, "candidate") else one
                for one in changed(evidence(), lambda one: in_arm(one, "candidate"), died=died)
            ],
        )

    assert lost(died=False).lines[0].ok is False
    assert lost(died=True).lines[0].ok is True


def test_each_boot_has_its_own_server_or_is_named() -> None:
    shared = changed(evidence(), lambda one: in_arm(one, "candidate") and one.pair in (0, 1), server="the same")
    assert [line.ok for line in basis("fresh-server", shared).lines].count(False) == 2


def test_a_boot_whose_trials_name_two_servers_or_none_is_told() -> None:
    def named_in_one_trial(server: str) -> list[Line]:
        trials = [
            replace(one, server=server) if in_arm(one, "candidate") and (one.pair, one.level) == (1, "peak") else one
            for one in evidence()
        ]
        return [line for line in basis("fresh-server", trials).lines if line.ok is not True]

    (two,) = named_in_one_trial("another")
    assert (two.ok, two.numbers[0]) == (False, "another and server of held-out-1-candidate-ngram-4")
    (silent,) = named_in_one_trial(f"{UNKNOWN_SERVER}held-out-1-candidate-ngram-4")
    assert silent.ok is None


def floor_of(**rule: Any) -> tuple[Any, Power]:
    brief = a_brief(rule={"seed": 11, **rule})
    return brief, powers(brief, noise_floor(brief, evidence(brief)))[0]


def test_the_planned_pairs_lie_on_the_curve_and_the_needed_ones_reach_what_was_asked() -> None:
    brief, power = floor_of(pairs=6)
    floor = noise_floor(brief, evidence(brief))["cells"][0]
    curve = dict(power.curve)
    assert curve[6] == pytest.approx(power.smallest) == pytest.approx(floor["smallest_effect"])
    needed = pairs_needed(floor["spread_upper"], 0.02, alpha=0.05)
    assert power.needed == needed
    assert needed is not None
    assert curve[needed] <= 0.02
    assert trial_measure(brief.outcome).scale == "difference"
    assert curve[needed] == pytest.approx(smallest_detectable_effect(floor["spread_upper"], needed, alpha=0.05))
    assert [effect for _, effect in power.curve] == sorted(curve.values(), reverse=True)


def test_an_earlier_looks_alpha_lowers_what_the_last_one_can_show() -> None:
    _, alone = floor_of(pairs=6)
    brief = a_brief(rule={"seed": 11, "pairs": 6, "looks": 2, "interim": [{"pairs": 4, "alpha": 0.02}]})
    document = verdict(brief, NOMINEE, evidence(brief, pairs=6))
    shared = powers(brief, document["noise_floor"])[0]
    assert dict(shared.curve)[6] == pytest.approx(shared.smallest)
    assert shared.smallest > alone.smallest


@pytest.mark.parametrize(
    ("smallest", "needed", "said"),
    [
        (0.03, 48, "6 pairs can show 3 points; the brief asks for 1 point: 48 pairs."),
        (0.005, 4, "6 pairs can show 0.5 points; the brief asks for 1 point."),
        (0.9, None, "6 pairs can show 90 points; the brief asks for 1 point: more than 10,000 pairs."),
    ],
)
def test_the_sentence_of_power(smallest: float, needed: int | None, said: str) -> None:
    assert Power("Attainment", "peak", "difference", 6, smallest, 0.01, needed, ()).sentence == said


def test_looks_are_planned_before_and_taken_by_the_verdict() -> None:
    brief = a_brief(rule={"seed": 11, "pairs": 6, "looks": 2, "interim": [{"pairs": 4, "alpha": 0.02}]})
    assert [(one.pairs, one.state) for one in looks_taken(brief, None)] == [(4, "planned"), (6, "planned")]
    early = verdict(brief, NOMINEE, evidence(brief))
    assert [one.state for one in looks_taken(brief, early)] == ["this verdict", "planned"]
    late = verdict(brief, NOMINEE, evidence(brief, pairs=6))
    assert [one.state for one in looks_taken(brief, late)] == ["not taken here", "this verdict"]
    assert [round(one.alpha, 4) for one in looks_taken(brief, late)] == [0.02, 0.03]


def test_an_open_limit_says_how_many_requests_and_boots_are_missing() -> None:
    rail = {"id": "failed", "metric": "failed_share", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0.001}
    brief = a_brief(guardrails=[rail])
    document = verdict(brief, NOMINEE, evidence(brief))
    only = missing_evidence(document)[0]
    row = document["guardrails"][0]
    assert (only.limit, only.requests, only.boots) == ("≤ 0.10 %", row["requests_needed"], row["boots_needed"])
    assert only.requests is not None
    assert only.requests > 1_000
    assert missing_evidence(verdict(brief, NOMINEE, evidence(brief), code=FIRST_CODE)) == []


def test_each_level_has_the_pairs_of_the_cells_that_gate_and_then_of_its_classes() -> None:
    document = verdict(BRIEF, NOMINEE, evidence())
    found = forests(document, ["quiet", "peak"])
    assert [one.level for one in found] == ["quiet", "peak"]
    quiet, peak = found
    assert [chart.caption.split(",")[0] for chart in peak.charts] == ["At peak", "By class at peak"]
    assert "margin −2.0 points" in quiet.charts[0].caption
    assert "minimum improvement +2.0 points" in peak.charts[0].caption
    assert peak.charts[0].figure["layout"]["xaxis"]["range"] == peak.charts[1].figure["layout"]["xaxis"]["range"]


def test_the_picture_is_the_one_that_the_sentence_is_about() -> None:
    passed = verdict(BRIEF, NOMINEE, evidence())
    shown = proof(BRIEF, passed)
    assert (passed["verdict"], shown.heading if shown else "") == ("PASS", "Every pair: attainment, peak")
    slower = verdict(BRIEF, NOMINEE, evidence(speed=1.6))
    row = deciding(slower)
    assert row is not None
    assert (slower["verdict"], row["id"]) == ("FAIL", slower["broken"][0])
    invalid = verdict(BRIEF, NOMINEE, changed(evidence(), lambda one: True, neighbour_cpu_share=0.5))
    assert proof(BRIEF, invalid) is None
    assert proof(BRIEF, verdict(BRIEF, None, [])) is None


def test_where_an_absolute_limit_is_broken_the_picture_holds_the_candidates_own_figures_against_it() -> None:
    slow = verdict(BRIEF, NOMINEE, evidence(speed=8.0))
    assert "completion-p90" in slow["broken"]
    alone = slow | {"broken": ["completion-p90"]}
    shown = proof(BRIEF, alone)
    assert shown is not None
    assert "limit 6 s" in shown.chart.caption
    assert len(shown.chart.table.rows) == 5


def test_a_ladder_is_drawn_from_its_lowest_rung_and_only_by_the_rules_that_know_it() -> None:
    levels = [
        {"name": name, "arrival": {"process": "poisson", "rate": rate}, "duration_s": 120}
        for name, rate in (("quiet", 1.0), ("peak", 2.0))
    ]
    brief = a_brief(levels=levels, capacity={"levels": ["peak", "quiet"], "target": 0.9})
    chart = ladder(brief, verdict(brief, NOMINEE, evidence(brief)))
    assert chart is not None
    assert [row[0] for row in chart.table.rows] == ["quiet", "peak"]
    assert "replica" in chart.caption
    first = verdict(BRIEF, NOMINEE, evidence(), code=FIRST_CODE)
    assert ladder(BRIEF, first) is None
    assert trials(BRIEF, first) == []
    assert [one.level for one in trials(BRIEF, verdict(BRIEF, NOMINEE, evidence()))] == ["quiet", "peak"]
