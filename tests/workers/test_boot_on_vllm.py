"""Boots on real vLLM: what a trial leaves behind, and what becomes of it when the engine is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from django.conf import settings as configured
from django.db import connection
from django.test import Client
from django.urls import reverse

from config.demo import baseline_document
from decisions import ledger
from decisions.models import Account
from loadtests.configurations import Configuration, Speculative
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.timeline import read_timeline
from loadtests.models import Boot, Campaign, Trial
from loadtests.services.claim_boot import claim_boot
from loadtests.services.create_campaign import create_campaign
from loadtests.services.import_traffic import import_traffic
from loadtests.traffic.levels import Arrival, Deadline, Level, Patience
from workers.boots import run_boot
from workers.engines.process_group import group_members
from workers.target import prepare_demo_target

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

LEVELS = [
    Level(name="quiet", arrival=Arrival(process="constant", rate=0.5), duration_s=6, drain_s=20),
    Level(name="peak", arrival=Arrival(process="gamma", rate=2, cv=1.5), duration_s=8, drain_s=30),
]
# A fifth of the users gives up in the middle of an answer, and no chat has its first token in a hundredth of a second.
IMPATIENT = Level(
    name="impatient",
    arrival=Arrival(process="constant", rate=2.5),
    duration_s=10,
    drain_s=60,
    patience=Patience(share=0.2, after_s=1.0, spread="exponential"),
    deadlines={"chat": Deadline(first_token_s=0.01, completion_s=30)},
)
# Between the close of a connection and the engine's abort it may finish the round it is in, and those that the
# scheduler has already made ready.
ROUNDS_TO_ABORT = 4


@pytest.fixture
def baseline(settings: Any) -> Configuration:
    if not Path(configured.ENGINE_PYTHON).exists():
        pytest.skip("the engine environment is not installed: make install-engine")
    target = prepare_demo_target(Path(settings.MODELS_DIR), Path(settings.ENGINE_PYTHON))
    return Configuration.model_validate(baseline_document(target))


@pytest.fixture
def levels() -> list[Level]:
    return LEVELS


@pytest.fixture
def boots(baseline: Configuration, levels: list[Level]) -> Iterator[list[Boot]]:
    """The boots of a tuning campaign: baseline, n-gram, baseline."""
    ngram = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=5)
    campaign = create_campaign(
        purpose="tuning",
        traffic_set=import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer"),
        brief_digest="c" * 64,
        baseline=baseline,
        candidates={"ngram-k4": baseline.with_speculative(ngram)},
        levels=levels,
        peak="peak",
        pairs=4,
        # Draws six users of 25 that give up, after a fifth of a second to two seconds.
        seed=4,
        deadlines={"default": {"first_token_s": 5, "completion_s": 20}},
        budget_engine_minutes=30,
        max_reattempts=1,
        by="engineer",
    )
    yield list(campaign.boots.all())
    for boot in campaign.boots.exclude(engine_group=None):
        assert group_members(boot.engine_group or 0) == []


def claim() -> Boot:
    boot = claim_boot(pool="cpu", worker="tester", host="here")
    assert boot is not None
    return boot


@pytest.mark.parametrize("levels", [[*LEVELS, IMPATIENT]])
def test_every_trial_leaves_exact_evidence(boots: list[Boot], engineer: Account, client: Client) -> None:
    for _ in boots:
        run_boot(claim(), threading.Event())
    campaign = Campaign.objects.get()
    assert campaign.state == Campaign.State.DONE
    store = EvidenceStore(configured.EVIDENCE_DIR)
    stopped_before = None
    for boot in campaign.boots.all():
        assert boot.state == Boot.State.FINISHED, boot.log_tail
        assert not boot.died
        assert boot.facts["kv_cache_tokens"] > 0
        assert boot.started_at is not None
        assert stopped_before is None or boot.started_at > stopped_before
        stopped_before = boot.stopped_at
        for trial in boot.trials.all():
            table = read_records(store.get(trial.records_digest))
            assert table.num_rows == trial.planned == len(trial.segment["rows"])
            assert set(table["fingerprint"].to_pylist()) - {None} == {boot.configuration.digest}
            # Usage and token ids agree, whatever a busy machine does to the timeline.
            assert not any(" requests: " in finding for finding in trial.findings)
            engines = trial.counters["vllm:generation_tokens_total"]
            if trial.level == "impatient":
                check_cancellations(table, boot, engines)
                check_attainment(table, trial)
            else:
                assert set(table["status"].to_pylist()) == {"completed"}
                assert sum(table["output_tokens"].to_pylist()) == engines
            manifest = document_of(store.get(trial.manifest_digest))
            assert manifest["engine"]["asked"]["token_ids"] is True
            assert manifest["self_test"]["completed"] > 0
            assert manifest["digests"]["records"] == trial.records_digest
            assert manifest["planned"] == sum(manifest["statuses"].values()) == trial.planned
            check_timeline(store, boot, trial, manifest)
    drafted = [trial.counters.get("vllm:spec_decode_num_draft_tokens_total", 0) for trial in boots[1].trials.all()]
    assert sum(drafted) > 0
    assert len({boot.server for boot in campaign.boots.all()}) == 3
    assert ledger.verify().broken is None
    client.force_login(engineer)
    for boot in boots:
        check_page(client.get(reverse("boot", args=[boot.pk])).content.decode(), boot)


def check_cancellations(table: pa.Table, boot: Boot, engines: float) -> None:
    """What was received before each cancellation is counted; what the engine made after it is all that is missing."""
    assert set(table["status"].to_pylist()) == {"completed", "cancelled"}
    cancelled = table.filter(pc.equal(table["status"], "cancelled"))
    assert table.num_rows - table["give_up_ns"].null_count == 6
    assert 1 <= cancelled.num_rows == cancelled.num_rows - cancelled["give_up_ns"].null_count
    received = [one or 0 for one in cancelled["output_tokens"].to_pylist()]
    assert max(received) > 0
    drafts = boot.configuration.document.speculative
    a_round = 1 + (drafts.num_speculative_tokens if drafts else 0)
    missing = engines - sum(one or 0 for one in table["output_tokens"].to_pylist())
    print(f"{boot}: {cancelled.num_rows} cancelled after {received} tokens; the engine counted {missing:g} more")
    assert 0 <= missing <= cancelled.num_rows * ROUNDS_TO_ABORT * a_round


def within_deadline(table: pa.Table) -> int:
    """By hand, from the Parquet file alone."""
    limits = {"chat": (0.01, 30.0)}
    met = 0
    for one in table.to_pylist():
        first_s, whole_s = limits.get(one["class"], (5.0, 20.0))
        if one["status"] == "completed" and not one["warm_up"]:
            first, last = one["first_token_ns"] - one["planned_ns"], one["last_token_ns"] - one["planned_ns"]
            met += first <= first_s * 1e9 and last <= whole_s * 1e9
    return met


def check_attainment(table: pa.Table, trial: Trial) -> None:
    met = within_deadline(table)
    assert 0 < met < table.num_rows
    told = trial.summary["within_deadline"]
    assert (told["within_deadline"], told["planned"], told["attainment"]) == (
        met,
        table.num_rows,
        met / table.num_rows,
    )


def check_page(page: str, boot: Boot) -> None:
    trial = boot.trials.get(level="impatient")
    table = read_records(EvidenceStore(configured.EVIDENCE_DIR).get(trial.records_digest))
    assert f"{within_deadline(table)} of {table.num_rows}" in page
    assert "Against a server that answers at once" in page


def check_timeline(store: EvidenceStore, boot: Boot, trial: Trial, manifest: dict[str, Any]) -> None:
    """The engine tells its state in nearly every second, and no figure is made up."""
    assert manifest["digests"]["timeline"] == trial.summary["timeline"]
    assert store.get(manifest["digests"]["log"])
    table = read_timeline(store.get(trial.summary["timeline"]))
    assert table["at_ns"].to_pylist() == [1_000_000_000 * second for second in range(table.num_rows)]
    assert table["running"].null_count <= table.num_rows // 4
    if trial.level != "quiet":
        # There a second may begin with nothing under way, and every one does on a fast machine.
        assert max(one for one in table["running"].to_pylist() if one is not None) >= 1
        assert max(table["in_flight"].to_pylist()) >= 1
    sent = read_records(store.get(trial.records_digest))["sent_ns"].to_pylist()
    assert table["sent"].to_pylist()[-1] == sum(one <= table["at_ns"].to_pylist()[-1] for one in sent)
    counted = [one for one in table["generation_tokens"].to_pylist() if one is not None]
    assert counted == sorted(counted)
    assert [one for one in table["host_cpu"].to_pylist() if one is not None and not 0 <= one <= 1] == []
    assert max(one for one in table["engine_memory_bytes"].to_pylist() if one is not None) > 100_000_000
    drafting = boot.configuration.document.speculative is not None
    assert (table["draft_tokens"].null_count < table.num_rows) == drafting
    assert table["accelerator_use"].null_count == table.num_rows


def kill_when_it_answers(boot: Boot) -> None:
    """Kills the engine's whole group as soon as its second trial is under way."""
    try:
        for _ in range(600):
            row = Boot.objects.get(pk=boot.pk)
            running = row.trials.filter(position=1, state="running").exclude(progress={}).exists()
            if running and row.engine_group:
                os.killpg(row.engine_group, signal.SIGKILL)
                return
            time.sleep(0.2)
    finally:
        connection.close()


def test_an_engine_that_dies_is_a_result(boots: list[Boot], settings: Any) -> None:
    settings.HEARTBEAT_S = 1
    boot = claim()
    killer = threading.Thread(target=kill_when_it_answers, args=[boot])
    killer.start()
    run_boot(boot, threading.Event())
    killer.join()
    boot.refresh_from_db()
    assert (boot.state, boot.died) == (Boot.State.FINISHED, True)
    assert "died during level" in boot.reason
    assert boot.log_tail
    last = boot.trials.get(position=1)
    table = read_records(EvidenceStore(configured.EVIDENCE_DIR).get(last.records_digest))
    statuses = table["status"].to_pylist()
    assert len(statuses) == last.planned
    assert "failed" in statuses
    assert set(statuses) <= {"completed", "failed"}
    told = [document_of(EvidenceStore(configured.EVIDENCE_DIR).get(one.manifest_digest)) for one in boot.trials.all()]
    assert [one.get("died") for one in told] == [None, boot.reason]


def test_a_worker_that_is_stopped_gives_its_boot_back(boots: list[Boot], settings: Any) -> None:
    settings.HEARTBEAT_S = 1
    boot, stopping = claim(), threading.Event()
    threading.Timer(8, stopping.set).start()
    run_boot(boot, stopping)
    boot.refresh_from_db()
    assert (boot.state, boot.reason) == (Boot.State.LOST, "its worker was stopped")
    assert Boot.objects.filter(position=0, attempt=2, state="waiting").exists()
