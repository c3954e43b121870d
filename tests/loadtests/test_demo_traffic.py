"""The demo traffic holds what its README promises."""

import json
import re
from collections import Counter, defaultdict
from itertools import combinations, pairwise
from typing import Any

import pytest

from loadtests.demo import SUPPORT_ASSISTANT

Request = dict[str, Any]
Shingles = frozenset[tuple[str, ...]]

KEYS = ["id", "conversation", "turn", "arrival_s", "class", "tenant", "messages", "max_tokens", "sampling"]
SHARES = {"chat": 0.40, "rewrite": 0.30, "code-json": 0.18, "specialist": 0.12}
BIN_S = 10


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    lines = SUPPORT_ASSISTANT.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def conversations(requests: list[Request]) -> dict[str, list[Request]]:
    grouped: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        grouped[request["conversation"]].append(request)
    return dict(grouped)


@pytest.fixture(scope="module")
def openings(conversations: dict[str, list[Request]]) -> dict[str, str]:
    """The first user message of each conversation."""
    return {
        name: next(message["content"] for message in turns[0]["messages"] if message["role"] == "user")
        for name, turns in conversations.items()
    }


def shingles(text: str, width: int = 5) -> Shingles:
    """Runs of `width` words; a text of fewer words, or in a script without spaces, is a single run."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(tuple(words[start : start + width]) for start in range(max(1, len(words) - width + 1)))


def jaccard(one: Shingles, other: Shingles) -> float:
    return len(one & other) / len(one | other)


def test_size(requests: list[Request], conversations: dict[str, list[Request]]) -> None:
    assert len(requests) >= 560
    assert len(conversations) >= 330


def test_fields(requests: list[Request]) -> None:
    for request in requests:
        assert list(request) == KEYS
        assert 8 <= request["max_tokens"] <= 43
        assert request["arrival_s"] >= 0
        assert request["arrival_s"] == round(request["arrival_s"], 3)
        assert set(request["sampling"]) == {"temperature", "top_p"}
        assert 0.0 <= request["sampling"]["temperature"] <= 1.0
        assert 0.0 < request["sampling"]["top_p"] <= 1.0
    assert len({request["tenant"] for request in requests}) == 3


def test_about_half_is_greedy(requests: list[Request]) -> None:
    greedy = sum(request["sampling"]["temperature"] == 0 for request in requests)
    assert 0.4 <= greedy / len(requests) <= 0.6


def test_classes(requests: list[Request]) -> None:
    counts = Counter(request["class"] for request in requests)
    assert set(counts) == set(SHARES)
    for name, share in SHARES.items():
        assert counts[name] / len(requests) == pytest.approx(share, abs=0.03)


def test_ids_are_unique_and_in_time_order(requests: list[Request]) -> None:
    assert [request["id"] for request in requests] == [f"r{number:04d}" for number in range(1, len(requests) + 1)]
    assert all(one["arrival_s"] <= other["arrival_s"] for one, other in pairwise(requests))


def test_conversations_are_numbered_by_their_start(conversations: dict[str, list[Request]]) -> None:
    assert list(conversations) == [f"c{number:04d}" for number in range(1, len(conversations) + 1)]


def test_messages_alternate_and_end_with_the_user(requests: list[Request]) -> None:
    for request in requests:
        messages = request["messages"]
        assert all(set(message) == {"role", "content"} and message["content"].strip() for message in messages)
        roles = [message["role"] for message in messages]
        if roles[0] == "system":
            roles = roles[1:]
        assert roles == ["user", "assistant"] * (request["turn"] - 1) + ["user"]


def test_later_turns_repeat_the_history(conversations: dict[str, list[Request]]) -> None:
    for turns in conversations.values():
        assert [request["turn"] for request in turns] == list(range(1, len(turns) + 1))
        assert len({(request["class"], request["tenant"]) for request in turns}) == 1
        for earlier, later in pairwise(turns):
            known = earlier["messages"]
            assert later["messages"][: len(known)] == known
            assert len(later["messages"]) == len(known) + 2
            assert 15 <= later["arrival_s"] - earlier["arrival_s"] <= 90


def test_conversations_have_one_to_four_turns(conversations: dict[str, list[Request]]) -> None:
    assert {len(turns) for turns in conversations.values()} == {1, 2, 3, 4}


def test_prompts_fit_the_demo_target(requests: list[Request]) -> None:
    # 2,048 positions, 43 of them for the answer; two characters a token is a wide margin.
    for request in requests:
        assert sum(len(message["content"]) for message in request["messages"]) < 2 * (2048 - 43)


def test_texts_to_rewrite_lie_in_the_prompt(conversations: dict[str, list[Request]], openings: dict[str, str]) -> None:
    for name, turns in conversations.items():
        if turns[0]["class"] == "rewrite":
            assert len(openings[name].split()) >= 40, name


def test_no_near_copies_between_conversations(openings: dict[str, str]) -> None:
    assert len(set(openings.values())) == len(openings)
    texts = [(name, shingles(text)) for name, text in openings.items()]
    near = [(one, other) for (one, a), (other, b) in combinations(texts, 2) if jaccard(a, b) >= 0.5]
    assert not near


def test_arrivals_are_bursty(requests: list[Request]) -> None:
    bins = Counter(int(request["arrival_s"] // BIN_S) for request in requests)
    counts = [bins[number] for number in range(max(bins) + 1)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / (len(counts) - 1)
    assert 2.0 <= variance / mean <= 4.0


def test_two_hours_with_quiet_gaps(requests: list[Request]) -> None:
    arrivals = [request["arrival_s"] for request in requests]
    assert 6600 <= arrivals[-1] - arrivals[0] <= 7800
    assert max(later - earlier for earlier, later in pairwise(arrivals)) > 180


def test_an_outage_shows_as_many_chats_within_two_minutes(requests: list[Request]) -> None:
    starts = [r["arrival_s"] for r in requests if r["class"] == "chat" and r["turn"] == 1]
    assert max(sum(start <= other < start + 120 for other in starts) for start in starts) >= 24


def test_wording_stays_on_the_subject(requests: list[Request]) -> None:
    unwanted = re.compile(r"\b(agents?|AI|LLM|instructions?)\b")
    for request in requests:
        for message in request["messages"]:
            assert not unwanted.search(message["content"]), request["id"]
