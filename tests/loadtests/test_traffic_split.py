from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.canonical import digest_of
from loadtests.traffic.rows import Row, read_rows
from loadtests.traffic.split import part_statistics, split

DEMO = Path(__file__).parents[2] / "loadtests" / "demo" / "support_assistant.jsonl"
SHARES = {"tuning": 0.4, "held_out": 0.4, "evaluation": 0.2}


def row(number: int, arrival_s: float, *, conversation: str = "", prompt: str = "", class_: str = "chat") -> Row:
    return Row.model_validate(
        {
            "id": f"r{number}",
            "conversation": conversation or f"c{number}",
            "arrival_s": arrival_s,
            "class": class_,
            "messages": [{"role": "user", "content": prompt or f"question {number}"}],
            "max_tokens": 8 + number,
        }
    )


def prompts(rows: list[Row]) -> set[str]:
    return {digest_of([message.model_dump() for message in one.messages]) for one in rows}


def assert_a_fair_split(rows: list[Row], parts: dict[str, list[Row]]) -> None:
    assert sorted(one.id for part in parts.values() for one in part) == sorted(one.id for one in rows)
    for part in parts.values():
        assert [one.arrival_ns for one in part] == sorted(one.arrival_ns for one in part)
    names = list(parts)
    for place, name in enumerate(names):
        for other in names[place + 1 :]:
            assert not {one.conversation for one in parts[name]} & {one.conversation for one in parts[other]}
            assert not prompts(parts[name]) & prompts(parts[other])


traffic = st.lists(
    st.tuples(st.floats(0, 600), st.integers(0, 40), st.integers(0, 200)), min_size=60, max_size=120
).map(
    lambda draws: [
        row(number, arrival_s, conversation=f"c{conversation}", prompt=f"p{prompt}")
        for number, (arrival_s, conversation, prompt) in enumerate(draws)
    ]
)


@given(traffic, st.integers(0, 2**40))
@settings(max_examples=50, deadline=None)
def test_parts_share_no_conversation_and_no_prompt(rows: list[Row], seed: int) -> None:
    try:
        parts = split(rows, shares=SHARES, seed=seed, block_s=10)
    except ValueError as refusal:
        assert "nothing is left for" in str(refusal)  # noqa: PT017 - a refusal is a right answer for tangled traffic
        return
    assert_a_fair_split(rows, parts)
    assert parts == split(list(reversed(rows)), shares=SHARES, seed=seed, block_s=10) or same_times(rows)


def same_times(rows: list[Row]) -> bool:
    return len({one.arrival_ns for one in rows}) < len(rows)


def test_shares_come_out_close() -> None:
    rows = [row(number, number / 2) for number in range(1_000)]
    parts = split(rows, shares=SHARES, seed=5, block_s=10)
    assert {name: len(part) for name, part in parts.items()} == {"tuning": 400, "held_out": 400, "evaluation": 200}


def test_another_seed_gives_another_split() -> None:
    rows = [row(number, number) for number in range(300)]
    assert split(rows, shares=SHARES, seed=1, block_s=10) != split(rows, shares=SHARES, seed=2, block_s=10)


def test_a_block_stays_together_and_a_conversation_follows_its_first_request() -> None:
    rows = [row(number, number, conversation="long" if number % 10 == 0 else "") for number in range(200)]
    parts = split(rows, shares=SHARES, seed=3, block_s=20)
    part_of = {one.id: name for name, part in parts.items() for one in part}
    assert {part_of[f"r{number}"] for number in range(0, 200, 10)} == {part_of["r1"]}
    for block in range(10):
        assert len({part_of[f"r{number}"] for number in range(block * 20, block * 20 + 20) if number % 10}) == 1


def test_the_later_of_two_equal_prompts_moves_to_the_earlier_part() -> None:
    rows = [row(number, number) for number in range(200)]
    plain = split(rows, shares=SHARES, seed=3, block_s=10)
    earlier = plain["held_out"][0]
    later = next(one for one in reversed(rows) if one not in plain["held_out"])
    same = later.model_copy(update={"messages": earlier.messages})
    parts = split([same if one is later else one for one in rows], shares=SHARES, seed=3, block_s=10)
    part_of = {one.id: name for name, part in parts.items() for one in part}
    assert part_of[later.id] == part_of[earlier.id]


@pytest.mark.parametrize(
    ("shares", "block_s", "words"),
    [
        ({"tuning": 0.5, "held_out": 0.4}, 10, "add up to 1, not tuning 0.5, held_out 0.4"),
        ({"tuning": 1.0, "held_out": 0.0}, 10, "above 0"),
        (SHARES, 0, "longer than 0 s, not 0 s"),
        (SHARES, 1_000, "1 time blocks of 1000 s for 3 parts; choose shorter blocks"),
    ],
)
def test_a_split_that_can_not_be_is_refused(shares: dict[str, float], block_s: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        split([row(number, number) for number in range(50)], shares=shares, seed=1, block_s=block_s)


def test_statistics_of_a_hand_made_part() -> None:
    rows = [
        row(0, 100, prompt="ab"),
        row(1, 101, prompt="abcd", class_="rewrite"),
        row(2, 102, prompt="abc"),
        row(3, 125, conversation="c0", prompt="abcdefgh"),
    ]
    # Counts per 10 s: 3, 0, 1; mean 4/3, sample variance 7/3, dispersion 7/4.
    statistics = part_statistics(rows)
    assert statistics.pop("dispersion_10s") == pytest.approx(1.75)
    assert statistics == {
        "count": 4,
        "classes": {"chat": 3, "rewrite": 1},
        "conversations": 3,
        "duration_s": 25.0,
        "prompt_characters": {"p50": 3, "p90": 8, "max": 8},
        "max_tokens": {"p50": 9, "max": 11},
        "bucket_s": 10,
        "arrivals": [3, 0, 1],
    }


def test_statistics_of_nothing() -> None:
    assert part_statistics([]) == {
        "count": 0,
        "classes": {},
        "conversations": 0,
        "duration_s": 0.0,
        "prompt_characters": {"p50": None, "p90": None, "max": None},
        "max_tokens": {"p50": None, "max": None},
        "dispersion_10s": None,
        "bucket_s": 10,
        "arrivals": [],
    }


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_the_chart_has_few_bars_and_every_request(arrivals: list[float]) -> None:
    statistics = part_statistics([row(number, arrival_s) for number, arrival_s in enumerate(arrivals)])
    assert len(statistics["arrivals"]) <= 180
    assert sum(statistics["arrivals"]) == len(arrivals)


@pytest.mark.skipif(not DEMO.exists(), reason="the demo's traffic is not written yet")
def test_the_demo_traffic_splits_fairly() -> None:
    rows = list(read_rows(DEMO))
    parts = split(rows, shares=SHARES, seed=1, block_s=60)
    assert_a_fair_split(rows, parts)
    for name, part in parts.items():
        assert len(part) / len(rows) == pytest.approx(SHARES[name], abs=0.1)
