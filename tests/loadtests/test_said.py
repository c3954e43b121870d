"""What a server says may repeat the key or a prompt: wherever it does, neither is kept."""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import quote, quote_plus

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from config.cli import main
from loadtests.behaviour.case import Ask
from loadtests.behaviour.server import SAID_THE_KEY, Server
from loadtests.evidence.records import RequestRecord, read_records
from loadtests.generator import Endpoint, Unreachable, reach, warm_up
from loadtests.generator.exchange import Said
from loadtests.generator.hearing import place_of
from loadtests.generator.reach import Reached
from loadtests.generator.said import (
    CUT_END,
    KEY_RUN,
    MAX_HEARD_CHARACTERS,
    PROMPT_RUN,
    Clean,
    Secrets,
    brief_text,
    without_prompt,
)
from loadtests.traffic.rows import Row

KEY = "sk-Planted+Key/0123&456=789_ABC"
PROMPT = "My account number is 0042-7781, and my name is Zoë Müller: “close it”, please"
BOTH = f"{KEY} {PROMPT}"

Writing = Callable[[str], str]


def in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def twice_in_json(text: str) -> str:
    return in_json(in_json(text))


def in_every_escape(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def in_entities(text: str) -> str:
    return "".join(f"&#{ord(one)};" for one in text)


def in_base64(encode: Callable[[bytes], bytes], before: bytes, text: str) -> str:
    return encode(before + text.encode() + b":x").decode()


ENCODINGS = (base64.b64encode, base64.urlsafe_b64encode)
WRITINGS: list[Writing] = [str, str.upper, str.lower, str.swapcase, in_json, twice_in_json, quote, quote_plus]
WRITINGS += [lambda text: quote(quote(text)), lambda text: quote(text, safe="").lower(), in_every_escape, in_entities]
WRITINGS += [escape, lambda text: escape(escape(text)), lambda text: repr(text.encode())[2:-1]]
WRITINGS += [lambda text: json.dumps(text, ensure_ascii=False)[1:-1], lambda text: text.replace("/", "\\/")]
CODED: list[Writing] = [lambda text: text.encode().hex(), lambda text: text.encode().hex().upper()]
CODED += [partial(in_base64, encode, before) for encode in ENCODINGS for before in (b"", b"e", b"se", b"use")]


@pytest.mark.parametrize("write", [*WRITINGS, *CODED])
@pytest.mark.parametrize("key", [KEY, "abcdefgh", 'q"\\u0041\\n%41&amp;+  xyz', "AAAAAAAAAAAAAAAA" * 300])
def test_a_key_is_known_in_every_writing(write: Writing, key: str) -> None:
    text = f"nobody knows {write(key)}, try another"
    left = Secrets(key).without_key(text)
    assert "[key]" in left
    assert left.startswith("nobody knows ")
    # Of base64 the letters at the border tell of what is beside the key as well.
    border = 3 if write in CODED else 0
    assert len(left) <= len("nobody knows , try another[key]") + 2 * border + len(base64.b64encode(b"use:x"))
    if write not in CODED:
        assert left == "nobody knows [key], try another"


@pytest.mark.parametrize("write", WRITINGS)
def test_a_prompt_is_known_in_every_writing(write: Writing) -> None:
    assert without_prompt(f"bad: <{write(PROMPT)}>", ["short", PROMPT]) == "bad: <[prompt]>"


@given(
    key=st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=8, max_size=60).filter(
        lambda key: len(key.strip()) >= 8
    ),
    before=st.text(max_size=1_100),
    after=st.text(max_size=400),
    write=st.sampled_from(WRITINGS[:4] + WRITINGS[6:10]),
)
def test_no_part_of_a_key_is_left_wherever_a_text_is_cut(key: str, before: str, after: str, write: Writing) -> None:
    said = Secrets(key).reason(brief_text(f"{before}{write(key)}{after}"))
    assert len(said) <= 300
    known = " ".join(key.split())
    run = min(KEY_RUN, len(known))
    for at in range(len(known) - run + 1):
        part = known[at : at + run]
        assert part not in said or part in f"{before}\0{after}" or part in "[key]no reason given"


@pytest.mark.parametrize("length", range(MAX_HEARD_CHARACTERS - 60, MAX_HEARD_CHARACTERS + 5))
@pytest.mark.parametrize("write", [str, in_every_escape])
def test_where_a_text_was_cut_no_key_begins(length: int, write: Writing) -> None:
    """The key that comes first is long and shrinks, so that the cut is within what is kept."""
    secrets = Secrets(KEY)
    filling = (write(KEY) + " ") * 40
    heard = brief_text(f"{filling[:length].rpartition(' ')[0]} {write(KEY)}" + "y" * 400)
    said = secrets.reason(heard)
    assert not any(write(KEY)[:size] in said for size in range(4, len(KEY)))
    assert len(heard) - CUT_END > 0


@pytest.mark.parametrize(
    ("key", "text", "left"),
    [
        ("stop", "the stop string stop is unknown", "the stop string stop is unknown"),
        ("stop", "invalid api_key: stop", "invalid api_key: [key]"),
        ("stop", "got Authorization: Bearer stop", "got Authorization: Bearer [key]"),
        ("stop", "no such key 'stop' here", "no such key '[key]' here"),
        ("stop", "the key stopped", "the key stopped"),
        ("EMPTY", "an EMPTY prompt", "an EMPTY prompt"),
        ("a&b", "to /x?key=a&b", "to /x?key=[key]"),
        ("1", "HTTP 401: token=1, code 1", "HTTP 401: token=[key], code 1"),
        ("  x  ", "the x, key=x", "the x, key=[key]"),
        (None, "anything", "anything"),
        ("sk-abcdefghijklmnop", "no key sk-abcd…mnop", "no key sk-abcd…mnop"),
        ("sk-abcdefghijklmnop", "no key sk-abcdefghijk", "no key [key]"),
        ("%41%42%43%44", "ABCD %41%42%43%44 %2541%2542%2543%2544", "ABCD [key] [key]"),
        ("internal-server-error", "HTTP 500 Internal Server Error", "HTTP 500 Internal Server Error"),
    ],
)
def test_words_are_no_key(key: str | None, text: str, left: str) -> None:
    assert Secrets(key).without_key(text) == left


@pytest.mark.parametrize(
    ("location", "place"),
    [
        (f"http://h/x?key={KEY}&more=1", "http://h/x?key=[hidden]&more=1"),
        (f"http://h/x?a={KEY}&more=1", "http://h/x?a=[key]&more=1"),
        (f"http://h/{quote(KEY, safe='')}/x", "http://h/[key]/x"),
        (f"http://user:{KEY}@h/x", "http://h/x"),
        ("http://h/" + "x" * 280 + KEY, "an address of 320 characters"),
    ],
)
def test_the_key_goes_from_an_address_before_what_it_may_break(location: str, place: str) -> None:
    assert place_of(location, Secrets(KEY)) == place


def test_what_ends_an_answer_is_kept_whatever_the_key_is() -> None:
    assert Secrets("tool_calls").finish_reason("tool_calls") == "tool_calls"
    assert Secrets("tool_calls").finish_reason("no tool_calls") == "no [key]"


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("stop", "stop"),
        ("\udfff", "\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("a\x1b[31mb\x07\x9b", "a\ufffd[31mb\ufffd\ufffd"),
        ("ab\u202edc", "ab\ufffddc"),
        ("長い 名前", "長い 名前"),
        ("q" * 1_000, "q" * 300 + "… (1000 characters)"),
    ],
)
def test_a_name_that_a_server_gives_can_be_kept_and_printed(told: str, kept: str) -> None:
    assert Secrets().name(told) == kept
    kept.encode()


# From here on: every field that a server can send, and every file, summary and warning that could keep it.


class Telling(BaseHTTPRequestHandler):
    """Says the key and the prompt wherever it can say anything. How is in the prompt's first word."""

    def do_GET(self) -> None:
        names = [BOTH, KEY, PROMPT, f"x/{quote(KEY, safe='')}", base64.b64encode(KEY.encode()).decode(), "modest"]
        cards = [{"id": one, "owned_by": BOTH, "root": BOTH, BOTH: BOTH} for one in names]
        self.answer(200, json.dumps({"object": BOTH, "data": cards, "version": BOTH}), "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        WAYS[prompt.split()[0]](self)

    def answer(self, status: int, text: str, kind: str, *, reason: str | None = None, **headers: str) -> None:
        self.send_response(status, reason)
        for name, value in {"Content-Type": kind, "X-Request-Id": KEY, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def events(self, *documents: object, name: str = "") -> None:
        lines = [f"event: {name}\n" if name else ""]
        lines += [f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in documents]
        self.answer(200, "".join(lines), "text/event-stream; " + KEY)

    def raw(self, content: str) -> None:
        self.wfile.write(content.encode())

    def log_message(self, *_: object) -> None:
        pass


def chunk(content: object = "yes", finish: object = None) -> dict[str, Any]:
    call = {"index": 0, "id": BOTH, "type": BOTH, "function": {"name": BOTH, "arguments": BOTH}}
    delta = {"role": BOTH, "content": content, "refusal": BOTH, "reasoning": BOTH, "tool_calls": [call], BOTH: BOTH}
    logprobs = {"content": [{"token": BOTH, "logprob": -1, "top_logprobs": [{"token": BOTH, "logprob": -1}]}]}
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "stop_reason": BOTH, "logprobs": logprobs}
    more = {"id": BOTH, "object": BOTH, "created": BOTH, "model": BOTH, "service_tier": BOTH, BOTH: BOTH}
    return more | {"system_fingerprint": BOTH, "choices": [choice], "metrics": dict.fromkeys(METRICS, BOTH)}


METRICS = ("queue_time_ms", "time_to_first_token_ms", "generation_time_ms", BOTH)
SPECULATION = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens", "acceptance_histogram", BOTH)
USAGE = {"usage": dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens", BOTH), BOTH), "choices": []}
LAST = {"metrics": {"speculative_decoding": dict.fromkeys(SPECULATION, BOTH)}, "choices": []}
ERROR = {"error": {"code": BOTH, "message": BOTH, "type": BOTH, "param": BOTH}}
LONG = " " * 65_000 + KEY * 40
WAYS: dict[str, Callable[[Telling], None]] = {
    "completes": lambda one: one.events(chunk(), chunk(finish=BOTH), LAST, USAGE, "[DONE]"),
    "only-key": lambda one: one.events(chunk(finish=KEY) | {"system_fingerprint": KEY}, USAGE, "[DONE]"),
    "only-prompt": lambda one: one.events(chunk(finish=PROMPT) | {"system_fingerprint": PROMPT}, "[DONE]"),
    "parts": lambda one: one.events(chunk([{"type": BOTH, "text": BOTH}], BOTH), "[DONE]"),
    "ends": lambda one: one.events(chunk()),
    "wrong-usage": lambda one: one.events(chunk(finish="stop"), {"usage": BOTH, "choices": BOTH}, "[DONE]"),
    "error-event": lambda one: one.events({"x": BOTH}, name="error"),
    "error-inside": lambda one: one.events(ERROR),
    "error-text": lambda one: one.events({"error": BOTH, "code": 400}),
    "error-list": lambda one: one.events({"error": [BOTH, {BOTH: BOTH}]}),
    "no-json": lambda one: one.events(f"{{{BOTH}"),
    "gave-up": lambda one: one.events(chunk(finish="abort"), "[DONE]"),
    "http-json": lambda one: one.answer(400, json.dumps(ERROR), "application/json", reason=KEY),
    "http-page": lambda one: one.answer(500, f"<p>{escape(BOTH)}</p>", "text/html"),
    "http-long": lambda one: one.answer(500, LONG, "text/plain"),
    "http-object": lambda one: one.answer(422, json.dumps({"object": "error", "message": BOTH}), BOTH.encode().hex()),
    "reason-phrase": lambda one: one.answer(400, "", "text/plain", reason="x" * 290 + KEY),
    "redirect": lambda one: one.answer(307, "", "text/plain", Location=f"http://h/x?key={KEY}&to={quote(PROMPT)}"),
    "redirect-quoted": lambda one: one.answer(302, "", "text/plain", Location=f"/{quote(KEY, safe='')}?x={KEY}"),
    "redirect-user": lambda one: one.answer(302, "", "text/plain", Location=f"http://u:{KEY}@h/{KEY}"),
    "redirect-long": lambda one: one.answer(302, "", "text/plain", Location="/" * 300 + KEY),
    "compressed": lambda one: one.answer(200, "", "text/event-stream", Content_Encoding=f"gzip-{KEY}"),
    "coding": lambda one: one.answer(200, "", "text/event-stream", Transfer_Encoding=f"{'x' * 30}{KEY}"),
    "kind": lambda one: one.answer(200, json.dumps(ERROR), f"application/json; {KEY}"),
    "kind-no-error": lambda one: one.answer(200, json.dumps({"x": BOTH}), "application/json"),
    "length": lambda one: one.raw(f"HTTP/1.1 200 OK\r\nContent-Length: {'9' * 35} {KEY}\r\n\r\n"),
    "no-http": lambda one: one.raw(f"{'-' * 30}{KEY} {PROMPT}\r\n\r\n"),
    "status-line": lambda one: one.raw(f"HTTP/1.1 {KEY}\r\n\r\n"),
    "late-status-line": lambda one: one.raw(f"HTTP/1.1 20{'0' * 27}{KEY}\r\n\r\n"),
    "chunk-size": lambda one: one.raw(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{'x' * 30}{KEY}\r\n"),
    "trailer": lambda one: one.raw(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {KEY}\r\n\r\n"),
    "other-choice": lambda one: one.events({"choices": [{"index": BOTH, "finish_reason": BOTH}, BOTH]}, "[DONE]"),
}


@contextmanager
def telling() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Telling) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def base_url() -> Iterator[str]:
    with telling() as url:
        yield url


@pytest.fixture
def traffic(tmp_path: Path, traffic_row: Callable[..., Row]) -> Path:
    path = tmp_path / "traffic.jsonl"
    rows = [traffic_row(f"{way} {PROMPT}", number, arrival_s=0.02 * number) for number, way in enumerate(WAYS)]
    path.write_bytes(b"".join(row.content + b"\n" for row in rows))
    return path


def secrets_in(text: str) -> list[str]:
    """Parts of key and prompt in a text, in whatever writing; of the key also its smaller parts at a cut."""
    found = [KEY[at : at + 8] for at in range(len(KEY) - 7) if KEY[at : at + 8].lower() in text.lower()]
    found += [PROMPT[at : at + PROMPT_RUN] for at in range(len(PROMPT) - PROMPT_RUN + 1)]
    found = [one for one in found if one.lower() in text.lower()]
    left = Secrets(KEY).without_key(without_prompt(text, [PROMPT]))
    return found if left == text else [*found, "another writing"]


def texts_of(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for pair in value.items() for one in pair for text in texts_of(one))
    elif isinstance(value, list | tuple):
        yield from (text for one in value for text in texts_of(one))
    elif isinstance(value, str):
        yield value


def assert_clean(out: Path, *printed: str) -> None:
    tables = [read_records(one).to_pydict() for one in out.rglob("*.parquet")]
    documents = [json.loads(one.read_bytes()) for one in out.rglob("*.json")]
    assert tables
    assert documents
    for text in [*printed, *texts_of(tables), *texts_of(documents)]:
        # Digests are in base 16, and the texts are searched one by one.
        assert secrets_in(text) == [], text
    for file in out.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


@pytest.mark.parametrize("options", [[], ["--processes", "2"], ["--no-stream"], ["--api", "completions"]])
def test_nothing_that_a_replay_leaves_holds_what_the_server_repeats(
    base_url: str, traffic: Path, tmp_path: Path, options: Sequence[str]
) -> None:
    asked = ["replay", "--traffic", str(traffic), "--base-url", base_url, "--model", "mine", "--drain", "3"]
    ran = CliRunner().invoke(
        main, [*asked, "--api-key-env", "K", "--out", str(tmp_path / "out"), *options], env={"K": KEY}
    )
    assert ran.exit_code in (0, 4), ran.output
    assert (
        "warning: mine is not among the server's models: [key][prompt], [key], [prompt], x/[key], [key]w==, "
        in ran.stderr
    )
    assert_clean(tmp_path / "out", ran.stdout, ran.stderr)
    records = read_records(tmp_path / "out" / "records.parquet").to_pylist()
    assert len(records) == len(WAYS)
    if not options:
        assert (records[0]["finish_reason"], records[0]["fingerprint"]) == ("[key][prompt]", "[key][prompt]")
    again = ["rerun", str(tmp_path / "out" / "manifest.json"), "--rows", str(traffic), "--api-key-env", "K"]
    ran = CliRunner().invoke(main, [*again, "--out", str(tmp_path / "again")], env={"K": KEY})
    assert ran.exit_code in (0, 4), ran.output
    assert_clean(tmp_path / "again", ran.stdout, ran.stderr)


def test_words_of_a_server_are_kept_in_these_fields_alone() -> None:
    """Of a request: those of ``Said``; all else that a record holds is ours, a number or a digest."""
    texts = {name for name, kind in get_type_hints(RequestRecord).items() if "str" in str(kind)}
    ours = {"request_id", "class_", "level", "prompt_sha256", "status", "output_sha256"}
    assert texts - ours == set(Said._fields)
    assert set(get_type_hints(Said).values()) == {Clean | None}
    assert get_type_hints(Reached) == {"models": tuple[Clean, ...] | None, "token_ids": bool}


async def test_nothing_that_a_warm_up_says_holds_it(base_url: str) -> None:
    bodies: list[dict[str, object]] = [
        {"model": "m", "messages": [{"role": "user", "content": f"{way} {PROMPT}"}], "stream": True} for way in WAYS
    ]
    warm = await warm_up(Endpoint(base_url, "m", KEY), bodies, timeout_s=5)
    assert len(warm.errors) > 10
    assert [secrets_in(one) for one in warm.errors] == [[] for _ in warm.errors]


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_that_the_suite_keeps_holds_it(base_url: str, stream: bool) -> None:
    server = Server(Endpoint(base_url, "m", KEY), timeout_s=5)
    for way in WAYS:
        reply = await server.ask(
            Ask("chat", {"messages": [{"role": "user", "content": f"{way} {PROMPT}"}]}), stream=stream
        )
        assert not any(Secrets(KEY).without_key(text) != text for text in texts_of(reply.as_document())), way
        assert secrets_in(reply.error or "") == []
        if way == "completes" and stream:
            assert reply.error == SAID_THE_KEY
    abilities = await server.probe()
    assert secrets_in(abilities.version or "") == []


async def test_who_is_no_server_says_nothing_that_is_told() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"{'-' * 20}{KEY}\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match=r"no HTTP/1.1 answer: b'-{20}\[key\]") as unreachable:
            await reach(Endpoint(f"http://127.0.0.1:{port}", "m", KEY))
    assert secrets_in(str(unreachable.value)) == []
