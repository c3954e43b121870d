"""The split: whole conversations, whole bursts, nothing alike on two sides."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.traffic.columns import Columns
from loadtests.traffic.division import Alike, Division, divide
from loadtests.traffic.groups import groups_of
from loadtests.traffic.time_blocks import block_starts, blocks_of

NS = 1_000_000_000
SHARES = {"tuning": 0.4, "held-out": 0.4, "evaluation": 0.2}


def columns(arrivals_ns: list[int], conversations: list[int] | None = None) -> Columns:
    """Conversations are given by any number, and are a row's own where none are."""
    rows = len(arrivals_ns)
    names = list(range(rows)) if conversations is None else conversations
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return Columns(
        arrivals_ns=np.array(arrivals_ns, dtype=np.int64),
        conversations=np.array([number[name] for name in names], dtype=np.int32),
        classes=np.zeros(rows, dtype=np.int32),
        class_names=("chat",),
        output_limits=np.full(rows, 8),
        prompt_tokens=None,
        line_ends=np.arange(rows + 1),
    )


def alike(*pairs: tuple[int, int], threshold: float = 0.8) -> Alike:
    return Alike(np.array(pairs, dtype=np.int32).reshape(-1, 2), threshold, "told")


def split(
    rows: Columns,
    pairs: Alike | None = None,
    *,
    shares: dict[str, float] = SHARES,
    seed: int = 1,
    block_s: float = 10,
    timed: bool = True,
) -> Division:
    return divide(rows, pairs or alike(), shares=shares, seed=seed, block_s=block_s, timed=timed)


def every(gap_s: float, count: int) -> list[int]:
    return [round(number * gap_s * NS) for number in range(count)]


times = st.lists(st.integers(0, 600 * NS), min_size=1, max_size=150).map(
    lambda found: [one - min(found) for one in sorted(found)]
)


@given(times, st.floats(0.5, 120), st.integers(0, 60 * NS))
def test_no_burst_that_is_shorter_than_a_block_is_cut(arrivals: list[int], block_s: float, quiet_ns: int) -> None:
    """A burst: requests with silences of at most ``quiet_ns`` between them, and longer ones around."""
    starts = block_starts(np.array(arrivals), block_s=block_s)
    bursts = [[arrivals[0]]]
    for earlier, later in pairwise(arrivals):
        if later - earlier > quiet_ns:
            bursts.append([])
        bursts[-1].append(later)
    for burst in bursts:
        if burst[-1] - burst[0] < block_s * NS - 1:
            assert len(set(blocks_of(np.array(burst), starts).tolist())) == 1


@given(times, st.floats(0.5, 120))
def test_blocks_are_half_a_block_long_at_least_and_start_with_a_request(arrivals: list[int], block_s: float) -> None:
    starts = block_starts(np.array(arrivals), block_s=block_s).tolist()
    assert starts[0] == arrivals[0]
    assert set(starts) <= set(arrivals)
    assert all(later - earlier >= block_s * NS / 2 - 1 for earlier, later in pairwise(starts))


def test_a_border_moves_to_the_end_of_the_longest_silence() -> None:
    burst = [0, 1, 2, 3, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21]
    starts = block_starts(np.array(burst) * NS, block_s=10)
    # From 5 to 15 s the longest silence is that from 3 to 8 s, then nothing is left that is too long for one block.
    assert (starts / NS).tolist() == [0, 8]


def test_equal_silences_leave_the_border_where_it_was() -> None:
    assert (block_starts(np.array(every(0.5, 100)), block_s=10) / NS).tolist() == [0, 10, 20, 30, 40]


def test_a_long_silence_belongs_to_the_block_before_it() -> None:
    starts = block_starts(np.array([0, 1, 2, 5_000, 5_001, 5_300]) * NS, block_s=10)
    assert (starts / NS).tolist() == [0, 5_000, 5_300]


tangled = st.lists(
    st.tuples(st.integers(0, 600 * NS), st.integers(0, 60), st.integers(0, 200)), min_size=60, max_size=120
).map(sorted)


@given(tangled, st.integers(0, 2**40), st.booleans())
def test_conversations_stay_whole_and_alike_ones_together(
    draws: list[tuple[int, int, int]], seed: int, timed: bool
) -> None:
    rows = columns([one - draws[0][0] for one, _, _ in draws], [conversation for _, conversation, _ in draws])
    first_with: dict[int, int] = {}
    pairs = [
        (first_with.setdefault(prompt, number), number)
        for number, (_, _, prompt) in zip(rows.conversations.tolist(), draws, strict=True)
    ]
    try:
        found = split(rows, alike(*pairs), seed=seed, timed=timed)
    except ValueError as refusal:
        assert "nothing is left for" in str(refusal)  # noqa: PT017 - a refusal is a right answer for tangled traffic
        return
    assert found.part_of.shape == rows.arrivals_ns.shape
    for names in (rows.conversations.tolist(), [prompt for _, _, prompt in draws]):
        parts_of = Counter(set(zip(names, found.part_of.tolist(), strict=True)))
        assert len(parts_of) == len(set(names))
    assert sum(found.document["achieved"].values()) == pytest.approx(1)


@given(tangled, st.integers(0, 2**40))
def test_stretches_are_the_set_s_whole_time_and_hold_what_did_not_move(
    draws: list[tuple[int, int, int]], seed: int
) -> None:
    rows = columns([one - draws[0][0] for one, _, _ in draws], [conversation for _, conversation, _ in draws])
    try:
        found = split(rows, seed=seed)
    except ValueError:
        return
    laid = sorted((*stretch, kind) for kind, stretches in found.stretches.items() for stretch in stretches)
    assert [laid[0][0], laid[-1][1]] == [0, int(rows.arrivals_ns[-1]) + 1]
    assert all(one[1] == other[0] and one[2] != other[2] for one, other in pairwise(laid))
    owner = [next(kind for start, end, kind in laid if start <= arrival < end) for arrival in rows.arrivals_ns.tolist()]
    foreign = sum(found.kinds[part] != kind for part, kind in zip(found.part_of.tolist(), owner, strict=True))
    assert found.document["foreign_share"] == pytest.approx(foreign / len(rows))


def test_shares_come_out_close() -> None:
    found = split(columns(every(0.5, 1_000)), seed=5)
    assert np.bincount(found.part_of).tolist() == [400, 400, 200]
    assert found.document == {
        "shares": SHARES,
        "achieved": SHARES,
        "seed": 5,
        "block_s": 10,
        "blocks": 50,
        "near_duplicates": {
            "threshold": 0.8,
            "method": "told",
            "conversations_joined": 0,
            "largest_group": {"conversations": 1, "rows": 1},
        },
        "foreign_share": 0.0,
        "warnings": [],
    }


def test_a_part_can_be_left_out() -> None:
    for shares in ({"tuning": 0.4, "held-out": 0.6}, {"tuning": 0.4, "held-out": 0.6, "evaluation": 0}):
        found = split(columns(every(0.5, 1_000)), shares=shares)
        assert found.kinds == ("tuning", "held-out")
        assert np.bincount(found.part_of).tolist() == [400, 600]


def test_another_seed_gives_another_split() -> None:
    rows = columns(every(1, 300))
    one, other = (split(rows, seed=seed) for seed in (1, 2))
    assert one.stretches != other.stretches


def test_a_conversation_follows_its_first_request() -> None:
    names = [-1 if number % 10 == 0 else number for number in range(200)]
    found = split(columns(every(1, 200), names), seed=3)
    assert len(set(found.part_of[::10].tolist())) == 1
    assert found.part_of[0] == found.part_of[1]


def test_the_later_of_two_alike_conversations_moves_to_the_earlier_part() -> None:
    rows = columns(every(1, 200))
    plain = split(rows, seed=3)
    earlier = int(np.flatnonzero(plain.part_of == 1)[0])
    later = int(np.flatnonzero(plain.part_of != 1)[-1])
    found = split(rows, alike((later, earlier)), seed=3)
    assert found.part_of[later] == found.part_of[earlier]


def test_without_times_the_groups_are_handed_out() -> None:
    rows = columns([0] * 100, [number // 2 for number in range(100)])
    found = split(rows, alike((0, 1)), timed=False)
    assert np.bincount(found.part_of).tolist() == [40, 40, 20]
    assert found.part_of[0] == found.part_of[3]
    assert found.stretches == {kind: [[0, 1]] for kind in SHARES}
    assert (found.document["block_s"], found.document["blocks"], found.document["foreign_share"]) == (None, 0, 0.0)


def test_groups_hang_together_through_others() -> None:
    pairs = np.array([[4, 1], [5, 4], [2, 3]], dtype=np.int32)
    assert groups_of(6, pairs).tolist() == [0, 1, 2, 2, 1, 1]


def test_a_missed_share_is_explained_by_what_hangs_together() -> None:
    rows = columns(every(1, 200))
    found = split(
        rows, alike(*((0, number) for number in range(1, 120))), shares={"tuning": 0.5, "held-out": 0.5}, seed=1
    )
    warning, _ = found.document["warnings"]
    assert "120 conversations (120 requests) hang together by alike prompts" in warning
    assert warning.endswith("raise --similarity, bring more different prompts, or use fewer parts")
    assert found.document["near_duplicates"]["conversations_joined"] == 120


def test_few_texts_that_come_again_and_again_are_named_and_not_the_blocks() -> None:
    """As a donor with few texts makes them: 180 requests say one of two things."""
    pairs = alike(*((0 if number % 3 else 15, number) for number in range(20, 200)))
    found = split(columns(every(1, 200)), pairs, shares={"tuning": 0.5, "held-out": 0.5}, block_s=10)
    missed, foreign = found.document["warnings"]
    assert (
        "182 of 200 conversations hang together with others by alike prompts, up to 121 conversations (121 requests) "
        "in one group, and stay on one side"
    ) in missed
    assert "time blocks" not in missed
    share = found.document["foreign_share"]
    assert foreign.startswith(f"{share:.0%} of the requests arrive in time that belongs to another part")
    with pytest.raises(ValueError, match="bring more different prompts"):
        split(columns(every(1, 200)), pairs, block_s=40)


@pytest.mark.parametrize("timed", [True, False])
def test_one_conversation_that_holds_nearly_everything_is_the_obstacle_and_not_the_blocks(timed: bool) -> None:
    names = [number if number < 2 else 2 for number in range(1_000)]
    with pytest.raises(ValueError, match="nothing is left for") as refused:
        split(columns(every(1, 1_000), [0] * 1_000), timed=timed)
    assert str(refused.value).endswith(
        ": one conversation holds 1,000 of the 1,000 requests (100%) and stays on one side; import traffic of more "
        "conversations, or, if what is read as the conversation is something else, such as a user, import the file "
        "without it"
    )
    found = split(columns(every(1, 1_000), names), shares={"tuning": 0.5, "held-out": 0.5}, block_s=1, timed=timed)
    assert "because one conversation holds 998 of the 1,000 requests (100%) and stays" in found.document["warnings"][0]


@pytest.mark.parametrize(("threshold", "raised"), [(0.8, "raise --similarity, "), (1, "")])
def test_one_group_of_alike_prompts_that_holds_nearly_everything_is_the_obstacle(threshold: float, raised: str) -> None:
    pairs = alike(*((0, number) for number in range(1, 990)), threshold=threshold)
    with pytest.raises(ValueError, match="nothing is left for") as refused:
        split(columns(every(1, 1_000)), pairs, block_s=500)
    assert str(refused.value).endswith(
        ": one group of 990 conversations with alike prompts holds 990 of the 1,000 requests (99%) and stays on one "
        f"side; {raised}bring more different prompts, or use fewer parts"
    )


def test_a_missed_share_is_explained_by_few_blocks() -> None:
    found = split(columns(every(1, 60)), shares={"tuning": 0.5, "held-out": 0.5}, block_s=20)
    (warning,) = found.document["warnings"]
    assert "held-out has 33% of the requests instead of 50%" in warning
    assert "the traffic has 3 time blocks: choose shorter ones" in warning


@pytest.mark.parametrize(
    ("shares", "block_s", "words"),
    [
        ({"tuning": 0.5, "held-out": 0.4}, 10, "add up to 1, and can't be tuning 0.5, held-out 0.4"),
        ({"tuning": 1.0, "held-out": 0.0}, 10, "above 0"),
        ({"tuning": 1.5, "held-out": -0.5}, 10, "above 0"),
        ({"tuning": 0.5, "held-out": float("nan")}, 10, "held-out nan"),
        ({"held-out": 0.5, "evaluation": 0.5}, 10, "to tuning and held-out"),
        ({"tuning": 0.5, "held-out": 0.4, "spare": 0.1}, 10, "spare 0.1"),
        ({}, 10, "to tuning and held-out"),
        (SHARES, 0, "block_s: a time block lasts 0.001 s at least and ends, not 0 s"),
        (SHARES, -1, "not -1 s"),
        (SHARES, 1e-9, "block_s: a time block lasts 0.001 s at least and ends, not 1e-09 s"),
        (SHARES, float("nan"), "not nan s"),
        (SHARES, float("inf"), "not inf s"),
        (SHARES, 1_000, "1 time block of 1000 s for 3 parts; choose shorter blocks"),
    ],
)
def test_a_split_that_can_not_be_is_refused(shares: dict[str, float], block_s: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        split(columns(every(1, 50)), shares=shares, block_s=block_s)


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"block_s: over 100,000 time blocks of 0\.001 s: choose longer blocks"):
        split(columns(every(1, 100_010)), block_s=0.001)
