"""The simulated engine behind HTTP, heard by the project's own client and by plain requests."""

import asyncio
import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from loadtests.configurations import Speculative
from loadtests.evidence.records import status_counts
from loadtests.generator import Endpoint, reach, run_trial
from loadtests.simulator import Boot, EngineModel, api, preset
from loadtests.simulator.counters import exposed, with_open
from loadtests.simulator.engine import Engine
from loadtests.simulator.language import VOCABULARY
from loadtests.simulator.model import Nuisances, changed, speculation_of
from loadtests.simulator.pace import Pace
from loadtests.simulator.server import LIVE, application
from loadtests.traffic.planned import PlannedRequest
from workers.engines.metrics import parse_metrics

FINGERPRINT = "a" * 64
SPEED = 200.0
DFLASH = Speculative(method="dflash", num_speculative_tokens=4)
Plan = Callable[..., list[PlannedRequest]]


def still() -> EngineModel:
    return changed(preset("cpu-2core"), {"nuisances": Nuisances()})


class Served:
    """A running server, with what a test wants to ask of it."""

    def __init__(self, app: web.Application, base_url: str, session: aiohttp.ClientSession) -> None:
        self.engine: Engine = app[LIVE].engine
        self.base_url = base_url
        self.session = session

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        async with self.session.post(f"{self.base_url}{path}", json=body) as response:
            if response.content_type == "application/json":
                return response.status, await response.json()
            return response.status, events(await response.text())

    async def chat(self, text: str = "Tell me a story.", **fields: Any) -> Any:
        status, answer = await self.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], **fields)
        assert status == 200, answer
        return answer

    def counters(self) -> dict[str, float]:
        engine = self.engine
        tally = with_open(engine.totals, engine.running, engine.step)
        return exposed(engine.totals, tally, cache=None, speculating=engine.speculation is not None)


def events(text: str) -> list[Any]:
    said = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert said[-1] == "[DONE]"
    return [json.loads(line) for line in said[:-1]]


async def serving(setting: Speculative | None, speed: float = SPEED, rounding: float = 0.0) -> AsyncIterator[Served]:
    model = still()
    engine = Engine(model, speculation_of(model, setting), pace=Pace(model.nuisances, 1), seed=1)
    app = application(engine, speed=speed, model="tiny", fingerprint=FINGERPRINT, rounding=rounding)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession() as session:
        yield Served(app, f"http://{host}:{port}", session)
    await runner.cleanup()


@pytest.fixture
async def plain() -> AsyncIterator[Served]:
    async for served in serving(None):
        yield served


@pytest.fixture
async def speculating() -> AsyncIterator[Served]:
    async for served in serving(DFLASH):
        yield served


@pytest.fixture
async def slow() -> AsyncIterator[Served]:
    async for served in serving(None, speed=1.0):
        yield served


async def test_a_trial_of_the_client_agrees_with_the_server_s_counters(speculating: Served, planned: Plan) -> None:
    endpoint = Endpoint(speculating.base_url, "tiny")
    assert (await reach(endpoint)).models == ("tiny",)
    plan = planned([f"question {number}" for number in range(40)], gap_ms=5)
    trial = await run_trial(plan, endpoint, level="x", window_s=1, drain_s=60)
    assert status_counts(trial.records)["completed"] == 40
    assert trial.findings == []
    assert trial.fingerprints == {FINGERPRINT: 40}
    sums = {
        "vllm:generation_tokens_total": sum(one.output_tokens or 0 for one in trial.records),
        "vllm:prompt_tokens_total": sum(one.prompt_tokens or 0 for one in trial.records),
        "vllm:spec_decode_num_drafts_total": sum(one.rounds or 0 for one in trial.records),
        "vllm:spec_decode_num_draft_tokens_total": sum(one.draft_tokens or 0 for one in trial.records),
        "vllm:spec_decode_num_accepted_tokens_total": sum(one.accepted_tokens or 0 for one in trial.records),
    }
    counters = speculating.counters()
    assert {name: counters[name] for name in sums} == sums
    for one in trial.records:
        assert sum(one.accepted_histogram or []) == one.rounds
        # The tokens of one step come in one chunk.
        assert 0 < (one.chunks or 0) <= (one.output_tokens or 0)


async def test_the_worker_reads_the_same_counters_from_metrics(speculating: Served) -> None:
    await speculating.chat(max_tokens=30)
    async with speculating.session.get(f"{speculating.base_url}/metrics") as response:
        read = parse_metrics(await response.text())
    expected = speculating.counters()
    gauges = dict.fromkeys(("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"), 0.0)
    expected |= {f"vllm:{name}": value for name, value in gauges.items()}
    # Seconds are the client's, here as in the answers.
    scaled = {name: value / (SPEED if name.endswith("_seconds_sum") else 1) for name, value in expected.items()}
    assert read == pytest.approx(scaled)


async def test_http_and_virtual_time_see_the_same_requests(speculating: Served, planned: Plan) -> None:
    plan = planned([f"question {number}" for number in range(20)], gap_ms=0)
    heard = await run_trial(plan, Endpoint(speculating.base_url, "tiny"), level="x", window_s=1, drain_s=60)
    virtual = Boot(still(), DFLASH, seed=1).run_trial(plan, level="x", window_s=1, drain_s=600)
    same = ("prompt_sha256", "prompt_tokens", "output_tokens", "finish_reason", "status")
    assert [[getattr(one, name) for name in same] for one in heard.records] == [
        [getattr(one, name) for name in same] for one in virtual.records
    ]


async def test_a_scaled_engine_is_as_much_faster(slow: Served, plain: Served) -> None:
    fast, real = [
        (await one.chat(max_tokens=10, temperature=0, ignore_eos=True))["metrics"]["mean_itl_ms"]
        for one in (plain, slow)
    ]
    assert real == pytest.approx(32.7, rel=0.05)
    assert real / fast == pytest.approx(SPEED, rel=0.05)


async def test_streaming_says_what_a_whole_answer_says(speculating: Served) -> None:
    settings: dict[str, Any] = {"temperature": 0.8, "seed": 5, "max_tokens": 60, "return_token_ids": True}
    whole = await speculating.chat(**settings)
    chunks = await speculating.chat(**settings, stream=True, stream_options={"include_usage": True})
    (choice,) = whole["choices"]
    said = [one["choices"][0] for one in chunks[:-1]]
    assert said[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(one["delta"].get("content", "") for one in said) == choice["message"]["content"]
    assert [token for one in said for token in one.get("token_ids", ())] == choice["token_ids"]
    assert [one["finish_reason"] for one in said if one["finish_reason"]] == [choice["finish_reason"]]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], whole["usage"])
    assert chunks[-1]["system_fingerprint"] == FINGERPRINT
    decoded = "".join(VOCABULARY[token] for token in choice["token_ids"] if token)
    assert decoded == choice["message"]["content"]
    assert whole["usage"]["completion_tokens"] == len(choice["token_ids"])


async def test_without_include_usage_there_is_no_usage(plain: Served) -> None:
    chunks = await plain.chat(max_tokens=5, stream=True)
    assert all("usage" not in one for one in chunks)


async def test_greedy_text_is_the_prompt_s_own_and_sampled_text_the_seed_s(plain: Served, speculating: Served) -> None:
    async def text(served: Served, prompt: str = "Why?", **fields: Any) -> str:
        answer = await served.chat(prompt, max_tokens=30, **fields)
        return str(answer["choices"][0]["message"]["content"])

    greedy = await text(plain, temperature=0)
    assert greedy == await text(speculating, temperature=0)
    assert greedy != await text(plain, "Why not?", temperature=0)
    assert await text(plain, seed=1) == await text(plain, seed=1) != await text(plain, seed=2)
    assert await text(plain) != await text(plain)


async def test_a_stop_string_ends_the_text_before_it_wherever_chunks_fall(speculating: Served) -> None:
    free = await speculating.chat(temperature=0, max_tokens=60)
    text = free["choices"][0]["message"]["content"]
    stop = text[20:27]
    answer = await speculating.chat(temperature=0, max_tokens=60, stop=["never said", stop])
    choice = answer["choices"][0]
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert answer["usage"]["completion_tokens"] < free["usage"]["completion_tokens"]
    assert answer["metrics"]["speculative_decoding"] is None
    assert answer["metrics"]["queue_time_ms"] == 0


async def test_limits_hold_to_the_token(plain: Served) -> None:
    cut = await plain.chat(temperature=0, max_tokens=7)
    assert (cut["usage"]["completion_tokens"], cut["choices"][0]["finish_reason"]) == (7, "length")
    free = await plain.chat(temperature=0, max_tokens=1_000)
    length = free["usage"]["completion_tokens"]
    assert free["choices"][0]["finish_reason"] == "stop"
    longer = await plain.chat(temperature=0, max_tokens=1_000, min_tokens=length + 20)
    assert longer["usage"]["completion_tokens"] > length + 20
    on = await plain.chat(temperature=0, max_tokens=length + 40, ignore_eos=True)
    assert (on["usage"]["completion_tokens"], on["choices"][0]["finish_reason"]) == (length + 40, "length")
    first = (await plain.chat(temperature=0, max_tokens=9, return_token_ids=True))["choices"][0]["token_ids"]
    ended = await plain.chat(temperature=0, max_tokens=9, stop_token_ids=[first[4]])
    assert (ended["usage"]["completion_tokens"], ended["choices"][0]["stop_reason"]) == (5, first[4])


async def test_penalties_and_bias_have_their_effect(plain: Served) -> None:
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "ignore_eos": True, "return_token_ids": True}

    async def different(**fields: Any) -> int:
        answer = await plain.chat(**settings, **fields)
        return len(set(answer["choices"][0]["token_ids"]))

    assert await different(frequency_penalty=2.0) > await different() > await different(logit_bias={110: 100})
    assert await different(logit_bias={110: 100}) == 1


async def test_a_target_that_rounds_answers_otherwise_where_its_best_tokens_are_close() -> None:
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True, "logprobs": True}
    texts, values = {}, {}
    for nats in (0.0, 0.1):
        async for served in serving(None, rounding=nats):
            answers = [(await served.chat(**settings))["choices"][0] for _ in range(6)]
        texts[nats] = {one["message"]["content"] for one in answers}
        values[nats] = {one["logprobs"]["content"][0]["logprob"] for one in answers}
    assert (len(texts[0.0]), len(values[0.0])) == (1, 1)
    assert (len(texts[0.1]) > 1, len(values[0.1])) == (True, 6)
    assert max(values[0.1]) - min(values[0.1]) < 1


async def test_several_answers_come_with_one_usage_and_no_metrics(speculating: Served) -> None:
    answer = await speculating.chat(n=3, max_tokens=12, ignore_eos=True)
    assert [one["index"] for one in answer["choices"]] == [0, 1, 2]
    assert len({one["message"]["content"] for one in answer["choices"]}) == 3
    assert answer["usage"]["completion_tokens"] == 36
    assert set(answer["metrics"].values()) == {None}
    chunks = await speculating.chat(n=3, max_tokens=12, ignore_eos=True, stream=True)
    ends = [choice["index"] for one in chunks for choice in one["choices"] if choice["finish_reason"]]
    assert sorted(ends) == [0, 1, 2]


async def test_logprobs_have_the_shape_and_are_those_of_the_distribution(plain: Served) -> None:
    answer = await plain.chat(temperature=0, max_tokens=6, logprobs=True, top_logprobs=4, return_token_ids=True)
    choice = answer["choices"][0]
    content = choice["logprobs"]["content"]
    assert len(content) == 6
    for one, token in zip(content, choice["token_ids"], strict=True):
        assert one["token"] == VOCABULARY[token]
        assert bytes(one["bytes"]).decode() == one["token"]
        assert one["top_logprobs"][0]["logprob"] == one["logprob"], "greedy takes the best"
        chances = [math.exp(top["logprob"]) for top in one["top_logprobs"]]
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) <= 1
    status, other = await plain.post("/v1/completions", prompt="Once", temperature=0, max_tokens=6, logprobs=2)
    told = other["choices"][0]["logprobs"]
    assert status == 200
    assert {name: len(values) for name, values in told.items()} == dict.fromkeys(told, 6)
    assert "".join(told["tokens"]) == other["choices"][0]["text"]


async def test_an_answer_follows_its_json_schema(speculating: Served) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 10},
            "size": {"enum": ["small", "large"]},
            "counts": {"type": "array", "items": {"type": "integer", "minimum": 3, "maximum": 5}, "minItems": 2},
            "ok": {"type": "boolean"},
        },
        "required": ["name", "size", "counts", "ok"],
    }
    format_ = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema}}
    answer = await speculating.chat(max_tokens=300, response_format=format_)
    value = json.loads(answer["choices"][0]["message"]["content"])
    assert sorted(value) == ["counts", "name", "ok", "size"]
    assert len(value["name"]) <= 10
    assert value["size"] in ("small", "large")
    assert len(value["counts"]) >= 2
    assert set(value["counts"]) <= {3, 4, 5}
    assert value["ok"] in (True, False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"min_p": 0.1}, "not supported with speculative decoding"),
        ({"logit_bias": {"5": 1}}, "not supported with speculative decoding"),
        ({"max_tokens": 5_000}, "maximum context length is 2048 tokens"),
        ({"min_tokens": 9, "max_tokens": 5}, "min_tokens 9 is above max_tokens 5"),
        ({"model": "other"}, "The model `other` does not exist"),
        ({"stop": ""}, "empty string"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}},
            "grammar doesn't know",
        ),
    ],
)
async def test_a_rejected_request_is_told_inside_a_stream_and_as_400_without_one(
    speculating: Served, body: dict[str, Any], said: str
) -> None:
    messages = [{"role": "user", "content": "hello"}]
    status, answer = await speculating.post("/v1/chat/completions", messages=messages, **body)
    assert (status, answer["error"]["code"]) == (400, 400)
    assert said in answer["error"]["message"]
    status, answer = await speculating.post("/v1/chat/completions", messages=messages, stream=True, **body)
    assert status == 200
    assert answer[0]["error"]["message"].count(said) == 1


async def test_what_is_no_request_is_a_400(plain: Served) -> None:
    async with plain.session.post(f"{plain.base_url}/v1/chat/completions", data=b"{") as response:
        assert response.status == 400
    status, answer = await plain.post("/v1/chat/completions", messages=[], n=1)
    assert (status, answer["error"]["type"]) == (400, "BadRequestError")


async def test_a_client_that_leaves_stops_its_sequences(slow: Served) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "ignore_eos": True, "n": 2}
    async with slow.session.post(f"{slow.base_url}/v1/chat/completions", json=body) as response:
        await response.content.readany()
        assert len(slow.engine.running) + len(slow.engine.waiting) == 2
        response.close()
    for _ in range(200):
        if not slow.engine.busy:
            break
        await asyncio.sleep(0.01)
    assert not slow.engine.busy
    assert slow.counters()["vllm:request_success_total{length}"] == 0


def test_the_program_tells_its_address_first_and_ends_when_it_is_told_to() -> None:
    setting = '{"method":"ngram","num_speculative_tokens":4}'
    command = [sys.executable, "-m", "loadtests.simulator.server", "--preset", "cpu-2core", "--speed", "50"]
    arguments = ["--arguments", '{"max_num_seqs": 4}', "--speculative", setting, "--served-model-name", "tiny"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        try:
            assert (told["model"], told["speed"]) == ("tiny", 50.0)
            paths = ("/health", "/version", "/v1/models", "/metrics")
            pages = {path: asyncio.run(fetched(told["address"] + path)) for path in paths}
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
    assert pages["/health"] == ""
    assert json.loads(pages["/version"]) == {"version": "simulated-1"}
    assert json.loads(pages["/v1/models"])["data"][0]["id"] == "tiny"
    assert 'vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 0.0' in pages["/metrics"].splitlines()


async def fetched(address: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(address) as response:
        assert response.status == 200
        return await response.text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--speculative", '{"method":"medusa","num_speculative_tokens":2}'], "has no drafter for medusa"),
        (["--speculative", '{"method":"ngram"}'], "num_speculative_tokens: Field required"),
    ],
)
def test_the_program_refuses_what_it_can_t_simulate(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "loadtests.simulator.server", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert said in ended.stderr


TRAIN = {
    "type": "object",
    "properties": {"line": {"enum": ["mill", "harbour"]}, "cars": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["line", "cars"],
}


async def test_a_tool_that_is_named_is_called_the_same_streamed_and_whole(speculating: Served) -> None:
    tool = {"type": "function", "function": {"name": "announce", "parameters": TRAIN}}
    fields: dict[str, Any] = {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "announce"}}}
    (choice,) = (await speculating.chat(**fields))["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] is None
    assert call["function"]["name"] == "announce"
    assert set(json.loads(call["function"]["arguments"])) == {"line", "cars"}
    chunks = await speculating.chat(**fields, stream=True)
    deltas = [one["choices"][0]["delta"] for one in chunks]
    pieces = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(pieces) == call["function"]["arguments"]
    status, _ = await speculating.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "x"}], **fields | {"tools": []}
    )
    assert status == 400


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        ({"regex": r"(north|south)-[0-9]{2,3}x?"}, r"(north|south)-[0-9]{2,3}x?"),
        ({"choice": ["red", "green"]}, "red|green"),
        (
            {"grammar": 'root ::= "sum " term " + " term\nterm ::= [1-9] [0-9] | "zero"'},
            r"sum ([1-9]\d|zero) \+ ([1-9]\d|zero)",
        ),
    ],
)
async def test_a_constraint_is_followed(plain: Served, constraint: dict[str, Any], pattern: str) -> None:
    for prompt in ("one", "two", "three"):
        answer = await plain.chat(prompt, structured_outputs=constraint, max_tokens=100)
        assert re.fullmatch(pattern, answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "constraint",
    [{"regex": "("}, {"regex": "^a$"}, {"grammar": "root = a"}, {"grammar": "root ::= root"}, {"choice": ["ü"]}, {}],
)
async def test_a_constraint_that_is_not_known_is_refused(plain: Served, constraint: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "x"}]
    status, _ = await plain.post("/v1/chat/completions", messages=messages, structured_outputs=constraint)
    assert status == 400


async def test_what_is_forbidden_does_not_come(plain: Served) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "ignore_eos": True, "return_token_ids": True}
    free = (await plain.chat(**fields))["choices"][0]
    word = next(VOCABULARY[token] for token in free["token_ids"] if VOCABULARY[token].startswith(" "))
    banned = (await plain.chat(**fields, bad_words=[word.strip()]))["choices"][0]
    assert word not in {VOCABULARY[token] for token in banned["token_ids"]}
    allowed = sorted(set(free["token_ids"]))[::2]
    kept = (await plain.chat(**fields, allowed_token_ids=allowed))["choices"][0]
    assert set(kept["token_ids"]) <= set(allowed)


async def test_a_stop_string_stays_where_it_is_asked_to(plain: Served) -> None:
    text = (await plain.chat(temperature=0, max_tokens=40))["choices"][0]["message"]["content"]
    stop = text[30:36]
    answer = await plain.chat(temperature=0, max_tokens=40, stop=[stop], include_stop_str_in_output=True)
    assert answer["choices"][0]["message"]["content"] == text[: text.index(stop) + len(stop)]


async def test_a_text_is_its_tokens_and_back(plain: Served) -> None:
    status, told = await plain.post("/tokenize", prompt="the old river.")
    assert (status, told["count"]) == (200, len(told["tokens"]))
    assert await plain.post("/detokenize", tokens=told["tokens"]) == (200, {"prompt": "the old river."})
    assert (await plain.post("/detokenize", tokens=[100_000]))[0] == 400


async def test_the_prompt_has_log_probabilities_but_for_its_first_token(plain: Served) -> None:
    answer = await plain.chat("old", max_tokens=2, prompt_logprobs=2)
    first, *others = answer["prompt_logprobs"]
    assert first is None
    for one in others:
        assert 2 <= len(one) <= 3
        assert all(told["logprob"] <= 0 for told in one.values())
    assert "prompt_logprobs" not in await plain.chat("old", max_tokens=2)


def test_an_answer_that_took_no_time_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a speed of a million the clock may not move between a request and its answer."""
    monkeypatch.setattr(api, "phases", lambda one: (0.0, 0.0, 0.0))
    one: Any = SimpleNamespace(output=3)
    told = api.metrics_of([one], [], None, 1e6)
    assert (told["generation_time_ms"], told["tokens_per_second"]) == (0.0, None)
