"""The charts of the tuning tab: what each says in its sentence, draws and lists."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decisions.charts import Chart
from decisions.charts.acceptance import Kept, acceptance_by_position
from decisions.charts.figure import SERIES, folded, series_look
from decisions.charts.heat_map import HeatCell, HeatRow, speed_up_heat_map
from decisions.charts.prediction import RoundTime, predicted_round_times
from decisions.charts.race import Lane, RaceBoot, race_timeline
from decisions.charts.rate_curves import Crossover, Curve, Point, crossovers, goodput_over_rate
from decisions.charts.running_batch import Batch, running_batches

NONE = HeatRow("no speculation", "none", {"quiet": HeatCell(1.0, 2, spread=(0.95, 1.05)), "peak": HeatCell(1.0, 1)})
K2 = HeatRow(
    "ngram K=2", "length", {"quiet": HeatCell(1.5, 2, spread=(1.25, 1.75)), "peak": HeatCell(0.5, 1, ("late",))}
)
SCHEDULE = HeatRow("ngram-s1x4-5x0", "schedule", {"quiet": HeatCell(0.0, 1)}, "ngram K=4 from 1, 0 from 5")


def approximately(value: float) -> Any:
    return pytest.approx(value)


def heat_map() -> Chart:
    return speed_up_heat_map([NONE, K2, SCHEDULE], ["quiet", "peak"], measure="completion p50")


def curve(name: str, *goodputs: float) -> Curve:
    levels = ("quiet", "ordinary", "peak", "storm")
    rates = (1.0, 2.0, 4.0, 8.0)
    return Curve(
        name,
        [
            Point(level, rate, one, 0.9 * one, 1.1 * one, boots=2, one=0.05)
            for level, rate, one in zip(levels, rates, goodputs, strict=False)
        ],
    )


BASELINE = curve("no speculation", 1.0, 2.0, 3.6)


def curves() -> Chart:
    return goodput_over_rate(BASELINE, [curve("ngram K=4", 1.0, 2.0, 3.0), curve("ngram K=2", 1.0, 1.9, 3.7)])


def race(**changes: Any) -> Chart:
    lanes = [Lane("no speculation", "reference"), Lane("ngram K=2", "nominated"), Lane("ngram K=8", "out", 1)]
    boots = [
        RaceBoot("11", "no speculation", 1, "finished", 0.0, 1.5, "1 Mar 2026, 12:00 UTC"),
        RaceBoot("12", "ngram K=8", 1, "lost", 1.5, 0.5, "1 Mar 2026, 12:02 UTC"),
        RaceBoot("13", "ngram K=8", 1, "engine died", 2.0, 1.0, "1 Mar 2026, 12:03 UTC"),
        RaceBoot("14", "ngram K=2", 2, "running", 3.0, 0.25, "1 Mar 2026, 12:05 UTC"),
    ]
    asked: dict[str, Any] = {"budget": 10.0, "ended": ""}
    return race_timeline(lanes, boots, **(asked | changes))


ROUND_TIMES = [
    RoundTime("no speculation", "no speculation", "quiet", "11", 1.5, 20.0, 21.0),
    RoundTime("ngram K=4", "ngram", "peak", "12", 6.25, 50.0, 40.0),
]
BATCHES = [
    Batch("no speculation", "quiet", 0.5, 1.2, 3.0, 1.5, 0.4),
    Batch("ngram K=4", "peak", 2.0, 5.5, 9.0, None, 0.0),
]
TUNING_CHARTS = {
    "heat map": heat_map(),
    "heat map of twelve levels": speed_up_heat_map(
        [NONE, K2], [f"level-{place}" for place in range(12)], measure="attainment"
    ),
    "goodput curves": curves(),
    "acceptance": acceptance_by_position(
        "ngram K=2", Kept([0.6, 0.25], 400), {"chat": Kept([0.5, 0.2], 300), "code": Kept([0.9, 0.4], 100)}
    ),
    "round times": predicted_round_times(ROUND_TIMES, median=0.125),
    "running batch": running_batches(BATCHES),
    "race": race(),
}


def test_a_speed_up_is_coloured_by_its_logarithm_and_what_was_not_measured_is_hatched_and_said() -> None:
    chart = heat_map()
    colours, hatched, words = chart.figure["data"]
    assert colours["text"] == [
        ["1.00×<br>0.95–1.05", "1.00×"],
        ["1.50×", "0.50×<br>✕ limit"],
        ["never", ""],
    ]
    assert (colours["zmin"], colours["zmax"]) == (-0.69315, 0.69315)
    # Never is as far from 1 as the scale goes; what nobody measured has no colour.
    assert colours["z"][2] == [-0.69315, None]
    assert (hatched["marker"]["pattern"]["shape"], hatched["y"], words["text"]) == ("/", [2], ["not<br>measured"])


def test_the_heat_map_says_best_and_worst_the_baselines_own_spread_and_what_breaks() -> None:
    assert heat_map().caption == (
        "Speed-up over no speculation in completion p50, each boot against the baseline boots of its own round: "
        "best 1.50× with ngram K=2 at quiet, worst never with ngram-s1x4-5x0 at quiet; "
        "above 1.00× is better. Boots of no speculation alone lie between 0.95× and 1.05× of their mean. "
        "Hatched cells are not measured. "
        "A broken edge and ✕ mark what is over a limit: ngram K=2 at peak (late)."
    )
    assert heat_map().table == (
        ("configuration", "quiet", "peak"),
        (
            ("no speculation", "1.00× (2 boots, 0.95× to 1.05×)", "1.00× (1 boot)"),
            ("ngram K=2", "1.50× (2 boots, 1.25× to 1.75×)", "0.50× (1 boot), breaks late"),
            ("ngram-s1x4-5x0 (ngram K=4 from 1, 0 from 5)", "never (1 boot)", "not measured"),
        ),
    )


def test_many_levels_have_short_numbers_and_upright_names() -> None:
    chart = TUNING_CHARTS["heat map of twelve levels"]
    assert chart.figure["layout"]["xaxis"]["tickangle"] == -90
    rows = [HeatRow("K", "length", {str(place): HeatCell(1.26, 1, ("late",) * (place > 6)) for place in range(8)})]
    texts = speed_up_heat_map(rows, [str(place) for place in range(8)], measure="attainment").figure["data"][0]["text"]
    assert texts == [["1.3"] * 7 + ["1.3<br>✕"]]


def test_a_broken_limit_has_an_edge_and_groups_a_border() -> None:
    shapes = heat_map().figure["layout"]["shapes"]
    assert [(one["type"], one["y0"]) for one in shapes] == [("line", 0.5), ("line", 1.5), ("rect", 0.54)]


def test_a_race_without_baseline_boots_has_no_speed_up() -> None:
    rows = [HeatRow("ngram K=2", "length", {"quiet": HeatCell(None, 2)})]
    chart = speed_up_heat_map(rows, ["quiet"], measure="attainment")
    assert chart.caption == "Nothing has been measured beside no speculation yet."
    assert chart.table.rows == (("ngram K=2", "no number (2 boots)"),)
    assert speed_up_heat_map([], [], measure="attainment").table.rows == ()


def test_curves_cross_where_a_straight_line_between_two_tested_rates_says() -> None:
    slower, faster = curve("ngram K=4", 0.96, 2.1, 3.0), curve("ngram K=2", 0.9, 2.0, 3.7)
    # +0.1 at 2 requests/s, −0.6 at 4: a seventh of the way. At 1 they differ by less than a request.
    (found,) = crossovers(BASELINE, slower)
    assert found == Crossover(approximately(2 + 2 / 7), (2.0, 4.0), "no speculation")
    # Equal at 2 requests/s: it lies between the rates on either side.
    (found,) = crossovers(BASELINE, faster)
    assert found == Crossover(approximately(2.5), (1.0, 4.0), "ngram K=2")


def test_the_crossover_load_is_named_in_a_sentence() -> None:
    assert curves().caption == (
        "ngram K=4: no crossover in the tested range (1 to 4 requests/s), never more than no speculation. "
        "ngram K=2: above 3 requests/s it carries more (tested: 2 and 4)."
    )


@pytest.mark.parametrize(
    ("reference", "others", "said"),
    [
        (curve("no speculation"), [curve("ngram K=2", 1.0)], "No boot without speculation has been measured"),
        (BASELINE, [], "No candidate has been measured yet."),
        (BASELINE, [curve("ngram K=2", 1.0)], "only one rate was measured beside no speculation"),
        (
            BASELINE,
            [curve("ngram K=2", 1.0, 2.0, 3.6)],
            "the same as no speculation but for less than a request a trial.",
        ),
    ],
)
def test_curves_that_can_not_cross_say_why(reference: Curve, others: list[Curve], said: str) -> None:
    assert said in goodput_over_rate(reference, others).caption


def test_more_curves_than_can_be_told_apart_stay_in_the_table() -> None:
    chart = goodput_over_rate(BASELINE, [curve(f"K={k}", 1.0, 1.5) for k in range(1, 9)])
    # All requests, no speculation and five candidates.
    assert len(chart.figure["data"]) == 7
    # Of all of them the same holds, so it is said once.
    assert chart.caption.startswith("K=1, K=2, K=3, K=4, K=5, K=6, K=7 and K=8: no crossover")
    assert len(chart.table.rows) == 3 + 8 * 2


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=4))
def test_a_crossover_lies_between_the_rates_that_it_names(goodputs: list[tuple[float, float]]) -> None:
    ours, theirs = curve("no speculation", *(one for one, _ in goodputs)), curve("K", *(one for _, one in goodputs))
    for found in crossovers(ours, theirs):
        assert found.between[0] <= found.rate <= found.between[1]
        assert math.isfinite(found.rate)


def test_acceptance_in_words_and_numbers() -> None:
    chart = TUNING_CHARTS["acceptance"]
    assert chart.caption == (
        "ngram K=2 keeps its first draft in 60 % of drafting rounds and all 2 in 25 %; "
        "the first most often for code (90 %), least for chat (50 %)."
    )
    assert chart.table.rows == (
        ("all requests", "400", "60.0 %", "25.0 %"),
        ("chat", "300", "50.0 %", "20.0 %"),
        ("code", "100", "90.0 %", "40.0 %"),
    )
    assert len({(one["line"]["dash"], one["marker"]["symbol"]) for one in chart.figure["data"]}) == 3


def test_acceptance_that_nobody_told_is_not_zero() -> None:
    chart = acceptance_by_position("ngram K=2", Kept([], 0), {})
    assert chart.caption == "ngram K=2: the engine did not tell what became of its drafts."
    assert chart.figure["data"] == []


def test_predicted_beside_measured_with_the_median_error() -> None:
    chart = TUNING_CHARTS["round times"]
    assert chart.caption == (
        "Round time predicted from other boots alone is off by 12.5 % in the median of 2 trials, "
        "at most by −20.0 % (ngram K=4 at peak)."
    )
    assert chart.table.rows == (
        ("no speculation", "quiet", "11", "1.5", "20 ms", "21 ms", "+5.0 %"),
        ("ngram K=4", "peak", "12", "6.2", "50 ms", "40 ms", "−20.0 %"),
    )
    assert "nothing was predicted" in predicted_round_times([], median=None).caption


def test_the_running_batch_beside_what_clients_have_open() -> None:
    chart = TUNING_CHARTS["running batch"]
    assert chart.caption == (
        "A schedule goes by the running batch, not by what clients have open: "
        "1.2 of 1.5 open requests run with no speculation at quiet (0.5 requests/s); "
        "5.5 run with ngram K=4 at peak (2 requests/s)."
    )
    assert [row[5] for row in chart.table.rows] == ["1.5", "–"]
    assert running_batches([]).caption == "The engine did not tell how many sequences ran."


def test_the_race_tells_rounds_minutes_and_who_fell() -> None:
    chart = race()
    assert chart.caption == (
        "4 boots in 2 rounds, 3.2 of 10 engine minutes spent; ngram K=8 out after round 1. The race is on."
    )
    assert race(ended="One is left.").caption.endswith("out after round 1. One is left.")
    assert chart.table.rows[1] == ("12", "1", "ngram K=8", "1 Mar 2026, 12:02 UTC", "1.5", "0.5 min", "lost")
    finished, lost, died, running, ends = chart.figure["data"]
    assert (finished["base"], finished["x"], finished["y"]) == ([0.0], [1.5], [0])
    # What was cut off and what runs are told apart without their colour.
    assert (lost["marker"]["pattern"]["shape"], running["marker"]["pattern"]["shape"]) == ("x", "/")
    assert "pattern" not in died["marker"]
    assert (ends["marker"]["symbol"], ends["text"]) == (["star", "x"], ["nominated", "out after round 1"])
    names = chart.figure["layout"]["yaxis"]["ticktext"]
    assert names == ["no speculation", "ngram K=2<br>nominated", "ngram K=8<br>out after round 1"]


def test_a_budget_far_away_is_told_in_words_alone() -> None:
    near = race(budget=6.0).figure["layout"]
    assert any(one["text"] == "budget 6 min" for one in near["annotations"])
    far = race(budget=500.0)
    assert far.figure["layout"]["xaxis"]["range"][1] < 4
    assert "3.2 of 500 engine minutes" in far.caption


def test_looks_differ_by_more_than_a_colour() -> None:
    looks = [series_look(place) for place in range(2 * len(SERIES))]
    assert len(set(looks)) == len(looks)
    assert len({look.dash for look in looks[: len(SERIES)]}) == len(SERIES)


def test_a_long_name_is_folded() -> None:
    assert folded("ngram-s1x8-3x2-6x0", 14, 2) == "ngram-s1x8-<br>3x2-6x0"
    assert folded("ngram-s1x8-3x2-6x0-9x1", 12, 2) == "ngram-s1x8-<br>3x2-6x0-9x1"
    assert folded("peak", 17, 2) == "peak"
