"""Briefs whose behaviour campaign has come this far or that far, with answers and a result made up by hand.

Rows, evidence and pages are the real ones; nothing is asked of anybody, and nothing is judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import yaml
from django.urls import reverse
from django.utils import timezone

from config.demo import brief_document
from decisions.models import Account, BehaviourResult, BriefCampaign, BriefRevision, Route, Service
from decisions.services.create_brief import create_brief
from decisions.services.freeze_brief import freeze_brief
from decisions.services.keep_cases import keep_cases
from loadtests.behaviour.answers import Answers, Line
from loadtests.behaviour.case import apart
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import (
    Asked,
    CaseResult,
    CaseRun,
    Declared,
    Difference,
    Drafts,
    FalseAlarms,
    Finding,
    Outcome,
    Server,
    State,
    SuiteResult,
    Tier,
)
from loadtests.demo import SUPPORT_ASSISTANT
from loadtests.evidence.stores import evidence_store
from loadtests.models import Boot, Campaign, SuiteRun
from loadtests.services.create_campaign import create_campaign
from loadtests.services.import_traffic import import_traffic
from tests.support.house import CAST, person
from tests.support.play import TARGET

BASELINE_TEXT = "The red boat follows the green boat and the green boat follows the blue boat."
CANDIDATE_TEXT = "The red boat follows the green boat and the green coat follows the blue boat."
# Where they part, from 0.
PARTS_AT = 50
OWN_TITLE, OWN_PROMPT = "A refund is a form", "Fill in the refund form of Mrs Abernathy, order 4711."
OWN_ANSWER = "Dear Mrs Abernathy, your 48 euros are on their way."
OWN_SAID = f"the text is not JSON: {OWN_ANSWER}"
OWN_CASES = f"""
schema: draftproof.behaviour-cases/1
cases:
  - id: refund-form
    title: {OWN_TITLE}
    request: {{messages: [{{role: user, content: "{OWN_PROMPT}"}}], max_tokens: 40}}
    expect: {{json_schema: {{type: object}}}}
"""
SECRETS = (OWN_TITLE, OWN_PROMPT, OWN_ANSWER, "Abernathy")
SETTINGS: dict[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.95,
    "top_k": 0,
    "thorough": False,
    "tie_nats": 0.125,
    "uses": ["logprobs"],
    "concurrency": 8,
    "alpha": 0.01,
    "seed": 3,
    "timeout_s": 60.0,
    "left_out": ["tool-choice"],
}
GREEDY: dict[str, Any] = {
    "prompts": 32,
    "candidate": {"positions": 900, "unexcused": 9},
    "control": {"positions": 910, "unexcused": 0},
    "p": 0.00195,
    "power": 0.93,
    "flip_rate": 0.02,
    "alpha": 0.0017,
}


def run_of(
    manner: str,
    state: State,
    said: str = "as it should be",
    *differences: Difference,
    proposed: int | None = 120,
    numbers: dict[str, Any] | None = None,
    alone: bool = False,
) -> CaseRun:
    drafts = Drafts() if proposed is None else Drafts(proposed=proposed, accepted=proposed // 2, told_by="answers")
    finding = Finding(state=state, said=said, differences=differences, numbers=numbers or {})
    rule = {"baseline": Finding(state="held", said="it keeps the rule"), "candidate": finding} if alone else {}
    return CaseRun(manner=manner, finding=finding, drafts=drafts, requests=2, **rule)


def case_of(id_: str, title: str, tier: Tier, state: State, *runs: CaseRun, **more: Any) -> CaseResult:
    return CaseResult(id=id_, title=title, tier=tier, state=state, said=state, runs=runs, needs=(), **more)


def difference(answer: str) -> Difference:
    return apart(answer, BASELINE_TEXT, CANDIDATE_TEXT)


def registry_cases(*, broken: bool) -> list[CaseResult]:
    state: State = "broken" if broken else "held"
    found = [difference("greedy-parity/concurrent-stream/00-1")] if broken else []
    said = "9 divergences that no tie excuses, in 9 of 32 prompts" if broken else "none beyond the control’s"
    return [
        case_of(
            "greedy-parity",
            "Greedy text is the baseline's, but where its two likeliest tokens tie",
            "T1",
            state,
            run_of("serial", "held", numbers=GREEDY),
            run_of("concurrent-stream", state, said, *found, numbers=GREEDY),
            run_of("cached", "held", numbers=GREEDY),
            descends_from=(54506, 41758),
        ),
        case_of("max-tokens", "An answer is as long as max_tokens", "T2", "held", run_of("serial", "held", alone=True)),
        case_of(
            "min-p", "min_p is honoured or refused", "T2", "changed", run_of("serial", "changed", "it refuses min_p")
        ),
        case_of("grammar", "A grammar holds", "T2", "unsupported", run_of("serial", "unsupported", "HTTP 400")),
        case_of(
            "tool-calls",
            "Arguments parse",
            "T2",
            "not_exercised",
            run_of("serial", "not_exercised", "no draft was proposed", proposed=0),
        ),
        case_of(
            "sampled-parity",
            "Sampled text is distributed as the baseline's",
            "T3",
            "cannot_tell",
            run_of(
                "concurrent", "cannot_tell", "the control differs too", proposed=None, numbers={"smallest_shift": 0.08}
            ),
        ),
    ]


def own_case() -> CaseResult:
    shown = Difference(answer="refund-form/serial/asked", at=0, baseline="{}", candidate=OWN_ANSWER)
    return case_of(
        "refund-form",
        OWN_TITLE,
        "T2",
        "broken",
        run_of("serial", "broken", OWN_SAID, shown, numbers={"said": OWN_ANSWER, "answers": 1}, alone=True),
        source="owner",
    )


def result_of(
    cases: list[CaseResult],
    *,
    outcome: Outcome = "held",
    sentence: str = "4 of 6 cases were exercised and held, none broke; 960 draft tokens were proposed.",
    exercised: bool = True,
    declared: Declared | None = None,
    problems: tuple[str, ...] = (),
) -> SuiteResult:
    many: dict[Server, int] = {"baseline": 1200, "control": 900, "candidate": 1200}
    asked = {
        name: Asked(
            base_url="http://127.0.0.1:8000/v1", requests=requests, failed=0, answers_sha256="a" * 64, version="0.32.0"
        )
        for name, requests in many.items()
    }
    return SuiteResult(
        outcome=outcome,
        sentence=sentence,
        exercised=exercised,
        cases=tuple(cases),
        drafts=Drafts(proposed=960, accepted=400, told_by="counters"),
        declared=declared or Declared(rule="exact", source="the candidate's configuration"),
        false_alarms=FalseAlarms(alpha=0.01, tests=6),
        plan=SETTINGS | {"cases": []},
        plan_sha256="b" * 64,
        asked=asked,
        problems=problems,
    )


def answers_of(server: Server, cases: list[CaseResult], *, own: bool) -> Answers:
    candidate = server == "candidate"
    text = CANDIDATE_TEXT if candidate else BASELINE_TEXT
    lines = [
        line(case.id, run.manner, label, "Say the rhyme three times.", said, drafts=12 if candidate else None)
        for case in cases
        for run in case.runs
        for label, said in (("00-0", BASELINE_TEXT), ("00-1", text))
        if case.source == "registry"
    ]
    if own:
        lines.append(line("refund-form", "serial", "asked", OWN_PROMPT, OWN_ANSWER if candidate else "{}", drafts=None))
    return Answers(server=server, base_url="http://127.0.0.1:8000/v1", plan_sha256="b" * 64, lines=tuple(lines))


def line(case: str, manner: str, label: str, prompt: str, said: str, *, drafts: int | None) -> Line:
    reply = Reply(
        "answered",
        (Choice(0, (said,), finish_reason="stop"),),
        usage={"completion_tokens": 17},
        draft_tokens=drafts,
        accepted_tokens=drafts and drafts // 2,
    )
    request = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 40}
    return Line(case, manner, label, "chat", request, reply)


# Rows


def suite_brief(route: Route, engineer: Account, title: str, *, own: bool = False, asks: bool = True) -> BriefRevision:
    """Frozen and measuring, with a nominee: what comes before the suite is taken for done."""
    service = route.service
    traffic = import_traffic(
        path=SUPPORT_ASSISTANT, name="Two hours", by=engineer.username, service=service.slug, seed=7
    )
    document = brief_document(TARGET, traffic) | {"title": title, "route": route.slug}
    if asks:
        rail = {"id": "behaviour", "metric": "behaviour", "kind": "absolute", "cell": {"level": "peak"}, "limit": 0}
        document["guardrails"] = [*document["guardrails"], rail]
        document["behaviour"] = {"temperature": 0.7, "tie_nats": 0.125}
    if own:
        kept = keep_cases(service=service, source=OWN_CASES, by=engineer, begun_on=None)
        document["behaviour"] |= {"cases": kept.digest}
    revision = create_brief(route=route, source=yaml.safe_dump(document, sort_keys=False), by=engineer)
    freeze_brief(revision=revision, by=engineer)
    nominee = revision.document.candidates[0].name
    BriefRevision.objects.filter(pk=revision.pk).update(
        state="measuring", nominee=nominee, nomination={"reason": "best"}
    )
    revision.refresh_from_db()
    return revision


def suite_campaign(revision: BriefRevision) -> Campaign:
    document = revision.document
    assert revision.traffic_set
    campaign = create_campaign(
        purpose="behaviour",
        traffic_set=revision.traffic_set,
        brief_digest=revision.digest,
        baseline=document.baseline,
        candidates={revision.nominee: document.configuration(revision.nominee)},
        levels=document.levels,
        peak=document.peak,
        pairs=document.rule.pairs,
        seed=document.rule.seed,
        deadlines={},
        budget_engine_minutes=60,
        max_reattempts=3,
        suite={"cases": []},
        by="draftproof",
    )
    BriefCampaign.objects.create(revision=revision, campaign=campaign)
    return campaign


def running_suite(revision: BriefRevision) -> Boot:
    """The baseline has answered everything, the nominee is in the middle of it."""
    campaign = suite_campaign(revision)
    Campaign.objects.filter(pk=campaign.pk).update(state="running")
    now = timezone.now()
    first, second = campaign.boots.order_by("position")[:2]
    end_boot(first, "c" * 64)
    Boot.objects.filter(pk=second.pk).update(
        state="running",
        worker="worker-1",
        host="host-1",
        claimed_at=now,
        started_at=now,
        ready_at=now,
        heartbeat_at=now,
    )
    SuiteRun.objects.filter(boot=second).update(
        started_at=now, progress={"done": 41, "planned": 96, "last": "max-tokens serial"}
    )
    second.refresh_from_db()
    return second


def end_boot(boot: Boot, answers: str) -> None:
    now = timezone.now()
    Boot.objects.filter(pk=boot.pk).update(
        state="finished", worker="worker-1", started_at=now - timedelta(minutes=3), stopped_at=now
    )
    SuiteRun.objects.filter(boot=boot).update(
        started_at=now,
        ended_at=now,
        answers_digest=answers,
        progress={"done": 95, "planned": 96, "last": "max-tokens serial"},
        findings=["2 of 96 requests got no answer"] if boot.arm == "candidate" else [],
    )


@dataclass(frozen=True)
class Judged:
    revision: BriefRevision
    campaign: Campaign
    row: BehaviourResult
    result: SuiteResult

    def boot(self, arm: str) -> Boot:
        return self.campaign.boots.get(arm=arm)


def answered_campaign(
    revision: BriefRevision, cases: list[CaseResult], *, own: bool
) -> tuple[Campaign, dict[str, str]]:
    campaign = suite_campaign(revision)
    store, digests = evidence_store(), {}
    for boot in campaign.boots.all():
        digests[boot.arm] = store.put(answers_of(boot.arm, cases, own=own).content)  # type: ignore[arg-type]
        end_boot(boot, digests[boot.arm])
    Campaign.objects.filter(pk=campaign.pk).update(state="done")
    campaign.refresh_from_db()
    return campaign, digests


def judged_suite(revision: BriefRevision, *, own: bool = False, broken: bool = True, **more: Any) -> Judged:
    cases = [*registry_cases(broken=broken), *([own_case()] if own else [])]
    names = [one.id for one in cases if one.state == "broken"]
    if names:
        more = {"outcome": "broken", "sentence": f"{len(names)} of 3 cases broke: {', '.join(names)}."} | more
    result = result_of(cases, **more)
    campaign, digests = answered_campaign(revision, cases, own=own)
    row = BehaviourResult.objects.create(
        revision=revision,
        campaign=campaign,
        answers=digests,
        digest=evidence_store().put(result.content),
        outcome=result.outcome,
        sentence=result.sentence,
        cases=result.counted,
        broken=list(result.broken),
        exercised=result.exercised,
    )
    return Judged(revision, campaign, row, result)


@dataclass(frozen=True)
class Suites:
    people: dict[str, Account]
    broken: Judged
    held: Judged
    own: Judged
    running: BriefRevision
    ahead: BriefRevision
    unasked: BriefRevision


def build_suites(password: str) -> Suites:
    people = {name: person(name, password, groups) for name, groups in CAST.items()}
    service = Service.objects.create(slug="support-assistant", name="Support assistant", target="t", pool="cpu")
    service.owners.add(people["owner"])
    route = Route.objects.create(service=service, slug="chat", name="Chat")

    def brief(title: str, **more: Any) -> BriefRevision:
        return suite_brief(route, people["engineer"], title, **more)

    running = brief("It is being asked")
    running_suite(running)
    return Suites(
        people,
        judged_suite(brief("It breaks")),
        judged_suite(brief("It holds"), broken=False),
        judged_suite(brief("It asks cases of its own", own=True), own=True),
        running,
        brief("It waits"),
        brief("It asks for no suite", asks=False),
    )


def tab(revision: BriefRevision, name: str = "brief-behaviour", **more: Any) -> str:
    return reverse(name, kwargs={"brief": revision.brief_id, "number": revision.number, **more})


def run_page(judged: Judged, case: str, manner: str) -> str:
    return tab(judged.revision, "brief-behaviour-run", case=case, manner=manner)
