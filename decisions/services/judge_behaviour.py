from __future__ import annotations

from decisions import ledger
from decisions.models import BehaviourResult, BriefRevision
from decisions.selectors.behaviour import answers_of, behaviour_result, suite_boots
from decisions.services.move_revision import subject
from loadtests.behaviour.answers import read_answers
from loadtests.behaviour.declared import rule_of_command
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.rebuild import plan_of_document
from loadtests.evidence.stores import evidence_store
from loadtests.journal import act
from loadtests.models import Boot

ACTOR = "draftproof"


def judge_behaviour(*, revision: BriefRevision) -> None:
    """Judges the answers of the revision's behaviour campaign, once they are all there and nobody has yet. Reads every
    answer and computes for seconds: call it outside of any act."""
    boots = suite_boots(revision) if revision.state == "measuring" else None
    if boots is None or behaviour_result(revision) is not None:
        return
    campaign = boots["candidate"].campaign
    store, answers = evidence_store(), answers_of(boots)
    heard = {arm: read_answers(store.get(digest)) for arm, digest in answers.items()}
    plan = plan_of_document(campaign.plan["suite"])
    check_rule(boots["candidate"], plan)
    found = judge(plan, heard["baseline"], heard["candidate"], heard["control"])
    digest = store.put(found.content)
    with act():
        if behaviour_result(revision) is not None:
            return
        BehaviourResult.objects.create(
            revision=revision,
            campaign=campaign,
            answers=answers,
            digest=digest,
            outcome=found.outcome,
            sentence=found.sentence,
            cases=found.counted,
            broken=list(found.broken),
            exercised=found.exercised,
        )
        ledger.append(
            "behaviour-judged",
            subject=subject(revision),
            actor=ACTOR,
            details={
                "campaign": campaign.pk,
                "outcome": found.outcome,
                "cases": found.counted,
                "broken": list(found.broken),
                "answers": answers,
                "digest": digest,
            },
        )


def check_rule(boot: Boot, plan: SuitePlan) -> None:
    """An engine that we started ran by the rule that was laid down, as its own command says. Raises ValueError."""
    if boot.configuration.document.runtime.engine != "vllm" or boot.died:
        return
    found = rule_of_command(boot.facts.get("command", ()))
    if found != plan.declared.rule:
        raise ValueError(
            f"{boot} accepts drafts by the rule {found}, as its command line says, and the plan laid down "
            f"{plan.declared.rule}: the engine was not started as its configuration says"
        )
