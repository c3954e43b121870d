import json
import math
import re
from pathlib import Path
from typing import Any

import plotly
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decisions.charts import (
    Chart,
    Interval,
    LevelAttainment,
    arrivals_over_time,
    attainment_by_level,
    completion_ecdf,
    pairs_forest,
)
from decisions.charts.arrivals import Busiest, Lane
from decisions.charts.capacity import Climb, Rung, capacity_ladder
from decisions.charts.classes import classes_of_both_sides
from decisions.charts.figure import COLOURS
from decisions.charts.lengths import Histogram, Measure, Spread, both_sides, length_histogram
from decisions.charts.levels import levels_over_time, line_of
from decisions.charts.pairs import ClassPairs, classes_forest
from decisions.charts.power import smallest_effects
from decisions.charts.trials import trials_by_themselves
from tests.decisions.test_charts_tuning import TUNING_CHARTS

STATIC = Path(__file__).parents[2] / "decisions" / "static" / "draftproof"


def completion(**changes: Any) -> Chart:
    numbers: dict[str, Any] = {
        "baseline_s": [2.0, 1.0, 8.0],
        "candidate_s": [0.5, 1.0, 1.5, 4.0],
        "baseline_planned": 4,
        "candidate_planned": 4,
        "deadline_s": 6.0,
    }
    return completion_ecdf("peak", **(numbers | changes))


def attainment() -> Chart:
    return attainment_by_level(
        [
            LevelAttainment("quiet", Interval(1.0, 0.98, 1.0), Interval(1.0)),
            LevelAttainment("peak", Interval(0.71, 0.6, 0.79), Interval(0.76, 0.65, 0.85)),
        ]
    )


def forest(**changes: Any) -> Chart:
    numbers: dict[str, Any] = {
        "cell": "peak",
        "metric": "attainment",
        "values": [0.01, 0.03, -0.0001, 0.02],
        "interval": Interval(0.015, 0.002, 0.028),
        "required": 0.02,
        "required_is": "minimum improvement",
        "scale": "points",
        "confidence": 0.9,
    }
    return pairs_forest(**(numbers | changes))


def by_class() -> Chart:
    chat = ClassPairs("chat", [(1, 0.9), (3, None)], Interval(0.9, 0.8, 1.0))
    none = ClassPairs("code", [(1, None), (3, None)], None)
    one = ClassPairs("form", [(3, 0.8)], None)
    return classes_forest("peak", "completion p50", [chat, none, one], scale="ratio", confidence=0.9, span=(0.7, 1.1))


def power() -> Chart:
    curve = [(4, 0.12), (6, 0.03), (48, 0.01), (96, 0.007)]
    return smallest_effects(cell="peak", curve=curve, planned=(6, 0.03), asked=0.01, needed=48, scale="ratio")


def ladder() -> Chart:
    rungs = [Rung("calm", 1.0), Rung("ordinary", 2.0), Rung("peak", 4.0)]
    climbs = [
        Climb("baseline", 1.0, 4.0, False, [1.0, 0.93, 0.5]),
        Climb("candidate", 4.0, None, True, [1.0, 0.99, None]),
    ]
    sentences = ["The baseline carries 1.", "The candidate carries 4."]
    return capacity_ladder(rungs, climbs, target=0.95, peak=4.0, sentences=sentences)


OWN = {
    "pair": 0,
    "arm": "baseline",
    "level": "peak",
    "attainment": 0.9,
    "attainment_interval": [0.8, 0.95],
    "completion_p50_s": 1.5,
    "completion_p50_interval_s": [1.25, None],
    "completion_p99_s": None,
    "completion_p99_interval_s": None,
    "slo_goodput_per_s": 0.45,
    "preemptions": None,
    "intervals_are": "95 % within the trial, by moving blocks",
}


LANES = [Lane("tuning", [(0, 10), (20, 30)]), Lane("held-out", [(10, 20)]), Lane("evaluation", [])]
PROMPT = Measure("prompt length", "tokens")
EVERY_CHART = {
    "completion": completion(),
    "attainment": attainment(),
    "pairs": forest(),
    "pairs, one without a number": forest(values=[0.01, None], interval=None, required=None, confidence=None),
    "pairs of one arm": forest(values=[5.0, 7.0], interval=None, required=6.0, scale="seconds"),
    "two hundred pairs": forest(values=[0.01] * 200),
    "pairs by class": by_class(),
    "power": power(),
    "ladder": ladder(),
    "trials": trials_by_themselves("peak", [OWN], "attainment"),
    "trials that never completed": trials_by_themselves("peak", [OWN], "completion_p99"),
    "arrivals": arrivals_over_time([3, 0, 1], bucket_s=10),
    "arrivals of parts": arrivals_over_time([3, 0, 1], bucket_s=10, lanes=LANES, busiest=Busiest(4, 3)),
    "lengths": length_histogram(PROMPT, Histogram([1, 2, 4], [5, 1]), Spread(1, 2, 3)),
    "both sides": both_sides(PROMPT, tuning=Histogram([1, 2], [5]), held_out=Histogram([1, 2], [4])),
    "classes": classes_of_both_sides(tuning={"chat": 3}, held_out={"code": 1}),
    "levels": levels_over_time([line_of("peak", "constant", [-0.5, 0.5], warm_up_s=1, duration_s=2)]),
    **TUNING_CHARTS,
}


@pytest.mark.parametrize("chart", EVERY_CHART.values(), ids=EVERY_CHART)
class TestEveryChart:
    def test_is_small_plain_json(self, chart: Chart) -> None:
        assert json.loads(json.dumps(chart.figure, allow_nan=False)) == chart.figure
        assert len(json.dumps(chart.figure)) < 100 * 1024

    def test_lies_in_the_page(self, chart: Chart) -> None:
        layout = chart.figure["layout"]
        assert "title" not in layout
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
        assert layout["font"]["family"] == "inherit"

    def test_uses_no_trace_that_needs_webgl(self, chart: Chart) -> None:
        assert {trace["type"] for trace in chart.figure["data"]} <= {"scatter", "bar", "heatmap"}

    def test_names_the_meaning_of_every_colour(self, chart: Chart) -> None:
        drawn = set(re.findall(r"#[0-9a-f]{6}", json.dumps({**chart.figure["layout"], "meta": None})))
        drawn |= set(re.findall(r"#[0-9a-f]{6}", json.dumps(chart.figure["data"])))
        assert drawn <= set(chart.figure["layout"]["meta"]["colours"]) == set(COLOURS)

    def test_has_one_sentence_and_a_whole_table(self, chart: Chart) -> None:
        assert chart.caption.endswith(".")
        assert chart.table.rows
        assert {len(row) for row in chart.table.rows} == {len(chart.table.headers)}


def test_a_completion_curve_ends_at_completed_of_planned() -> None:
    baseline, candidate = completion().figure["data"]
    assert (baseline["x"], baseline["y"]) == ([1.0, 1.0, 2.0, 8.0, 10.8], [0, 0.25, 0.5, 0.75, 0.75])
    assert (candidate["x"], candidate["y"]) == ([0.5, 0.5, 1.0, 1.5, 4.0, 10.8], [0, 0.25, 0.5, 0.75, 1, 1])


def test_completion_in_words_and_numbers() -> None:
    chart = completion()
    assert chart.caption == (
        "At peak, 2 of 4 baseline requests and 4 of 4 candidate requests completed within 6 s of their planned arrival."
    )
    assert chart.table == (
        ("arm", "planned", "completed", "within 6 s", "50 % of planned by", "90 % of planned by", "99 % of planned by"),
        (
            ("baseline", "4", "3 (75.0 %)", "2 (50.0 %)", "2 s", "not reached", "not reached"),
            ("candidate", "4", "4 (100.0 %)", "4 (100.0 %)", "1 s", "4 s", "4 s"),
        ),
    )


def test_the_deadline_is_named_above_the_plot() -> None:
    layout = completion().figure["layout"]
    assert layout["shapes"][0]["x0"] == layout["shapes"][0]["x1"] == 6.0
    words = layout["annotations"][0]
    assert (words["text"], words["yanchor"], words["y"]) == ("deadline 6 s", "bottom", 1)
    assert words["x"] == pytest.approx(math.log10(6))


def test_without_a_deadline_none_is_drawn() -> None:
    chart = completion(deadline_s=None)
    assert "shapes" not in chart.figure["layout"]
    assert chart.caption == "At peak, 3 of 4 baseline requests and 4 of 4 candidate requests completed."


def test_an_arm_in_which_nothing_completed_is_still_shown() -> None:
    chart = completion(candidate_s=[])
    assert chart.figure["data"][1]["x"] == []
    assert "0 of 4 candidate requests" in chart.caption


def test_more_completed_than_planned_is_refused() -> None:
    with pytest.raises(ValueError, match="3 requests completed, but only 2 were planned"):
        completion(baseline_planned=2)


@given(st.lists(st.floats(0, 1e5), max_size=3_000), st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_a_curve_has_at_most_a_thousand_points_and_never_falls(times: list[float], missing: int) -> None:
    chart = completion(baseline_s=times, baseline_planned=len(times) + missing)
    curve = chart.figure["data"][0]
    assert len(curve["x"]) <= 1_000
    assert curve["x"] == sorted(curve["x"])
    assert curve["y"] == sorted(curve["y"])
    if times:
        assert curve["y"][-1] == pytest.approx(len(times) / (len(times) + missing), abs=1e-6)
    assert len(json.dumps(chart.figure)) < 100 * 1024


def test_attainment_shows_both_arms_with_their_intervals() -> None:
    chart = attainment()
    baseline, candidate = chart.figure["data"]
    assert baseline["x"] == [100, 71]
    assert baseline["error_x"]["array"] == pytest.approx([0, 8])
    assert baseline["error_x"]["arrayminus"] == pytest.approx([2, 11])
    assert candidate["error_x"]["array"] == pytest.approx([0, 9])
    assert baseline["marker"]["symbol"] != candidate["marker"]["symbol"]
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["quiet", "peak"]
    assert chart.caption == (
        "Requests within deadline, baseline → candidate: quiet 100.0 % → 100.0 %; peak 71.0 % → 76.0 %."
    )
    assert chart.table.rows == (
        ("quiet", "100.0 % (98.0 % to 100.0 %)", "100.0 %", "0.0 points"),
        ("peak", "71.0 % (60.0 % to 79.0 %)", "76.0 % (65.0 % to 85.0 %)", "+5.0 points"),
    )


def test_attainment_before_any_level_is_measured() -> None:
    assert attainment_by_level([]).caption == "No load level has been measured yet."


def test_the_forest_holds_pairs_interval_and_limit() -> None:
    chart = forest()
    pairs, over_all = chart.figure["data"]
    assert pairs["x"] == pytest.approx([1, 3, -0.01, 2])
    assert over_all["x"] == [1.5]
    assert over_all["error_x"]["arrayminus"] == pytest.approx([1.3])
    assert chart.figure["layout"]["annotations"][0]["text"] == "minimum improvement +2.0 points"
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["pair 1", "pair 2", "pair 3", "pair 4", "all pairs"]
    assert chart.table.rows == (
        ("pair 1", "+1.0 points"),
        ("pair 2", "+3.0 points"),
        ("pair 3", "0.0 points"),
        ("pair 4", "+2.0 points"),
        ("all pairs (90 % interval)", "+1.5 points (+0.2 points to +2.8 points)"),
        ("minimum improvement", "+2.0 points"),
    )


def test_a_pair_without_a_number_keeps_its_own_and_is_told() -> None:
    chart = forest(values=[0.01, None, 0.03], numbers=[1, 2, 4])
    assert chart.figure["data"][0]["y"] == [0, 2]
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["pair 1", "pair 2", "pair 4", "all pairs"]
    assert chart.table.rows[1:3] == (("pair 2", "no number"), ("pair 4", "+3.0 points"))
    assert "over 3 pairs: +1.5 points (+0.2 points to +2.8 points) at 90 % confidence; 1 of them without a number" in (
        chart.caption
    )


def test_many_pairs_share_the_height_and_name_some() -> None:
    chart = forest(values=[0.01] * 200)
    names = chart.figure["layout"]["yaxis"]["ticktext"]
    assert len(names) <= 13
    assert (names[0], names[-1]) == ("pair 1", "all pairs")
    assert chart.figure["layout"]["height"] < 500
    assert len(chart.table.rows) == 202


def test_classes_lie_under_each_other_and_gate_nothing() -> None:
    chart = by_class()
    assert chart.figure["layout"]["yaxis"]["ticktext"] == ["chat", "code", "form"]
    assert chart.caption == (
        "By class at peak, completion p50, with 90 % intervals: chat 0.90× (0.80× to 1.00×); code no number; "
        "form 1 pair, no interval. Reported: they gate nothing."
    )
    assert chart.table.rows[:3] == (
        ("chat", "pair 1", "0.90×"),
        ("chat", "pair 3", "no number"),
        ("chat", "all pairs", "0.90× (0.80× to 1.00×)"),
    )


def test_what_pairs_can_show_falls_to_what_was_asked() -> None:
    chart = power()
    assert chart.caption == (
        "The smallest improvement that can be shown at peak: 3 % by the 6 pairs planned, 12 % by 4, 0.7 % by 96; "
        "1 % takes 48 pairs."
    )
    assert chart.figure["data"][1]["x"] == [6, 48]
    assert ("48", "1 %", "asked for") in chart.table.rows


def test_what_is_asked_lies_within_the_picture_where_the_pairs_show_far_less() -> None:
    chart = smallest_effects(
        cell="peak", curve=[(4, 0.001), (8, 0.0005)], planned=(4, 0.001), asked=0.05, needed=4, scale="difference"
    )
    assert chart.figure["layout"]["yaxis"]["range"][1] > 5


def test_a_ladder_tells_shown_open_and_broken_apart_and_that_its_top_is_censored() -> None:
    chart = ladder()
    assert chart.figure["data"][1]["marker"]["symbol"] == ["circle", "circle-open", "x"]
    assert chart.figure["data"][3]["marker"]["symbol"] == "triangle-right"
    assert chart.table.rows[1:] == (
        ("ordinary", "2 requests/s", "93.0 %", "open", "99.0 %", "shown to hold"),
        ("peak", "4 requests/s", "50.0 %", "shown not to hold", "–", "shown to hold"),
    )


def test_a_trial_by_itself_is_for_display_and_says_so() -> None:
    chart = trials_by_themselves("peak", [OWN], "completion_p50")
    assert "For display, never judged. The intervals: 95 % within the trial, by moving blocks." in chart.caption
    assert chart.table.rows == (
        ("pair 1", "baseline", "90.0 % (80.0 % to 95.0 %)", "1.5 s (1.25 s to …)", "never", "0.45 requests/s", "–"),
    )


def test_the_forest_of_ratios_is_centred_on_one() -> None:
    chart = forest(values=[0.9, 1.02], interval=Interval(0.96), required=1.05, scale="ratio")
    assert chart.figure["layout"]["shapes"][0]["x0"] == 1.0
    assert chart.caption == (
        "At peak, attainment over 2 pairs: 0.96×, no interval at 90 % confidence; minimum improvement 1.05×."
    )


def test_long_traffic_counts_in_minutes() -> None:
    chart = arrivals_over_time([1] * 100, bucket_s=60)
    assert chart.figure["layout"]["xaxis"]["title"]["text"] == "minutes from the start"
    assert chart.figure["data"][0]["x"][:3] == [0, 1, 2]


def test_no_arrivals() -> None:
    assert arrivals_over_time([], bucket_s=10).caption == "No request has arrived."


def test_the_stand_ins_match_the_installed_plotly() -> None:
    """charts.js keeps plotly's bundle from adding inline styles by their ids; a new version may have new ones."""
    bundle = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    script = (STATIC / "charts.js").read_text(encoding="utf-8")
    guarded = set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', bundle))
    assert guarded
    assert all(one in script for one in guarded)
    assert bundle.count('createElement("style")') == len(guarded) + 1
    assert ".no-inline-styles" in bundle


def test_the_script_has_a_colour_for_every_meaning() -> None:
    script = (STATIC / "charts.js").read_text(encoding="utf-8")
    for scheme in re.findall(r"(?:light|dark): \{([^}]*)\}", script):
        assert set(COLOURS.values()) <= set(re.findall(r"(\w+): ", scheme))
