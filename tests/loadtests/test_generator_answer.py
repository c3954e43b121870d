"""What an answer's events make of it, without a connection."""

import json
from hashlib import sha256
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.evidence.records import STATUSES
from loadtests.generator import answer as answer_module
from loadtests.generator.answer import Answer, Outcome, outcome_of_code
from loadtests.generator.sse import Event

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CHUNK_KEYS = ["choices", "usage", "metrics", "error", "system_fingerprint", "object"]
CHOICE = st.fixed_dictionaries(
    {}, optional={"delta": JSON | st.fixed_dictionaries({"content": JSON, "tool_calls": JSON}), "finish_reason": JSON}
)
CHUNKS = st.fixed_dictionaries({}, optional=dict.fromkeys(CHUNK_KEYS, JSON) | {"choices": JSON | st.lists(CHOICE)})


def heard(*documents: Any) -> Answer:
    answer = Answer()
    for number, document in enumerate(documents, start=1):
        answer.take(Event(document if isinstance(document, str) else json.dumps(document)), number)
    return answer


def test_times_are_those_of_visible_text(hostile: ModuleType) -> None:
    answer = heard(*hostile.whole("Hello", "", " there"))
    assert (answer.first_token_ns, answer.last_token_ns, answer.chunks) == (2, 4, 2)
    assert (answer.prompt_tokens, answer.output_tokens, answer.finish_reason) == (7, 3, "stop")
    assert answer.fingerprint == hostile.FINGERPRINT
    assert answer.output_sha256 == sha256(b"Hello there").hexdigest()
    assert answer.conclude() == Outcome("completed")


def test_a_tool_call_is_visible_and_hashed(hostile: ModuleType) -> None:
    def call(**function: str) -> dict[str, Any]:
        return hostile.delta(tool_calls=[{"index": 0, "function": function}])  # type: ignore[no-any-return]

    answer = heard(hostile.ROLE, call(name="f", arguments=""), call(arguments=""), call(arguments="{}"))
    assert (answer.first_token_ns, answer.last_token_ns, answer.chunks) == (2, 4, 2)
    assert answer.output_sha256 == sha256(b'[{"arguments":"{}","name":"f"}]').hexdigest()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": "Hi"}, b"Hi"),
        ({"refusal": "No."}, b"No."),
        ({"content": None, "refusal": "No."}, b"No."),
        ({"content": [{"type": "text", "text": "H"}, {"type": "image"}, 1, {"text": "i"}]}, b"Hi"),
        ({"tool_calls": [{"function": {"name": "f"}}]}, b'[{"arguments":"","name":"f"}]'),
    ],
)
def test_whatever_a_message_says_alone_is_heard(message: dict[str, Any], said: bytes) -> None:
    assert heard({"choices": [{"delta": message}]}).output_sha256 == sha256(said).hexdigest()
    whole = Answer()
    whole.take_whole({"choices": [{"message": message}]}, 1)
    assert (whole.output_sha256, whole.chunks) == (sha256(said).hexdigest(), 1)


def test_the_hostile_server_reads_a_content_in_parts(hostile: ModuleType) -> None:
    assert hostile.words_of([{"type": "text", "text": "steady 3"}, {"type": "image"}, "20"]) == ["steady", "3", "20"]
    assert hostile.words_of([]) == []


def test_halves_of_an_emoji_are_hashed_as_the_emoji(hostile: ModuleType) -> None:
    answer = heard(hostile.delta(content="\ud83d"), hostile.delta(content="\ude42"))
    assert answer.output_sha256 == sha256("🙂".encode()).hexdigest()


def test_an_answer_without_text_has_no_digest_and_no_token_times(hostile: ModuleType) -> None:
    answer = heard(hostile.ROLE, hostile.END, hostile.usage(1), "[DONE]")
    assert (answer.output_sha256, answer.first_token_ns, answer.last_token_ns) == (None, None, None)
    assert answer.conclude() == Outcome("completed")


def test_speculation_that_is_null_stays_null(hostile: ModuleType) -> None:
    usage = hostile.usage(1)
    answer = heard(usage | {"metrics": usage["metrics"] | {"speculative_decoding": None}})
    assert answer.speculation == {}
    assert answer.metrics["queue_time_ms"] == 1.5


@pytest.mark.parametrize(
    ("usage", "findings"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}, []),
        ({"prompt_tokens": 7, "completion_tokens": 1}, []),
        (
            {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 9},
            ["usage: prompt_tokens + completion_tokens is not total_tokens"],
        ),
        (
            {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7},
            ["usage: no completion_tokens, but text came"],
        ),
    ],
)
def test_usage_that_contradicts_itself_is_found(
    hostile: ModuleType, usage: dict[str, int], findings: list[str]
) -> None:
    answer = heard(hostile.delta(content="x"), hostile.END, {"choices": [], "usage": usage}, "[DONE]")
    assert list(answer.contradictions()) == findings
    assert answer.conclude() == Outcome("completed")


def test_nothing_counts_after_the_end(hostile: ModuleType) -> None:
    answer = heard(*hostile.whole("a"), {"error": {"message": "late", "code": 500}}, hostile.delta(content="b"))
    assert answer.chunks == 1
    assert answer.conclude() == Outcome("completed")


@pytest.mark.parametrize(
    ("code", "status"),
    [(400, "refused"), ("422", "refused"), (307, "refused"), (500, "failed"), (None, "failed"), ("x", "failed")],
)
def test_codes(code: object, status: str) -> None:
    assert outcome_of_code(code, "why") == Outcome(status, "why")  # type: ignore[arg-type]


@given(st.lists(CHUNKS | JSON | st.text() | st.just("[DONE]"), max_size=8))
def test_whatever_a_server_sends_there_is_one_status(documents: list[Any]) -> None:
    answer = heard(*documents)
    outcome = answer.conclude()
    assert outcome.status in STATUSES
    assert (outcome.error is None) == (outcome.status == "completed")
    assert answer.output_sha256 is None or len(answer.output_sha256) == 64
    (outcome.error or "").encode()
    list(answer.contradictions())


def test_json_nested_beyond_reason_is_no_json() -> None:
    assert heard("[" * 100_000).conclude().status == "failed"


def test_a_name_longer_than_any_is_told_by_its_length() -> None:
    for told, name in (("q" * 1_000, "q" * 1_000), ("q" * 1_000_000, "a text of 1000000 characters")):
        answer = heard({"choices": [{"finish_reason": told}], "system_fingerprint": told})
        assert (answer.finish_reason, answer.fingerprint) == (name, name)


@pytest.mark.parametrize("index", [1, 2, 2**31 - 1])
def test_a_choice_that_was_not_asked_for_ends_no_answer(index: int) -> None:
    said = {"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": "stop"}]}
    answer = heard(said, "[DONE]")
    assert answer.conclude() == Outcome("failed", "the answer ended without a finish reason")
    assert (answer.chunks, answer.output_sha256) == (0, None)
    assert list(answer.contradictions()) == [
        "the answer had more choices than the one that was asked for: only the first counts"
    ]


@pytest.mark.parametrize("index", [0, None, "1", True, -1, 0.0])
def test_a_choice_without_a_sensible_index_is_the_first(index: object) -> None:
    answer = heard({"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": "stop"}]}, "[DONE]")
    assert answer.conclude() == Outcome("completed")


@pytest.mark.parametrize("count", [2**31, 10**30, -1, 1.5, "7"])
def test_a_count_that_no_record_can_hold_is_said_once(count: object) -> None:
    choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    answer = heard({"choices": [choice], "usage": {"completion_tokens": count}}, "[DONE]")
    assert list(answer.contradictions()) == ["usage: completion_tokens is no whole number from 0 to 2147483647"]
    assert answer.output_tokens is None


def test_text_in_halves_of_characters_has_its_hash() -> None:
    answer = heard({"choices": [{"delta": {"content": "\ud83d", "tool_calls": [{"function": {"name": "\ud800"}}]}}]})
    assert answer.output_sha256 == sha256("\ufffd".encode() + '[{"arguments":"","name":"\ufffd"}]'.encode()).hexdigest()


@pytest.mark.parametrize(
    "message",
    [{"content": "abcde"}, {"refusal": "abcde"}, {"tool_calls": [{"function": {"name": "ab", "arguments": "cde"}}]}],
)
def test_an_answer_that_never_ends_fills_no_memory(message: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "MAX_TEXT_CHARACTERS", 10)
    chunk = {"choices": [{"index": 0, "delta": message}]}
    assert heard(chunk, chunk).outcome is None
    longer = heard(chunk, chunk, chunk, chunk)
    assert longer.conclude() == Outcome("failed", "the answer is longer than 10 characters")
    assert longer.chunks == 3
