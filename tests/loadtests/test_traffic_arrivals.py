import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.traffic.arrivals import arrival_times_ns, derived_seed
from loadtests.traffic.levels import Arrival

NS = 1_000_000_000


def times(arrival: Arrival, *, duration_s: float = 10, seed: int = 1, recorded: tuple[int, ...] = ()) -> list[int]:
    return arrival_times_ns(arrival, duration_s=duration_s, seed=seed, recorded_ns=recorded)


def test_constant_starts_at_zero_and_stays_inside_the_window() -> None:
    assert times(Arrival(process="constant", rate=4), duration_s=1) == [0, 250_000_000, 500_000_000, 750_000_000]


def test_constant_divides_in_exact_nanoseconds() -> None:
    assert times(Arrival(process="constant", rate=3), duration_s=1) == [0, 333_333_333, 666_666_666]
    assert times(Arrival(process="constant", rate=0.1), duration_s=30) == [0, 10 * NS, 20 * NS]


def test_replay_is_rebased_scaled_and_cut() -> None:
    recorded = (7 * NS, 7 * NS + 1, 9 * NS, 27 * NS)
    assert times(Arrival(process="replay"), recorded=recorded) == [0, 1, 2 * NS]
    assert times(Arrival(process="replay", time_scale=0.1), recorded=recorded) == [0, 0, 200_000_000, 2 * NS]


def test_replay_scales_without_rounding_through_floats() -> None:
    long_ago = 40_000 * NS
    assert times(Arrival(process="replay", time_scale=0.1), duration_s=86_400, recorded=(0, long_ago + 7)) == [
        0,
        4_000 * NS,
    ]


def test_replay_refuses_times_that_go_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        times(Arrival(process="replay"), recorded=(5, 4))


@pytest.mark.parametrize(
    ("arrival", "words"),
    [
        (Arrival(process="replay"), "a replay of no recorded requests"),
        (Arrival(process="poisson", rate=1e-6), "poisson process of 1e-06 requests/s"),
    ],
)
def test_an_empty_window_is_refused(arrival: Arrival, words: str) -> None:
    with pytest.raises(ValueError, match=r"no request falls into the window of 10 s") as refusal:
        times(arrival)
    assert words in str(refusal.value)


@pytest.mark.parametrize("arrival", [Arrival(process="poisson", rate=1e5), Arrival(process="constant", rate=1e5)])
def test_an_absurd_rate_is_refused_before_memory_is_spent(arrival: Arrival) -> None:
    with pytest.raises(ValueError, match="lower the rate"):
        times(arrival, duration_s=86_400)


@given(
    st.one_of(
        st.builds(Arrival, process=st.just("poisson"), rate=st.floats(1, 50)),
        st.builds(Arrival, process=st.just("constant"), rate=st.floats(0.2, 50)),
        st.builds(Arrival, process=st.just("gamma"), rate=st.floats(5, 50), cv=st.floats(0.2, 3)),
    ),
    st.integers(0, 2**48),
)
@settings(max_examples=60)
def test_generated_times_ascend_within_the_window_and_repeat(arrival: Arrival, seed: int) -> None:
    first = times(arrival, duration_s=20, seed=seed)
    assert first == sorted(first)
    assert first[0] >= 0
    assert first[-1] < 20 * NS
    assert first == times(arrival, duration_s=20, seed=seed)


@given(st.lists(st.integers(0, 10**14), min_size=1, max_size=30).map(sorted))
def test_an_unscaled_replay_keeps_every_gap(recorded: list[int]) -> None:
    kept = times(Arrival(process="replay"), duration_s=86_400, recorded=tuple(recorded))
    assert kept == [time - recorded[0] for time in recorded if time - recorded[0] < 86_400 * NS]


def gap_mean_and_cv(arrival: Arrival) -> tuple[float, float]:
    planned = times(arrival, duration_s=4_000, seed=3)
    gaps = [(later - earlier) / NS for earlier, later in pairwise(planned)]
    mean = sum(gaps) / len(gaps)
    return mean, (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean


def test_rate_and_cv_are_what_they_say() -> None:
    assert gap_mean_and_cv(Arrival(process="poisson", rate=5)) == pytest.approx((0.2, 1.0), rel=0.05)
    assert gap_mean_and_cv(Arrival(process="gamma", rate=5, cv=2)) == pytest.approx((0.2, 2.0), rel=0.07)
    assert gap_mean_and_cv(Arrival(process="gamma", rate=5, cv=0.5)) == pytest.approx((0.2, 0.5), rel=0.05)


def test_seeds_differ_and_fit_in_a_json_number() -> None:
    seeds = {derived_seed("segment", 1, pair, name) for pair in range(50) for name in ("quiet", "peak")}
    assert len(seeds) == 100
    assert max(seeds) < 2**53
    assert derived_seed("a", "bc") != derived_seed("ab", "c")


def test_another_process_and_locale_draw_the_same_times() -> None:
    arrival = Arrival(process="gamma", rate=2, cv=1.5)
    script = (
        "from loadtests.traffic.arrivals import *\n"
        "print(arrival_times_ns(Arrival(process='gamma', rate=2, cv=1.5), duration_s=10, seed=1, recorded_ns=()))"
    )
    environment = {"LC_ALL": "C", "PYTHONHASHSEED": "77"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(times(arrival))
