"""A client that is killed in the middle of a trial: its attempt is no result, and stays apart from the next one."""

import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from django.conf import settings as configured
from django.db import connections

from decisions.selectors.evidence import evidence_of_trial
from loadtests.configurations import Checkpoint, Configuration, EngineArguments, Hardware, Runtime
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import RequestRecord, read_records, records_of
from loadtests.evidence.store import EvidenceStore
from loadtests.generator.self_test import Floor
from loadtests.models import Boot, Trial
from loadtests.models.campaign import counted_boots
from loadtests.services.claim_boot import claim_boot
from loadtests.services.give_up_boot import lose_silent_boots
from loadtests.services.import_traffic import import_traffic
from loadtests.simulator import preset
from loadtests.traffic.levels import Arrival, Level
from tests.support.campaigns import campaign_of
from workers import boots, client_floor, left_behind, tasks
from workers.engines.process_group import group_members

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = preset("cpu-2core")
BASELINE = Configuration(
    runtime=Runtime(engine="simulated", distribution="draftproof", version="simulated-1"),
    target=Checkpoint(name="cpu-2core", weights_sha256=MODEL.digest, tokenizer_sha256=MODEL.digest),
    arguments=EngineArguments(max_num_seqs=16),
    hardware=Hardware(pool="cpu", accelerator="simulated"),
)
# Long enough to be killed in; the attempt after it gets a shorter one.
LONG = Level(name="peak", arrival=Arrival(process="constant", rate=4), duration_s=40, drain_s=10)
PLANNED = 160
PATIENCE_S = 60.0


@pytest.fixture
def boot(settings: Any) -> Iterator[Boot]:
    settings.HEARTBEAT_S, settings.SIMULATED_SPEED = 1, 20.0
    campaign = campaign_of(BASELINE, [LONG], import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer"))
    yield claimed()
    for one in campaign.boots.exclude(engine_group=None):
        assert group_members(one.engine_group or 0) == []


def claimed() -> Boot:
    found = claim_boot(pool="cpu", worker="worker", host=platform.node())
    assert found is not None
    return found


def run(boot: int) -> None:
    """In a process of its own, which has no connection of the one it was forked from."""
    boots.run_boot(Boot.objects.get(pk=boot), threading.Event())


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.1)


def completed(trial: Trial) -> int:
    trial.refresh_from_db()
    return int(trial.progress.get("ended", {}).get("completed", 0))


def kept(trial: Trial) -> tuple[list[RequestRecord], dict[str, Any]]:
    store = EvidenceStore(configured.EVIDENCE_DIR)
    return records_of(read_records(store.get(trial.records_digest))), document_of(store.get(trial.manifest_digest))


def check_cut_off(trial: Trial) -> list[RequestRecord]:
    trial.refresh_from_db()
    records, manifest = kept(trial)
    assert (trial.state, manifest["stopped"], manifest["planned"]) == ("cut-off", True, PLANNED)
    assert sum(manifest["statuses"].values()) == len(records) == PLANNED
    done = [one for one in records if one.status == "completed"]
    assert 0 < len(done) < PLANNED
    assert all(one.output_tokens and one.first_token_ns and one.fingerprint == BASELINE.digest for one in done)
    return records


def run_shortened(boot: Boot) -> Trial:
    """The next attempt, over the first requests of the same segment, so that the test ends."""
    boot.campaign.plan["levels"][0]["duration_s"] = 2
    boot.campaign.save(update_fields=["plan"])
    boots.run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert (boot.state, boot.died, boot.attempt) == ("finished", False, 2)
    return boot.trials.get()


def test_a_killed_worker_leaves_what_it_had(boot: Boot) -> None:
    trial = boot.trials.get()
    connections.close_all()
    worker = multiprocessing.get_context("fork").Process(target=run, args=[boot.pk])
    worker.start()
    try:
        wait_for(lambda: completed(trial) >= 4)
    finally:
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
    # Nobody has noticed yet, and nobody else may touch a running boot.
    left_behind.keep_left_behind(platform.node())
    trial.refresh_from_db()
    assert (trial.state, trial.manifest_digest) == ("running", "")

    wait_for(lambda: bool(lose_silent_boots()))
    boot.refresh_from_db()
    assert (boot.state, boot.reason) == ("lost", "its worker fell silent")
    assert group_members(boot.engine_group or 0) != []
    left_behind.keep_left_behind("another host")
    trial.refresh_from_db()
    assert trial.manifest_digest == ""
    tasks.end_orphans("cpu", platform.node())
    left_behind.keep_left_behind(platform.node())

    records = check_cut_off(trial)
    assert {one.error for one in records if one.status == "failed"} == {left_behind.UNKNOWN}
    known = sum(one.status == "completed" for one in records)
    assert trial.findings == [f"the worker was killed: {known} of {PLANNED} requests had ended when it last said so"]
    directory = configured.RUNS_DIR / f"boot-{boot.pk}"
    assert not list(directory.glob("trial-*"))
    manifest_before = trial.manifest_digest

    again = run_shortened(claimed())
    # Two seconds of four requests: of the attempt that was cut off not one is among them.
    whole, manifest = kept(again)
    assert (len(whole), manifest["stopped"]) == (8, False)
    assert again.records_digest != trial.records_digest
    trial.refresh_from_db()
    assert trial.manifest_digest == manifest_before
    assert counted_boots(Boot.objects.all()) == [again.boot]
    evidence = evidence_of_trial(again.boot, again, EvidenceStore(configured.EVIDENCE_DIR))
    assert set(evidence.columns["status"]) == {"completed"}


def parts_of_this_process() -> list[psutil.Process]:
    found = []
    for one in psutil.Process().children():
        try:
            found += [one] if "loadtests.generator.part" in " ".join(one.cmdline()) else []
        except psutil.NoSuchProcess:
            continue
    return found


def kill_a_part(trial: Trial) -> None:
    try:
        wait_for(lambda: completed(trial) >= 4)
        parts_of_this_process()[0].kill()
    finally:
        connections.close_all()


def two_processes(*_: object, **__: object) -> Floor:
    quick = {"p50": 0.1, "p90": 0.1, "p99": 0.1, "max": 0.1}
    return Floor(4.0, 64, 5.0, 0.2, 2, 1, 1, quick, quick, quick, 0.1)


def test_a_killed_process_of_the_client_ends_the_attempt(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_floor, "sufficient_floor", two_processes)
    trial = boot.trials.get()
    killer = threading.Thread(target=kill_a_part, args=[trial])
    killer.start()
    boots.run_boot(boot, threading.Event())
    killer.join()
    boot.refresh_from_db()
    assert boot.state == "lost"
    assert "GeneratorLost: client process" in boot.reason
    assert "of 2 ended before its requests did" in boot.reason
    records = check_cut_off(trial)
    # The requests of either process: what the killed one had spooled counts, and what the other one was stopped at.
    assert {"completed", "failed", "not_sent"} <= {one.status for one in records}
    for half in (records[0::2], records[1::2]):
        assert any(one.status == "completed" for one in half)
    assert any(finding.endswith("the trial was given up") for finding in trial.findings)
    assert run_shortened(claimed()).progress["ended"]["completed"] == 8
