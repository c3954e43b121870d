"""The suite against simulated servers: what is preserved holds, what is not drafted proves nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from loadtests.behaviour.answers import Answers, Line, read_answers, read_line
from loadtests.behaviour.case import SERIAL, UNTOLD, Ask, Case, Settings, always, answer_id, held
from loadtests.behaviour.cases import lengths, parity
from loadtests.behaviour.collect import collect, drafts_of, runs_alone
from loadtests.behaviour.counters import Counters, counters_of
from loadtests.behaviour.declared import declared_by, rule_of
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.rebuild import OtherSuite, plan_of_document
from loadtests.behaviour.registry import CASES, suite_plan
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import Declared, Drafts, Finding, SuiteResult, read_result
from loadtests.behaviour.suite import run_suite
from loadtests.canonical import canonical, digest
from loadtests.configurations import Speculative
from loadtests.generator import Endpoint, Unreachable
from loadtests.simulator import preset
from loadtests.simulator.engine import Engine
from loadtests.simulator.model import Nuisances, changed, speculation_of
from loadtests.simulator.pace import Pace
from loadtests.simulator.server import application

SPEED = 5_000.0
DFLASH = Speculative(method="dflash", num_speculative_tokens=4)
# What a service would sample with, so that few prompts tell much.
SERVICE = Settings(temperature=0.6, top_p=0.9)


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def simulated(setting: Speculative | None) -> web.Application:
    model = changed(preset("cpu-2core"), {"nuisances": Nuisances()})
    engine = Engine(model, speculation_of(model, setting), pace=Pace(model.nuisances, 1), seed=1)
    return application(engine, speed=SPEED, model="tiny")


@pytest.fixture
async def plain() -> AsyncIterator[Endpoint]:
    async with serving(simulated(None)) as address:
        yield Endpoint(address, "tiny")


@pytest.fixture
async def speculating() -> AsyncIterator[Endpoint]:
    async with serving(simulated(DFLASH)) as address:
        yield Endpoint(address, "tiny")


@dataclass
class Kept:
    files: dict[str, bytes] = field(default_factory=dict)

    def __call__(self, name: str, content: bytes) -> None:
        self.files[name] = content


async def test_speculation_that_preserves_the_output_holds(plain: Endpoint, speculating: Endpoint) -> None:
    kept = Kept()
    plan = suite_plan(settings=SERVICE)
    result = await run_suite(plain, speculating, plan, kept)
    states = {case.id: (case.state, case.said) for case in result.cases}
    assert result.broken == (), states
    assert result.outcome == "held", (result.sentence, states)
    assert result.exercised
    assert result.counted >= 20, states
    # The engine's own refusals are named, and are no break.
    assert set(result.named("changed")) == {"logit-bias", "min-p"}
    assert list(kept.files) == ["baseline.jsonl", "control.jsonl", "candidate.jsonl", "result.json"]
    assert result.false_alarms.tests == 4
    for server, asked in result.asked.items():
        assert asked.answers_sha256 == digest(kept.files[f"{server}.jsonl"])
        assert asked.failed == 0
    assert read_result(kept.files["result.json"]) == result
    assert canonical(json.loads(kept.files["result.json"])) == kept.files["result.json"]


async def test_kept_answers_judged_again_give_the_same_result(plain: Endpoint, speculating: Endpoint) -> None:
    kept = Kept()
    plan = suite_plan(only=["json-schema", "stop-strings", "min-p"])
    result = await run_suite(plain, speculating, plan, kept)
    baseline, candidate = (read_answers(kept.files[f"{one}.jsonl"]) for one in ("baseline", "candidate"))
    assert judge(plan, baseline, candidate) == result
    assert candidate.content == kept.files["candidate.jsonl"]
    with pytest.raises(ValueError, match="answers are of another plan"):
        judge(suite_plan(only=["json-schema"]), baseline, candidate)


async def test_what_never_drafts_is_not_exercised_and_never_passed(plain: Endpoint) -> None:
    result = await run_suite(plain, plain, suite_plan(settings=Settings(temperature=0)), Kept())
    assert result.outcome == "not_exercised"
    assert not result.exercised
    assert result.broken == ()
    drafting = {case.id for case in CASES if case.drafts}
    assert not [one.id for one in result.cases if one.id in drafting and one.state == "held"]
    assert result.drafts == Drafts(proposed=0, accepted=0, told_by="counters")


async def test_a_field_that_the_service_uses_may_not_be_refused(plain: Endpoint, speculating: Endpoint) -> None:
    plan = suite_plan(only=["min-p", "logit-bias"], settings=Settings(uses=frozenset({"min_p"})))
    result = await run_suite(plain, speculating, plan, Kept())
    assert {one.id: one.state for one in result.cases} == {"min-p": "broken", "logit-bias": "changed"}
    assert "a change of behaviour" in result.cases[1].said
    assert result.outcome == "broken"


async def test_what_both_refuse_is_unsupported(speculating: Endpoint) -> None:
    result = await run_suite(speculating, speculating, suite_plan(only=["min-p", "max-tokens"]), Kept())
    assert {one.id: one.state for one in result.cases} == {"max-tokens": "held", "min-p": "unsupported"}
    # A baseline that drafts is none.
    assert result.outcome == "failed"
    assert "it is no baseline" in result.sentence


async def test_an_open_comparison_is_no_pass(plain: Endpoint, speculating: Endpoint) -> None:
    plan = suite_plan(only=["greedy-parity", "max-tokens"], alpha=1e-9)
    result = await run_suite(plain, speculating, plan, Kept())
    assert result.cases[0].state == "cannot_tell"
    assert result.outcome == "cannot_tell"
    assert "greedy-parity" in result.sentence


Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


def failing(act: Handle, *, after: int) -> web.Application:
    """The simulated server with speculation, until so many completions were asked; then ``act`` answers."""
    app, asked = simulated(DFLASH), 0

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        nonlocal asked
        asked += request.method == "POST"
        if asked > after and (request.method == "POST" or act is dropped):
            return await act(request)
        return await handler(request)  # type: ignore[no-any-return]

    app.middlewares.append(middleware)
    return app


async def dropped(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hanging(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def redirecting(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://127.0.0.1:9/v1/chat/completions")


async def breaking(request: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"message": "engine died", "code": 500}})


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (dropped, "it can't be reached any more"),
        (hanging, "3 requests in a row got no answer, the last one: no answer in"),
    ],
)
async def test_a_candidate_that_dies_is_named_and_broken(plain: Endpoint, act: Handle, said: str) -> None:
    plan = suite_plan(only=["max-tokens", "stop-strings"], timeout_s=0.5)
    async with serving(failing(act, after=8)) as address:
        result = await run_suite(plain, Endpoint(address, "tiny"), plan, Kept())
    assert result.outcome == "broken"
    assert said in (result.asked["candidate"].died or "")
    assert "the candidate stopped answering" in result.problems[0]
    states = {one.id: one.state for one in result.cases}
    assert "broken" in states.values()
    assert any(run.finding.said.startswith("the candidate was not asked") for one in result.cases for run in one.runs)


async def test_a_baseline_that_dies_breaks_nobody(speculating: Endpoint) -> None:
    plan = suite_plan(only=["max-tokens", "stop-strings"], timeout_s=0.5)
    async with serving(failing(dropped, after=8)) as address:
        result = await run_suite(Endpoint(address, "tiny"), speculating, plan, Kept())
    assert result.outcome == "failed"
    assert result.broken == ()
    assert "the baseline stopped answering" in result.sentence


@pytest.mark.parametrize(("act", "said"), [(breaking, "engine died"), (redirecting, "not followed")])
async def test_an_answer_that_is_none_is_a_break_of_its_case(plain: Endpoint, act: Handle, said: str) -> None:
    async with serving(failing(act, after=6)) as address:
        result = await run_suite(plain, Endpoint(address, "tiny"), suite_plan(only=["max-tokens"]), Kept())
    assert result.broken == ("max-tokens",)
    assert said in result.cases[0].said
    assert result.asked["candidate"].died is None


async def test_nobody_there_is_said_before_anything_is_asked(plain: Endpoint) -> None:
    kept = Kept()
    with pytest.raises(Unreachable):
        await run_suite(plain, Endpoint("http://127.0.0.1:9", "tiny"), suite_plan(only=["max-tokens"]), kept)
    assert kept.files == {}


async def test_who_is_told_to_stop_keeps_what_was_answered(plain: Endpoint) -> None:
    stop = asyncio.Event()
    plan = suite_plan(only=["max-tokens", "stop-strings"])
    answers = await collect(plain, plan, server="baseline", stop=stop, on_progress=lambda progress: stop.set())
    assert answers.stopped
    assert 0 < len(answers.lines) < 40
    assert read_answers(answers.content) == answers


async def test_the_key_and_the_prompt_are_in_no_evidence(plain: Endpoint) -> None:
    async def telling(request: web.Request) -> web.StreamResponse:
        asked = (await request.json())["messages"][-1]["content"]
        said = f"no access with {request.headers['Authorization']} to {asked}"
        return web.json_response({"error": {"message": said, "code": 403}}, status=403)

    app = failing(telling, after=0)
    async with serving(app) as address:
        endpoint = Endpoint(address, "tiny", "sesame-open-123")
        answers = await collect(endpoint, suite_plan(only=["max-tokens"]), server="candidate")
    content = answers.content.decode()
    assert "no access with" in content
    assert "sesame" not in content
    (error,) = {line.reply.error for line in answers.lines}
    assert "Monday" not in str(error)


async def test_requests_of_several_cases_run_at_once_as_many_as_asked(speculating: Endpoint) -> None:
    most = now = 0
    app = simulated(DFLASH)

    @web.middleware
    async def counting(request: web.Request, handler: Any) -> web.StreamResponse:
        nonlocal most, now
        now += 1
        most = max(most, now)
        try:
            return await handler(request)  # type: ignore[no-any-return]
        finally:
            now -= 1

    app.middlewares.append(counting)
    plan = suite_plan(only=["max-tokens", "usage-and-finish-reason", "logprobs-shape"], concurrency=5)
    async with serving(app) as address:
        await collect(Endpoint(address, "tiny"), plan, server="candidate")
    assert most == 5


async def test_what_several_cases_ask_alike_is_asked_once(speculating: Endpoint) -> None:
    plan = suite_plan(only=["stop-strings", "stop-tokens", "logprobs-shape", "logprobs-values"])
    answers = await collect(speculating, plan, server="candidate")
    lines = {line.id: line for line in answers.lines}
    reused = [line for line in answers.lines if line.asked_as is not None]
    sent = Counter((line.label, line.manner) for line in answers.lines if line.asked_as is None)
    asked = [("probe", manner) for manner in ("serial", "concurrent-stream", "cached")]
    asked += [(f"list-{index}", manner) for index in range(3) for _, manner in asked]
    assert [sent[one] for one in asked] == [1] * 12
    assert len(reused) == 2 + 6
    for line in reused:
        first = lines[line.asked_as or ""]
        assert (line.reply, line.request) == (first.reply, first.request)
        assert first.asked_as is None
    assert answers.asked.requests == len(answers.lines) - len(reused)
    assert read_answers(answers.content) == answers


async def test_where_counters_alone_tell_drafts_a_case_alone_is_given_no_answer_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loadtests.simulator.answering.metrics_of", lambda *_: {})
    plan = suite_plan(only=["logprobs-shape", "logprobs-values"])
    async with serving(simulated(DFLASH)) as address:
        answers = await collect(Endpoint(address, "tiny"), plan, server="candidate")
    assert {line.manner for line in answers.lines if line.asked_as is not None} == {"concurrent-stream"}
    drafts = {run: (one.told_by, bool(one.proposed)) for run, one in answers.drafts.items()}
    assert drafts == {
        ("logprobs-shape", "serial"): ("counters", True),
        ("logprobs-shape", "concurrent-stream"): (None, False),
        ("logprobs-values", "serial"): ("counters", True),
        ("logprobs-values", "concurrent-stream"): (None, False),
        ("logprobs-values", "cached"): ("counters", True),
    }


async def test_the_baseline_is_asked_for_rules_in_a_crowd_and_the_candidate_in_every_manner(plain: Endpoint) -> None:
    plan = suite_plan(only=["max-tokens", "seeds"])
    baseline = await collect(plain, plan, server="baseline")
    candidate = await collect(plain, plan, server="candidate")
    of_rules = [line for line in baseline.lines if line.case == "max-tokens" and line.manner == "serial"]
    assert len(of_rules) == len(lengths.LIMITS)
    assert {line.manner for line in baseline.lines} == {line.manner for line in candidate.lines}
    alone = {
        server: [(case.id, manner.id) for case, manner in plan.runs if runs_alone(plan, server, case, manner)]
        for server in (baseline.server, candidate.server)
    }
    # A seed that repeats its text is disturbed by a crowd.
    assert alone == {"baseline": [("seeds", "serial")], "candidate": [("max-tokens", "serial"), ("seeds", "serial")]}


def test_what_is_spared_is_asked_when_thorough_and_in_a_crowd() -> None:
    asks = parity.greedy_asks({}, Settings())
    assert sum(ask.spared for ask in asks) == len(asks) // 2


async def test_one_at_a_time_fewer_are_asked(plain: Endpoint) -> None:
    answers = await collect(plain, suite_plan(only=["stop-strings"]), server="candidate")
    labels = {
        manner: [line.label for line in answers.lines if line.manner == manner] for manner in ("serial", "cached")
    }
    assert labels["serial"] == labels["cached"][:2] + labels["cached"][3::2]


def test_a_thorough_suite_spares_nobody() -> None:
    thorough = suite_plan(only=["max-tokens"], settings=Settings(thorough=True))
    assert any(runs_alone(thorough, "baseline", case, manner) for case, manner in thorough.runs)


def test_a_line_says_which_request_its_answer_was_asked_for() -> None:
    asked = Line("no-x", "serial", "asked", "chat", {"prompt": "x"}, told("a"), "other/serial/asked")
    assert read_line(canonical(asked.document)) == asked
    assert "asked_as" not in replace(asked, asked_as=None).document


async def test_sampled_requests_share_no_seed_between_servers(plain: Endpoint) -> None:
    plan = suite_plan(only=["sampled-parity"])
    seeds = []
    for server in ("baseline", "control"):
        answers = await collect(plain, plan, server=server)
        seeds += [line.request["seed"] for line in answers.lines]
    assert len(set(seeds)) == len(seeds)


# What follows needs no server.


def told(text: str, **fields: Any) -> Reply:
    return Reply("answered", (Choice(0, (text,), finish_reason="stop"),), http_status=200, **fields)


def once(name: str, **fields: Any) -> Case:
    case: dict[str, Any] = {"rule": lambda seen: held("it holds"), "manners": (SERIAL,)} | fields
    return Case(name, name, "T2", (always(Ask("asked", {"prompt": "x"})),), **case)


def answers_of(
    plan: SuitePlan, replies: dict[str, Reply], *, server: Any = "candidate", drafts: Drafts = UNTOLD, **fields: Any
) -> Answers:
    lines = tuple(Line(name, "serial", "asked", "chat", {"prompt": "x"}, reply) for name, reply in replies.items())
    by_run = {(name, "serial"): drafts for name in replies}
    return Answers(server, "http://host/v1", plan.digest, lines, by_run, drafts, **fields)


DRAFTED = Drafts(proposed=20, accepted=12, told_by="counters")


def result_of(
    case: Case, baseline: Reply, candidate: Reply, drafts: Drafts = DRAFTED, **plan_fields: Any
) -> SuiteResult:
    plan = SuitePlan((case,), **plan_fields)
    return judge(
        plan,
        answers_of(plan, {case.id: baseline}, server="baseline"),
        answers_of(plan, {case.id: candidate}, drafts=drafts),
    )


def test_a_server_without_a_parser_for_tools_is_named() -> None:
    refusal = Reply("refused", error='tool_choice=function "a" requires --tool-call-parser to be set')
    found = result_of(once("no-x", rule=lambda seen: held("")), refusal, refusal).cases[0]
    assert found.state == "unsupported"
    assert "the server was started without a tool-call parser" in found.said


def no_x(seen: Any) -> Finding:
    return Finding(state="broken", said="an x came") if "x" in seen["asked"].text else held("no x came")


@pytest.mark.parametrize(
    ("baseline", "candidate", "state"),
    [
        (told("a"), told("a"), "held"),
        (told("a"), told("x"), "broken"),
        (told("x"), told("x"), "cannot_tell"),
        (told("x"), told("a"), "held"),
        (Reply("refused", error="no"), Reply("refused", error="no"), "unsupported"),
        (told("a"), Reply("refused", error="no"), "broken"),
        (Reply("refused", error="no"), told("a"), "unsupported"),
        (told("a"), Reply("failed", error="gone"), "broken"),
        (Reply("failed", error="gone"), told("x"), "cannot_tell"),
    ],
)
def test_a_rule_is_judged_beside_the_baseline(baseline: Reply, candidate: Reply, state: str) -> None:
    assert result_of(once("no-x", rule=no_x), baseline, candidate).cases[0].state == state


@pytest.mark.parametrize(
    ("drafts", "state", "outcome"),
    [
        (DRAFTED, "held", "held"),
        (Drafts(proposed=20, accepted=20, told_by="counters"), "held", "not_exercised"),
        (Drafts(proposed=20, accepted=0, told_by="counters"), "held", "not_exercised"),
        (Drafts(proposed=0, accepted=0, told_by="counters"), "not_exercised", "not_exercised"),
        (Drafts(), "cannot_tell", "cannot_tell"),
    ],
)
def test_a_case_counts_where_drafts_were_proposed_and_the_suite_where_some_were_rejected(
    drafts: Drafts, state: str, outcome: str
) -> None:
    result = result_of(once("no-x"), told("a"), told("a"), drafts)
    assert (result.cases[0].state, result.outcome) == (state, outcome)
    assert result.counted == (state == "held")


def test_a_break_needs_no_drafts() -> None:
    undrafted = Drafts(proposed=0, accepted=0, told_by="counters")
    result = result_of(once("no-x", rule=no_x), told("a"), told("x"), undrafted)
    assert (result.outcome, result.broken) == ("broken", ("no-x",))


def test_made_up_acceptance_is_refused_however_the_cases_come_out() -> None:
    declared = declared_by({"rejection_sample_method": "synthetic"}, started_by_us=True)
    result = result_of(once("no-x"), told("a"), told("a"), declared=declared)
    assert result.outcome == "broken"
    assert "makes its acceptance up" in result.sentence


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        (None, "exact"),
        ({}, "exact"),
        ({"rejection_sample_method": "block"}, "exact"),
        ({"rejection_sample_method": "fly"}, "lossy"),
    ],
)
def test_a_configuration_declares_its_rule(setting: dict[str, Any] | None, rule: str) -> None:
    assert rule_of(setting) == rule
    assert Declared().rule == "unknown"


def test_a_difference_shows_both_texts_and_where_they_part() -> None:
    long = "same " * 400

    def differs(seen: Any) -> Finding:
        from loadtests.behaviour.case import broken, shown

        return no_x(seen) if "x" not in seen["asked"].text else broken("x", shown("asked", seen["asked"].text))

    result = result_of(once("no-x", rule=differs), told(f"{long}and on"), told(f"{long}x"))
    (one,) = result.cases[0].runs[0].finding.differences
    assert one.answer == answer_id("no-x", SERIAL, "asked") == "no-x/serial/asked"
    assert (one.at, one.candidate[one.at - one.begins], (one.baseline or "")[one.at - one.begins]) == (2000, "x", "a")
    assert len(one.candidate) < len(long)


def test_answers_tell_drafts_before_counters_do() -> None:
    before, after = Counters(100, 50), Counters(130, 60)
    some = told("a", draft_tokens=8, accepted_tokens=3)
    assert drafts_of([some, told("b")], before, after) == Drafts(proposed=8, accepted=3, told_by="answers")
    assert drafts_of([told("b")], before, after) == Drafts(proposed=30, accepted=10, told_by="counters")
    assert drafts_of([told("b")], None, None) == Drafts()
    assert drafts_of([told("b")], after, before) == Drafts()


def test_counters_are_summed_over_engines_and_known_to_be_none_without_speculation() -> None:
    text = "\n".join(
        [
            "# TYPE vllm:spec_decode_num_draft_tokens_total counter",
            'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="a"} 12.0',
            'vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="a b"} 1e1',
            'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 7.0',
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 99.0',
            'vllm:spec_decode_num_draft_tokens_total{engine="2"} NaN',
        ]
    )
    assert counters_of(text) == Counters(22, 7)
    assert counters_of('vllm:generation_tokens_total{engine="0"} 5.0') == Counters(0, 0)
    assert counters_of("up 1") is None


def test_the_false_alarm_rate_is_shared_by_the_statistical_tests() -> None:
    plan = suite_plan(alpha=0.02)
    shares = [plan.alpha_of(case) for case, _ in plan.runs if case.tests]
    assert sum(shares) == pytest.approx(0.02)
    assert len(shares) == plan.tests == 4


def test_a_plan_names_what_it_leaves_out_and_what_it_does_not_know() -> None:
    plan = suite_plan(only=["regex"])
    assert [case.id for case in plan.cases] == ["regex"]
    assert "choice" in plan.left_out
    with pytest.raises(ValueError, match="no case called regexp"):
        suite_plan(only=["regexp"])
    with pytest.raises(ValueError, match="two cases have one id"):
        suite_plan(own=[replace(once("regex"), source="owner")])


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("sampled-parity-penalised", Settings(), "sampled-parity-penalised isn't asked: it takes a thorough suite"),
        ("sampled-parity", Settings(temperature=0), "sampled-parity isn't asked: it takes a temperature"),
    ],
)
def test_a_case_that_is_named_is_asked_or_refused(name: str, asked: Settings, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        suite_plan(only=[name, "regex"], settings=asked)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]\n",
        b"nonsense\n",
        b'{"schema_version":"draftproof.behaviour-answers/1"}\n',
        b'{"schema_version":"draftproof.behaviour-answers/1","drafts":3,"total":{},"unfinished":[]}\n',
    ],
)
def test_what_holds_no_answers_is_said(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"line|values"):
        read_answers(content)


@pytest.mark.parametrize("cases", [None, 3, ["regex"], [{"source": "owner"}]])
def test_a_plan_that_is_none_is_of_another_suite(cases: Any) -> None:
    document = suite_plan(only=["regex"]).document | {"cases": cases}
    with pytest.raises(OtherSuite):
        plan_of_document(document)
    with pytest.raises(OtherSuite):
        plan_of_document({})


def test_a_service_that_never_samples_is_asked_for_no_samples() -> None:
    plan = suite_plan(settings=Settings(temperature=0))
    assert "T3" not in {case.tier for case in plan.cases}
    assert plan.left_out == ()
    assert plan.tests == 3


def test_half_a_case_says_nothing_but_for_what_got_no_answer() -> None:
    plan = SuitePlan((once("no-x", rule=no_x),))
    cut = {"unfinished": frozenset({("no-x", "serial")}), "stopped": True}
    whole = answers_of(plan, {"no-x": told("a")}, server="baseline")
    half = answers_of(plan, {"no-x": told("x")}, drafts=DRAFTED, **cut)
    lost = answers_of(plan, {"no-x": Reply("failed", error="gone")}, drafts=DRAFTED, **cut)
    assert judge(plan, whole, half).cases[0].state == "cannot_tell"
    assert judge(plan, whole, lost).cases[0].state == "broken"
    assert read_answers(half.content) == half
