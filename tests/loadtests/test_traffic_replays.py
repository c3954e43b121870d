"""Recorded times stay what they were: replays within the stretches of a part, and of public traces."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.traffic.importers import Wanted, import_file
from loadtests.traffic.levels import Level
from loadtests.traffic.part_statistics import dispersion
from loadtests.traffic.plan import Segment, plan_level, segments
from loadtests.traffic.planned import PlannedRequest, plan_content
from loadtests.traffic.rows import Row, read_rows

NS = 1_000_000_000
Joined = Callable[[Path], list[Row]]
SUPPORT = Path(__file__).resolve().parent.parent / "support"


def row(number: int, arrival_s: float) -> Row:
    return Row.model_validate(
        {
            "id": f"r{number}",
            "conversation": f"c{number}",
            "arrival_s": arrival_s,
            "class": "chat",
            "messages": [{"role": "user", "content": f"question {number}"}],
            "max_tokens": 8,
        }
    )


def arriving(*times_s: float) -> list[Row]:
    return [row(number, at) for number, at in enumerate(times_s)]


def replayed(duration_s: float, *, time_scale: float | None = None, **more: Any) -> Level:
    arrival = {"process": "replay", "time_scale": time_scale}
    return Level.model_validate({"name": "peak", "arrival": arrival, "duration_s": duration_s} | more)


def steady(name: str, requests: int) -> Level:
    return Level.model_validate({"name": name, "arrival": {"process": "constant", "rate": 1}, "duration_s": requests})


def stretch(start_s: float, end_s: float) -> list[int]:
    return [round(start_s * NS), round(end_s * NS)]


def placed(
    rows: Sequence[Row], levels: Sequence[Level], *, pairs: int = 1, stretches: Any = None, wrap: bool = False
) -> list[Segment]:
    return list(segments(rows, levels, pairs=pairs, seed=9, wrap=wrap, stretches=stretches).values())


def taken(found: Sequence[Segment]) -> list[tuple[int, ...]]:
    return [one.rows for one in found]


def planned(rows: Sequence[Row], segment: Segment, level: Level) -> list[PlannedRequest]:
    return plan_level([(index, rows[index]) for index in segment.rows], level, seed=segment.seed, prefix="t")


# Two blocks of the part with a hole between them, in which later turns of its conversations arrive.
BLOCKS = arriving(0, 1, 4, 9, 12, 17, 30, 31, 33, 39)
HOLE = [stretch(0, 10), stretch(30, 40)]


def test_a_replay_goes_on_in_the_next_stretch_and_never_across_the_hole() -> None:
    assert taken(placed(BLOCKS, [replayed(8)], pairs=2, stretches=HOLE)) == [(0, 1, 2), (6, 7, 8)]


def test_without_stretches_a_part_is_one_whole() -> None:
    assert taken(placed(BLOCKS, [replayed(8)], pairs=3)) == [(0, 1, 2), (3, 4), (5,)]


def test_a_stretch_may_hold_several_windows() -> None:
    assert taken(placed(BLOCKS, [replayed(4)], pairs=3, stretches=HOLE)) == [(0, 1), (2,), (6, 7, 8)]


def test_silence_up_to_the_border_is_silence() -> None:
    # The last request of the stretch comes after 33 s, and its time goes on to 50 s.
    rows = arriving(30, 31, 33)
    assert taken(placed(rows, [replayed(20)], stretches=[stretch(30, 50)])) == [(0, 1, 2)]


def test_a_level_of_drawn_times_may_take_any_row() -> None:
    levels = [replayed(8), steady("quiet", 4), replayed(8).model_copy(update={"name": "late"})]
    assert taken(placed(BLOCKS, levels, stretches=HOLE)) == [(0, 1, 2), (3, 4, 5, 6), (7, 8)]
    with pytest.raises(ValueError, match="level late of pair 1 is left without"):
        placed(BLOCKS, [replayed(8), steady("quiet", 5), levels[2]], stretches=HOLE)


def test_tuning_goes_through_the_stretches_again() -> None:
    found = placed(BLOCKS, [replayed(8)], pairs=3, stretches=HOLE, wrap=True)
    assert taken(found) == [(0, 1, 2), (6, 7, 8), (0, 1, 2)]


def test_too_short_stretches_say_how_long_they_are_and_what_to_do() -> None:
    with pytest.raises(ValueError, match="only 0 fit") as refusal:
        placed(BLOCKS, [replayed(4, time_scale=0.25, warm_up_s=1)], stretches=HOLE)
    assert str(refusal.value) == (
        "the held-out part has 10 requests; 1 segments need more: only 0 fit before the recorded times end, and level "
        "peak of pair 1 is left without; it replays 20 s of recorded time (warm-up and window of 5 s ÷ time scale "
        "0.25), and the longest unbroken stretch lasts 10 s: split the traffic into longer blocks, or plan a shorter "
        "window"
    )


def test_too_few_stretches_say_that_traffic_is_missing() -> None:
    with pytest.raises(ValueError, match=r"lasts 10 s: add traffic, or plan fewer pairs or shorter windows$"):
        placed(BLOCKS, [replayed(8)], pairs=3, stretches=HOLE)


def test_a_window_that_would_be_silent_after_its_warm_up_is_passed_over() -> None:
    rows = arriving(0, 1, 8, 12)
    assert taken(placed(rows, [replayed(4, warm_up_s=2)], stretches=[stretch(0, 20)])) == [(2, 3)]


def test_times_that_go_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match="recorded times go backwards"):
        placed(arriving(3, 1), [replayed(1)], stretches=[stretch(0, 10)])


MICROSECONDS = st.integers(0, 400_000_000)


@given(
    st.lists(MICROSECONDS, min_size=1, max_size=200).map(sorted),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 100)), min_size=1, max_size=4),
    st.sampled_from([None, 0.5, 0.1, 3]),
    st.integers(1, 30),
)
@settings(max_examples=150)
def test_a_replay_has_its_stretch_s_own_gaps(
    times_us: list[int], cuts: list[tuple[int, int]], scale: float | None, duration_s: int
) -> None:
    rows = [row(number, at / 1_000_000) for number, at in enumerate(times_us)]
    at, stretches = 0, []
    for hole, length in cuts:
        stretches.append(stretch(at + hole, at + hole + length))
        at += hole + length
    level = replayed(duration_s, time_scale=scale)
    try:
        found = placed(rows, [level], pairs=2, stretches=stretches)
    except ValueError:
        return
    for segment in found:
        first = rows[segment.start].arrival_ns
        border = next(end for start, end in stretches if start <= first < end)
        assert rows[segment.rows[-1]].arrival_ns < border
        assert first + duration_s * NS / (scale or 1) <= border + 1
        plan = planned(rows, segment, level)
        assert [one.row for one in plan] == list(segment.rows)
        gaps = [later.arrival_ns - first for later in (rows[index] for index in segment.rows)]
        assert [one.planned_ns for one in plan] == [math.floor(gap * round((scale or 1) * 10) / 10) for gap in gaps]
    assert found[0].rows[-1] < found[1].start


def test_warm_up_and_patience_are_in_the_plan_s_bytes_and_the_plain_plan_s_are_as_before() -> None:
    rows = arriving(0, 1, 2, 3)
    plain = replayed(4)
    patient = replayed(2, warm_up_s=2, patience={"share": 1, "after_s": 1.5}, max_concurrency=3)
    (one,) = placed(rows, [plain], stretches=[stretch(0, 4)])
    before = json.loads(plan_content(planned(rows, one, plain), plain))
    assert before["schema"] == "draftproof.plan/1"
    assert list(before) == ["level", "requests", "schema"]
    found = planned(rows, one, patient)
    assert [(each.warm_up, each.give_up_ns) for each in found] == [
        (True, 1_500_000_000),
        (True, 2_500_000_000),
        (False, 3_500_000_000),
        (False, 4_500_000_000),
    ]
    assert json.loads(plan_content(found, patient)) == before | {
        "schema": "draftproof.plan/2",
        "warm_up_s": 2.0,
        "max_concurrency": 3,
        "patience": {"share": 1.0, "after_s": 1.5, "spread": "constant"},
        "requests": [[*each, one.give_up_ns] for each, one in zip(before["requests"], found, strict=True)],
    }


def rebuilt(**environment: str) -> list[str]:
    command = [sys.executable, str(SUPPORT / "rebuild_plans.py")]
    ran = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SUPPORT.parent.parent), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.split()


def test_a_fresh_process_rebuilds_a_campaign_s_plans_byte_for_byte() -> None:
    here = rebuilt(PYTHONHASHSEED="0", TZ="UTC", LC_ALL="C.UTF-8")
    elsewhere = rebuilt(PYTHONHASHSEED="4242", TZ="Asia/Kathmandu", LC_ALL="C")
    assert here == elsewhere
    # Eight boots of five levels, and both arms of a pair send the same.
    assert (len(here), len(set(here[1:]))) == (1 + 40, 20)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    """The rows of a trace, each of which is imported once."""

    @cache
    def rows(trace: Path) -> list[Row]:
        return with_text(trace, tmp_path_factory.mktemp("joined"))

    return rows


def with_text(trace: Path, tmp_path: Path) -> list[Row]:
    """A trace of lengths with text of those lengths, through the importer."""
    texts = [("." * 4 * 2**bits, f"d{bits}") for bits in range(1, 17)]
    lines = [json.dumps({"id": name, "messages": [{"role": "user", "content": text}]}) for text, name in texts]
    (tmp_path / "donor.jsonl").write_text("\n".join(lines), encoding="utf-8")
    import_file(Wanted(trace, donor=tmp_path / "donor.jsonl"), tmp_path / "set")
    return list(read_rows(tmp_path / "set" / "rows.jsonl"))


def recorded_ms(trace: Path) -> list[int]:
    """Arrivals of the rows that can be used, straight from the file."""
    lines = trace.read_text(encoding="utf-8").splitlines()
    if trace.suffix == ".jsonl":
        return [json.loads(line)["timestamp"] for line in lines]
    return [int(line.split(",")[0]) * 1_000 for line in lines[1:] if ",0,0,0," not in line]


TRACES = ["mooncake_conversation_first20min.jsonl", "burstgpt_1_rows1-30.csv"]


@pytest.mark.parametrize(("name", "window_s"), [(TRACES[0], 300), (TRACES[1], 600)])
def test_windows_of_public_traces_keep_their_gaps_to_the_nanosecond(
    shared_data: Path, joined: Joined, name: str, window_s: int
) -> None:
    trace = shared_data / "traces" / name
    rows, times = joined(trace), recorded_ms(trace)
    half = (times[-1] - times[0]) * 1_000_000 // 2
    level = replayed(window_s)
    found = placed(rows, [level], pairs=2, stretches=[[0, half], [half, 2 * half + 1]])
    for segment in found:
        plan = planned(rows, segment, level)
        own = [times[index] for index in segment.rows]
        assert plan[0].planned_ns == 0
        assert [b.planned_ns - a.planned_ns for a, b in pairwise(plan)] == [
            (later - earlier) * 1_000_000 for earlier, later in pairwise(own)
        ]
        assert len(plan) > 3


def dispersion_of(times_ns: Sequence[int], *, span_s: int, window_s: int) -> float:
    found = dispersion(np.array(times_ns, dtype=np.int64), [[0, span_s * NS]], window_s=window_s)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "span_s"), [(TRACES[0], 1_100), (TRACES[1], 2_200)])
@pytest.mark.parametrize("scale", [1, 0.5, 0.1])
def test_a_squeezed_peak_is_as_bursty_as_its_source(
    shared_data: Path, joined: Joined, name: str, span_s: int, scale: float
) -> None:
    trace = shared_data / "traces" / name
    rows, times = joined(trace), recorded_ms(trace)
    source = [(at - times[0]) * 1_000_000 for at in times]
    level = replayed(span_s * scale, time_scale=scale)
    (segment,) = placed(rows, [level], stretches=[[0, source[-1] + 1]])
    plan = [one.planned_ns for one in planned(rows, segment, level)]
    # 10 s of the source are 10 · time_scale s of the plan.
    peak = dispersion_of(plan, span_s=round(span_s * scale), window_s=round(10 * scale))
    assert peak == pytest.approx(dispersion_of(source, span_s=span_s, window_s=10), rel=0.05)


def test_a_peak_from_the_busiest_stretch_is_as_bursty_as_that(shared_data: Path, joined: Joined) -> None:
    trace = shared_data / "traces" / TRACES[0]
    rows, times = joined(trace), np.array(recorded_ms(trace)) * 1_000_000
    counts = np.searchsorted(times, times + 120 * NS) - np.arange(len(times))
    start = int(times[counts.argmax()])
    busiest = times[(times >= start) & (times < start + 120 * NS)] - start
    level = replayed(120)
    (segment,) = placed(rows, [level], stretches=[[start, start + 120 * NS]])
    plan = [one.planned_ns for one in planned(rows, segment, level)]
    assert plan == busiest.tolist()
    assert len(plan) == counts.max()
    assert dispersion_of(plan, span_s=120, window_s=10) == pytest.approx(
        dispersion_of(busiest.tolist(), span_s=120, window_s=10), rel=0.05
    )
