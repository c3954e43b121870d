"""What a level may do to its requests: cap how many are open, let users give up, warm up first."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtests.evidence.records import RequestRecord, status_counts
from loadtests.evidence.summary import lag_ms, summarise
from loadtests.generator import Endpoint, Progress, TrialRun, run_trial
from loadtests.generator.slots import Slots
from loadtests.traffic.planned import PlannedRequest

Plan = Callable[..., list[PlannedRequest]]
MS = 1_000_000
# A drain that ends with its last request: long, so that a busy machine is no failure.
DRAIN_S = 30.0


def impatient(plan: Sequence[PlannedRequest], after_ms: float) -> list[PlannedRequest]:
    return [replace(one, give_up_ns=one.planned_ns + round(after_ms * MS)) for one in plan]


async def run(server: Any, plan: list[PlannedRequest], **more: Any) -> TrialRun:
    chosen: dict[str, Any] = {"level": "peak", "window_s": 1.0, "drain_s": DRAIN_S}
    return await run_trial(plan, Endpoint(server.base_url, "hostile"), **(chosen | more))


def most_at_once(records: Sequence[RequestRecord]) -> int:
    """By when each was sent and had ended; of equal times the end comes first."""
    times = [(one.sent_ns, one.ended_ns) for one in records]
    steps = [(sent, 1) for sent, _ in times if sent is not None]
    steps += [(ended, -1) for sent, ended in times if sent is not None and ended is not None]
    return max(itertools.accumulate(step for _, step in sorted(steps)), default=0)


async def test_a_cap_is_never_exceeded_and_slots_go_in_order_of_arrival(server: Any, planned: Plan) -> None:
    plan = planned(["steady 2 20"] * 24, gap_ms=2)
    trial = await run(server, plan, max_concurrency=3)
    records = trial.records
    assert Counter(one.status for one in records) == {"completed": 24}
    assert most_at_once(records) == 3
    assert [one.sent_ns for one in records] == sorted(one.sent_ns or 0 for one in records)


async def test_a_request_is_due_when_its_slot_comes_free(server: Any, planned: Plan) -> None:
    trial = await run(server, planned(["steady 3 50"] * 4, gap_ms=10), max_concurrency=1)
    first, *waited = trial.records
    assert first.due_ns == first.planned_ns
    assert [one.due_ns for one in waited] == [one.ended_ns for one in trial.records[:-1]]
    # Latency counts from the planned arrival, so waiting for a slot is in it; the client's own lag is not that wait.
    assert (waited[-1].first_token_ns or 0) - waited[-1].planned_ns > 400 * MS
    assert (lag_ms(trial.records) or {})["max"] < 100


async def test_without_a_cap_a_request_is_due_as_planned(server: Any, planned: Plan) -> None:
    trial = await run(server, planned(["plain-answer"] * 5))
    assert [one.due_ns for one in trial.records] == [one.planned_ns for one in trial.records]


async def test_a_slot_that_was_free_before_is_no_reason_to_be_late(server: Any, planned: Plan) -> None:
    trial = await run(server, planned(["plain-answer"] * 3, gap_ms=250), max_concurrency=1)
    assert [one.due_ns for one in trial.records] == [0, 250 * MS, 500 * MS]


async def test_who_never_gets_a_slot_was_kept_waiting_by_the_server(server: Any, planned: Plan) -> None:
    plan = planned(["never-answers", "plain-answer"])
    trial = await run(server, plan, max_concurrency=1, window_s=0.2, drain_s=0.2)
    assert [(one.status, one.error) for one in trial.records] == [
        ("timed_out", "still open at the end of the drain"),
        ("timed_out", "still waiting for a free slot at the end of the drain"),
    ]
    assert (trial.records[1].sent_ns, trial.records[1].due_ns) == (None, None)


async def test_whoever_waits_for_a_slot_when_the_server_ends_fails_unsent(server: Any, planned: Plan) -> None:
    alive = iter([True, False, False])
    plan = planned(["slow-answer"] * 3)
    trial = await run(server, plan, max_concurrency=1, server_alive=lambda: next(alive))
    assert [one.status for one in trial.records] == ["completed", "failed", "failed"]
    assert [one.sent_ns for one in trial.records[1:]] == [None, None]


async def test_a_user_who_gives_up_closes_the_connection_and_keeps_what_came(server: Any, planned: Plan) -> None:
    plan = impatient(planned(["steady 10000 50"], start_ms=20), 300)
    told: list[Progress] = []
    trial = await run(server, plan, on_progress=told.append)
    [record] = trial.records
    assert (record.status, record.error) == ("cancelled", "gave up as planned after 0.3 s")
    assert record.gave_up
    assert 1 <= (record.chunks or 0) < 100
    assert record.output_tokens is None
    assert record.give_up_ns == 320 * MS
    assert 320 <= (record.ended_ns or 0) / MS < 2_000
    assert told[-1].ended == {"cancelled": 1}
    # The server goes on writing until it sees that nobody listens.
    for _ in range(500):
        if not server.open:
            break
        await asyncio.sleep(0.02)
    assert server.open == 0


async def test_who_completed_earlier_gives_nothing_up(server: Any, planned: Plan) -> None:
    trial = await run(server, impatient(planned(["plain-answer"] * 3), 20_000))
    assert [(one.status, one.gave_up) for one in trial.records] == [("completed", False)] * 3


async def test_what_the_server_did_first_stays(server: Any, planned: Plan) -> None:
    trial = await run(server, impatient(planned(["http-503-that-stalls"]), 500))
    assert [(one.status, one.gave_up) for one in trial.records] == [("failed", False)]


async def test_a_user_may_give_up_while_waiting_for_a_slot(server: Any, planned: Plan) -> None:
    plan = planned(["slow-answer"]) + impatient(planned(["plain-answer"], start_ms=10, first=1), 100)
    plan += planned(["plain-answer"], start_ms=20, first=2)
    trial = await run(server, plan, max_concurrency=1)
    assert [one.status for one in trial.records] == ["completed", "cancelled", "completed"]
    gone = trial.records[1]
    assert (gone.sent_ns, gone.due_ns, gone.gave_up) == (None, None, True)
    assert trial.records[2].due_ns == trial.records[0].ended_ns
    assert len(server.received) == 2


async def test_a_stopped_trial_is_no_planned_cancellation(server: Any, planned: Plan) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(run(server, impatient(planned(["never-answers"] * 2), 60_000), stop=stop))
    await server.has_received(2)
    stop.set()
    trial = await running
    assert [(one.status, one.error, one.gave_up) for one in trial.records] == [("cancelled", "stopped", False)] * 2


async def test_warm_up_is_sent_and_recorded_and_left_out(server: Any, planned: Plan) -> None:
    plan = [replace(one, warm_up=True) for one in planned(["http-500-json"] * 3, gap_ms=20)]
    plan += planned(["plain-answer"] * 2, start_ms=100, first=3)
    trial = await run(server, plan, warm_up_s=0.1)
    assert len(server.received) == len(trial.records) == 5
    found = summarise(trial.records, window_s=trial.window_s)
    assert (found["planned"], found["statuses"]["completed"], found["warm_up_requests"]) == (2, 2, 3)
    assert found["lag_ms"] == trial.lag_ms == lag_ms(trial.records[3:])
    assert sum(trial.fingerprints.values()) == 2


async def test_the_drain_begins_when_the_window_ends(server: Any, planned: Plan) -> None:
    plan = planned(["slow-answer"])
    assert status_counts((await run(server, plan, warm_up_s=9, window_s=0.1, drain_s=0)).records)["completed"] == 1


CASES = ["plain-answer", "slow-answer", "http-500-json", "http-400-json", "reset-mid-stream", "stall-mid-stream"]
MIXES = st.lists(st.tuples(st.sampled_from(CASES), st.none() | st.integers(0, 600), st.booleans()), max_size=12)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mix=MIXES, most_open=st.none() | st.integers(1, 4))
async def test_every_planned_request_ends_in_one_status_whatever_the_mix(
    hostile: Any, planned: Plan, mix: list[tuple[str, int | None, bool]], most_open: int | None
) -> None:
    plan = [
        replace(one, give_up_ns=None if after is None else one.planned_ns + after * MS, warm_up=warm)
        for one, (_, after, warm) in zip(planned([name for name, _, _ in mix], gap_ms=10), mix, strict=True)
    ]
    async with hostile.hostile_server() as server:
        trial = await run(server, plan, window_s=0.3, drain_s=0.7, max_concurrency=most_open)
    assert [one.request_id for one in trial.records] == [one.request_id for one in plan]
    assert sum(status_counts(trial.records).values()) == len(plan)
    assert most_at_once(trial.records) <= (most_open or len(plan))
    assert all(one.gave_up for one in trial.records if one.status == "cancelled")
    found = summarise(trial.records, window_s=1)
    assert sum(found["statuses"].values()) == found["planned"] == sum(not one.warm_up for one in plan)


async def test_a_place_in_the_queue_that_is_given_up_goes_to_the_next() -> None:
    slots = Slots(1)
    assert await slots.take() == 0
    first, second = (asyncio.create_task(slots.take()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    slots.give_back(7)
    assert await second == 7
    # Given back and given up in one moment: the slot isn't lost.
    third = asyncio.create_task(slots.take())
    await asyncio.sleep(0)
    slots.give_back(9)
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert await slots.take() == 9
