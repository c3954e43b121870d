"""Held-out beside tuning: whole blocks are what the split deals, so whole blocks are what chance deals."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.services.import_traffic import sample as sample_of
from loadtests.statistics.resemblance import MOST_BLOCKS, Dealt, Sample, comparison
from loadtests.traffic.columns import Columns
from loadtests.traffic.division import Alike, divide
from loadtests.traffic.groups import NO_PAIRS
from loadtests.traffic.part_statistics import Side

NS = 1_000_000_000
SHARES = {"tuning": 0.35, "held-out": 0.5, "evaluation": 0.15}


def sample(
    seed: int,
    rows: int = 2_000,
    *,
    longer: float = 1.0,
    chat: float = 0.5,
    slower: float = 1.0,
    in_block: int = 20,
) -> Sample:
    """Requests that know nothing of each other; odd seeds have the odd blocks."""
    rng = np.random.default_rng(seed)
    blocks = np.arange(rows) // in_block * 2 + seed % 2
    return Sample(
        prompt_lengths=(rng.lognormal(6, 1, rows) * longer).astype(int) + 1,
        unit="characters",
        output_limits=rng.integers(8, 64, rows),
        classes=(np.arange(rows) % 10 >= 10 * chat).astype(np.int32),
        class_names=("chat", "rewrite"),
        blocks=blocks,
        gaps_s=rng.exponential(slower, rows),
        gap_blocks=blocks,
    )


def tiny(length: int, block: int) -> Sample:
    one, none = np.array([length]), np.empty(0)
    return Sample(one, "characters", np.array([8]), np.array([0]), ("chat",), np.array([block]), none, none.astype(int))


def told(found: dict[str, Any], what: str = "found") -> dict[str, Any]:
    return {one["name"]: one[what] for one in found["measures"]}


def differing(found: dict[str, Any]) -> list[str]:
    return [name for name, differs in told(found, "differs").items() if differs]


def bursty(seed: int, *, hours: float = 4) -> tuple[Columns, np.ndarray]:
    """Stationary, and nothing in it is independent: bursts of some forty requests, each on one subject, of one class
    and with prompts of about one length."""
    rng = np.random.default_rng(seed)
    at, lengths, classes = [np.empty(0)], [np.empty(0)], [np.empty(0, dtype=int)]
    clock = 0.0
    while clock < hours * 3_600:
        count = int(rng.geometric(1 / 40))
        at.append(clock + np.cumsum(rng.exponential(0.75, count)))
        lengths.append(rng.lognormal(rng.normal(6, 0.7), 0.4, count))
        classes.append(np.full(count, rng.integers(3)))
        clock = at[-1][-1] + rng.exponential(60)
    times = (np.concatenate(at) * NS).astype(np.int64)
    rows = len(times)
    columns = Columns(
        arrivals_ns=times - times[0],
        conversations=np.arange(rows, dtype=np.int32),
        classes=np.concatenate(classes).astype(np.int32),
        class_names=("chat", "code", "mail"),
        output_limits=rng.integers(8, 64, rows),
        prompt_tokens=None,
        line_ends=np.arange(rows + 1),
    )
    return columns, np.concatenate(lengths).astype(np.int64) + 1


def of_split(columns: Columns, lengths: np.ndarray, *, seed: int, longer: int = 1) -> dict[str, Any]:
    """Held-out prompts are ``longer`` times as long as drawn."""
    split = divide(columns, Alike(NO_PAIRS, 0.8, ""), shares=SHARES, seed=seed, block_s=120, timed=True)
    tuning, held_out = (split.part_of == place for place in (0, 1))
    prompts = np.where(held_out, lengths * longer, lengths)
    sides = [
        Side(columns, prompts, "tokens", split.stretches[kind], True, rows)
        for kind, rows in (("tuning", tuning), ("held-out", held_out))
    ]
    return comparison(*(sample_of(side, split) for side in sides))


def test_bursts_that_say_the_same_many_times_are_no_difference() -> None:
    found = [of_split(*bursty(seed), seed=seed) for seed in range(20)]
    assert sum(one["resembles"] is not True for one in found) <= 3
    assert sum(min(told(one, "p").values()) < 0.05 for one in found) <= 3


def test_a_shift_among_bursts_is_found() -> None:
    found = [of_split(*bursty(seed), seed=seed, longer=4) for seed in range(10)]
    assert [differing(one) for one in found] == [["prompt length"]] * 10


def test_two_samples_of_one_population_resemble_each_other() -> None:
    found = comparison(sample(1), sample(2))
    assert found["resembles"] is True
    assert found["warning"] == ""
    assert [(one["name"], one["test"], one["blocks"], one["found"]) for one in found["measures"]] == [
        ("prompt length", "Kolmogorov–Smirnov", 200, "alike"),
        ("output limit", "Kolmogorov–Smirnov", 200, "alike"),
        ("class", "total variation", 200, "alike"),
        ("inter-arrival time", "Kolmogorov–Smirnov", 200, "alike"),
    ]


def test_what_differs_is_named_with_both_sides() -> None:
    found = comparison(sample(1), sample(2, longer=2, chat=0.2))
    assert differing(found) == ["prompt length", "class"]
    assert found["resembles"] is False
    assert found["warning"] == (
        "Held-out doesn't resemble tuning in prompt length (median 395 characters in tuning, 782 characters in "
        "held-out); class (rewrite is 50 % of the requests in tuning, 80 % in held-out). What is tuned on one may not "
        "hold on the other: choose another seed, or shorter blocks."
    )


def test_p_is_the_share_of_the_deals_that_are_as_far_apart() -> None:
    """Six blocks of one value each, three to a side: of the twenty deals, this one and its mirror are the furthest."""
    one = replace(sample(1, 3, in_block=1), prompt_lengths=np.array([1, 2, 3]), blocks=np.array([0, 1, 2]))
    other = replace(one, prompt_lengths=np.array([4, 5, 6]), blocks=np.array([3, 4, 5]))
    found = comparison(one, other)
    (length,) = (measure for measure in found["measures"] if measure["name"] == "prompt length")
    assert length["distance"] == 1
    assert length["p"] / 4 == pytest.approx(0.1, abs=0.03)
    assert length["found"] == "too few to tell"


def test_a_difference_too_small_to_matter_is_none_however_many_requests_show_it() -> None:
    found = comparison(sample(1, 200_000), sample(2, 200_000, slower=1.1))
    (gap,) = (one for one in found["measures"] if one["name"] == "inter-arrival time")
    assert gap["p"] == pytest.approx(4 / 1_000)
    assert gap["distance"] < 0.1
    assert (gap["found"], found["resembles"]) == ("alike", True)


def test_too_few_blocks_are_never_called_alike_unless_nothing_lies_between_them() -> None:
    """Ten blocks can be dealt in 252 ways, twelve in 924: of four measures, p below 0.01 takes over 400."""
    found = comparison(sample(1, 100), sample(2, 100))
    distances = told(found, "distance")
    assert distances["class"] == 0
    assert all(distances[name] > 0 for name in distances if name != "class")
    assert {name: word for name, word in told(found).items() if word != "too few to tell"} == {"class": "alike"}
    assert found["resembles"] is None
    assert found["warning"] == (
        "Tuning and held-out have 10 time blocks together, too few to tell whether held-out resembles tuning: choose "
        "shorter blocks, or import more traffic."
    )
    assert comparison(sample(1, 120), sample(2, 120))["resembles"] is True


def test_too_few_conversations_are_not_helped_by_shorter_blocks() -> None:
    found = comparison(sample(1, 100), sample(2, 100), dealt="groups of conversations")
    assert found["warning"].startswith("Tuning and held-out have 10 groups of conversations together, too few")
    assert found["warning"].endswith("resembles tuning: import more traffic.")


def test_a_large_distance_that_chance_may_deal_is_not_called_alike() -> None:
    """Each of forty blocks says one thing alone, four of twenty what the other side doesn't say."""
    one, other = (
        replace(sample(seed, 400), prompt_lengths=np.arange(from_, from_ + 20).repeat(20))
        for seed, from_ in ((1, 0), (2, 4))
    )
    (length, *_) = comparison(one, other)["measures"]
    assert length["distance"] == pytest.approx(0.2)
    assert (length["differs"], length["found"]) == (False, "too few to tell")


def test_without_times_three_measures_are_left() -> None:
    found = comparison(tiny(3, 0), tiny(3, 1))
    assert told(found, "p") == {"prompt length": 1, "output limit": 1, "class": 1}
    assert set(told(found, "distance").values()) == {0.0}


def test_one_value_against_one_tells_nothing() -> None:
    found = comparison(tiny(3, 0), tiny(9, 1))
    assert told(found, "p") == {"prompt length": 1, "output limit": 1, "class": 1}
    assert told(found) == {"prompt length": "too few to tell", "output limit": "alike", "class": "alike"}
    assert found["resembles"] is None


def test_a_class_that_one_side_lacks_counts() -> None:
    assert differing(comparison(sample(1), sample(2, chat=0))) == ["class"]


def test_of_many_blocks_neighbours_of_one_side_are_dealt_together() -> None:
    dealt = Dealt(np.arange(0, 30_000, 3), np.arange(1, 60_000, 3), 4)
    assert dealt.count == 30_000
    assert len(np.unique(dealt.block_of)) <= MOST_BLOCKS + 1
    assert set(np.unique(dealt.block_of[:10_000]).tolist()).isdisjoint(dealt.block_of[10_000:].tolist())


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8), st.integers(1, 40))
def test_any_mix_of_classes_can_be_compared(counts: list[tuple[int, int]], in_block: int) -> None:
    sides = [np.repeat(np.arange(len(counts)), side).astype(np.int32) for side in zip(*counts, strict=True)]
    if not all(len(side) for side in sides):
        return
    names = [f"k{place}" for place in range(len(counts))]
    samples = [
        replace(sample(seed, len(side), in_block=in_block), classes=side, class_names=names)
        for seed, side in enumerate(sides)
    ]
    found = comparison(*samples)
    (class_,) = (one for one in found["measures"] if one["name"] == "class")
    mixes = [np.bincount(side, minlength=len(names)) / len(side) for side in sides]
    assert class_["distance"] == pytest.approx(np.abs(mixes[0] - mixes[1]).sum() / 2)
    assert all(0 < one["p"] <= 1 and 0 <= one["distance"] <= 1 + 1e-12 for one in found["measures"])


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
def test_the_distance_of_few_values_is_that_of_the_text_book(rows: int, others: int, seed: int) -> None:
    one, other = sample(2 * seed, rows), sample(2 * seed + 1, others)
    grid = np.concatenate([one.prompt_lengths, other.prompt_lengths])
    below = [np.searchsorted(np.sort(side.prompt_lengths), grid, side="right") / rows_ for side, rows_ in
             ((one, rows), (other, others))]  # fmt: skip
    (length, *_) = comparison(one, other)["measures"]
    assert length["distance"] == pytest.approx(np.abs(below[0] - below[1]).max())


@pytest.mark.parametrize("rows", [1, 2])
def test_a_side_of_one_request_can_be_compared(rows: int) -> None:
    assert comparison(sample(1, rows), sample(2, 100))["resembles"] is None


def test_the_same_samples_give_the_same_figures_under_any_hash_seed() -> None:
    code = (
        "import json, numpy as np\n"
        "from loadtests.statistics.resemblance import Sample, comparison\n"
        "def side(seed):\n"
        "    rng, n = np.random.default_rng(seed), 400\n"
        "    blocks = np.arange(n) // 10 * 2 + seed\n"
        "    return Sample(rng.integers(1, 99, n), 'tokens', rng.integers(1, 9, n), rng.integers(0, 3, n), 'abc',\n"
        "                  blocks, rng.exponential(1, n), blocks)\n"
        "print(json.dumps(comparison(side(0), side(1)), sort_keys=True))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
