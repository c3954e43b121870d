"""What the client asks for and how it reads it: both APIs, streamed and whole, split anywhere, over TLS, with a key."""

import asyncio
import gc
import json
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.evidence.summary import summarise
from loadtests.generator import APIS, Endpoint, Reached, Unreachable, reach, run_trial
from loadtests.generator.answer import Answer, Outcome
from loadtests.generator.exchange import Clock, Exchange, Listening, broken
from loadtests.generator.hearing import Hearing, only_event
from loadtests.generator.http_answer import BadAnswer, HttpAnswer
from loadtests.generator.quoting import repeats
from loadtests.generator.said import PROMPT_RUN as RUN
from loadtests.generator.said import Clean, Secrets, brief_text, without_prompt
from loadtests.generator.way import Conversation, Way
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import request_body

Plan = Callable[..., list[PlannedRequest]]
PATIENCE_S = 30.0
MS = 1_000_000
SECRET = "the account number of our largest customer is 0123456789"


async def outcome(plan: list[PlannedRequest], endpoint: Endpoint, **more: Any) -> Any:
    limits: dict[str, Any] = {"level": "x", "window_s": 1, "drain_s": PATIENCE_S}
    return await run_trial(plan, endpoint, **(limits | more))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
async def test_both_apis_streamed_and_whole(server: Any, planned: Plan, api: Any, stream: bool) -> None:
    trial = await outcome(planned(["as-asked"]), Endpoint(server.base_url, "hostile", api=api, stream=stream))
    [record] = trial.records
    assert (record.status, record.finish_reason, record.output_tokens, record.prompt_tokens) == (
        "completed",
        "stop",
        2,
        7,
    )
    assert record.output_sha256 == sha256(b"Hello there").hexdigest()
    assert record.chunks == (2 if stream else 1)
    # When its first token was there is unknown of an answer that came whole.
    assert (record.first_token_ns is None) == (not stream)
    assert record.last_token_ns is not None
    assert server.heads[0].startswith("POST /v1/chat/completions" if api == "chat" else "POST /v1/completions")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("http-400-json", "refused"),
        ("http-500-json", "failed"),
        ("json-error-with-200", "refused"),
        ("page-with-200", "failed"),
        ("plain-answer", "failed"),
        ("reset-after-headers", "failed"),
        ("never-answers", "timed_out"),
    ],
)
async def test_a_whole_answer_has_one_status_too(server: Any, planned: Plan, name: str, status: str) -> None:
    drain_s = 0.2 if status == "timed_out" else PATIENCE_S
    endpoint = Endpoint(server.base_url, "hostile", stream=False)
    trial = await outcome(planned([name]), endpoint, window_s=0.2, drain_s=drain_s)
    assert [one.status for one in trial.records] == [status]


def test_a_completion_takes_one_prompt(planned: Plan) -> None:
    [one] = planned(["hello"])
    row = one.traffic_row
    assert request_body(row, "m", api="completions", stream=False) == {
        "model": "m",
        "prompt": "hello",
        "max_tokens": 64,
        "temperature": 0.0,
        "top_p": 1.0,
        "stream": False,
    }
    chat = row.model_copy(update={"messages": row.messages * 2})
    with pytest.raises(ValueError, match="row row-0 is a chat, and a completion takes one prompt"):
        request_body(chat, "m", api="completions")


async def test_token_ids_are_asked_for_and_counted(server: Any, planned: Plan) -> None:
    plan = [replace(one, give_up_ns=300 * MS) for one in planned(["steady 10000 20"])]
    plan += planned(["steady 4 5", "token-ids-without-usage", "token-ids-of-some-chunks"], first=1)
    trial = await outcome(plan, Endpoint(server.base_url, "hostile", token_ids=True))
    gone, done, counted, unknown = trial.records
    assert json.loads(server.received[0][1])["return_token_ids"] is True
    # What came before the user gave up was returned, and is known by its ids.
    assert (gone.status, gone.output_tokens) == ("cancelled", gone.chunks)
    assert 1 <= (gone.output_tokens or 0) < 100
    assert (done.status, done.output_tokens) == ("completed", 4)
    assert [(one.status, one.output_tokens) for one in (counted, unknown)] == [("completed", 2), ("completed", None)]
    found = summarise(trial.records, window_s=1)
    assert found["verified_output_tokens"] == sum(one.output_tokens or 0 for one in trial.records)
    assert found["completed_without_token_count"] == 1


async def test_without_token_ids_what_came_before_a_cancellation_is_unknown(server: Any, planned: Plan) -> None:
    plan = [replace(one, give_up_ns=300 * MS) for one in planned(["steady 10000 20"])]
    [record] = (await outcome(plan, Endpoint(server.base_url, "hostile"))).records
    assert (record.status, record.output_tokens) == ("cancelled", None)
    assert (record.chunks or 0) >= 1


async def test_nobody_is_asked_for_token_ids_who_may_refuse_them(hostile: ModuleType, planned: Plan) -> None:
    for owner, known in (("somebody", False), ("vllm", True)):
        async with hostile.hostile_server(owner=owner) as server:
            endpoint = Endpoint(server.base_url, "hostile")
            found = await reach(endpoint)
            assert found == Reached((Clean("hostile"),), known)
            asking = replace(endpoint, token_ids=found.token_ids)
            [record] = (await outcome(planned(["refuse-token-ids"]), asking)).records
            assert record.status == ("refused" if known else "completed")


async def test_a_prompt_that_a_server_repeats_is_not_kept(server: Any, planned: Plan) -> None:
    endpoint = Endpoint(server.base_url, "hostile", api_key="sesame-open-1234567890")
    trial = await outcome(planned([f"echo {SECRET}", f"echo-everything {SECRET}"]), endpoint)
    told, page = (str(one.error) for one in trial.records)
    assert told == "HTTP 400 Bad Request: error, code 400: can't take [prompt]"
    assert "[key]" in page
    for text in (told, page):
        assert not any(SECRET[at : at + RUN] in text for at in range(len(SECRET) - RUN + 1))
        assert "sesame" not in text


@pytest.mark.parametrize("length", [40, 257, 990, 5_000])
def test_a_key_that_was_cut_off_is_not_kept(length: int) -> None:
    key = "Ab" * (length // 2)
    endpoint = Endpoint("http://h", "m", api_key=key)
    heard = brief_text(f"nobody knows {key}, {key} {key * 20}")
    assert "Ab" not in endpoint.secrets.reason(heard)
    assert endpoint.secrets.reason(heard).startswith("nobody knows [key]")
    assert endpoint.secrets.reason("it ends with A") == "it ends with A"


@given(prompt=st.text(min_size=RUN, max_size=80), before=st.text(max_size=30), after=st.text(max_size=30))
def test_no_run_of_a_prompt_is_left(prompt: str, before: str, after: str) -> None:
    for form in (prompt, " ".join(prompt.split()), json.dumps(prompt)[1:-1]):
        left = without_prompt(" ".join(f"{before}{form}{after}".split()), [prompt])
        held = " ".join(prompt.split())
        assert not any(held[at : at + RUN] in left for at in range(len(held) - RUN + 1) if "[prompt]" not in held)


@given(
    text=st.text("ab", max_size=60),
    others=st.lists(st.text("ab", max_size=120), max_size=3),
    run=st.integers(2, 7),
)
def test_the_runs_are_found_that_a_slow_search_finds(text: str, others: list[str], run: int) -> None:
    """Of two letters, so that there is much to find, in texts longer and shorter than what they may repeat."""
    found, at = [], 0
    while at + run <= len(text):
        ends = [end for end in range(at + run, len(text) + 1) if any(text[at:end] in one for one in others)]
        found += [(at, max(ends))] if ends else []
        at = max(ends, default=at + 1)
    assert repeats(text, others, run) == found


@pytest.mark.parametrize("said", ["This model's context has 4096 tokens, and you asked for more", "bad: {}"])
def test_reasons_are_read_in_no_time_beside_long_prompts(said: str) -> None:
    """A trial has thousands of refused requests, each with a prompt of its own."""
    words = [f"{number:x}" for number in range(10_000, 22_000)]
    began = time.perf_counter()
    for first in range(100):
        prompt = " ".join(words[first:])
        left = Secrets("sk-abcdefghijkl").reason(brief_text(said.format(prompt[-900:])), [prompt])
        assert left in (said, "bad: [prompt]", "bad:[prompt]")
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("too many tokens", "too many tokens"),
        ("the account number is unknown", "the account number is unknown"),
        (f"bad: {SECRET}!", "bad: [prompt]!"),
        (f"bad: {SECRET[:30]} and, {SECRET[26:]}", "bad: [prompt] and,[prompt]"),
    ],
)
def test_only_what_repeats_the_prompt_is_taken_out(text: str, left: str) -> None:
    assert without_prompt(text, ["short", SECRET]) == left


@pytest.mark.parametrize(
    ("location", "said"),
    [
        (b"http://user:hunter2@h/x", "redirect to http://h/x, not followed"),
        # It took seconds, within the loop, to look for a password in this.
        (b"//" + b":" * 30_000, "redirect to an address of 30002 characters, not followed"),
        # Nor is it cut: the end of its password would be gone, and nobody could tell that it is one.
        (b"http://user:" + b"hunter2" * 100 + b"@h/x", "redirect to an address of 716 characters, not followed"),
    ],
)
def test_where_a_redirect_points_to(location: bytes, said: str) -> None:
    began = time.perf_counter()
    ended_in = heard([b"HTTP/1.1 307 X\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"])["ended_in"]
    assert ended_in == Outcome("refused", f"HTTP 307 X: {said}")
    assert time.perf_counter() - began < 1


def answer_bytes(hostile: ModuleType) -> bytes:
    texts = [hostile.sse(json.dumps(one, ensure_ascii=False)) for one in hostile.whole("Hé", "🙂", "!")[:-1]]
    pieces = [b"%x\r\n%b\r\n" % (len(one), one) for one in [*texts, b": hello\n\n", hostile.sse("[DONE]", "\r\n")]]
    return bytes(hostile.STREAM_HEAD) + b"".join(pieces) + b"0\r\n\r\n"


@given(cuts=st.lists(st.integers(0, 2000), max_size=30))
def test_packets_may_end_anywhere(hostile: ModuleType, cuts: list[int]) -> None:
    content = answer_bytes(hostile)
    borders = sorted({0, len(content), *(cut % len(content) for cut in cuts)})
    answer = Answer()
    hearing = Hearing(answer, stream=True, secrets=Secrets())
    over = [hearing.take(content[one:other], one) for one, other in pairwise(borders)]
    assert over[-1]
    assert (answer.chunks, answer.output_tokens, hearing.outcome) == (3, 3, answer.conclude())
    assert answer.output_sha256 == sha256("Hé🙂!".encode()).hexdigest()


CHUNK = '{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}'
SAID = [CHUNK % "a", CHUNK % "🙂é", CHUNK % "\\ud83d", CHUNK % "\\ude42", CHUNK % "\\r\\n", CHUNK % "data: x"]
SAID += ['{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}']
SAID += ['{"choices":[{"delta":{"refusal":"no"}}]}', '{"choices":[{"text":"t","token_ids":[1,2]}]}', "[DONE]"]
SAID += ['{"choices":[{"delta":{},"finish_reason":"stop"}]}', '{"choices":[],"usage":{"completion_tokens":3}}']
SAID += ['{"error":{"code":400,"message":"no"}}', "{broken", "[1]", "", "NaN", "\ufeff{}", '{"choices":null}', "null"]
DATA = st.sampled_from([one.encode() for one in SAID]) | st.binary(max_size=20)
EVENTS = st.builds(
    lambda before, data, end: b"%bdata: %b%b" % (before, data, end),
    st.sampled_from([b"", b"", b"", b": x\n", b"event: error\n", b"data: {\n", b"\xef\xbb\xbf", b" ", b"\n"]),
    DATA,
    st.sampled_from([b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b"\r\n\n", b"", b"\n\n\n"]),
)
SIZES = st.sampled_from([b"%x", b"%x", b"%x", b"%X", b"000%x", b"%x;a=b", b" %x", b"+%x", b"1%x"])
WIRE = st.lists(
    st.builds(
        lambda event, size, end: size % len(event) + b"\r\n" + event + end,
        EVENTS,
        SIZES,
        st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"", b"\n"]),
    ),
    max_size=8,
)


class StillClock(Clock):
    def now(self) -> int:
        return 1


def heard(packets: Iterable[bytes]) -> dict[str, Any]:
    """All that is known of an answer whose packets came at one moment and whose connection was closed then."""
    exchange = Exchange(b"")
    listening = Listening(exchange, StillClock(0))
    try:
        if not any(listening.take(packet) for packet in packets):
            listening.end()
    except BadAnswer as fault:
        broken(exchange, fault)
    return vars(exchange.answer) | {"ended_in": exchange.outcome}


@given(pieces=WIRE, last=st.sampled_from([b"0\r\n\r\n", b""]), cuts=st.lists(st.integers(0, 2000), max_size=20))
def test_any_split_gives_the_same_answer(
    hostile: ModuleType, pieces: list[bytes], last: bytes, cuts: list[int]
) -> None:
    head = bytes(hostile.STREAM_HEAD)
    # As most servers send it: a chunk that is one event in a packet of its own, which is heard by the short way.
    usual = heard([head, *pieces, last])
    content = head + b"".join(pieces) + last
    borders = sorted({0, len(content), *(cut % len(content) for cut in cuts)})
    assert heard(content[one:other] for one, other in pairwise(borders)) == usual
    assert heard(content[at : at + 1] for at in range(len(content))) == usual
    assert heard([content]) == usual


@pytest.mark.parametrize(
    ("packet", "event"),
    [
        (b"b\r\ndata: {1}\n\n\r\n", b"{1}"),
        (b"B\r\ndata: {1}\n\n\r\n", b"{1}"),
        (b"b\r\ndata: {1}\n\n\r", None),
        (b"b\r\ndata: {1}\n\n\r\n1\r\n", None),
        (b"c\r\ndata: {1}\n\n\r\n", None),
        (b"b;x\r\ndata: {1}\n\n\r\n", None),
        (b"b\r\ndata: \r1}\n\n\r\n", None),
        (b"b\r\ndata: {\n}\n\n\r\n", None),
        (b"b\r\ndata:{11}\n\n\r\n", None),
        (b"d\r\ndata: {1}\r\n\r\n\r\n", None),
        (b"8\r\ndata: \n\n\r\n", b""),
        (b"\r\n", None),
        (b"", None),
    ],
)
def test_what_is_one_event_of_one_line(packet: bytes, event: bytes | None) -> None:
    assert only_event(packet) == event


async def test_the_fault_of_an_answer_that_nobody_waits_for_is_not_printed() -> None:
    """Its request was given up in the very moment; the loop would print what the server said, with the key in it."""
    printed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: printed.append(context))
    conversation = Conversation(b"", Listening(Exchange(b""), Clock(0)))
    conversation.data_received(b"no server, but a word\r\n\r\n")
    assert conversation.over.done()
    del conversation
    await asyncio.sleep(0)
    gc.collect()
    assert printed == []


@given(packets=st.lists(st.binary(max_size=60) | st.just(b"HTTP/1.1 200 OK\r\n\r\n") | st.just(b"5\r\nhello\r\n")))
def test_whatever_comes_is_an_answer_or_a_fault_of_it(packets: list[bytes]) -> None:
    http = HttpAnswer()
    try:
        for packet in packets:
            list(http.feed(packet))
        http.end()
    except BadAnswer:
        return
    assert http.complete


@given(packets=st.lists(st.binary(max_size=80), max_size=6), stream=st.booleans())
def test_any_body_makes_one_status(packets: list[bytes], stream: bool) -> None:
    exchange = Exchange(b"", stream)
    listening = Listening(exchange, Clock(0))
    listening.take(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    if not any(listening.take(packet) for packet in packets):
        listening.end()
    assert exchange.outcome is not None
    assert exchange.outcome.status in ("completed", "failed", "refused")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hostile"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs the openssl command")
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


async def test_a_certificate_that_nobody_signed_is_refused(
    hostile: ModuleType, planned: Plan, certificate: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with hostile.hostile_server(tls) as server:
        endpoint = Endpoint(server.base_url, "hostile")
        with pytest.raises(Unreachable, match=r"certificate is not trusted \(self-signed certificate\).* CA bundle"):
            await reach(endpoint)
        [refused] = (await outcome(planned(["plain-answer"]), endpoint)).records
        assert (refused.status, str(refused.error).partition(" (")[0]) == (
            "failed",
            "the server's certificate is not trusted",
        )
        trusting = Endpoint(server.base_url, "hostile", ca_bundle=Path(f"{certificate}.crt"))
        assert await reach(trusting) == Reached((Clean("hostile"),))
        records = (await outcome(planned(["plain-answer", "reset-mid-stream", "http-400-json"]), trusting)).records
        assert [one.status for one in records] == ["completed", "failed", "refused"]


def test_a_bundle_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the CA bundle .*missing.pem can't be used"):
        Way(Endpoint("https://h", "m", ca_bundle=tmp_path / "missing.pem"))


def test_a_key_that_no_header_can_carry() -> None:
    with pytest.raises(ValueError, match="the API key holds a character") as refused:
        Endpoint("http://h", "m", api_key="sesame\r\nX: y")
    assert "sesame" not in str(refused.value)


async def test_in_exploring_a_turn_may_follow_the_answer_before_it(server: Any, planned: Plan) -> None:
    plan = planned(["slow-answer", "plain-answer", "plain-answer"], gap_ms=1)
    turns = [
        replace(one, traffic_row=one.traffic_row.model_copy(update={"conversation": "c", "turn": turn}))
        for turn, one in enumerate(plan, start=1)
    ]
    trial = await outcome(turns, Endpoint(server.base_url, "hostile"), window_s=20, think_s=0.1)
    first, second, third = trial.records
    assert [one.status for one in trial.records] == ["completed"] * 3
    assert second.planned_ns == (first.ended_ns or 0) + 100 * MS
    assert third.planned_ns == (second.ended_ns or 0) + 100 * MS
    assert (second.sent_ns or 0) >= second.planned_ns
    assert trial.findings[-1].endswith("0.1 s after the answer before them: fit for exploring alone")
    late = await outcome(turns, Endpoint(server.base_url, "hostile"), window_s=0.3, think_s=0.1)
    assert [one.status for one in late.records] == ["completed", "not_sent", "not_sent"]
