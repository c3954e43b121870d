"""A whole brief on the simulated engine: the real worker, the real client, real processes, and nothing to approve."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client
from django.urls import reverse

from config.demo import brief_document, with_suite
from decisions import ledger
from decisions.models import Account, BriefRevision, Release, Route, Verdict
from decisions.selectors.behaviour import behaviour_result
from decisions.services.advance_brief import advance_brief
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.reauthenticate import Credentials
from decisions.services.refused import Refused
from decisions.services.sign_decision import sign_decision
from decisions.services.start_brief import start_brief
from loadtests.configurations import Checkpoint
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.manifest import document_of
from loadtests.evidence.store import EvidenceStore
from loadtests.evidence.timeline import read_timeline
from loadtests.models import Boot, Campaign, Trial
from loadtests.services.claim_boot import claim_boot
from loadtests.services.import_traffic import import_traffic
from loadtests.simulator.acceptance import Acceptance, ClassAcceptance
from loadtests.simulator.costs import DrafterCost, RoundCost
from loadtests.simulator.model import ClassLength, Drafter, EngineModel, Lengths
from tests.conftest import PASSWORD
from workers.boots import run_boot

pytestmark = pytest.mark.django_db(transaction=True)

# Steps of 20 ms, whatever is in them, and a drafter that is nearly always right: a busy machine hides none of that.
ENGINE = EngineModel(
    name="rehearsal",
    max_num_seqs=64,
    max_num_batched_tokens=8_192,
    max_model_len=4_096,
    kv_tokens=400_000,
    round=RoundCost(
        fixed_s=0.02,
        per_sequence_s=0.0,
        weights_s=0.0,
        per_token_s=1e-9,
        per_prefill_token_s=1e-9,
        per_context_token_s=0.0,
    ),
    drafters={
        "ngram": Drafter(
            cost=DrafterCost(), acceptance=Acceptance(default=ClassAcceptance(positions=(0.95,), spread=0.0))
        )
    },
    lengths=Lengths(default=ClassLength(median=40, sigma=0.1)),
)
REFUSAL = "The evidence is simulated: only measured evidence can carry an approval"
# A step takes its time here: enough of the suite to see it through.
CASES = ["choice", "max-tokens", "stop-tokens", "allowed-tokens"]
LEVEL = {"name": "quiet", "arrival": {"process": "constant", "rate": 15}, "duration_s": 1.1, "drain_s": 10}


def brief_source(models: Path) -> str:
    models.mkdir()
    (models / "rehearsal.engine-model.json").write_bytes(ENGINE.content)
    target = Checkpoint(name=ENGINE.name, weights_sha256=ENGINE.digest, tokenizer_sha256=ENGINE.digest)
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service="support-assistant", seed=7)
    document: dict[str, Any] = brief_document(target, traffic)
    document["baseline"] |= {
        "runtime": {"engine": "simulated", "distribution": "draftproof", "version": "simulated-1"},
        "arguments": {"max_model_len": 4_096, "max_num_seqs": 64},
        "environment": {},
        "hardware": {"pool": "cpu", "accelerator": "simulated", "count": 1},
    }
    document |= {"candidates": document["candidates"][1:2], "levels": [LEVEL], "peak": "quiet"}
    document["outcome"] |= {"minimum_improvement": 0.5}
    document["guardrails"] = []
    document = with_suite(document)
    document["guardrails"][0]["cell"] = {"level": "quiet"}
    document["behaviour"] = {"only": CASES}
    # Other work on the machine that runs the tests delays this client too.
    document["rule"] |= {"max_client_lag_ms": 5_000}
    return json.dumps(document)


@pytest.fixture
def revision(route: Route, engineer: Account, settings: Any, tmp_path: Path) -> BriefRevision:
    settings.MODELS_DIR = tmp_path / "models"
    settings.SIMULATED_SPEED = 1.0
    found = create_brief(route=route, source=brief_source(settings.MODELS_DIR), by=engineer)
    freeze_brief(revision=found, by=engineer)
    start_brief(revision=found, by=engineer)
    return found


def rehearse(revision: BriefRevision) -> None:
    """What control and engine workers do, one after the other."""
    while revision.state == "measuring" and not revision.halted:
        boot = claim_boot(pool="cpu", worker="worker", host="here")
        if boot is None:
            advance_brief(revision=revision)
        else:
            run_boot(boot, threading.Event())


# A minute and a half of real processes: it runs where the engine's tests do.
@pytest.mark.engine
def test_a_rehearsal_goes_through_every_stage_and_cannot_be_approved(
    revision: BriefRevision, owner: Account, client: Client
) -> None:
    rehearse(revision)
    assert revision.halted == ""
    verdict = revision.verdicts.get()
    purposes = list(Campaign.objects.order_by("pk").values_list("purpose", flat=True))
    assert purposes == ["noise-floor", "tuning", "held-out", "behaviour", "fallback"]
    # Which verdict it is depends on what else this machine does, whose noise is in the client's times.
    assert revision.state == "in-review"
    assert verdict.document["evidence_class"] == "simulated"
    check_behaviour(verdict, revision)

    with pytest.raises(Refused, match=REFUSAL):
        sign_decision(
            verdict=verdict, by=owner, credentials=Credentials(PASSWORD), meaning="approve", reason="It went so well"
        )
    client.force_login(owner)
    page = client.get(reverse("brief-sign-off", args=[revision.brief_id, revision.number])).content.decode()
    assert "Evidence is simulated" in page
    assert REFUSAL in page
    assert not Release.objects.exists()
    assert ledger.verify().broken is None

    check_evidence()


def check_behaviour(verdict: Verdict, revision: BriefRevision) -> None:
    """The suite was asked of three boots, and the verdict rests on what it found."""
    found = behaviour_result(revision)
    assert found is not None
    assert (found.outcome, found.cases, found.exercised) == ("held", len(CASES), True), found.sentence
    (row,) = verdict.document["guardrails"]
    assert (row["id"], row["shown"], row["evidence"]) == ("same-output", "shown", found.digest)
    assert row["said"] == found.sentence
    assert f"asked of these cases alone: {', '.join(CASES)}" in " ".join(verdict.document["limits"])
    assert {boot.arm: boot.suite_run.findings for boot in Boot.objects.filter(campaign__purpose="behaviour")} == {
        "baseline": [],
        "candidate": [],
        "control": [],
    }


def check_evidence() -> None:
    boot = Boot.objects.filter(campaign__purpose="held-out", arm="candidate").earliest("pk")
    assert boot.facts["tells"] == {"queue_time": True, "acceptance": True, "token_ids": True}
    trial, store = boot.trials.get(), EvidenceStore(configured.EVIDENCE_DIR)
    manifest = document_of(store.get(trial.manifest_digest))
    assert manifest["evidence_class"] == trial.summary["evidence_class"] == "simulated"
    assert manifest["digests"]["timeline"] == trial.summary["timeline"]
    assert manifest["seeds"]["boot"] == boot.facts["details"]["seed"]
    assert b'"engine_model": "rehearsal"' in store.get(manifest["digests"]["log"])

    timeline = read_timeline(store.get(trial.summary["timeline"]))
    assert timeline["at_ns"].to_pylist()[:2] == [0, 1_000_000_000]
    assert timeline["in_flight"].to_pylist()[1] >= 1
    assert max(one for one in timeline["running"].to_pylist() if one is not None) >= 1
    # No accelerator is at work here, and a missing figure is none.
    assert timeline["accelerator_use"].null_count == timeline.num_rows
    seeds = {one.facts["details"]["seed"] for one in Boot.objects.all()}
    assert len(seeds) == Boot.objects.count()
    assert not Trial.objects.exclude(state="finished").exists()
