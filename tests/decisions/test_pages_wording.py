"""How the pages write numbers, times and states, and where an interval's picture lies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions.pages.boot_facts import Fact, engine_facts, fingerprint_words, token_words
from decisions.pages.gates import Gate, broken_checks, fallback_gate, validity_gate
from decisions.pages.problems import Problem, located
from decisions.pages.rows import picture, requirement_row, tuning_rows
from decisions.rules.wording import amount, arm_said
from decisions.selectors.events import subject_link
from decisions.templatetags import draftproof as tags

NARROW, NO_BREAK = "\u202f", "\u00a0"


def row(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "label": "Attainment, peak",
        "role": "improve",
        "shown": "shown",
        "unit": "share",
        "scale": "difference",
        "baseline": 0.912,
        "candidate": 0.949,
        "difference": 0.037,
        "low": 0.024,
        "high": 0.05,
        "required": 0.02,
        "required_text": "≥ +2.0 points",
    }
    return fields | changes


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (46592, "46,592"), (-3, "−3"), (0.0375, "0.037"), (2.818, "2.82"), (None, "–"), (1234.5, "1,234")],
)
def test_numbers(value: float | None, written: str) -> None:
    assert tags.number(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (45, "45 s"),
        (59.6, "1 min"),
        (89.4, "1 min 29 s"),
        (599.6, "10 min"),
        (724, "12 min"),
        (3600, "1 h"),
        (4800, "1 h 20 min"),
        (None, "–"),
    ],
)
def test_durations(value: float | None, written: str) -> None:
    assert tags.duration(value) == written.replace(" s", f"{NARROW}s").replace(" min", f"{NARROW}min").replace(
        " h", f"{NARROW}h"
    )


def test_milliseconds_turn_into_seconds() -> None:
    assert [tags.milliseconds(value) for value in (0.4, 122, 1650, None)] == [
        f"0.4{NARROW}ms",
        f"122{NARROW}ms",
        f"1.65{NARROW}s",
        "–",
    ]


def test_a_whole_number_of_a_unit_has_no_decimals() -> None:
    assert [tags.minutes(value) for value in (120, 12.44, 0.0, None)] == [
        f"120{NARROW}min",
        f"12.4{NARROW}min",
        f"0{NARROW}min",
        "–",
    ]
    assert [tags.file_size(size) for size in (200_000_000, 1_540_000, 20_000_000_000)] == [
        f"200{NARROW}MB",
        f"1.5{NARROW}MB",
        f"20{NARROW}GB",
    ]


def test_what_a_brief_asks_for_is_one_point_or_several() -> None:
    assert [amount(one, "difference") for one in (0.01, 0.02, 0.005)] == ["1 point", "2 points", "0.5 points"]
    assert [amount(one, "ratio") for one in (0.01, 0.25)] == ["1 %", "25 %"]


def test_a_candidate_goes_by_its_name_and_the_baseline_by_its_article() -> None:
    assert [arm_said(one) for one in ("baseline", "ngram-2")] == ["the baseline", "ngram-2"]


def test_a_moment_is_written_in_utc_whatever_its_zone() -> None:
    at = datetime(2026, 11, 29, 1, 5, 9, tzinfo=timezone(timedelta(hours=2)))
    assert tags.moment(at) == ('<time datetime="2026-11-28T23:05:09Z" class="nowrap">28 Nov 2026, 23:05 UTC</time>')
    assert "23:05:09 UTC" in tags.moment(at, True)
    assert tags.moment(None) == "–"
    assert "28 Nov 2026<" in tags.day(datetime(2026, 11, 28, tzinfo=UTC))


def test_a_digest_is_short_and_whole_in_its_title() -> None:
    value = "7f3a" + "0" * 56 + "c21e"
    assert tags.short(value) == "7f3a…c21e"
    assert value in tags.digest_tag(value)


def test_a_state_is_never_a_colour_alone() -> None:
    for word in tags.STATES:
        found = tags.state(word)
        assert "<svg" in found
        assert tags.STATES[word][2] in found
    assert "&lt;b&gt;" in tags.state("<b>")


def test_the_figures_of_a_sentence_stand_out_and_the_rest_is_escaped() -> None:
    said = tags.figures(
        "<i> lets 94.9 % finish: +3.7 points (90 % interval +2.4 to +5.0 points), asked for +2.0 points"
    )
    assert said.replace(NO_BREAK, " ") == (
        '&lt;i&gt; lets <b class="nowrap">94.9 %</b> finish: <b class="nowrap">+3.7 points</b> '
        "(90 % interval +2.4 to +5.0 points), asked for +2.0 points"
    )
    assert said.count(NO_BREAK) == 5


def test_a_figure_before_a_comma_stands_out_too() -> None:
    said = tags.figures("brings it to 1.46 s, against 1.94 s without")
    assert said.replace(NO_BREAK, " ") == (
        'brings it to <b class="nowrap">1.46 s</b>, against <b class="nowrap">1.94 s</b> without'
    )


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("62 % within", "62_% within"),
        ("at most 3.5 s and 40 ms", "at most 3.5_s and 40_ms"),
        ("4 pairs", "4 pairs"),
        ("2 stops", "2 stops"),
        ("+2.0 points.", "+2.0_points."),
    ],
)
def test_no_line_ends_between_a_number_and_its_unit(said: str, kept: str) -> None:
    assert tags.unbroken(said) == kept.replace("_", NO_BREAK)


def test_the_ranges_of_a_column_have_the_same_decimals() -> None:
    levels: list[dict[str, Any]] = [
        {"rate": {"from": 0.5, "to": 0.9}},
        {"rate": {"from": 1.8167, "to": 2.0}},
        {"rate": None},
        {},
    ]
    assert tags.even_spans(levels, "rate") == ["0.50 to 0.90", "1.82 to 2.00", "–", "–"]
    assert tags.even_spans([{"tokens": {"from": 12.0, "to": 1200.0}}], "tokens") == ["12 to 1,200"]


def test_a_path_breaks_after_its_slashes_only() -> None:
    assert tags.cut_path("/api/v1/<x>") == "/<wbr>api/<wbr>v1/<wbr>&lt;x&gt;"


@pytest.mark.parametrize(
    ("rows", "gate"),
    [
        ([], Gate("no", "Fallback not tested at peak")),
        ([{"died": 0, "attainment": 0.97}], Gate("yes", "Fallback tested at peak")),
        ([{"died": 0, "attainment": 0.62}], Gate("open", "Fallback at peak: 62.0 % within deadline")),
        ([{"died": 1, "attainment": 0.0}], Gate("open", "Fallback at peak: the engine died")),
        ([{"died": 0, "attainment": None}], Gate("open", "Fallback at peak: no figure")),
    ],
)
def test_the_fallbacks_gate_says_how_well_it_carried(rows: list[dict[str, Any]], gate: Gate) -> None:
    assert fallback_gate(rows) == replace(gate, tab="brief-held-out", place="#fallback")


@pytest.mark.parametrize(
    ("answers", "gate"),
    [
        ((True, True), Gate("yes", "2 of 2 validity checks hold")),
        ((True, None), Gate("open", "1 of 2 validity checks hold")),
        ((True, False, None), Gate("no", "1 of 3 validity checks broken")),
    ],
)
def test_the_validity_gate_counts_what_decided(answers: tuple[bool | None, ...], gate: Gate) -> None:
    assert validity_gate([{"ok": ok} for ok in answers]) == replace(gate, tab="brief-health", place="#checks")


def test_a_broken_check_says_what_to_do() -> None:
    said = "Something else took 33 % of the machine."
    found = broken_checks([{"id": "neighbours", "ok": False, "sentence": said}, {"id": "pairs", "ok": None}])
    assert found == [f"{said} Free the machine of everything else while boots run."]


def test_an_engines_facts_read_as_what_they_are() -> None:
    told = {
        "group": 12682,
        "leader_started": 1795996420.5,
        "environment": {"HOME": "/home/x", "PATH": "/bin", "OMP_NUM_THREADS": "1"},
        "hardware": {"cpu_model": "AMD EPYC", "accelerators": []},
        "threads": 1,
    }
    assert engine_facts(told) == [
        Fact("group", "12682"),
        Fact("leader_started", at=datetime(2026, 11, 29, 23, 53, 40, 500000, UTC)),
        Fact("environment", lines=[("OMP_NUM_THREADS", "1")]),
        Fact("hardware", lines=[("cpu model", "AMD EPYC"), ("accelerators", "none")]),
        Fact("threads", 1),
    ]


def test_what_a_trial_can_vouch_for() -> None:
    assert fingerprint_words({"a": 22}, "a") == "all 22 responses carried the configuration’s digest"
    assert fingerprint_words({"a": 20, "b": 2}, "a") == "20 of 22 responses carried the configuration’s digest"
    assert fingerprint_words({}, "a") == "not known"
    assert token_words(554, 554.0, False) == "554 tokens, the engine counted 554"
    assert token_words(554, 554.0, True) == "the engine counted the same"
    assert token_words(554, 560.0, True) == "the engine counted +6 against the responses"
    assert token_words(554, None, True) == "the engine’s count is not known"


def test_a_confidence_keeps_the_digits_that_matter() -> None:
    assert (tags.confidence(0.9), tags.confidence(0.995)) == (f"90{NARROW}%", f"99.5{NARROW}%")


def test_the_gist_of_an_event_puts_its_reason_first_and_shortens_digests() -> None:
    assert tags.gist({"configuration": "a" * 64, "reason": "its worker fell silent", "died": False}) == (
        "reason its worker fell silent, configuration aaaa…aaaa"
    )


@pytest.mark.parametrize(
    ("subject", "link"),
    [
        ("brief 14 revision 2", ("brief", (14, 2))),
        ("boot 3", ("boot", (3,))),
        ("traffic set 1", None),
        ("boot 3 <b>", None),
    ],
)
def test_subjects_of_events_lead_to_their_pages(subject: str, link: object) -> None:
    assert subject_link(subject) == link


def test_a_difference_in_points_reads_as_one() -> None:
    found = requirement_row(row())
    assert (found.baseline, found.candidate, found.difference, found.interval, found.limit, found.shown) == (
        "91.2 %",
        "94.9 %",
        "+3.7 points",
        "+2.4 to +5.0",
        "≥ +2.0 points",
        "shown",
    )


def test_an_absolute_limit_shows_the_count_over_it() -> None:
    fields = row(
        role="guardrail", scale="absolute", low=0.0, high=0.018, difference=None, over=1, requests=166, share_limit=0.03
    )
    found = requirement_row(fields)
    assert (found.difference, found.interval, found.shown) == ("1 of 166", "0.0 % to 1.8 %", "holds")
    assert found.picture is not None
    assert found.picture.limit_text == "3 %"


def test_a_side_without_a_bound_runs_to_the_edge() -> None:
    found = picture(row(low=None))
    assert found is not None
    assert (found.open_left, found.low, found.open_right) == (True, 0.0, False)


def test_a_row_without_a_number_has_no_picture() -> None:
    assert picture(row(difference=None)) is None
    assert requirement_row(row(difference=None, low=None, high=None)).difference == "no number"


finite = st.floats(-5, 5, allow_nan=False)


@given(low=finite, point=finite, high=finite, limit=finite)
def test_every_place_lies_inside_the_picture(low: float, point: float, high: float, limit: float) -> None:
    low, point, high = sorted((low, point, high))
    found = picture(row(low=low, difference=point, high=high, required=limit))
    if found is None:
        return
    assert found.limit is not None
    assert 0 <= found.low <= found.point <= found.high <= 150
    assert 0 <= found.zero <= 150
    assert 0 <= found.limit <= 150


def test_the_race_puts_cells_that_must_improve_first_and_the_best_first() -> None:
    base: dict[str, Any] = {
        "label": "",
        "unit": "s",
        "scale": "ratio",
        "baseline": 2.0,
        "value": 1.0,
        "difference": -0.5,
        "boots": 1,
    }
    measured = [
        ("a", "peak", False, 0.1),
        ("a", "quiet", True, 0.1),
        ("b", "quiet", True, 0.3),
        ("c", "quiet", True, None),
    ]
    rows = [
        base
        | {"candidate": name, "draft_length": 2, "level": level, "class": "all", "improves": must, "improvement": by}
        for name, level, must, by in measured
    ]
    found = tuning_rows(rows, "a")
    assert [(one.candidate, one.cell, one.chosen) for one in found] == [
        ("b", "quiet", False),
        ("a", "quiet", True),
        ("c", "quiet", False),
        ("a", "peak", True),
    ]


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("titel", "unknown field; did you mean title?"),
        ("rule.pair", "unknown field; did you mean pairs?"),
        ("levels.0.arrival.rte", "unknown field; did you mean rate?"),
        ("candidates.0.xyzzy", "unknown field; there are: name, speculative"),
        ("nowhere.at.all", "unknown field"),
    ],
)
def test_a_field_that_is_unknown_names_those_there_are(field: str, sentence: str) -> None:
    assert located([f"{field}: Extra inputs are not permitted"], "") == [Problem(field, sentence, None)]


def test_problems_are_found_on_their_lines() -> None:
    source = "title: x\nrule:\n  pairs: 5\nlevels:\n  - name: quiet\n  - name: peak\n    rate: -1\n"
    problems = ["rule.pairs: must be even", "levels.1.rate: too low", "outcome: missing", "two levels are the same"]
    assert located(problems, source) == [
        Problem("rule.pairs", "must be even", 3),
        Problem("levels.1.rate", "too low", 7),
        Problem("outcome", "missing", None),
        Problem("", "two levels are the same", None),
    ]


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_words_and_any_problem_are_located_without_an_error(source: str, problem: str) -> None:
    assert len(located([problem], source)) == 1
