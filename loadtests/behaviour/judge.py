"""What two servers' answers come to: pure, so that kept answers can be judged again."""

from collections.abc import Iterator, Mapping, Sequence

from loadtests.behaviour.answers import Answers
from loadtests.behaviour.case import Case, Heard, Seen, answer_id, cannot_tell, first_difference, not_exercised
from loadtests.behaviour.case import broken as broken_because
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.reply import Choice, Reply
from loadtests.behaviour.result import (
    OPEN_FIRST,
    WORST_FIRST,
    CaseResult,
    CaseRun,
    Difference,
    Drafts,
    FalseAlarms,
    Finding,
    Outcome,
    Server,
    State,
    SuiteResult,
)

# Characters of a text that a finding shows, around where it differs; the lines of evidence hold all of it.
MOST_SHOWN = 2_000
BEFORE = 500


def judge(plan: SuitePlan, baseline: Answers, candidate: Answers, control: Answers | None = None) -> SuiteResult:
    """Compare a candidate's answers with its baseline's, and with what the baseline does against itself.

    Raises ValueError where the answers are not of this plan.
    """
    asked: dict[Server, Answers] = {"baseline": baseline, "candidate": candidate}
    if control is not None:
        asked["control"] = control
    for name, answers in asked.items():
        if answers.plan_sha256 != plan.digest:
            raise ValueError(f"the {name}'s answers are of another plan: {answers.plan_sha256}, not {plan.digest}")
    cases = tuple(judged(plan, case, baseline, candidate, control) for case in plan.cases)
    problems = tuple(problems_of(asked, plan))
    drafts = candidate.total
    exercised = bool(drafts.accepted) and bool(drafts.rejected)
    outcome = outcome_of(plan, cases, asked, problems, exercised)
    return SuiteResult(
        outcome=outcome,
        sentence=f"{sentence_of(outcome, cases, asked, problems, drafts, exercised)}{left_out_words(plan)}",
        exercised=exercised,
        cases=cases,
        drafts=drafts,
        declared=plan.declared,
        false_alarms=FalseAlarms(alpha=plan.alpha, tests=plan.tests),
        left_out=plan.left_out,
        plan=plan.document,
        plan_sha256=plan.digest,
        asked={name: answers.asked for name, answers in asked.items()},
        problems=problems,
    )


def judged(plan: SuitePlan, case: Case, baseline: Answers, candidate: Answers, control: Answers | None) -> CaseResult:
    runs = tuple(
        judged_run(
            Heard(
                case.id,
                manner,
                baseline.seen(case.id, manner),
                candidate.seen(case.id, manner),
                None if control is None else control.seen(case.id, manner),
                plan.alpha_of(case),
                plan.settings,
                candidate.drafts_of(case.id, manner),
            ),
            case,
            candidate,
        )
        for manner in case.manners_of(plan.settings)
    )
    state, said = together(case, runs)
    return CaseResult(
        id=case.id,
        title=case.title,
        tier=case.tier,
        state=state,
        said=said,
        runs=runs,
        needs=case.needs,
        descends_from=case.descends_from,
        source=case.source,
    )


def judged_run(heard: Heard, case: Case, candidate: Answers) -> CaseRun:
    finding = settled(case, heard, candidate)
    alone: dict[Server, Finding] = {}
    if finding is None and case.rule is not None:
        alone = {"baseline": case.rule(heard.baseline), "candidate": case.rule(heard.candidate)}
        finding = beside(alone["baseline"], alone["candidate"])
    elif finding is None:
        assert case.judge is not None
        finding = case.judge(heard)
    if case.drafts and finding.state == "held" and heard.drafts.proposed == 0:
        finding = not_exercised("no draft was proposed")
    return CaseRun(
        manner=heard.manner.id,
        finding=placed(finding, heard),
        drafts=heard.drafts,
        requests=len(heard.candidate),
        baseline=placed(alone["baseline"], heard) if alone else None,
        candidate=placed(alone["candidate"], heard) if alone else None,
    )


def settled(case: Case, heard: Heard, candidate: Answers) -> Finding | None:
    """What requests that were not answered make of a case, before its rule is looked at; None where all were."""
    if not heard.candidate or not heard.baseline:
        who = "candidate" if not heard.candidate else "baseline"
        return cannot_tell(f"the {who} was not asked: it had stopped answering, or the suite was stopped")
    if (lost := first(heard.baseline, "failed")) is not None:
        return cannot_tell(f"the baseline gave no answer to {lost[0]}: {lost[1].error}")
    if (lost := first(heard.candidate, "failed")) is not None:
        label, reply = lost
        return broken_because(
            f"no answer to {label}, where the baseline gives one: {reply.error}",
            Difference(answer=label, at=0, baseline=None, candidate=""),
        )
    if case.refusals:
        return None
    return refused(case, heard)


def refused(case: Case, heard: Heard) -> Finding | None:
    old, new = first(heard.baseline, "refused"), first(heard.candidate, "refused")
    if old is None and new is None:
        return None
    fields = ", ".join(case.may_refuse)
    if old is None:
        assert new is not None
        error = (new[1].error or "").rstrip(".")
        said = f"a change of behaviour: the candidate refuses what the baseline answers ({error})"
        if case.may_refuse and not heard.settings.uses.intersection(case.may_refuse):
            return Finding(state="changed", said=f"{said}; the service was not said to use {fields}")
        return broken_because(said, Difference(answer=new[0], at=0, baseline=None, candidate=""))
    if new is None and case.may_refuse:
        return Finding(state="changed", said=f"the candidate takes {fields}, which the baseline refuses")
    return Finding(state="unsupported", said=f"{why_unsupported(old[1])}: {old[1].error}")


def why_unsupported(refusal: Reply) -> str:
    if "--tool-call-parser" in (refusal.error or ""):
        return "the server was started without a tool-call parser (tool_call_parser among its arguments)"
    return "the baseline refuses it"


def first(seen: Seen, status: str) -> tuple[str, Reply] | None:
    return next(((label, reply) for label, reply in seen.items() if reply.status == status), None)


def beside(baseline: Finding, candidate: Finding) -> Finding:
    """A rule that needs no baseline, judged on either: where the baseline breaks it too, nothing is said about
    speculation."""
    if candidate.state == "broken" and baseline.state == "broken":
        said = f"the baseline breaks it as well, so it says nothing about speculation: {baseline.said}"
        return Finding(state="cannot_tell", said=said, differences=candidate.differences)
    if candidate.state == "broken" and baseline.state != "held":
        said = f"{candidate.said} (of the baseline it can't be told: {baseline.said})"
        return candidate.model_copy(update={"said": said})
    return candidate


def placed(finding: Finding, heard: Heard) -> Finding:
    """With the lines' ids for labels, and with the baseline's text beside the candidate's."""
    shown = tuple(placed_difference(one, heard) for one in finding.differences)
    return finding.model_copy(update={"differences": shown})


def placed_difference(one: Difference, heard: Heard) -> Difference:
    old, at = one.baseline, one.at
    if old is None and (reply := heard.baseline.get(one.answer)) is not None:
        old = visible(choice_of(reply, one.choice))
        at = at or first_difference(old, one.candidate)
    begins = max(0, at - BEFORE)
    end = begins + MOST_SHOWN
    return Difference(
        answer=answer_id(heard.case, heard.manner, one.answer),
        choice=one.choice,
        at=at,
        begins=begins,
        baseline=None if old is None else old[begins:end],
        candidate=one.candidate[begins:end],
        expected=None if one.expected is None else one.expected[begins:end],
    )


def choice_of(reply: Reply, index: int) -> Choice:
    return next((one for one in reply.choices if one.index == index), Choice(index))


def visible(choice: Choice) -> str:
    """What a user sees of a choice; the arguments of a tool call where there is no text."""
    return choice.text or "\n".join(f"{call.name}({call.arguments})" for call in choice.calls)


def together(case: Case, runs: Sequence[CaseRun]) -> tuple[State, str]:
    """A case over all its manners: broken in one is broken; held in one is held unless another says worse, and an open
    comparison is worse than one that held. It counts only where drafts are known to have been proposed in one."""
    order: tuple[State, ...] = OPEN_FIRST if case.tests else WORST_FIRST
    state: State = next((one for one in order if any(run.finding.state == one for run in runs)), "cannot_tell")
    those = [run for run in runs if run.finding.state == state]
    said = f"{', '.join(run.manner for run in those)}: {those[0].finding.said}" if those else "it was not asked"
    proposed = [run.drafts.proposed for run in runs]
    if state == "held" and case.drafts and not any(proposed):
        return "cannot_tell", "nothing told whether a draft was proposed"
    return state, said


def problems_of(asked: Mapping[Server, Answers], plan: SuitePlan) -> Iterator[str]:
    for name, answers in asked.items():
        if answers.died is not None:
            yield f"the {name} stopped answering: {answers.died}"
        if answers.stopped:
            yield f"the {name} was not asked to the end"
        if name != "candidate" and answers.total.proposed:
            yield f"the {name} proposed {answers.total.proposed} drafts: it is no baseline"
    if plan.declared.rule == "synthetic":
        yield f"the candidate's configuration makes its acceptance up, and with it its output ({plan.declared.source})"


def outcome_of(
    plan: SuitePlan,
    cases: Sequence[CaseResult],
    asked: Mapping[Server, Answers],
    problems: Sequence[str],
    exercised: bool,
) -> Outcome:
    if plan.declared.rule == "synthetic":
        return "broken"
    if any(name != "candidate" and (one.died is not None or one.total.proposed) for name, one in asked.items()):
        return "failed"
    if any(one.state == "broken" for one in cases) or asked["candidate"].died is not None:
        return "broken"
    if any(one.stopped for one in asked.values()):
        return "failed"
    if not exercised:
        return "not_exercised" if asked["candidate"].total.proposed is not None else "cannot_tell"
    # Every comparison of outputs has to have come to something: one that is left open proves nothing.
    settled_all = all(one.state == "held" for one in cases if one.tier in ("T1", "T3"))
    return "held" if settled_all and any(one.state == "held" for one in cases) else "cannot_tell"


def sentence_of(
    outcome: Outcome,
    cases: Sequence[CaseResult],
    asked: Mapping[Server, Answers],
    problems: Sequence[str],
    drafts: Drafts,
    exercised: bool,
) -> str:
    by_state = {state: [one.id for one in cases if one.state == state] for state in WORST_FIRST}
    counted = sum(one.counted for one in cases)
    told = drafts_sentence(drafts)
    if outcome == "failed":
        return f"The suite came to no end: {'; '.join(problems)}."
    if outcome == "broken":
        named = [*by_state["broken"], *(["the server itself"] if asked["candidate"].died is not None else [])]
        what = f"{len(by_state['broken'])} of {counted} cases broke: {', '.join(named)}." if named else ""
        return " ".join([what, *(f"{one[0].upper()}{one[1:]}." for one in problems)]).strip()
    if outcome == "not_exercised":
        return f"Nothing is shown: {told}, and the suite needs drafts that were accepted and drafts that were rejected."
    if outcome == "cannot_tell":
        compared = [one.id for one in cases if one.tier in ("T1", "T3") and one.state != "held"]
        open_ = ", ".join(compared) or "; ".join(problems) or "no case came to anything"
        return f"It can't be told whether behaviour is preserved ({open_}); {told}."
    changed = (
        f" Refused openly by the candidate alone: {', '.join(by_state['changed'])}." if by_state["changed"] else ""
    )
    return f"{len(by_state['held'])} of {len(cases)} cases were exercised and held, none broke; {told}.{changed}"


def left_out_words(plan: SuitePlan) -> str:
    """What was not asked can't have been shown: it is said beside what was."""
    if not plan.left_out:
        return ""
    compared = [case.id for case in plan.cases if case.tier in ("T1", "T3")]
    without = "" if compared else ", so no text was compared with the baseline's"
    return f" {len(plan.left_out)} of the suite's cases were not asked{without}."


def drafts_sentence(drafts: Drafts) -> str:
    if drafts.proposed is None:
        return "nothing tells whether drafts were proposed"
    return f"{drafts.proposed} draft tokens were proposed, {drafts.accepted} of them accepted"
