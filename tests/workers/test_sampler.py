"""Samples come every second of the trial's clock, from a thread of their own, and a missing figure stays missing."""

import os
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from workers import accelerators
from workers.accelerators import Accelerators, find_accelerators
from workers.hardware import CpuTime
from workers.sampler import ANSWER_S, Machine, Sampler, cpu_shares, read_now

SECOND = 1_000_000_000


def test_samples_fall_on_whole_seconds_once_the_trials_clock_is_known() -> None:
    with Sampler(lambda: {"running": 1.0}) as sampler:
        time.sleep(0.1)
        started = time.time_ns()
        time.sleep(0.4)
        sampler.anchor((time.time_ns() - started) / SECOND)
        time.sleep(1.8)
    samples, end_ns = sampler.samples(started)
    asked = [one.asked_ns / SECOND for one in samples]
    # One when the clock became known, then each second; before it, as many as a busy machine comes to.
    assert [round(one, 1) for one in asked if one > 0.35] == pytest.approx([0.4, 1.0, 2.0], abs=0.11)
    assert all(one.read_ns >= one.asked_ns for one in samples)
    assert end_ns / SECOND == pytest.approx(2.2, abs=0.3)


def test_a_reading_that_takes_too_long_costs_samples_and_nothing_else() -> None:
    slow = threading.Event()
    with Sampler(lambda: {} if slow.wait(1.2) else {"running": 0.0}) as sampler:
        sampler.anchor(0.0)
        time.sleep(0.2)
    assert len(sampler.samples(time.time_ns())[0]) == 1


def test_a_reading_that_fails_is_told_and_ends_nothing() -> None:
    def read() -> dict[str, float]:
        raise RuntimeError("no such counter")

    with Sampler(read) as sampler:
        time.sleep(0.05)
    assert sampler.faults == ["timeline: a sample could not be taken: RuntimeError: no such counter"]
    assert sampler.samples(time.time_ns())[0] == []


def engine(answer: dict[str, float] | Exception) -> Any:
    def counters(timeout_s: float) -> dict[str, float]:
        assert timeout_s == ANSWER_S
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(counters=counters)


def test_an_engine_that_does_not_answer_leaves_the_machines_figures() -> None:
    told = read_now(
        engine({"vllm:num_requests_running": 3.0, "vllm:e2e_request_latency_seconds_sum": 9.0}), Machine(None)
    )
    assert (told["running"], "waiting" in told, "e2e" in str(told)) == (3.0, False, False)
    silent = read_now(engine(TimeoutError("timed out")), Machine(None))
    assert "running" not in silent
    assert silent["host_memory_bytes"] > 0


def test_an_engine_elsewhere_has_no_share_of_this_machine() -> None:
    here, elsewhere = Machine(os.getpgid(0)), Machine(None)
    time.sleep(0.2)
    assert {"engine_cpu", "engine_memory_bytes"} <= here.read().keys()
    assert {"engine_cpu", "engine_memory_bytes"} & elsewhere.read().keys() == set()


def test_cpu_shares_are_of_all_cores_and_of_time_that_passed() -> None:
    before, after = CpuTime(100.0, 50.0, {7: 10.0}), CpuTime(102.0, 51.5, {7: 10.5, 8: 3.0})
    # Process 8 was not there before: what it used since is not known.
    assert cpu_shares(before, after) == {"host_cpu": 0.75, "engine_cpu": 0.25}
    assert cpu_shares(before, before) == {}


class NVMLError(Exception):
    pass


def refuse(handle: int) -> Any:
    raise NVMLError("not supported")


def nvml(**changes: Any) -> SimpleNamespace:
    known: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=100 if handle else 50),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=3 << 30),
        "nvmlDeviceGetPowerUsage": lambda handle: 250_000,
    }
    return SimpleNamespace(**known | changes)


def test_accelerators_are_read_together_and_a_figure_that_one_cannot_give_is_missing() -> None:
    assert Accelerators(nvml(), [0, 1]).read() == {
        "accelerator_use": 0.75,
        "accelerator_memory_bytes": float(6 << 30),
        "accelerator_power_w": 500.0,
    }
    assert "accelerator_power_w" not in Accelerators(nvml(nvmlDeviceGetPowerUsage=refuse), [0, 1]).read()


def test_no_bindings_no_driver_and_no_accelerator_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(module: SimpleNamespace | None) -> None:
        def find(name: str) -> SimpleNamespace:
            if module is None:
                raise ImportError(name)
            return module

        monkeypatch.setattr(accelerators, "import_module", find)

    for module in (None, nvml(nvmlInit=lambda: refuse(0)), nvml(nvmlDeviceGetCount=lambda: 0)):
        installed(module)
        assert find_accelerators() is None
    installed(nvml())
    found = find_accelerators()
    assert found is not None
    assert found.handles == [0, 1]
