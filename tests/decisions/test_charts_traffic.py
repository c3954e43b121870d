"""The pictures of a traffic set and of load levels: what is drawn, what the sentence says, what the table holds."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decisions.charts.arrivals import Busiest, Lane, arrivals_over_time, merged
from decisions.charts.classes import OTHERS, classes_of_both_sides
from decisions.charts.figure import INK, SOFT
from decisions.charts.lengths import Histogram, Measure, Spread, both_sides, length_histogram
from decisions.charts.levels import LevelLine, axis_of, levels_over_time, line_of, step_s

PROMPT = Measure("prompt length", "tokens")
LANES = [Lane("tuning", [(0, 10), (20, 30)]), Lane("held-out", [(10, 20)])]


class TestArrivals:
    def test_bars_show_the_rate_over_the_time_they_count(self) -> None:
        bars = arrivals_over_time([30, 0, 10], bucket_s=10).figure["data"][0]
        assert (bars["x"], bars["y"], bars["width"], bars["offset"]) == ([0, 10, 20], [3, 0, 1], 10, 0)

    def test_in_words_and_numbers(self) -> None:
        chart = arrivals_over_time([30, 0, 10], bucket_s=10, lanes=LANES, busiest=Busiest(75, 9))
        assert chart.caption == (
            "40 requests over 30 s, 1.33 a second on average; the busiest 10 s had 30, the busiest second 9, "
            "1 min 15 s from the start; in 1 of 3 bars nothing arrived."
        )
        assert chart.table == (
            ("from", "requests in 10 s", "requests/s", "time of"),
            (("0 s", "30", "3", "tuning"), ("10 s", "0", "0", "held-out"), ("20 s", "10", "1", "tuning")),
        )

    def test_the_rate_is_over_the_traffic_and_not_over_its_bars(self) -> None:
        caption = arrivals_over_time([30, 0, 10], bucket_s=10, duration_s=20.5).caption
        assert caption.startswith("40 requests over 20.5 s, 1.95 a second on average")

    def test_every_part_has_a_lane_with_its_name_and_a_pattern(self) -> None:
        figure = arrivals_over_time([1, 1, 1], bucket_s=10, lanes=LANES).figure
        _, tuning, held_out = figure["data"]
        assert (tuning["y"], tuning["base"], tuning["x"]) == (["tuning", "tuning"], [0, 20], [10, 10])
        assert held_out["y"] == ["held-out"]
        assert tuning["marker"]["pattern"]["shape"] != held_out["marker"]["pattern"]["shape"]
        assert figure["layout"]["yaxis2"]["domain"][1] < figure["layout"]["yaxis"]["domain"][0]

    def test_the_busiest_second_is_named_where_it_was(self) -> None:
        figure = arrivals_over_time([5] * 100, bucket_s=60, busiest=Busiest(600, 4)).figure
        assert figure["layout"]["annotations"][0]["text"] == "busiest second: 4"
        assert figure["layout"]["annotations"][0]["x"] == 10

    def test_a_part_in_thousands_of_stretches_stays_small(self) -> None:
        stretches = [(at, at + 0.5) for at in range(50_000)]
        chart = arrivals_over_time([50] * 180, bucket_s=280, lanes=[Lane("tuning", stretches)])
        assert len(json.dumps(chart.figure)) < 100 * 1024

    @given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), max_size=50), st.floats(0, 100))
    def test_merging_keeps_all_time_and_leaves_only_gaps_one_can_see(
        self, drawn: list[tuple[float, float]], gap: float
    ) -> None:
        stretches = [(start, start + length) for start, length in drawn]
        found = list(merged(stretches, gap=gap))
        assert all(any(low <= start and end <= high for low, high in found) for start, end in stretches)
        assert all(later[0] - earlier[1] > gap for earlier, later in pairwise(found))


class TestLengths:
    def test_bins_are_drawn_equally_wide_and_named_by_their_edges(self) -> None:
        chart = length_histogram(PROMPT, Histogram([1, 2, 4, 8, 16_384], [1, 0, 2, 1]), Spread(5, 9, 12_000))
        bars = chart.figure["data"][0]
        assert (bars["x"], bars["y"]) == ([0, 1, 2, 3], [1, 0, 2, 1])
        assert chart.figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "4", "8", "16.4k"]
        assert chart.figure["layout"]["xaxis"]["title"]["text"] == "tokens"
        assert chart.caption == (
            "Prompt length: half of the requests at most 5 tokens, nine in ten at most 9, the longest 12,000."
        )
        assert chart.table == (
            ("tokens", "requests", "share"),
            (("1", "1", "25.0 %"), ("2 to 3", "0", "0.0 %"), ("4 to 7", "2", "50.0 %"), ("8 to 16,383", "1", "25.0 %")),
        )

    def test_both_sides_stand_on_the_same_bins(self) -> None:
        chart = both_sides(PROMPT, tuning=Histogram([1, 2, 4], [1, 3]), held_out=Histogram([2, 4, 8], [1, 1]))
        held_out, tuning = chart.figure["data"]
        assert (tuning["x"], tuning["y"]) == ([0, 1, 2, 3], [0.25, 0.75, 0, 0])
        assert held_out["y"] == [0, 0.5, 0.5, 0.5]
        assert tuning["line"]["dash"] != held_out["line"]["dash"]
        assert chart.table == (
            ("tokens", "tuning", "held-out"),
            (("1", "25.0 %", "0.0 %"), ("2 to 3", "75.0 %", "50.0 %"), ("4 to 7", "0.0 %", "50.0 %")),
        )

    def test_a_coarser_bin_is_spread_over_its_pieces(self) -> None:
        chart = both_sides(PROMPT, tuning=Histogram([1, 4], [8]), held_out=Histogram([1, 2, 4], [1, 3]))
        assert chart.figure["data"][1]["y"] == [0.5, 0.5, 0.5]

    def test_the_sentence_ends_with_what_the_test_found(self) -> None:
        side = Histogram([1, 2], [1])
        assert both_sides(PROMPT, tuning=side, held_out=side, verdict="they are alike").caption == (
            "Prompt length of tuning and held-out requests: they are alike."
        )


class TestClasses:
    def test_shares_are_of_each_part(self) -> None:
        chart = classes_of_both_sides(tuning={"chat": 3, "code": 1}, held_out={"chat": 50, "mail": 50})
        tuning, held_out = chart.figure["data"]
        assert (tuning["y"], tuning["x"], held_out["x"]) == (["chat", "mail", "code"], [0.75, 0, 0.25], [0.5, 0.5, 0])
        assert chart.table.rows[0] == ("chat", "75.0 %", "50.0 %")

    def test_rare_classes_are_one_bar_and_nothing_is_lost(self) -> None:
        many = {f"class {number}": 1 for number in range(40)}
        chart = classes_of_both_sides(tuning=many, held_out=many)
        bars = chart.figure["data"][0]
        assert (len(bars["y"]), bars["y"][-1]) == (12, OTHERS)
        assert sum(bars["x"]) == pytest.approx(1, abs=1e-4)


class TestLevels:
    def test_the_warm_up_lies_before_zero_and_is_shaded(self) -> None:
        line = line_of("peak", "constant", [-1.5, -0.5, 0.0, 1.0, 1.5], warm_up_s=1.5, duration_s=2)
        assert (line.edges_s, line.rates) == ([-1.5, -1.0, 0, 1.0, 2.0], [2.0, 1.0, 1.0, 2.0])
        assert (line.mean, line.most) == (1.5, 2.0)
        layout = levels_over_time([line]).figure["layout"]
        assert (layout["shapes"][0]["x0"], layout["shapes"][0]["x1"]) == (-1.5, 0)
        assert "shaded: warm-up, not counted" in [one["text"] for one in layout["annotations"]]

    def test_every_level_has_a_row_of_its_own_under_its_name_and_all_the_same_scale(self) -> None:
        quiet = line_of("quiet", "constant", [0.5], warm_up_s=0, duration_s=2)
        peak = line_of("peak", "gamma", [0.1, 0.2, 0.3, 1.0], warm_up_s=0, duration_s=2)
        chart = levels_over_time([quiet, peak])
        assert [(trace["name"], trace["yaxis"]) for trace in chart.figure["data"]] == [("quiet", "y"), ("peak", "y2")]
        layout = chart.figure["layout"]
        assert layout["yaxis"]["range"] == layout["yaxis2"]["range"] == [0, pytest.approx(3.12)]
        assert layout["yaxis"]["ticktext"] == ["0", "3/s"]
        assert layout["xaxis"]["anchor"] == "y2"
        assert [one["text"] for one in layout["annotations"]] == ["quiet", "mean 0.5/s", "peak", "mean 2/s"]
        # Text has the page's own two colours, which are 4.5 to 1 against it and more.
        assert {one["font"]["color"] for one in layout["annotations"]} == {INK, SOFT}
        assert chart.caption == (
            "Planned arrivals of the first pair, on average: quiet 0.5 requests/s (constant; at most 1); "
            "peak 2 requests/s (gamma; at most 3)."
        )
        assert chart.table == (
            ("from", "quiet, requests/s", "peak, requests/s"),
            (("0 s", "1", "3"), ("1 s", "0", "1")),
        )

    def test_a_level_that_ends_earlier_has_no_number_after(self) -> None:
        long, short = LevelLine("long", "", [0, 1, 2], [1, 1]), LevelLine("short", "", [0, 1], [3])
        assert levels_over_time([long, short]).table.rows[-1] == ("1 s", "1", "–")

    def test_a_day_is_drawn_in_few_steps(self) -> None:
        assert (step_s(10), step_s(61), step_s(86_400)) == (1, 2, 1_800)

    @given(
        st.lists(st.floats(-1, 1), max_size=200),
        st.just(0.0) | st.floats(0.001, 3_600),
        st.floats(0.001, 86_400),
    )
    @settings(deadline=None)
    def test_no_planned_request_is_lost(self, places: list[float], warm_up_s: float, duration_s: float) -> None:
        times = [place * warm_up_s if place < 0 else place * duration_s * 0.999 for place in places]
        line = line_of("any", "", times, warm_up_s=warm_up_s, duration_s=duration_s)
        spans = [end - start for start, end in pairwise(line.edges_s)]
        counted = sum(rate * span for rate, span in zip(line.rates, spans, strict=True))
        assert counted == pytest.approx(len(times))
        assert len(line.rates) <= 64
        assert (line.edges_s[0], line.edges_s[-1]) == (-warm_up_s, duration_s)

    @given(st.integers(1, 12))
    def test_rows_and_their_names_never_cover_each_other(self, count: int) -> None:
        layout = levels_over_time([LevelLine(f"l{place}", "", [0, 1], [place]) for place in range(count)]).figure[
            "layout"
        ]
        plot = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
        domains = [layout[axis_of(place).replace("y", "yaxis")]["domain"] for place in range(count)]
        edges = [1.0, *(edge for low, high in domains for edge in (high, low))]
        # From above: room for a name, then a row that can be read.
        steps = [round((upper - lower) * plot) for upper, lower in pairwise(edges)]
        assert steps == [26, 58] * count
        names = [one["y"] for one in layout["annotations"]]
        assert names == [high for _, high in domains for _ in range(2)]
