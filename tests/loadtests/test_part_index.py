"""What two parts have in common, by hashes and times alone."""

import numpy as np

from loadtests.canonical import digest_of
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.traffic.part_index import PartIndex, index_content, prompt_hashes, read_index, seen_in
from loadtests.traffic.rows import NANOSECONDS, read_rows


def index(times: list[float], prompts: list[int]) -> PartIndex:
    return PartIndex((np.array(times) * NANOSECONDS).astype(np.int64), np.array(prompts, dtype=np.uint64))


def test_an_index_is_read_as_it_was_written() -> None:
    whole, lengths = index([0, 1.5], [7, 2**64 - 1]), PartIndex(np.array([0, 5]), None)
    again = read_index(index_content(whole))
    assert (again.arrivals_ns.tolist(), again.prompts is not None and again.prompts.tolist()) == (
        [0, 1_500_000_000],
        [7, 2**64 - 1],
    )
    assert read_index(index_content(lengths)).prompts is None


def test_a_prompt_has_the_hash_that_records_name_it_by() -> None:
    rows = list(read_rows(SUPPORT_ASSISTANT))[:20]
    named = [digest_of([message.model_dump() for message in row.messages]) for row in rows]
    found = prompt_hashes(row.content for row in rows)
    assert [f"{one:016x}" for one in found.tolist()] == [name[:16] for name in named]


def test_another_cut_of_one_recording_is_known_by_its_shift() -> None:
    recording = index([*range(10)], [*range(10)])
    later = index([0, 1, 2, 3, 50, 60, 70, 80, 90], [6, 7, 8, 9, 20, 21, 22, 23, 24])
    assert seen_in(recording, later) == 4


def test_equal_prompts_at_other_times_are_no_equal_rows() -> None:
    today = index([0, 1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 2, 3, 10, 11, 12, 13, 14])
    last_week = index([0, 10, 25, 47, 60], [1, 2, 3, 30, 31])
    assert seen_in(today, last_week) == 1
    # Unless the times are none of the prompts' own.
    assert seen_in(today, last_week, timed=False) == 4


def test_half_of_the_prompts_or_no_times_at_all_are_enough() -> None:
    today = index([0, 1, 2, 3], [1, 2, 3, 4])
    assert seen_in(today, index([0, 9, 5, 3], [4, 3, 50, 60])) == 2
    assert seen_in(today, index([0, 0], [3, 50])) == 1


def test_lengths_without_text_have_no_prompts_in_common() -> None:
    lengths = PartIndex(np.array([0, 1]), None)
    assert (seen_in(lengths, lengths), seen_in(index([0], [1]), lengths)) == (0, 0)
