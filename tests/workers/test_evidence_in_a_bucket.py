"""Traffic, trials and pages of an installation that keeps its evidence in a bucket."""

import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from decisions.models import Account, BriefRevision, Route
from decisions.selectors.pictures import drawn_from_evidence
from decisions.services import advance_brief as advancing
from decisions.services.advance_brief import advance_brief
from decisions.services.sign_decision import sign_decision
from loadtests import queue, uploads
from loadtests.configurations import Checkpoint, Configuration, Hardware, Runtime
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence import bucket as evidence_bucket
from loadtests.evidence.bucket import Address
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceMissing, EvidenceStore, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.timeline import read_timeline
from loadtests.models import Boot, TrafficImport, TrafficSet, Trial
from loadtests.services.claim_boot import claim_boot
from loadtests.services.delete_text import delete_text
from loadtests.services.import_traffic import import_traffic
from loadtests.services.refused import Refused
from loadtests.services.request_import import request_import
from loadtests.services.run_import import run_import
from loadtests.services.sweep_evidence import sweep_evidence
from loadtests.traffic.levels import Arrival, Level
from loadtests.traffic.rows import rows_of
from tests.conftest import PASSWORD
from tests.support import buckets
from tests.support.buckets import FaultyServer
from tests.support.campaigns import campaign_of
from tests.support.play import play, started_brief
from tests.workers.test_a_rehearsal import ENGINE
from tests.workers.test_imports import OPTIONS
from workers.boots import run_boot

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept_in_a_bucket")]

LEVEL = Level(name="quiet", arrival=Arrival(process="constant", rate=10), duration_s=1.1, drain_s=10)
RUNTIME = Runtime(engine="simulated", distribution="draftproof", version="simulated-1")


def stored(address: Address) -> set[str]:
    found = buckets.client(address.endpoint).list_objects_v2(Bucket=address.bucket).get("Contents", ())
    return {"".join(one["Key"].removeprefix(f"{address.prefix}/sha256/").split("/")) for one in found}


def files_in(directory: Path) -> list[Path]:
    return [one for one in directory.rglob("*") if one.is_file()]


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "send_import", lambda: None)


@pytest.fixture
def server(kept_in_a_bucket: Address, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """Before the bucket, so that it can fail."""
    monkeypatch.setattr(evidence_bucket, "READ_PATIENCE_S", 0.1)
    monkeypatch.setattr(evidence_bucket, "WRITE_PATIENCE_S", 0.1)
    with buckets.faulty_server(kept_in_a_bucket.endpoint) as server:
        settings.EVIDENCE_ENDPOINT = server.endpoint
        yield server


def imported() -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", seed=7)


def test_an_imported_set_lies_in_the_bucket_alone(kept_in_a_bucket: Address, settings: Any) -> None:
    traffic = imported()
    parts = list(traffic.parts.all())
    digests = {part.digest for part in parts} | {part.index_digest for part in parts}
    assert stored(kept_in_a_bucket) == digests
    for part in parts:
        assert len(rows_of(evidence_store().get(part.digest), name="part")) == part.rows
    assert files_in(settings.EVIDENCE_DIR) == files_in(settings.EVIDENCE_COPIES_DIR) == []


def test_deleted_text_is_gone_from_the_bucket_and_from_its_copies(kept_in_a_bucket: Address, settings: Any) -> None:
    traffic = imported()
    parts = list(traffic.parts.all())
    copy = evidence_store().file(parts[0].digest)
    delete_text(traffic_set=traffic, by="owner", reason="the contract says so")
    assert not copy.exists()
    kept = stored(kept_in_a_bucket)
    assert kept & {part.digest for part in parts} == set()
    assert {part.outline_digest for part in traffic.parts.all()} < kept
    assert files_in(settings.EVIDENCE_COPIES_DIR) == []
    sweep_evidence()


def test_no_copy_of_sealed_rows_stays_where_they_can_not_be_removed(server: FaultyServer, settings: Any) -> None:
    traffic = imported()
    server.fault = lambda method, _: 403 if method == "DELETE" else None
    with pytest.raises(Refused, match="can't be removed"):
        delete_text(traffic_set=traffic, by="owner", reason="the contract says so")
    copies = {one.parent.name + one.name for one in files_in(settings.EVIDENCE_COPIES_DIR)}
    assert copies == {traffic.parts.get(kind="tuning").digest}


def test_text_that_can_not_be_removed_is_not_said_to_be(server: FaultyServer) -> None:
    traffic = imported()
    server.fault = lambda method, _: 403 if method == "DELETE" else None
    with pytest.raises(Refused, match=r"can't be removed: s3://.* could not be removed: AccessDenied"):
        delete_text(traffic_set=traffic, by="owner", reason="the contract says so")
    traffic.refresh_from_db()
    assert traffic.text_deleted_at is None
    server.fail()
    delete_text(traffic_set=traffic, by="owner", reason="the contract says so")
    with pytest.raises(EvidenceMissing):
        evidence_store().get(traffic.parts.all()[0].digest)


def wanted(tmp_path: Path) -> TrafficImport:
    copied = tmp_path / "rows.jsonl"
    copied.write_bytes(SUPPORT_ASSISTANT.read_bytes())
    return request_import(
        name="demo", service="", file_name="rows.jsonl", upload=copied, options=OPTIONS, by="engineer"
    )


def test_an_import_that_can_not_be_stored_says_so_and_can_be_started_again(
    server: FaultyServer, kept_in_a_bucket: Address, tmp_path: Path
) -> None:
    one = wanted(tmp_path)
    server.fault = lambda method, _: 503 if method == "PUT" else None
    run_import(wanted=one, worker="worker")
    one.refresh_from_db()
    assert one.state == "failed"
    assert f"the evidence store failed: s3://{kept_in_a_bucket.bucket}/house/one/sha256/" in one.reason
    assert uploads.is_here(one.upload)
    assert not TrafficSet.objects.exists()
    assert stored(kept_in_a_bucket) == set()


@pytest.fixture
def boot(settings: Any, tmp_path: Path) -> Boot:
    settings.MODELS_DIR = tmp_path / "models"
    settings.MODELS_DIR.mkdir()
    (settings.MODELS_DIR / "rehearsal.engine-model.json").write_bytes(ENGINE.content)
    baseline = Configuration(
        schema="draftproof.configuration/1",
        runtime=RUNTIME,
        target=Checkpoint(name=ENGINE.name, weights_sha256=ENGINE.digest, tokenizer_sha256=ENGINE.digest),
        arguments={"max_model_len": 4_096, "max_num_seqs": 64},
        hardware=Hardware(pool="cpu", accelerator="simulated"),
    )
    campaign_of(baseline, [LEVEL], imported())
    claimed = claim_boot(pool="cpu", worker="worker", host="here")
    assert claimed is not None
    return claimed


def test_a_trial_on_a_simulated_engine_leaves_its_evidence_in_the_bucket(
    boot: Boot, client: Client, engineer: Account, kept_in_a_bucket: Address, settings: Any
) -> None:
    run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert (boot.state, boot.reason) == ("finished", "")
    trial, store = boot.trials.get(), evidence_store()
    manifest = document_of(store.get(trial.manifest_digest))
    named = manifest["digests"]
    assert {trial.manifest_digest, *(named[one] for one in ("plan", "records", "timeline", "log", "part"))} <= stored(
        kept_in_a_bucket
    )
    assert read_records(store.get(named["records"]))["status"].to_pylist() == ["completed"] * trial.planned
    assert read_timeline(store.get(named["timeline"])).num_rows >= 2
    assert boot.log_digest in stored(kept_in_a_bucket)
    assert files_in(settings.EVIDENCE_DIR) == []

    client.login(username="engineer", password=PASSWORD)
    page = client.get(reverse("boot", args=[boot.pk])).content.decode()
    assert "Engine over time" in page
    assert "At most" in page


def test_a_trial_that_can_not_be_stored_stays_on_the_disk_and_says_where(
    boot: Boot, server: FaultyServer, kept_in_a_bucket: Address, settings: Any
) -> None:
    server.fault = lambda method, _: 503 if method == "PUT" else None
    run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert boot.state == "lost"
    here = EvidenceStore(Path(settings.RUNS_DIR) / f"boot-{boot.pk}" / "evidence")
    assert f"and all it names lie in {here.root} on {boot.host}" in boot.reason
    assert f"s3://{kept_in_a_bucket.bucket}/house/one/sha256/" in boot.reason
    assert not any(secret in boot.reason for secret in buckets.KEYS.values())
    (name,) = [one for one in boot.reason.replace(",", " ").split() if here.root.exists() and is_here(here, one)]
    named = document_of(here.get(name))["digests"]
    assert json.loads(here.get(named["plan"]))["schema"].startswith("draftproof.plan/")
    assert set(read_records(here.get(named["records"]))["status"].to_pylist()) == {"completed"}
    assert here.has(named["log"])
    assert here.has(named["timeline"])
    assert Boot.objects.get(attempt=2).state == "waiting"


def is_here(store: EvidenceStore, word: str) -> bool:
    return len(word) == len(sha256().hexdigest()) and store.has(word)


@pytest.fixture
def judged(route: Route, engineer: Account, kept_in_a_bucket: Address) -> Iterator[BriefRevision]:
    drawn_from_evidence.cache_clear()
    revision = started_brief(route, engineer)
    play(revision)
    yield revision
    drawn_from_evidence.cache_clear()


def test_pages_show_what_lies_in_the_bucket_and_say_when_it_is_away(
    judged: BriefRevision, client: Client, owner: Account, server: FaultyServer, kept_in_a_bucket: Address
) -> None:
    client.login(username="owner", password=PASSWORD)
    sign_off = reverse("brief-sign-off", args=[judged.brief_id, judged.number])
    server.fault = lambda *_: 503
    away = client.get(sign_off).content.decode()
    assert "The pictures can’t be drawn: s3://" in away
    assert "could not be read: SlowDown" in away

    server.fail()
    page = client.get(sign_off).content.decode()
    assert "The pictures can’t be drawn" not in page
    assert page.count("data-chart") > away.count("data-chart")

    trial = Trial.objects.filter(boot__campaign__purpose="held-out").earliest("pk")
    assert trial.records_digest in stored(kept_in_a_bucket)
    sign_decision(
        verdict=judged.verdicts.get(), by=owner, password=PASSWORD, meaning="reject", reason="It is not worth it yet."
    )
    records = client.get(reverse("records", args=[trial.pk]))
    assert read_records(records.content).num_rows == trial.planned


@pytest.mark.parametrize("passing", [True, False])
def test_a_brief_waits_for_a_store_that_is_away_and_halts_where_that_does_not_help(
    route: Route, engineer: Account, monkeypatch: pytest.MonkeyPatch, passing: bool
) -> None:
    revision = started_brief(route, engineer)

    def step(_: BriefRevision) -> None:
        raise EvidenceUnreachable("the store said no", passing=passing)

    monkeypatch.setattr(advancing, "step", step)
    with pytest.raises(EvidenceUnreachable) if passing else nullcontext():
        advance_brief(revision=revision)
    revision.refresh_from_db()
    assert revision.halted == ("" if passing else "the store said no")
