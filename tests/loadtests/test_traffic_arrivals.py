import hashlib
import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.traffic.arrivals import arrival_times_ns, derived_seed, give_up_times_ns, label_bytes, on_off_inverse
from loadtests.traffic.levels import Arrival, Patience

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
        st.builds(
            Arrival,
            process=st.just("on-off"),
            rate=st.floats(20, 50),
            on_s=st.floats(0.5, 30),
            off_s=st.floats(0.001, 5),
            rate_off=st.floats(0, 19),
        ),
        st.builds(Arrival, process=st.just("ramp"), rate=st.floats(1, 50), rate_to=st.floats(0, 50)),
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


@pytest.mark.parametrize(
    ("arrival", "drawn"),
    [
        ({"process": "poisson", "rate": 5}, "197761d0713b23d1a35b0f6673621b7dfe3fff1a8d570d58b3270b3273c8e94d"),
        (
            {"process": "gamma", "rate": 5, "cv": 2.5},
            "fb60b2a54455742aafc4735e6626d5b3eba82c98877872e78a8c1ecf1935505e",
        ),
        (
            {"process": "on-off", "rate": 20, "on_s": 4, "off_s": 6, "rate_off": 1},
            "5831a2ff9b6590ce8a5a685580e2bd9e097774d5c7802da45fa63c3f1c940c7d",
        ),
        (
            {"process": "ramp", "rate": 2, "rate_to": 9},
            "4d80411f83510230c54c9e033da02a2146985b377dc7c9b1e824f712e95a2166",
        ),
    ],
)
def test_what_a_seed_drew_it_draws_for_ever(arrival: dict[str, Any], drawn: str) -> None:
    """Evidence is held against its plan's seed, years later too."""
    planned = arrival_times_ns(Arrival(**arrival), duration_s=600, warm_up_s=5, seed=7, recorded_ns=())
    patience = Patience(share=0.4, after_s=3, spread="exponential")
    gave_up = give_up_times_ns(patience, planned, seed=7)
    assert hashlib.sha256(json.dumps([planned, gave_up]).encode()).hexdigest() == drawn


def test_rate_and_cv_are_what_they_say() -> None:
    assert gap_mean_and_cv(Arrival(process="poisson", rate=5)) == pytest.approx((0.2, 1.0), rel=0.05)
    assert gap_mean_and_cv(Arrival(process="gamma", rate=5, cv=2)) == pytest.approx((0.2, 2.0), rel=0.07)
    assert gap_mean_and_cv(Arrival(process="gamma", rate=5, cv=0.5)) == pytest.approx((0.2, 0.5), rel=0.05)


BURSTS = Arrival(process="on-off", rate=20, on_s=4, off_s=6)


def counts_by(planned: list[int], *, width_s: float, of: int) -> list[int]:
    """Arrivals by their place in a cycle of ``of`` steps."""
    counted = Counter(int(time / NS / width_s) % of for time in planned)
    return [counted[place] for place in range(of)]


def test_bursts_come_at_their_rate_and_nothing_between_them() -> None:
    planned = times(BURSTS, duration_s=2_000, seed=5)
    assert len(planned) == pytest.approx(20 * 800, rel=0.03)
    silences = [(later - earlier) / NS for earlier, later in pairwise(planned) if later - earlier > 4 * NS]
    assert len(silences) in (199, 200, 201)
    assert min(silences) > 6
    assert sum(silences) / len(silences) == pytest.approx(6.1, rel=0.02)


def test_between_bursts_the_quiet_rate_holds() -> None:
    planned = times(BURSTS.model_copy(update={"rate_off": 5.0}), duration_s=10_000, seed=5)
    per_second = sorted(counts_by(planned, width_s=1, of=10))
    # Of ten seconds four are of bursts; the phase cuts one second on either side in two.
    assert per_second[:5] == pytest.approx([5_000] * 5, rel=0.05)
    assert per_second[-3:] == pytest.approx([20_000] * 3, rel=0.05)
    assert len(planned) == pytest.approx(110_000, rel=0.02)


def test_the_seed_draws_where_in_the_cycle_the_window_begins() -> None:
    first_bursts = {times(BURSTS, duration_s=60, seed=seed)[0] // NS for seed in range(40)}
    assert len(first_bursts) > 4


def test_a_ramp_climbs_in_a_straight_line() -> None:
    climb = Arrival(process="ramp", rate=10, rate_to=50)
    planned = times(climb, duration_s=1_000, seed=3)
    # 10 more requests/s every 250 s: means of 15, 25, 35 and 45 requests/s.
    assert counts_by(planned, width_s=250, of=4) == pytest.approx([3_750, 6_250, 8_750, 11_250], rel=0.05)
    descent = times(Arrival(process="ramp", rate=50, rate_to=0), duration_s=1_000, seed=3)
    assert counts_by(descent, width_s=500, of=2) == pytest.approx([18_750, 6_250], rel=0.05)


def test_a_ramp_warms_up_at_its_first_rate() -> None:
    climb = Arrival(process="ramp", rate=10, rate_to=50)
    planned = arrival_times_ns(climb, duration_s=1_000, warm_up_s=1_000, seed=3, recorded_ns=())
    expected = [5_000, 5_000, 5_000 + 5_000, 5_000 + 15_000]
    assert counts_by(planned, width_s=500, of=4) == pytest.approx(expected, rel=0.05)


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 40))
def test_the_inverse_of_bursts_is_an_inverse(phase: float, mass: float) -> None:
    bursts = Arrival(process="on-off", rate=3, on_s=2, off_s=5, rate_off=0.5)
    time = on_off_inverse(bursts, phase=phase)(mass)

    def mass_until(at_s: float) -> float:
        cycles, rest = divmod(at_s, 7)
        return cycles * 8.5 + 3 * min(rest, 2) + 0.5 * max(0, rest - 2)

    assert mass_until(phase * 7 + time) - mass_until(phase * 7) == pytest.approx(mass, abs=1e-6)


def test_an_arrival_is_planned_over_warm_up_and_window() -> None:
    steady = Arrival(process="constant", rate=1)
    assert arrival_times_ns(steady, duration_s=2, warm_up_s=1.5, seed=1, recorded_ns=()) == [0, NS, 2 * NS, 3 * NS]
    with pytest.raises(ValueError, match="no request falls into the window of 2 s"):
        arrival_times_ns(Arrival(process="replay"), duration_s=2, warm_up_s=5, seed=1, recorded_ns=(0, NS))


def test_who_gives_up_is_drawn_by_the_seed_alone() -> None:
    planned = list(range(0, 20_000 * NS, NS))
    patience = Patience(share=0.3, after_s=0.1)
    found = give_up_times_ns(patience, planned, seed=4)
    gone = [(give_up, at) for give_up, at in zip(found, planned, strict=True) if give_up is not None]
    assert {give_up - at for give_up, at in gone} == {NS // 10}
    assert len(gone) == pytest.approx(6_000, rel=0.05)
    assert found == give_up_times_ns(patience, planned, seed=4) != give_up_times_ns(patience, planned, seed=5)
    assert give_up_times_ns(None, planned[:2], seed=4) == [None, None]
    everybody = give_up_times_ns(Patience(share=1, after_s=2, spread="exponential"), planned, seed=4)
    waits = [(give_up or 0) - at for give_up, at in zip(everybody, planned, strict=True)]
    assert min(waits) > 0
    assert sum(waits) / len(waits) == pytest.approx(2 * NS, rel=0.05)


def test_seeds_differ_and_fit_in_a_json_number() -> None:
    seeds = {derived_seed("segment", 1, pair, name) for pair in range(50) for name in ("quiet", "peak")}
    assert len(seeds) == 100
    assert max(seeds) < 2**53
    assert derived_seed("a", "bc") != derived_seed("ab", "c")


@given(st.lists(st.one_of(st.text(), st.integers())))
def test_labels_are_hashed_as_json_writes_them(labels: list[str | int]) -> None:
    assert label_bytes(*labels) == hashlib.sha256(json.dumps(labels).encode()).digest()


def test_another_process_and_locale_draw_the_same_times() -> None:
    arrival = Arrival(process="gamma", rate=2, cv=1.5)
    script = (
        "from loadtests.traffic.arrivals import *\n"
        "print(arrival_times_ns(Arrival(process='gamma', rate=2, cv=1.5), duration_s=10, seed=1, recorded_ns=()))"
    )
    environment = {"LC_ALL": "C", "PYTHONHASHSEED": "77"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(times(arrival))
