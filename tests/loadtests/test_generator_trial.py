"""The open-loop client against a server that does everything wrong."""

import asyncio
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from loadtests.evidence.records import STATUSES, RequestRecord, status_counts
from loadtests.generator import Endpoint, Progress, Unreachable, reach, run_trial, warm_up
from loadtests.generator.exchange import RAN_OUT, client_faults
from loadtests.generator.trial import prepared
from loadtests.traffic.planned import PlannedRequest
from loadtests.traffic.rows import request_body

Plan = Callable[..., list[PlannedRequest]]
# A drain that ends with its last request: long, so that a busy machine is no failure.
PATIENCE_S = 30.0
MIXED = 10_000


def endpoint_of(server: Any, **more: Any) -> Endpoint:
    return Endpoint(server.base_url, "hostile", **more)


async def test_every_misbehaviour_ends_in_its_status(server: Any, hostile: ModuleType, planned: Plan) -> None:
    waiting = hostile.waiting_cases()
    ending = [name for name in hostile.CASES if name not in waiting]
    texts = [f"{name} and a sentence of more than twenty characters" for name in ending]
    trials = await asyncio.gather(
        run_trial(planned(texts), endpoint_of(server), level="quiet", window_s=1, drain_s=PATIENCE_S),
        run_trial(planned(waiting), endpoint_of(server), level="quiet", window_s=1, drain_s=1.5),
    )
    found = dict(zip([*ending, *waiting], [*trials[0].records, *trials[1].records], strict=True))
    assert {name: one.status for name, one in found.items()} == {name: hostile.CASES[name].status for name in found}
    wrong = {name: one.error for name, one in found.items() if not says(hostile.CASES[name].reason, one.error)}
    assert wrong == {}
    assert trials[0].findings == [
        "1 requests: usage: completion_tokens fell while the answer came",
        "2 requests: usage: completion_tokens is no whole number from 0 to 2147483647",
        "1 requests: usage: completion_tokens is not the number of token ids that came",
        "1 requests: usage: prompt_tokens + completion_tokens is not total_tokens",
        "2 requests: usage: prompt_tokens is no whole number from 0 to 2147483647",
        "1 requests: usage: prompt_tokens is not the number of the prompt's token ids",
        "3 requests: usage: the answer told no completion_tokens",
    ]


def says(reason: str | None, error: str | None) -> bool:
    return error is None if reason is None else re.search(reason, error or "") is not None


async def test_a_record_tells_everything_the_engine_told(server: Any, hostile: ModuleType, planned: Plan) -> None:
    plan = planned(["plain-answer"])
    trial = await run_trial(plan, endpoint_of(server), level="quiet", window_s=1, drain_s=PATIENCE_S)
    [record] = trial.records
    times = (record.sent_ns, record.first_token_ns, record.last_token_ns, record.ended_ns)
    assert None not in times
    assert list(times) == sorted(one for one in times if one is not None)
    assert record == RequestRecord(
        request_id="r-00000",
        row=0,
        class_="chat",
        level="quiet",
        prompt_sha256=prepared(plan[0].traffic_row, endpoint_of(server))[1],
        prompt_tokens=7,
        planned_ns=0,
        sent_ns=times[0],
        first_token_ns=times[1],
        last_token_ns=times[2],
        ended_ns=times[3],
        server_queue_ms=1.5,
        server_prefill_ms=20.25,
        server_decode_ms=30.0,
        status="completed",
        finish_reason="stop",
        output_tokens=3,
        chunks=3,
        rounds=2,
        draft_tokens=4,
        accepted_tokens=2,
        accepted_histogram=[1, 0, 1],
        output_sha256="23ea498e82f4435b1c135324eedef4ba64061600897077bf76082a50b41a9c13",
        error=None,
        fingerprint=hostile.FINGERPRINT,
        due_ns=0,
        give_up_ns=None,
        warm_up=False,
    )
    assert trial.fingerprints == {hostile.FINGERPRINT: 1}


async def test_planned_is_the_sum_of_the_statuses(server_process: Any, hostile: ModuleType, planned: Plan) -> None:
    rng, waiting = random.Random(7), hostile.waiting_cases()
    # Those that send megabytes or wait for ever come too, but not hundreds of times each.
    seldom = ["endless-line", "endless-head", "slow-answer", *waiting]
    often = [name for name in hostile.CASES if name not in seldom]
    names = [rng.choice(seldom if rng.random() < 0.03 else often) for _ in range(MIXED)]
    expected = Counter("cancelled" if name in waiting else hostile.CASES[name].status for name in names)
    expected.update(failed=names.count("http-503-that-stalls"), cancelled=-names.count("http-503-that-stalls"))
    stop, told, ending = asyncio.Event(), list[Progress](), sum(name not in waiting for name in names)
    loop = asyncio.get_running_loop()

    def tell(progress: Progress) -> None:
        told.append(progress)
        if sum(progress.ended.values()) == ending:
            loop.call_soon_threadsafe(stop.set)

    trial = await run_trial(
        planned(names, gap_ms=0.8),
        endpoint_of(server_process),
        level="peak",
        window_s=9,
        drain_s=10 * PATIENCE_S,
        on_progress=tell,
        stop=stop,
    )
    assert status_counts(trial.records) == {status: expected[status] for status in STATUSES}
    assert sum(status_counts(trial.records).values()) == MIXED
    assert [one.request_id for one in trial.records] == [f"r-{number:05d}" for number in range(MIXED)]
    wrong = {name for name, one in zip(names, trial.records, strict=True) if name not in waiting and one.error is None}
    assert wrong == {name for name in names if hostile.CASES[name].status == "completed"}
    assert (told[-1].planned, told[-1].sent, Counter(told[-1].ended)) == (MIXED, MIXED, +expected)


async def test_requests_leave_whatever_the_server_does(server: Any, planned: Plan) -> None:
    # Nobody is answered before all 60 are there: a client that waits for an answer would wait for ever.
    plan = planned(["together 60"] * 60)
    trial = await run_trial(plan, endpoint_of(server), level="peak", window_s=0.3, drain_s=PATIENCE_S)
    assert Counter(one.status for one in trial.records) == {"completed": 60}
    assert max(one.sent_ns or 0 for one in trial.records) < min(one.first_token_ns or 0 for one in trial.records)
    assert all((one.sent_ns or 0) >= one.planned_ns for one in trial.records)


async def test_what_was_planned_for_one_moment_leaves_in_one_moment(server: Any, planned: Plan) -> None:
    trial = await run_trial(
        planned(["plain-answer"] * 50, gap_ms=0), endpoint_of(server), level="x", window_s=1, drain_s=PATIENCE_S
    )
    assert status_counts(trial.records)["completed"] == 50


async def test_a_plan_out_of_order_leaves_in_time_and_is_recorded_in_plan_order(server: Any, planned: Plan) -> None:
    plan = planned(["plain-answer"] * 10, gap_ms=10)[::-1]
    trial = await run_trial(plan, endpoint_of(server), level="x", window_s=1, drain_s=PATIENCE_S)
    assert [one.request_id for one in trial.records] == [one.request_id for one in plan]
    assert all(one.sent_ns is not None and one.sent_ns >= one.planned_ns for one in trial.records)
    assert [one.sent_ns for one in trial.records] == sorted((one.sent_ns or 0 for one in trial.records), reverse=True)


async def test_a_server_that_dies_fails_the_rest(server_process: Any, planned: Plan) -> None:
    plan = planned(["plain-answer"] * 10 + ["never-answers"] * 2)
    plan += planned(["die"] + ["plain-answer"] * 60, start_ms=1000, first=12)
    plan += planned(["plain-answer"], start_ms=2500, first=73)
    started = time.monotonic()
    trial = await run_trial(plan, endpoint_of(server_process), level="peak", window_s=3, drain_s=PATIENCE_S)
    assert time.monotonic() - started < PATIENCE_S, "a dead server needs no drain"
    assert status_counts(trial.records) == dict.fromkeys(STATUSES, 0) | {"completed": 10, "failed": 64}
    assert {one.status for one in trial.records[10:]} == {"failed"}
    assert "connection refused" in str(trial.records[-1].error)
    assert all((one.ended_ns or 0) >= one.planned_ns for one in trial.records)


async def test_no_request_goes_to_whoever_took_a_dead_servers_port(server: Any, planned: Plan) -> None:
    plan = planned(["plain-answer"] * 20, gap_ms=10)
    alive = iter([True] * 5 + [False] * 15)
    trial = await run_trial(
        plan, endpoint_of(server), level="x", window_s=1, drain_s=PATIENCE_S, server_alive=lambda: next(alive)
    )
    assert status_counts(trial.records) == dict.fromkeys(STATUSES, 0) | {"completed": 5, "failed": 15}
    assert len(server.received) == 5
    assert {one.sent_ns for one in trial.records[5:]} == {None}


async def test_a_fault_of_ours_is_no_result(server: Any, planned: Plan) -> None:
    def alive() -> bool:
        raise RuntimeError("no such process group")

    with pytest.raises(RuntimeError, match="no such process group"):
        await run_trial(
            planned(["plain-answer"] * 2), endpoint_of(server), level="x", window_s=1, drain_s=1, server_alive=alive
        )


async def test_stopping_cancels_what_is_open_and_sends_no_more(server: Any, planned: Plan) -> None:
    plan = planned(["plain-answer", "never-answers", "stall-mid-stream"])
    plan += planned(["plain-answer"] * 5, start_ms=50_000, first=3)
    stop, seen = asyncio.Event(), list[Progress]()
    loop = asyncio.get_running_loop()

    def tell(progress: Progress) -> None:
        seen.extend([progress] if progress.sent == 3 and progress.ended else [])
        if len(seen) == 2:
            loop.call_soon_threadsafe(stop.set)

    trial = await run_trial(plan, endpoint_of(server), level="x", window_s=60, drain_s=60, stop=stop, on_progress=tell)
    assert trial.stopped
    assert [one.status for one in trial.records] == ["completed", "cancelled", "cancelled", *["not_sent"] * 5]
    stalled = trial.records[2]
    assert stalled.first_token_ns is not None
    assert stalled.ended_ns is not None
    assert {(one.sent_ns, one.ended_ns) for one in trial.records[3:]} == {(None, None)}


async def test_the_end_of_the_drain_closes_the_connections(server: Any, planned: Plan) -> None:
    trial = await run_trial(planned(["only-comments"] * 3), endpoint_of(server), level="x", window_s=0.2, drain_s=0.2)
    assert status_counts(trial.records)["timed_out"] == 3
    for _ in range(100):
        if not server.open:
            break
        await asyncio.sleep(0.02)
    assert server.open == 0


async def test_cancelling_the_trial_leaves_no_task(server: Any, planned: Plan) -> None:
    task = asyncio.create_task(
        run_trial(planned(["never-answers"] * 3), endpoint_of(server), level="x", window_s=60, drain_s=60)
    )
    await server.has_received(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    names = {str(one.get_coro()) for one in asyncio.all_tasks()}
    assert not any("Trial" in name or "converse" in name for name in names)


async def test_progress_that_cannot_be_told_is_a_finding(server: Any, planned: Plan) -> None:
    def tell(progress: Progress) -> None:
        raise RuntimeError("database is locked")

    trial = await run_trial(
        planned(["plain-answer"]), endpoint_of(server), level="x", window_s=1, drain_s=PATIENCE_S, on_progress=tell
    )
    assert trial.findings == ["progress could not be told: RuntimeError: database is locked"]
    assert trial.records[0].status == "completed"


async def test_a_client_out_of_files_says_so(server_process: Any, planned: Plan) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough_for_some = psutil.Process().num_fds() + 15

    def lower_the_limit() -> bool:
        # Called before each request leaves, so after the trial has raised the limit as far as it may.
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough_for_some, before[1]))
        return True

    plan = planned(["slow-answer"] * 40, gap_ms=0)
    try:
        trial = await run_trial(
            plan, endpoint_of(server_process), level="x", window_s=1, drain_s=PATIENCE_S, server_alive=lower_the_limit
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    counts = status_counts(trial.records)
    assert counts["completed"] + counts["failed"] == 40
    assert counts["failed"] > 0
    assert [RAN_OUT in finding for finding in client_faults(trial.findings)] == [True]
    assert client_faults(["2 requests: usage: completion_tokens fell", "progress could not be told: x"]) == []


async def test_the_same_row_is_the_same_bytes(server: Any, planned: Plan) -> None:
    plan = planned(["plain-answer"])
    for _ in range(2):
        await run_trial(plan, endpoint_of(server), level="x", window_s=1, drain_s=PATIENCE_S)
    bodies = {body for _, body in server.received}
    assert bodies == {
        b'{"max_tokens":64,"messages":[{"content":"plain-answer","role":"user"}],"model":"hostile","stream":true,'
        b'"stream_options":{"include_usage":true},"temperature":0,"top_p":1}'
    }


async def test_each_request_sends_its_own_row_whatever_its_index(server: Any, planned: Plan) -> None:
    plan = [*planned(["plain-answer"]), *planned(["http-500-json"])]
    trial = await run_trial(plan, endpoint_of(server), level="x", window_s=1, drain_s=PATIENCE_S)
    assert [one.status for one in trial.records] == ["completed", "failed"]
    assert trial.records[0].prompt_sha256 != trial.records[1].prompt_sha256


async def test_the_key_is_sent_and_never_shown(server: Any, planned: Plan) -> None:
    endpoint = endpoint_of(server, api_key="sesame")
    await run_trial(planned(["plain-answer"]), endpoint, level="x", window_s=1, drain_s=PATIENCE_S)
    assert "authorization: bearer sesame" in server.heads[0].lower()
    assert "sesame" not in repr(endpoint)


async def test_an_empty_plan_is_an_empty_trial(server: Any) -> None:
    trial = await run_trial([], endpoint_of(server), level="x", window_s=1, drain_s=1)
    assert (trial.records, trial.lag_ms, trial.findings) == ([], None, [])


async def test_warming_up_counts_what_completed(server: Any, planned: Plan) -> None:
    texts = ["plain-answer", "http-500-json", "plain-answer", "never-answers"]
    bodies = [request_body(one.traffic_row, "hostile") for one in planned(texts)]
    result = await warm_up(endpoint_of(server), bodies, timeout_s=2)
    assert (result.planned, result.completed) == (4, 2)
    assert result.errors == [
        "failed: HTTP 500 Internal Server Error: error, code 500: engine",
        "timed_out: no answer in 2 s",
    ]


async def test_warming_up_with_nothing(server: Any) -> None:
    result = await warm_up(endpoint_of(server), [])
    assert (result.planned, result.completed, result.errors) == (0, 0, [])


async def test_reaching_a_server(server: Any) -> None:
    assert (await reach(endpoint_of(server))).models == ("hostile",)
    with pytest.raises(Unreachable, match=r"nothing could be sent: http://127.0.0.1:1/v1 .*connection refused"):
        await reach(Endpoint("http://127.0.0.1:1", "x"))


@pytest.mark.parametrize("address", ["http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/v1/"])
def test_the_version_may_be_left_out(address: str) -> None:
    assert Endpoint(address, "m").base_url == "http://h:8000/v1"
    assert Endpoint(address, "m").path == "/v1/chat/completions"
    assert Endpoint(address, "m", api="completions").path == "/v1/completions"


@pytest.mark.parametrize(
    "address",
    [
        "h:8000",
        "ftp://h",
        "http://",
        "http://user:secret@h",
        "http://h/v1?key=secret",
        "user:secret@h:8000",
        "ftp://user:secret@h",
    ],
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="the base URL must") as refused:
        Endpoint(address, "m")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("http://127.0.0.1:99999", "needs a host and a port from 1 to 65535"),
        ("http://h:port", "needs a host and a port from 1 to 65535"),
        (f"http://{'a' * 70}.example/", "needs a host and a port"),
        ("http://h:0", "nothing can be reached at port 0"),
        ("http://[::1", r"\[ \] around an IPv6 address"),
        ("http://:@host/", "must carry no user name, password"),
        ("http://@host/", "must carry no user name, password"),
    ],
)
def test_addresses_that_name_no_place_are_refused(address: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Endpoint(address, "m")


def test_the_documentation_names_every_status() -> None:
    told = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    assert [one for one in STATUSES if f"| `{one}` |" not in told] == []


async def test_a_reset_in_the_middle_keeps_what_came_before(server: Any, planned: Plan) -> None:
    plan = planned(["reset-mid-stream", "garbage-after-an-event", "stall-mid-stream", "error-mid-stream"])
    trial = await run_trial(plan, endpoint_of(server), level="x", window_s=0.5, drain_s=1)
    assert [one.status for one in trial.records] == ["failed", "failed", "timed_out", "failed"]
    assert [(one.chunks, one.first_token_ns is not None) for one in trial.records] == [(1, True)] * 4
    # Nobody told how many tokens that chunk was.
    assert {one.output_tokens for one in trial.records} == {None}


async def test_a_server_that_wants_a_key_gets_it(server: Any, planned: Plan) -> None:
    for key, status in ((None, "refused"), ("sesame", "completed")):
        endpoint = endpoint_of(server, api_key=key)
        trial = await run_trial(
            planned(["http-401-without-the-key"]), endpoint, level="x", window_s=1, drain_s=PATIENCE_S
        )
        assert [one.status for one in trial.records] == [status]


async def test_who_names_no_case_is_told_so(server: Any, planned: Plan) -> None:
    plan = planned(["plain-anwser", "[{'type': 'text'}]"])
    trial = await run_trial(plan, endpoint_of(server), level="x", window_s=1, drain_s=PATIENCE_S)
    assert [one.status for one in trial.records] == ["refused", "refused"]
    assert "no such case" in str(trial.records[0].error)
