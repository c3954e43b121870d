"""The schedule of draft lengths: what can be one, and that each of its forms says the same."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.configurations import LONGEST_DRAFT, Speculative
from loadtests.simulator.model import lengths_by_batch
from loadtests.tuning.schedule import BadSchedule, Schedule, Step, schedule_of, with_schedule

NGRAM = Speculative(method="ngram", num_speculative_tokens=4)
THREE = Schedule((Step(1, 4, 8), Step(5, 16, 2), Step(17, None, 0)))


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    starts = draw(st.sets(st.integers(2, 300), max_size=5))
    lengths = draw(st.lists(st.integers(0, LONGEST_DRAFT), min_size=6, max_size=6))
    return Schedule.of(zip([1, *sorted(starts)], lengths, strict=False))


def test_the_forms_of_one_schedule() -> None:
    assert THREE.text == str(THREE) == "1x8-5x2-17x0"
    assert THREE.document == [
        {"lo": 1, "hi": 4, "k": 8},
        {"lo": 5, "hi": 16, "k": 2},
        {"lo": 17, "hi": None, "k": 0},
    ]
    assert Schedule.parse("1x8-5x2-17x0") == Schedule.of({1: 8, 5: 2, 17: 0}) == THREE
    assert (THREE.most, THREE.draft_lengths) == (8, (0, 2, 8))
    assert [THREE.k_at(batch) for batch in (0, 1, 4, 5, 16, 17, 1_000)] == [8, 8, 8, 2, 2, 0, 0]
    assert Schedule.fixed(3) == Schedule((Step(1, None, 3),))


@given(schedules())
def test_each_form_gives_the_same_schedule_back(schedule: Schedule) -> None:
    assert Schedule.parse(schedule.text) == schedule
    assert Schedule.of_document(schedule.document) == schedule
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", schedule.text)


@given(schedules(), schedules())
def test_two_schedules_never_have_the_same_text(left: Schedule, right: Schedule) -> None:
    assert (left.text == right.text) == (left == right)


@given(schedules(), st.integers(1, 400))
def test_a_speculative_setting_under_a_schedule_runs_it_up_to_the_largest_batch(schedule: Schedule, most: int) -> None:
    if not any(schedule.k_at(batch) for batch in range(1, most + 1)):
        with pytest.raises(BadSchedule, match="never drafts"):
            with_schedule(NGRAM, schedule, max_num_seqs=most)
        return
    setting = with_schedule(NGRAM, schedule, max_num_seqs=most)
    wanted = [schedule.k_at(batch) for batch in range(1, most + 1)]
    # The simulator reads the setting as vLLM does.
    assert list(lengths_by_batch(setting, most)[1:]) == wanted
    assert [schedule_of(setting).k_at(batch) for batch in range(1, most + 1)] == wanted
    ranges = setting.num_speculative_tokens_per_batch_size
    assert ranges is None or (ranges[0][0], ranges[-1][1]) == (1, most)


def test_a_setting_with_one_k_is_a_schedule_of_one_step() -> None:
    assert schedule_of(NGRAM) == Schedule.fixed(4)
    assert with_schedule(NGRAM, Schedule.fixed(2), max_num_seqs=16) == NGRAM.model_copy(
        update={"num_speculative_tokens": 2}
    )


def test_ranges_are_read_as_vllm_reads_them() -> None:
    """In the order of their starts, K at most num_speculative_tokens, gaps and the end as the range before them."""
    assert Schedule.of_vllm([[9, 16, 2], [1, 4, 8]], most=5) == Schedule.parse("1x5-9x2")
    assert Schedule.of_vllm([[1, 4, 8], [5, 9, 6]], most=5) == Schedule.fixed(5)
    with pytest.raises(BadSchedule, match=re.escape("range [4, 9] overlaps the one before it")):
        Schedule.of_vllm([[1, 4, 8], [4, 9, 6]])
    with pytest.raises(BadSchedule, match="starts at 1 running sequence, not at 2"):
        Schedule.of_vllm([[2, 4, 8]])


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((), "needs at least one step"),
        ((Step(2, None, 1),), "starts at 1 running sequence, not at 2"),
        ((Step(1, 4, 1), Step(6, None, 2)), "step 1 has its end at 4 and step 2 begins at 6: leave no gap"),
        ((Step(1, 4, 1), Step(4, None, 2)), "step 1 has its end at 4 and step 2 begins at 4"),
        ((Step(1, None, 1), Step(5, None, 2)), "step 1 has no end and step 2 begins at 5"),
        ((Step(1, 4, 1), Step(5, None, 1)), "steps 1 and 2 both have K = 1: write them as one"),
        ((Step(1, 4, 1), Step(5, 9, 2)), "the last step ends at 9: leave its end open"),
        ((Step(1, 4, 65), Step(5, None, 2)), "step 1: K = 65 is not in 0 … 64"),
        ((Step(1, 4, -1), Step(5, None, 2)), "step 1: K = -1 is not in 0 … 64"),
        ((Step(1, 0, 1), Step(1, None, 2)), "step 1: 1 to 0 is no range"),
    ],
)
def test_what_is_no_schedule(steps: tuple[Step, ...], said: str) -> None:
    with pytest.raises(BadSchedule, match=re.escape(said)):
        Schedule(steps)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "a schedule is a list of steps"),
        ([{"lo": 1, "k": 2}], "step 1 needs lo, hi and k, and nothing else"),
        ([{"lo": 1, "hi": None, "k": 2.5}], "step 1: lo, hi and k are whole numbers"),
        ([{"lo": 1, "hi": None, "k": True}], "step 1: lo, hi and k are whole numbers"),
        ([{"lo": 1, "hi": "∞", "k": 2}], "step 1: lo, hi and k are whole numbers"),
    ],
)
def test_what_is_no_document_of_a_schedule(document: Any, said: str) -> None:
    with pytest.raises(BadSchedule, match=re.escape(said)):
        Schedule.of_document(document)


@pytest.mark.parametrize("text", ["", "8", "1x8,5x2", "1x8-", "01x8", "1x8-5x8", "1x08", "2x1", "1x1-1x2", "1x99"])
def test_what_is_no_text_of_a_schedule(text: str) -> None:
    with pytest.raises(BadSchedule):
        Schedule.parse(text)


def test_k_stays_within_the_trained_block() -> None:
    assert THREE.within(8) is THREE.within(None) is THREE
    with pytest.raises(BadSchedule, match="K = 8 is above the drafter's trained block of 7"):
        THREE.within(7)
