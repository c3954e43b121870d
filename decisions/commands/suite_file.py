"""The result of the preserved-behaviour suite as ``draftproof behaviour`` leaves it, for a verdict on directories."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decisions.rules.behaviour import Behaviour
from decisions.rules.brief import Brief, Suite
from loadtests.behaviour.answers import Answers, read_answers
from loadtests.behaviour.judge import judge
from loadtests.behaviour.rebuild import OtherSuite, plan_of_document
from loadtests.behaviour.result import SuiteResult, read_result
from loadtests.behaviour.suite import answers_name
from loadtests.canonical import digest, digest_of
from loadtests.evidence.directories import UnusableEvidence

# What the brief lays down, by the name that the plan has for it and the option that asks so.
LAID_DOWN = {
    "temperature": ("temperature", "--temperature"),
    "top_p": ("top_p", "--top-p"),
    "top_k": ("top_k", "--top-k"),
    "tie_nats": ("tie_nats", "--tie-nats"),
    "thorough": ("thorough", "--thorough"),
    "concurrency": ("concurrency", "--concurrency"),
    "false_alarm": ("alpha", "--alpha"),
}


def behaviour_in(path: Path, brief: Brief) -> Behaviour:
    """What the file says, as a verdict takes it. Raises UnusableEvidence where it is no result, denies itself or the
    answers beside it, or is of another suite than the brief asks for."""
    content = path.read_bytes()
    try:
        result = read_result(content)
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise UnusableEvidence(f"{path} is no result.json of draftproof behaviour: {first}") from None
    if brief.suite is None:
        raise UnusableEvidence(
            f"{path}: no guardrail of the brief has the metric behaviour, so the suite has no part in its verdict: "
            "leave --behaviour out, or write the guardrail"
        )
    if wrong := next(misfits(result, brief.suite), None):
        raise UnusableEvidence(f"{path}: {wrong}")
    check_answers(path, result)
    return Behaviour(result.outcome, result.counted, result.broken, result.sentence, digest(content))


def misfits(result: SuiteResult, asked: Suite) -> Iterator[str]:
    """Why the result is not of the suite that the brief asks for."""
    if result.outcome == "held" and result.broken:
        yield f"its outcome is held, and {', '.join(result.broken)} is broken"
    if digest_of(result.plan) != result.plan_sha256:
        yield "its plan is not the one that its plan_sha256 names: it was changed by hand"
    if not {"baseline", "candidate"} <= result.asked.keys():
        yield "it names no answers of baseline and candidate: it was changed by hand"
    for field, (name, option) in LAID_DOWN.items():
        wanted, found = getattr(asked, field), result.plan.get(name)
        if wanted != found:
            yield f"the suite was asked with {name} {found}, and the brief says {field} {wanted}: ask again, {option}"
    missing = sorted(set(asked.uses) - set(listed(result.plan.get("uses"))))
    if missing:
        yield f"the brief says that the service uses {', '.join(missing)}: ask again with --uses"
    own = [one for one in result.cases if one.source == "owner"]
    if asked.cases is not None and not own:
        yield "the brief asks the service's own cases too, and none was asked: ask again with --cases"
    left_out = {str(one) for one in result.left_out}
    names = {one.id for one in result.cases if one.source == "registry"}
    short = sorted(set(asked.only) - names) if asked.only else sorted(left_out)
    if short:
        yield f"{len(short)} of the cases that the brief asks for were left out, {short[0]} among them: ask again"


def listed(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def check_answers(path: Path, result: SuiteResult) -> None:
    """Where the answers lie beside the result, they are those that it names, and give it once more."""
    found: dict[str, Answers] = {}
    for server, asked in result.asked.items():
        beside = path.with_name(answers_name(server))
        if not beside.exists():
            return
        try:
            content = beside.read_bytes()
        except OSError as error:
            raise UnusableEvidence(f"{beside} can't be read ({error.strerror or error})") from None
        if digest(content) != asked.answers_sha256:
            raise UnusableEvidence(
                f"{beside} is not the file that {path.name} names: it was changed, or is of another run"
            )
        try:
            found[server] = read_answers(content)
        except ValueError:
            raise UnusableEvidence(f"{beside} holds no answers of draftproof behaviour") from None
        if found[server].plan_sha256 != result.plan_sha256:
            raise UnusableEvidence(f"{beside} holds answers of another plan than {path.name} names")
    try:
        plan = plan_of_document(result.plan)
    except OtherSuite:
        # Of another version: what that one's rules made of the answers stands as it was written.
        return
    if judge(plan, found["baseline"], found["candidate"], found.get("control")) != result:
        raise UnusableEvidence(f"{path} is not what the answers beside it come to: it was changed by hand")
