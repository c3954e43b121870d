"""One trial by several processes, and the client's own floor."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from config.cli import main
from loadtests.evidence.records import status_counts
from loadtests.generator import Endpoint, Progress
from loadtests.generator import self_test as self_testing
from loadtests.generator.part import Share, shares
from loadtests.generator.self_test import Floor, RateNotHeld, self_test, sufficient_floor, tries
from loadtests.generator.several import GeneratorLost, run_several
from loadtests.traffic.planned import PlannedRequest

Plan = Callable[..., list[PlannedRequest]]
LIMITS: dict[str, Any] = {"level": "peak", "window_s": 2.0, "drain_s": 30.0}


def endpoint_of(server: Any) -> Endpoint:
    return Endpoint(server.base_url, "hostile")


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if is_part(one)]


def is_part(process: psutil.Process) -> bool:
    """One that ended and was not yet waited for has no command line."""
    try:
        return "loadtests.generator.part" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


async def test_the_records_are_in_plan_order_and_count_from_one_zero(server: Any, planned: Plan) -> None:
    told: list[Progress] = []
    plan = planned(["plain-answer", "http-500-json", "usage-that-falls"] * 20, gap_ms=10)
    trial = await run_several(plan, endpoint_of(server), processes=4, on_progress=told.append, **LIMITS)
    assert [one.request_id for one in trial.records] == [one.request_id for one in plan]
    assert [one.planned_ns for one in trial.records] == [one.planned_ns for one in plan]
    assert status_counts(trial.records)["completed"] == 40
    assert all((one.sent_ns or 0) >= one.planned_ns for one in trial.records)
    assert trial.findings == ["20 requests: usage: completion_tokens fell while the answer came"]
    assert (told[-1].planned, told[-1].sent, told[-1].ended) == (60, 60, {"completed": 40, "failed": 20})


def test_a_plan_is_always_split_the_same_way(planned: Plan) -> None:
    plan = planned(["plain-answer"] * 7)
    assert [[one.row for one in share] for share in shares(plan, 3)] == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_share_arrives_as_it_was(planned: Plan) -> None:
    plan = [replace(one, give_up_ns=5, warm_up=True) for one in planned(["a", "b"])]
    endpoint = Endpoint("http://h", "m", api_key="sesame", api="completions", ca_bundle=Path("b.pem"))
    share = Share(plan, endpoint, {"level": "x"})
    assert Share.of(share.line) == share
    assert "sesame" not in repr(share)


async def test_a_cap_needs_one_process(server: Any, planned: Plan) -> None:
    with pytest.raises(ValueError, match="a level that caps what is open needs one client process"):
        await run_several(planned(["plain-answer"]), endpoint_of(server), processes=2, max_concurrency=3, **LIMITS)


async def test_a_lost_process_gives_the_trial_up_and_keeps_what_there_is(server: Any, planned: Plan) -> None:
    plan = planned(["plain-answer"] * 4 + ["never-answers"] * 4, gap_ms=1)
    running = asyncio.create_task(run_several(plan, endpoint_of(server), processes=2, **LIMITS))
    await server.has_received(8)
    os.kill(children()[0].pid, signal.SIGKILL)
    with pytest.raises(GeneratorLost, match=r"client process [12] of 2 ended before its requests did") as lost:
        await running
    partial = lost.value.partial
    assert partial.stopped
    assert [one.request_id for one in partial.records] == [one.request_id for one in plan]
    assert Counter(one.status for one in partial.records) == {"completed": 2, "cancelled": 2, "failed": 4}
    assert {one.error for one in partial.records if one.status == "failed"} == {
        "the client process that had this request was lost: what became of it is unknown"
    }
    assert partial.findings[-1].endswith("ended before its requests did: the trial was given up")
    assert children() == []


async def test_stopping_stops_every_process(server: Any, planned: Plan) -> None:
    stop = asyncio.Event()
    plan = planned(["never-answers"] * 4) + planned(["plain-answer"] * 2, start_ms=50_000, first=4)
    limits = LIMITS | {"window_s": 60.0}
    running = asyncio.create_task(run_several(plan, endpoint_of(server), processes=2, stop=stop, **limits))
    await server.has_received(4)
    stop.set()
    trial = await running
    assert trial.stopped
    assert [one.status for one in trial.records] == ["cancelled"] * 4 + ["not_sent"] * 2
    assert children() == []


async def test_a_dead_server_is_known_to_every_process(server: Any, planned: Plan) -> None:
    plan = planned(["plain-answer"] * 6, start_ms=800)
    trial = await run_several(plan, endpoint_of(server), processes=2, server_alive=lambda: False, **LIMITS)
    assert status_counts(trial.records)["failed"] == 6
    assert {one.sent_ns for one in trial.records} == {None}


def test_the_floor_tells_what_the_client_adds() -> None:
    floor = self_test(40, stream_tokens=8, gap_ms=2, duration_s=1)
    assert (floor.planned, floor.completed, floor.processes) == (40, 40, 1)
    for added in (floor.added_first_token_ms, floor.added_completion_ms, floor.lag_ms):
        assert added is not None
        assert added["p50"] > 0
    assert floor.cpu_ms_per_request > 0
    assert floor.document["schema"] == "draftproof.self-test/1"


def floor_with(lag_p99: float, completed: int = 100) -> Floor:
    lag = {"p50": 1.0, "p90": 1.0, "p99": lag_p99, "max": 99.0}
    return Floor(200.0, 64, 5.0, 10.0, 1, 100, completed, lag, lag, lag, 1.0)


def test_a_rate_that_the_client_cannot_hold_is_refused_in_a_sentence() -> None:
    assert floor_with(9.9).holds()
    assert floor_with(9.9).refusal() == ""
    assert floor_with(48.25).refusal() == (
        "The client can't hold 200 requests per second on this machine with one process: against a server that answers "
        "at once they left 48.2 ms late (p99; limit 10 ms)."
    )
    assert "answers at once 3 of 100 did not complete." in floor_with(1, completed=97).refusal()


def test_as_many_processes_as_the_rate_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[float, int]] = []

    def measured(rate: float, *, duration_s: float, processes: int) -> Floor:
        """Each process holds 100 requests a second."""
        tried.append((rate, processes))
        return replace(floor_with(2.0 if rate <= 100 * processes else 48.25), rate=rate, processes=processes)

    monkeypatch.setattr(self_testing, "self_test", measured)
    wanted = {"limit_ms": 10.0, "duration_s": 1.0}
    assert sufficient_floor(100, most_processes=4, **wanted).processes == 1
    assert sufficient_floor(290, most_processes=3, **wanted).processes == 3
    assert tried == [(100, 1), (290, 1), (290, 2), (290, 3)]
    assert tries(8) == [1, 2, 4, 8, 8]
    tried.clear()
    with pytest.raises(RateNotHeld) as refused:
        sufficient_floor(500, most_processes=2, **wanted)
    assert tried == [(500, 1), (500, 2), (500, 2), (250, 2), (125, 2)]
    assert str(refused.value).endswith("they left 48.2 ms late (p99; limit 10 ms). It held 125 per second.")
    with pytest.raises(RateNotHeld, match="It held no rate: something"):
        sufficient_floor(500, most_processes=1, limit_ms=1.0, duration_s=1.0)


@pytest.mark.parametrize("option", ["--rate", "--tokens", "--gap-ms", "--duration", "--processes", "--lag-limit-ms"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_a_number_that_is_none_is_refused_under_its_own_name(option: str, value: str) -> None:
    ran = CliRunner().invoke(main, ["self-test", "--rate", "20", option, value])
    assert (ran.exit_code, f"Invalid value for '{option}': " in ran.stderr) == (2, True), ran.output


def test_the_command_prints_the_floor() -> None:
    options = ["--rate", "20", "--tokens", "4", "--gap-ms", "0", "--duration", "0.5"]
    fine = CliRunner().invoke(main, ["self-test", *options, "--lag-limit-ms", "100000"])
    assert fine.exit_code == 0
    assert '"holds": true' in fine.stdout
    late = CliRunner().invoke(main, ["self-test", *options, "--lag-limit-ms", "0.000001"])
    assert late.exit_code == 4
    assert "The client can't hold 20 requests per second" in late.stderr
