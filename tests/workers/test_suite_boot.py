"""Boots of a behaviour campaign, run by the real worker on simulated engines: asked, stored, judged from the store."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from loadtests.behaviour.answers import Answers, read_answers
from loadtests.behaviour.judge import judge
from loadtests.behaviour.rebuild import plan_of_document
from loadtests.behaviour.registry import suite_plan
from loadtests.configurations import Checkpoint, Configuration, EngineArguments, Hardware, Runtime, Speculative
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.stores import evidence_store
from loadtests.models import Boot, Campaign
from loadtests.services.claim_boot import claim_boot
from loadtests.services.end_campaign import end_campaign
from loadtests.services.import_traffic import import_traffic
from loadtests.simulator import preset
from loadtests.traffic.levels import Arrival, Level
from tests.support.campaigns import campaign_of
from workers.boots import run_boot

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = ["json-schema", "max-tokens", "stop-strings"]
LEVEL = Level(name="quiet", arrival=Arrival(process="constant", rate=1), duration_s=5)


@pytest.fixture
def campaign(settings: Any) -> Campaign:
    settings.SIMULATED_SPEED = 1e6
    digest = preset("cpu-2core").digest
    baseline = Configuration(
        runtime=Runtime(engine="simulated", distribution="draftproof", version="simulated-1"),
        target=Checkpoint(name="cpu-2core", weights_sha256=digest, tokenizer_sha256=digest),
        arguments=EngineArguments(max_num_seqs=8),
        hardware=Hardware(pool="cpu", accelerator="simulated"),
    )
    drafting = baseline.with_speculative(Speculative(method="dflash", num_speculative_tokens=4))
    traffic = import_traffic(path=SUPPORT_ASSISTANT, name="demo", by="engineer", service="support-assistant", seed=7)
    return campaign_of(
        baseline,
        [LEVEL],
        traffic,
        purpose="behaviour",
        candidates={"dflash-k4": drafting},
        suite=suite_plan(only=ASKED).document,
    )


def next_boot() -> Boot:
    boot = claim_boot(pool="cpu", worker="worker", host="here")
    assert boot is not None
    return boot


def answers_of(boot: Boot) -> Answers:
    boot.suite_run.refresh_from_db()
    return read_answers(evidence_store().get(boot.suite_run.answers_digest))


def test_three_boots_are_asked_and_their_answers_judged_from_the_store(campaign: Campaign) -> None:
    for _ in range(3):
        run_boot(next_boot(), threading.Event())
    campaign.refresh_from_db()
    assert campaign.state == Campaign.State.DONE
    heard = {boot.arm: answers_of(boot) for boot in campaign.boots.all()}
    plan = plan_of_document(campaign.plan["suite"])
    found = judge(plan, heard["baseline"], heard["candidate"], heard["control"])
    assert {one.id: one.state for one in found.cases} == dict.fromkeys(ASKED, "held")
    assert found.drafts.proposed
    for boot in campaign.boots.all():
        # The control is asked what has to be compared with it alone: none of these.
        progress = boot.suite_run.progress
        assert (progress == {}) == (boot.arm == "control")
        assert progress.get("planned") == progress.get("done")
        assert (boot.suite_run.findings, boot.died) == ([], False)
        assert boot.log_digest


def test_an_engine_that_cannot_start_is_a_result_of_the_suite_too(campaign: Campaign) -> None:
    Boot.objects.filter(campaign=campaign).exclude(arm="candidate").update(state=Boot.State.FINISHED)
    boot = next_boot()
    medusa = boot.configuration.document.with_speculative(Speculative(method="medusa", num_speculative_tokens=2))
    type(boot.configuration).objects.filter(pk=boot.configuration_id).update(content=medusa.content)
    boot = Boot.objects.select_related("campaign", "configuration").get(pk=boot.pk)
    run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert (boot.state, boot.died) == (Boot.State.FINISHED, True)
    answers = answers_of(boot)
    assert answers.lines == ()
    assert "the engine did not start" in (answers.died or "")
    assert "the engine died" in boot.suite_run.findings[0]


def test_a_campaign_that_is_cancelled_leaves_no_answers_that_count(campaign: Campaign) -> None:
    boot = next_boot()
    end_campaign(campaign=campaign, state=Campaign.State.CANCELLED, reason="no longer wanted", actor="engineer")
    run_boot(boot, threading.Event())
    boot.refresh_from_db()
    assert boot.state == Boot.State.CANCELLED
    assert boot.suite_run.answers_digest == ""
