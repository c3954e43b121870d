import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.traffic.columns import Columns
from loadtests.traffic.part_statistics import (
    Side,
    bucket_width_s,
    busiest_second,
    dispersion,
    gap_edges,
    gaps_s,
    octave_edges,
    part_statistics,
    per_bucket,
)

NS = 1_000_000_000


def seconds(*values: float) -> np.ndarray:
    return np.array([round(value * NS) for value in values], dtype=np.int64)


COLUMNS = Columns(
    arrivals_ns=seconds(0, 1, 2, 25),
    conversations=np.array([0, 1, 2, 0], dtype=np.int32),
    classes=np.array([1, 0, 1, 1], dtype=np.int32),
    class_names=("rewrite", "chat"),
    output_limits=np.array([8, 9, 10, 11]),
    prompt_tokens=None,
    line_ends=np.arange(5),
)
PROMPTS = np.array([2, 4, 3, 8])


def side(stretches: list[list[int]], rows: list[bool], *, timed: bool = True) -> Side:
    return Side(COLUMNS, PROMPTS, "characters", stretches, timed, np.array(rows))


def test_statistics_of_a_whole_set() -> None:
    statistics = part_statistics(side([[0, 25 * NS + 1]], [True] * 4))
    assert statistics == {
        "count": 4,
        "classes": {"chat": 3, "rewrite": 1},
        "conversations": 3,
        "duration_s": 25.0,
        "prompt": {
            "unit": "characters",
            "p50": 3,
            "p90": 8,
            "max": 8,
            "histogram": {"edges": [2, 3, 4, 6, 8, 12], "counts": [1, 1, 1, 0, 1]},
        },
        "max_tokens": {"p50": 9, "p90": 11, "max": 11, "histogram": {"edges": [8, 12], "counts": [4]}},
        "gaps_s": {
            "p50": 1.0,
            "p90": 23.0,
            "max": 23.0,
            "histogram": {
                "edges": [0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50],
                "counts": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1],
            },
        },
        # Two whole windows, of 3 requests and of none: mean 1.5, sample variance 4.5.
        "dispersion_10s": 3.0,
        # Twenty-five of a second, four of them with one request.
        "dispersion_1s": pytest.approx(11 / 12),
        "together": 0.0,
        "busiest_second": {"at_s": 0.0, "count": 1},
        "bucket_s": 10,
        "arrivals": [3, 0, 1],
        "timed": True,
    }


def test_a_part_counts_its_own_time_alone() -> None:
    # The last request is a later turn, in time that is another part's.
    statistics = part_statistics(side([[0, 20 * NS]], [True, False, True, True]))
    assert statistics["count"] == 3
    assert statistics["duration_s"] == 20.0
    assert statistics["gaps_s"]["max"] == 2.0
    assert statistics["dispersion_10s"] == 2.0
    assert statistics["arrivals"] == [2, 0, 1]
    assert statistics["prompt"]["histogram"]["edges"] == [2, 3, 4, 6, 8, 12]


def test_requests_within_a_millisecond_of_the_one_before_come_together() -> None:
    batches = Columns(
        arrivals_ns=seconds(0, 0.001, 0.0025, 30, 30, 61),
        conversations=np.arange(6, dtype=np.int32),
        classes=np.zeros(6, dtype=np.int32),
        class_names=("default",),
        output_limits=np.ones(6, dtype=np.int64),
        prompt_tokens=None,
        line_ends=np.arange(7),
    )
    # The last one arrives in another part's time.
    found = Side(batches, np.ones(6, dtype=np.int64), "tokens", [[0, 60 * NS]], True, np.ones(6, dtype=bool))
    assert part_statistics(found)["together"] == 2 / 5


def test_a_set_without_times_says_nothing_of_time() -> None:
    statistics = part_statistics(side([[0, 1]], [True] * 4, timed=False))
    timed = ("gaps_s", "dispersion_10s", "dispersion_1s", "together", "busiest_second", "duration_s", "timed")
    assert [statistics[name] for name in timed] == [
        None,
        None,
        None,
        None,
        None,
        0.0,
        False,
    ]


def test_a_single_request_has_no_gap() -> None:
    statistics = part_statistics(side([[0, 25 * NS]], [True, False, False, False]))
    assert statistics["gaps_s"] is None
    assert statistics["max_tokens"]["p90"] == 8


def test_gaps_stay_within_a_stretch() -> None:
    found = gaps_s(seconds(0, 1, 3, 10, 14, 30), [[0, 5 * NS], [10 * NS, 20 * NS]])
    assert found.tolist() == [1, 2, 4]


def test_dispersion_counts_the_windows_within_stretches() -> None:
    arrivals = seconds(0, 1, 2, 15, 26, 31, 32)
    # Windows at 0, 10, 25 and 35 s: 3, 1, 3 and no requests; the mean is 7/4 and the sample variance 9/4.
    assert dispersion(arrivals, [[0, 24 * NS], [25 * NS, 45 * NS]], window_s=10) == pytest.approx(9 / 7)
    assert dispersion(arrivals, [[0, 12 * NS]], window_s=10) is None


def test_the_busiest_second_begins_with_a_request() -> None:
    assert busiest_second(seconds(0, 0.7, 1.2, 1.6, 5, 5.1)) == {"at_s": 0.7, "count": 3}


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_length_bins_reach_around_the_values(values: list[int]) -> None:
    edges = octave_edges(np.array(values))
    assert edges[0] <= min(values) < edges[1]
    assert edges[-2] <= max(values) < edges[-1]


@given(st.floats(0, 1e10))
def test_gap_bins_reach_beyond_the_longest(longest: float) -> None:
    edges = gap_edges(longest)
    assert edges == sorted(edges)
    assert edges[-2] <= longest < edges[-1]


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=50).map(sorted))
def test_the_chart_has_few_bars_and_every_request(arrivals: list[int]) -> None:
    bucket_s = bucket_width_s(arrivals[-1])
    bars = per_bucket(np.array(arrivals), bucket_s=bucket_s, last_ns=arrivals[-1])
    assert len(bars) <= 180
    assert sum(bars) == len(arrivals)
