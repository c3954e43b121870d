"""Traffic, trials and pages of an installation that keeps its evidence in a bucket."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.test import Client
from django.urls import reverse

from decisions.models import Account, BriefRevision, Event, Route, SignatureRequest
from decisions.selectors.health import read_basis, read_floor
from decisions.selectors.pictures import drawn_from_evidence
from decisions.services import advance_brief as advancing
from decisions.services.advance_brief import advance_brief
from decisions.services.delete_text import delete_text as delete_with_others
from decisions.services.reauthenticate import Credentials
from decisions.services.sign_decision import sign_decision
from loadtests import queue, uploads
from loadtests.configurations import Checkpoint, Configuration, Hardware, Runtime
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence import bucket as evidence_bucket
from loadtests.evidence.bucket import Address, BucketStore
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceStore, EvidenceUnreachable
from loadtests.evidence.stores import evidence_store
from loadtests.evidence.timeline import read_timeline
from loadtests.journal import act
from loadtests.models import Boot, Removal, TrafficImport, TrafficSet, Trial
from loadtests.services import delete_text as deleting
from loadtests.services import import_traffic as importing
from loadtests.services.claim_boot import claim_boot
from loadtests.services.delete_text import delete_text
from loadtests.services.import_traffic import import_traffic
from loadtests.services.remove_unwanted import remove_unwanted, still_kept
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


def imported(seed: int = 7) -> TrafficSet:
    return import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", seed=seed)


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


def test_no_copy_stays_where_the_rows_can_not_be_removed(server: FaultyServer, settings: Any) -> None:
    traffic = imported()
    evidence_store().file(traffic.parts.get(kind="tuning").digest)
    server.fault = lambda method, _: 403 if method == "DELETE" else None
    delete_text(traffic_set=traffic, by="owner", reason="the contract says so")
    assert len(still_kept(traffic)) == 3
    assert files_in(settings.EVIDENCE_COPIES_DIR) == []


def test_text_that_can_not_be_removed_is_said_to_be_there_until_a_sweep_has_removed_it(
    server: FaultyServer, kept_in_a_bucket: Address, client: Client, account: Callable[..., Account]
) -> None:
    traffic = imported()
    client.force_login(account("operator", "operator"))
    page, inbox, every = reverse("traffic-set", args=[traffic.pk]), reverse("inbox"), reverse("traffic")
    server.fault = lambda method, _: 403 if method == "DELETE" else None
    said = {"sure": "yes", "reason": "The contract says so."}
    answer = client.post(reverse("traffic-delete-text", args=[traffic.pk]), said, follow=True).content.decode()
    traffic.refresh_from_db()
    assert traffic.text_deleted_at is not None
    assert "The text of demo can’t be used any more, and still lies in the evidence store: s3://" in answer
    assert "The text is deleted." not in answer
    for _ in range(2):
        assert "could not be removed: AccessDenied" in client.get(page).content.decode()
        assert all("Text that should be gone still lies" in client.get(one).content.decode() for one in (inbox, every))
        sweep_evidence()
    assert not Event.objects.filter(kind="traffic-text-removed").exists()

    server.fail()
    sweep_evidence()
    assert still_kept(traffic) == []
    assert {part.digest for part in traffic.parts.all()} & stored(kept_in_a_bucket) == set()
    assert Event.objects.get(kind="traffic-text-removed").subject == f"traffic set {traffic.pk}"
    assert "still lies in the evidence store" not in client.get(page).content.decode()
    assert not any("still lies" in client.get(one).content.decode() for one in (inbox, every))


def test_the_shell_says_what_could_not_be_removed(server: FaultyServer, account: Callable[..., Account]) -> None:
    traffic = imported()
    account("operator", "operator")
    server.fault = lambda method, _: 403 if method == "DELETE" else None
    with pytest.raises(CommandError, match=r"set \d+: its text still lies in the evidence store \(s3://.*AccessDenied"):
        call_command("delete_text", traffic.pk, by="operator", reason="The contract says so.")


def test_of_several_sets_all_are_let_go_where_the_bucket_refuses_one(
    server: FaultyServer, kept_in_a_bucket: Address, account: Callable[..., Account]
) -> None:
    first, second = imported(), imported(seed=8)
    rows = {part.digest for one in (first, second) for part in one.parts.all()}
    removed: list[str] = []

    def refused_from_the_third_on(method: str, _: Any) -> int | None:
        removed.extend([method] if method == "DELETE" else [])
        return 403 if method == "DELETE" and len(removed) > 2 else None

    server.fault = refused_from_the_third_on
    delete_with_others(
        traffic_set=first, by=account("operator", "operator"), reason="The contract says so.", also=[second]
    )
    for one in (first, second):
        one.refresh_from_db()
        assert one.text_deleted_by == "operator"
    assert len(rows & stored(kept_in_a_bucket)) == len(rows) - 2 == Removal.objects.count()
    server.fail()
    sweep_evidence()
    assert rows & stored(kept_in_a_bucket) == set()
    assert not Removal.objects.exists()
    assert Event.objects.filter(kind="traffic-text-removed").count() == 2


def test_a_bucket_that_is_away_is_asked_for_one_file_alone(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = imported()
    monkeypatch.setattr(deleting, "remove_unwanted", lambda: None)
    delete_text(traffic_set=traffic, by="owner", reason="the contract says so")
    assert len(still_kept(traffic)) == 3
    server.fault = lambda *_: 503
    remove_unwanted()
    assert [bool(one.trouble) for one in Removal.objects.order_by("pk")] == [True, False, False]


@pytest.fixture
def asked_within_an_act(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the bucket was asked for while others waited for the ledger's lock."""
    insist, found = BucketStore._insist, list[str]()

    def noted(self: BucketStore, name: str, doing: str, *more: Any) -> Any:
        if connection.in_atomic_block:
            found.append(f"{name} {doing}")
        return insist(self, name, doing, *more)

    monkeypatch.setattr(BucketStore, "_insist", noted)
    return found


def test_nobody_waits_for_the_bucket_while_traffic_comes_and_goes(
    server: FaultyServer,
    account: Callable[..., Account],
    asked_within_an_act: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = imported(), imported(seed=8)
    operator = account("operator", "operator")
    delete_with_others(traffic_set=first, by=operator, reason="The contract says so.", also=[second])

    def lost(*_: object, **__: object) -> None:
        raise DatabaseError

    monkeypatch.setattr(importing, "written", lost)
    with pytest.raises(DatabaseError):
        imported(seed=9)
    sweep_evidence()
    assert asked_within_an_act == []
    assert not Removal.objects.exists()


def test_others_write_while_the_bucket_hangs(server: FaultyServer) -> None:
    traffic = imported()
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(method: str, _: Any) -> None:
        if method == "DELETE":
            hangs.set()
            goes_on.wait(30)

    server.fault = hang

    def delete() -> None:
        delete_text(traffic_set=traffic, by="owner", reason="the contract says so")
        connection.close()

    deleting = threading.Thread(target=delete)
    deleting.start()
    try:
        assert hangs.wait(30)
        began = time.monotonic()
        with act():
            TrafficSet.objects.filter(pk=traffic.pk).update(name="still to be written")
        assert time.monotonic() - began < 5
        assert TrafficSet.objects.get().text_deleted_by == "owner"
    finally:
        goes_on.set()
        deleting.join()
    assert still_kept(traffic) == []


def test_text_that_comes_again_before_it_was_removed_is_kept(
    server: FaultyServer, kept_in_a_bucket: Address, account: Callable[..., Account]
) -> None:
    """The same rows in the same parts, under another name: the set's digest counts the split's stretches too."""
    first = imported()
    server.fault = lambda method, _: 403 if method == "DELETE" else None
    delete_text(traffic_set=first, by="owner", reason="the contract says so")
    part = first.parts.get(kind="tuning")
    wanted = {one.digest for one in first.parts.all()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(importing, "set_digest", lambda *_: "e" * 64)
        again = imported()
    assert again.parts.get(kind="tuning").digest == part.digest
    server.fail()
    sweep_evidence()
    assert not Removal.objects.exists()
    assert wanted <= stored(kept_in_a_bucket)
    delete_text(traffic_set=again, by="owner", reason="the contract says so")
    assert wanted & stored(kept_in_a_bucket) == set()


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
        verdict=judged.verdicts.get(),
        by=owner,
        credentials=Credentials(PASSWORD),
        meaning="request-changes",
        reason="Not worth it yet.",
    )
    address = reverse("records", args=[trial.pk])
    assert read_records(client.get(address).content).num_rows == trial.planned
    server.fault = lambda *_: 503
    records = client.get(address)
    assert (records.status_code, records["Retry-After"]) == (503, "60")
    assert "The evidence can’t be read now" in records.content.decode()
    assert "could not be read: SlowDown" in records.content.decode()


def test_a_download_says_that_the_bucket_is_away_and_404_where_it_has_no_such_file(
    judged: BriefRevision, client: Client, owner: Account, server: FaultyServer
) -> None:
    client.login(username="owner", password=PASSWORD)
    trial = Trial.objects.filter(boot__campaign__purpose="tuning").earliest("pk")
    trial.summary["timeline"] = "a" * 64
    trial.save(update_fields=["summary"])
    address, boot = reverse("timeline", args=[trial.pk]), reverse("boot", args=[trial.boot_id])
    assert client.get(address).status_code == 404
    server.fault = lambda *_: 503
    assert client.get(address).status_code == 503
    page = client.get(boot)
    assert page.status_code == 200
    assert f"The timeline of {trial.level} can’t be shown: s3://" in page.content.decode()


def test_the_health_of_measurements_is_said_to_be_out_of_reach(
    judged: BriefRevision, client: Client, owner: Account, server: FaultyServer
) -> None:
    for known in (read_basis, read_floor):
        known.cache_clear()
    client.login(username="owner", password=PASSWORD)
    address = reverse("brief-health", args=[judged.brief_id, judged.number])
    server.fault = lambda *_: 503
    assert "Where the numbers come from can’t be shown: s3://" in client.get(address).content.decode()
    SignatureRequest.objects.all().delete()
    judged.verdicts.all().delete()
    page = client.get(address).content.decode()
    assert "The noise floor was measured and can’t be shown: s3://" in page
    assert "The noise floor isn’t known yet" not in page


def test_a_page_that_needs_evidence_and_says_nothing_of_it_is_503_and_no_fault_of_ours(
    client: Client, owner: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise EvidenceUnreachable("s3://house could not be read")

    monkeypatch.setattr("decisions.pages.ledger.selectors.event_kinds", away)
    client.login(username="owner", password=PASSWORD)
    page = client.get(reverse("ledger"))
    assert page.status_code == 503
    assert "s3://house could not be read." in page.content.decode()


@pytest.mark.parametrize("passing", [True, False])
def test_a_brief_waits_for_a_store_that_is_away_and_halts_where_that_does_not_help(
    route: Route, engineer: Account, monkeypatch: pytest.MonkeyPatch, passing: bool
) -> None:
    revision = started_brief(route, engineer)

    def step(*_: object) -> None:
        raise EvidenceUnreachable("the store said no", passing=passing)

    monkeypatch.setattr(advancing, "step", step)
    with pytest.raises(EvidenceUnreachable) if passing else nullcontext():
        advance_brief(revision=revision)
    revision.refresh_from_db()
    assert revision.halted == ("" if passing else "the store said no")
