"""A boot on an engine that somebody else runs: measured, and what nobody here can know is missing from the evidence."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from django.conf import settings as configured
from django.db import connection

from decisions.selectors.evidence import evidence_of_trial
from loadtests.configurations import Checkpoint, Configuration, EngineArguments, Hardware, Runtime
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.timeline import read_timeline
from loadtests.models import Boot
from loadtests.services.claim_boot import claim_boot
from loadtests.services.import_traffic import import_traffic
from loadtests.simulator import preset, server
from loadtests.traffic.levels import Arrival, Level
from tests.support.campaigns import campaign_of
from workers.boots import run_boot

pytestmark = pytest.mark.django_db(transaction=True)

CONFIGURATION = Configuration(
    runtime=Runtime(engine="remote", version="0.32.0"),
    target=Checkpoint(name="target", weights_sha256="a" * 64, tokenizer_sha256="b" * 64),
    arguments=EngineArguments(),
    hardware=Hardware(pool="cpu", accelerator="NVIDIA H200"),
)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that answers like vLLM 0.32.0, in a thread."""
    monkeypatch.setattr(server, "VERSION", "0.32.0")
    told: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def serve() -> web.AppRunner:
        engine = server.engine_of(preset("cpu-2core"), None, seed=1, content_seed=0)
        app = server.application(engine, speed=20, model="target", fingerprint=CONFIGURATION.digest)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        told.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        ready.set()
        return runner

    def run() -> None:
        runner = loop.run_until_complete(serve())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    yield told[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def boot(settings: Any, tmp_path: Path) -> Boot:
    settings.HEARTBEAT_S = 1
    campaign_of(
        CONFIGURATION,
        [Level(name="peak", arrival=Arrival(process="constant", rate=5), duration_s=2, drain_s=20)],
        import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer"),
    )
    claimed = claim_boot(pool="cpu", worker="worker", host="here")
    assert claimed is not None
    return claimed


def serve_at(address: str, settings: Any, tmp_path: Path) -> None:
    table = tmp_path / "engines.yaml"
    table.write_text(yaml.safe_dump({"engines": {CONFIGURATION.digest: {"base_url": address}}}))
    settings.REMOTE_ENGINES, settings.REMOTE_HOSTS = table, ["127.0.0.1"]


def test_a_remote_boot_is_measured_and_lacks_what_only_its_host_knows(
    boot: Boot, address: str, settings: Any, tmp_path: Path
) -> None:
    serve_at(address, settings, tmp_path)
    run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert (boot.state, boot.died, boot.reason) == ("finished", False, "")
    assert (boot.engine_group, boot.server) == (None, boot.facts["server_id"])
    trial, store = boot.trials.get(), EvidenceStore(configured.EVIDENCE_DIR)
    assert trial.progress["ended"]["completed"] == trial.planned == 10
    manifest = document_of(store.get(trial.manifest_digest))
    assert (manifest["evidence_class"], manifest["base_url"]) == ("measured", address)
    assert manifest["fingerprints"] == {CONFIGURATION.digest: 10}
    assert manifest["engine"]["tells"] == {"queue_time": True, "acceptance": False, "token_ids": True}

    timeline = read_timeline(store.get(trial.summary["timeline"]))
    assert timeline["running"].null_count < timeline.num_rows
    assert timeline["engine_cpu"].null_count == timeline["engine_memory_bytes"].null_count == timeline.num_rows
    # So the rules say that they don't know whether the machine was ours alone.
    evidence = evidence_of_trial(boot, trial, store)
    assert (evidence.neighbour_cpu_share, evidence.evidence_class) == (None, "measured")
    assert evidence.engine_tokens == sum(evidence.columns["output_tokens"].tolist())


def test_a_server_that_is_not_there_stops_the_campaign_for_a_person(boot: Boot, settings: Any, tmp_path: Path) -> None:
    serve_at("http://127.0.0.1:9", settings, tmp_path)
    run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert (boot.state, boot.campaign.state) == ("cancelled", "stopped")
    assert "nothing answers at http://127.0.0.1:9: start the server" in boot.campaign.reason


def stop_once_something_completed(boot: Boot, stopping: threading.Event) -> None:
    try:
        for _ in range(600):
            progress = boot.trials.values_list("progress", flat=True).get()
            if progress.get("ended", {}).get("completed"):
                break
            time.sleep(0.1)
        stopping.set()
    finally:
        connection.close()


def test_a_trial_that_is_cut_off_keeps_what_it_had_apart_from_the_next_attempt(
    boot: Boot, address: str, settings: Any, tmp_path: Path
) -> None:
    serve_at(address, settings, tmp_path)
    stopping = threading.Event()
    stopper = threading.Thread(target=stop_once_something_completed, args=[boot, stopping])
    boot.campaign.plan["levels"][0]["arrival"]["rate"] = 0.5
    boot.campaign.plan["levels"][0]["duration_s"] = 20
    boot.campaign.save(update_fields=["plan"])
    stopper.start()
    run_boot(boot, stopping)
    stopper.join()
    boot.refresh_from_db()
    assert (boot.state, boot.reason) == ("lost", "its worker was stopped")
    cut, store = boot.trials.get(), EvidenceStore(configured.EVIDENCE_DIR)
    assert cut.state == "cut-off"
    manifest = document_of(store.get(cut.manifest_digest))
    assert manifest["stopped"] is True
    assert 0 < manifest["statuses"]["completed"] < 10
    assert sum(manifest["statuses"].values()) == 10
    assert read_records(store.get(cut.records_digest)).num_rows == 10
    again = Boot.objects.get(attempt=2)
    assert (again.state, again.trials.get().manifest_digest) == ("waiting", "")
