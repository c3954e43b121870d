"""The behaviour stage of a brief: three boots are asked, their answers judged once, and the verdict rests on that."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from config.demo import ASKED, brief_document, with_suite
from decisions import ledger
from decisions.models import Account, BehaviourResult, BriefRevision, Event, Route
from decisions.rules.brief import BadBrief, read_brief
from decisions.selectors.behaviour import behaviour_result
from decisions.services.advance_brief import advance_brief
from decisions.services.compute_verdict import content_by
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.judge_behaviour import judge_behaviour
from decisions.services.start_brief import start_brief
from loadtests.behaviour.answers import Answers, read_answers
from loadtests.behaviour.rebuild import OtherSuite, plan_of_document
from loadtests.behaviour.registry import CASES
from loadtests.behaviour.result import read_result
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.stores import evidence_store
from loadtests.models import Boot, Campaign, SuiteRun
from loadtests.services.claim_boot import claim_boot
from loadtests.services.finish_suite import finish_suite, start_suite
from loadtests.services.give_up_boot import give_up_boot
from loadtests.services.import_traffic import import_traffic
from tests.support.play import TARGET, helps_when_quiet, run

pytestmark = pytest.mark.django_db(transaction=True)

RAIL = {"id": "same-output", "metric": "behaviour", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0}
DIED = "it can't be reached any more, the last one: the server closed the connection"
Change = Callable[[Answers], Answers]


def document_with(traffic: Any, **changes: Any) -> dict[str, Any]:
    document = brief_document(TARGET, traffic)
    return document | {"guardrails": [*document["guardrails"], RAIL]} | changes


@pytest.fixture
def revision(route: Route, engineer: Account) -> BriefRevision:
    traffic = import_traffic(
        path=SUPPORT_ASSISTANT, name="demo", by=engineer.username, service=route.service.slug, seed=7
    )
    asked = {"behaviour": {"concurrency": 4, "uses": ["logit_bias"], "tie_nats": 0.05}}
    source = json.dumps(document_with(traffic, **asked))
    found = create_brief(route=route, source=source, by=engineer)
    freeze_brief(revision=found, by=engineer)
    start_brief(revision=found, by=engineer)
    return found


def answered(boot: Boot, died: str | None = None) -> Answers:
    plan = plan_of_document(boot.campaign.plan["suite"])
    server: Any = boot.arm
    return Answers(server=server, base_url="http://127.0.0.1:1", plan_sha256=plan.digest, lines=(), died=died)


def finish(boot: Boot, died: str | None) -> None:
    start_suite(boot=boot)
    digest = evidence_store().put(answered(boot, died).content)
    assert finish_suite(boot=boot, answers=digest, findings=[], actor=boot.worker)
    run(boot, helps_when_quiet, 1.0, random.Random(1))
    started_by(boot, {"method": "ngram"} if boot.candidate else None)


def started_by(boot: Boot, setting: dict[str, Any] | None) -> None:
    """As the engine's own command line says it."""
    command = ["python", *([] if setting is None else ["--speculative-config", json.dumps(setting)])]
    Boot.objects.filter(pk=boot.pk).update(facts={"command": command})


def play_to_the_end(revision: BriefRevision, *, died: str | None = None) -> None:
    draw, waited = random.Random(1), 0
    while revision.state == "measuring" and not revision.halted:
        boot = claim_boot(pool="cpu", worker="player", host="host")
        waited = waited + 1 if boot is None else 0
        assert waited < 20, "nothing is left to run, and nothing goes on: a boot was claimed and never ended"
        if boot is None:
            advance_brief(revision=revision)
        elif boot.campaign.purpose == Campaign.Purpose.BEHAVIOUR:
            finish(boot, died if boot.arm == "candidate" else None)
        else:
            run(boot, helps_when_quiet, 1 + draw.gauss(0, 0.003), draw)


def test_a_candidate_that_dies_under_the_suite_fails_and_the_verdict_names_it(revision: BriefRevision) -> None:
    play_to_the_end(revision, died=DIED)
    assert revision.halted == ""
    campaign = Campaign.objects.get(purpose="behaviour")
    assert list(campaign.boots.values_list("arm", flat=True)) == ["baseline", "candidate", "control"]
    assert not any(boot.trials.exists() for boot in campaign.boots.all())
    suite = campaign.plan["suite"]
    assert (suite["concurrency"], suite["uses"], suite["tie_nats"]) == (4, ["logit_bias"], 0.05)
    assert suite["declared"]["rule"] == "exact"

    found = BehaviourResult.objects.get()
    assert (found.outcome, found.broken) == ("broken", [])
    stored = read_result(evidence_store().get(found.digest))
    assert (stored.outcome, stored.sentence) == (found.outcome, found.sentence)
    assert Event.objects.get(kind="behaviour-judged").details["digest"] == found.digest

    verdict = revision.verdicts.get()
    assert verdict.result == "FAIL"
    assert "guardrail same-output" in verdict.sentence
    assert "the output is not preserved" in verdict.sentence
    assert found.digest in verdict.document["evidence"]
    assert content_by(revision=revision) == bytes(verdict.content)
    assert ledger.verify().broken is None


def test_a_suite_that_nobody_answered_settles_nothing(revision: BriefRevision) -> None:
    play_to_the_end(revision)
    assert revision.verdicts.get().result == "INCONCLUSIVE"
    row = next(one for one in revision.verdicts.get().document["guardrails"] if one["id"] == "same-output")
    assert row["shown"] == "open"


def until_behaviour(revision: BriefRevision) -> Boot:
    draw = random.Random(1)
    while True:
        boot = claim_boot(pool="cpu", worker="player", host="host")
        if boot is None:
            advance_brief(revision=revision)
        elif boot.campaign.purpose == Campaign.Purpose.BEHAVIOUR:
            return boot
        else:
            run(boot, helps_when_quiet, 1 + draw.gauss(0, 0.003), draw)


def test_a_boot_that_is_cut_off_is_asked_again_and_the_answers_are_judged_once(revision: BriefRevision) -> None:
    boot = until_behaviour(revision)
    give_up_boot(boot=boot, state=Boot.State.LOST, reason="its worker fell silent", actor="reconciler")
    assert not finish_suite(boot=boot, answers="a" * 64, findings=[], actor=boot.worker)
    play_to_the_end(revision)
    assert SuiteRun.objects.count() == 4
    assert BehaviourResult.objects.count() == 1
    judge_behaviour(revision=revision)
    assert BehaviourResult.objects.count() == 1
    found = behaviour_result(revision)
    assert found is not None
    heard = {arm: read_answers(evidence_store().get(one)) for arm, one in found.answers.items()}
    assert {arm: one.server for arm, one in heard.items()} == {one: one for one in ("baseline", "candidate", "control")}


def test_an_engine_that_was_started_by_another_rule_halts_the_brief(revision: BriefRevision) -> None:
    boot = until_behaviour(revision)
    finish(boot, None)
    while (boot := claim_boot(pool="cpu", worker="player", host="host")) is not None:  # type: ignore[assignment]
        finish(boot, None)
    candidate = Boot.objects.get(campaign__purpose="behaviour", arm="candidate")
    started_by(candidate, {"method": "ngram", "rejection_sample_method": "fly"})
    advance_brief(revision=revision)
    assert "accepts drafts by the rule lossy" in revision.halted
    assert not BehaviourResult.objects.exists()


def test_a_brief_may_ask_some_cases_alone_and_its_verdict_says_so(route: Route, engineer: Account) -> None:
    traffic = import_traffic(
        path=SUPPORT_ASSISTANT, name="demo", by=engineer.username, service=route.service.slug, seed=7
    )
    document = with_suite(brief_document(TARGET, traffic))
    wrong = document | {"behaviour": {"only": ["max-tokens", "unheard-of"]}}
    with pytest.raises(BadBrief, match=r"behaviour\.only: there is no case called unheard-of"):
        freeze_brief(revision=create_brief(route=route, source=json.dumps(wrong), by=engineer), by=engineer)

    found = create_brief(route=route, source=json.dumps(document), by=engineer)
    freeze_brief(revision=found, by=engineer)
    start_brief(revision=found, by=engineer)
    boot = until_behaviour(found)
    plan = boot.campaign.plan["suite"]
    assert [one["id"] for one in plan["cases"]] == [one.id for one in CASES if one.id in ASKED]
    assert "greedy-parity" in plan["left_out"]
    finish(boot, None)
    play_to_the_end(found)
    verdict = found.verdicts.get()
    assert any(f"of these cases alone: {', '.join(ASKED)}" in one for one in verdict.document["limits"])
    row = next(one for one in verdict.document["guardrails"] if one["id"] == RAIL["id"])
    assert "of the suite's cases were not asked, so no text was compared with the baseline's" in row["said"]


def test_another_version_of_the_suite_is_not_asked_or_judged(revision: BriefRevision) -> None:
    plan = until_behaviour(revision).campaign.plan["suite"]
    assert plan_of_document(plan).document == plan
    with pytest.raises(OtherSuite, match="not the one of this program"):
        plan_of_document(plan | {"left_out": ["a-case-of-another-version"]})
    with pytest.raises(OtherSuite, match="there is no case called unheard-of"):
        plan_of_document(plan | {"cases": [*plan["cases"], plan["cases"][0] | {"id": "unheard-of"}]})


def test_a_brief_whose_guardrails_rest_on_no_suite_asks_none(route: Route, engineer: Account) -> None:
    traffic = import_traffic(
        path=SUPPORT_ASSISTANT, name="demo", by=engineer.username, service=route.service.slug, seed=7
    )
    document = brief_document(TARGET, traffic)
    assert read_brief(json.dumps(document)).suite is None
    with pytest.raises(BadBrief, match="no guardrail has the metric behaviour"):
        read_brief(json.dumps(document | {"behaviour": {"thorough": True}}))
    told = read_brief(json.dumps(document_with(traffic))).suite
    assert told is not None
    assert not told.thorough
