"""What the machine is, and what others use of it."""

import os
import subprocess
import sys

import psutil
import pytest

from workers.hardware import CpuTime, neighbour_load, neighbour_share, parse_nvidia_smi, probe


def test_accelerators_and_their_driver_are_read_from_nvidia_smi() -> None:
    text = "NVIDIA H200, 575.57.08\nNVIDIA H200, 575.57.08\n"
    assert parse_nvidia_smi(text) == (("NVIDIA H200", "NVIDIA H200"), "575.57.08")


def test_no_accelerator_has_no_driver() -> None:
    assert parse_nvidia_smi("") == ((), None)


def test_this_machine_can_be_probed() -> None:
    facts = probe()
    assert facts.document == {
        "cpu_model": facts.cpu_model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "accelerators": list(facts.accelerators),
        "driver": facts.driver,
        "system": facts.system,
        "kernel": os.uname().release,
    }
    assert facts.cpu_model
    assert facts.system


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        # 20 s of CPU time passed on two cores; 8 were busy, 5 of them ours.
        (CpuTime(100.0, 50.0, {7: 10.0}), CpuTime(120.0, 58.0, {7: 15.0}), 0.15),
        # A process of ours that started in between counts from zero.
        (CpuTime(100.0, 50.0, {}), CpuTime(120.0, 58.0, {7: 4.0, 8: 4.0}), 0.0),
        # Clock ticks are coarse: ours may seem to exceed what was busy, but no share is negative.
        (CpuTime(100.0, 50.0, {7: 0.0}), CpuTime(120.0, 54.0, {7: 5.0}), 0.0),
        (CpuTime(100.0, 50.0, {}), CpuTime(100.0, 50.0, {}), 0.0),
    ],
)
def test_what_is_not_ours_belongs_to_neighbours(before: CpuTime, after: CpuTime, share: float) -> None:
    assert neighbour_share(before, after) == pytest.approx(share)


def test_a_busy_stranger_is_seen_and_a_busy_engine_is_not() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    shares: list[tuple[float, float]] = []
    with subprocess.Popen(spin, start_new_session=True) as engine:
        try:
            # Other work on this machine may add to both, and change in between; the difference is the spinning process.
            while len(shares) < 30 and not any(ours < its for ours, its in shares):
                shares.append((neighbour_load(engine.pid, 0.5), neighbour_load(os.getpgid(0), 0.5)))
        finally:
            engine.kill()
    assert all(0.0 <= share <= 1.0 for pair in shares for share in pair)
    assert shares[-1][0] < shares[-1][1]
