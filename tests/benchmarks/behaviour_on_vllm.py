"""The whole standard behaviour suite on real vLLM: how long it takes, what n-gram comes to against the baseline, and
whether five further boots of the baseline raise an alarm against it. ``make bench-behaviour-engine``; writes
docs/benchmarks/behaviour_engine.md, and exits 1 where the baseline raises more alarms against itself than declared.

Every arm is a boot of its own, and no two run at a time. What was answered is kept in the scratch directory: a run that
was ended goes on there, as long as the suite asks the same.
"""

import asyncio
import inspect
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy import stats

from loadtests.behaviour import case, collect, prompts
from loadtests.behaviour.answers import Answers, read_answers
from loadtests.behaviour.cases import asking, lengths, logprobs, parity, settings, stops, streaming, structured, tools
from loadtests.behaviour.collect import Progress, runs_alone
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.result import Drafts, Server, SuiteResult
from loadtests.canonical import digest_of
from loadtests.configurations import Speculative
from loadtests.evidence.manifest import this_host
from loadtests.generator.endpoint import Endpoint
from tests.support.cpu_engine import cpu_engine

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "docs" / "benchmarks" / "behaviour_engine.md"
SCRATCH = ROOT / "var" / "bench-behaviour-engine"
ASKED_WITH = (asking, case, collect, lengths, logprobs, parity, prompts, settings, stops, streaming, structured, tools)
NGRAM = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=4)
ENGINE: dict[str, Any] = {"max_num_seqs": 64, "tool_call_parser": "hermes"}
TIMES = 5
MINUTES = 8
# A share of alarms above the declared one is called so at this level.
ALPHA = 0.01
DRAFTED = Drafts(proposed=2, accepted=1, told_by="answers")


@dataclass(frozen=True)
class Arm:
    """``seconds`` of the whole asking by part: what ran alone by its case, everything that ran mixed as one."""

    answers: Answers
    boot_s: float
    seconds: Mapping[str, float]

    @property
    def asked_s(self) -> float:
        return sum(self.seconds.values())


def scratch(plan: SuitePlan) -> Path:
    """One for each suite: answers to other questions are no answers."""
    sources = {one.__name__: inspect.getsource(one) for one in ASKED_WITH}
    found = SCRATCH / digest_of(sources | {"plan": plan.document, "engine": ENGINE})[:16]
    found.mkdir(parents=True, exist_ok=True)
    return found


def arm(name: str, server: Server, speculative: Speculative | None, plan: SuitePlan) -> Arm:
    """A boot, and the whole of what the suite asks of it; what was kept of it, if it was asked before."""
    answers, told = (scratch(plan) / f"{name}.{suffix}" for suffix in ("jsonl", "json"))
    if not told.exists():
        found = booted_and_asked(name, server, speculative, plan)
        answers.write_bytes(found.answers.content)
        told.write_text(json.dumps({"boot_s": found.boot_s, "seconds": found.seconds}))
    return Arm(read_answers(answers.read_bytes()), **json.loads(told.read_text()))


def booted_and_asked(name: str, server: Server, speculative: Speculative | None, plan: SuitePlan) -> Arm:
    begun = time.monotonic()
    with cpu_engine(scratch(plan) / f"{name}-boot", speculative, **ENGINE) as engine:
        boot_s = round(time.monotonic() - begun, 1)
        seconds: dict[str, float] = {}
        last = time.monotonic()

        def heard(progress: Progress) -> None:
            nonlocal last
            now = time.monotonic()
            part = part_of(plan, server, progress.last)
            seconds[part] = round(seconds.get(part, 0.0) + now - last, 1)
            last = now

        asking = collect.collect(Endpoint(engine.base_url, engine.model), plan, server=server, on_progress=heard)
        found = Arm(asyncio.run(asking), boot_s, seconds)
    asked = found.answers.asked
    print(f"{name}: boot {boot_s} s, {asked.requests} requests in {found.asked_s:.0f} s", file=sys.stderr, flush=True)
    return found


def part_of(plan: SuitePlan, server: Server, run: str) -> str:
    (found,) = [one for one in plan.runs if f"{one[0].id} {one[1].id}" == run]
    if not runs_alone(plan, server, *found):
        return "everything concurrent"
    if found[0].tier == "T2":
        return f"rules, {found[1].load}"
    return f"{found[0].id}, {found[1].load}"


def as_if_drafted(answers: Answers) -> Answers:
    """A baseline proposes no drafts, so that nothing of it would count. With one in every answer all tests are made."""
    lines = tuple(replace(one, reply=replace(one.reply, draft_tokens=2, accepted_tokens=1)) for one in answers.lines)
    return replace(answers, lines=lines, drafts=dict.fromkeys(answers.drafts, DRAFTED), total=DRAFTED)


def page(arms: Mapping[str, Arm], found: SuiteResult, again: Sequence[SuiteResult]) -> str:
    host = this_host()
    suite = [arms[one] for one in ("baseline", "control", "n-gram")]
    asked_s, boots_s = (sum(values) for values in ([one.asked_s for one in suite], [one.boot_s for one in suite]))
    parts = list(dict.fromkeys(part for one in suite for part in one.seconds))
    rows = "\n".join(
        f"| {part} | " + " | ".join(f"{one.seconds[part]:.0f}" if part in one.seconds else "" for one in suite) + " |"
        for part in parts
    )
    alarms = sum(bool(one.broken) for one in again)
    p = float(stats.binom.sf(alarms - 1, len(again), found.false_alarms.alpha))
    each = "\n".join(f"| {number} | {run_line(one)} |" for number, one in enumerate(again, 1))
    states = Counter(one.state for one in found.cases)
    others = "\n".join(f"| {one.id} | {one.state} | {one.said} |" for one in found.cases if one.state != "held")
    return f"""# The behaviour suite on real vLLM

Written by `make bench-behaviour-engine` (`tests/benchmarks/behaviour_on_vllm.py`): the whole standard suite, all
{len(found.cases)} cases, against {suite[0].answers.version} with SmolLM2-135M-Instruct in bfloat16
(`max_num_seqs` {ENGINE["max_num_seqs"]}, tool-call parser {ENGINE["tool_call_parser"]}), 8 requests at once. Every arm
is a boot of its own, and no two run at a time.

Machine: {host.processor}, {host.logical_cpus} cores. Other programs ran on it at the same time.

## How long it takes

Asking takes {asked_s / 60:.1f} minutes in all, of {MINUTES} that it may take; the three boots {boots_s / 60:.1f} more.

| seconds | baseline | control | n-gram |
|---|---:|---:|---:|
{rows}
| all of it | {" | ".join(f"{one.asked_s:.0f}" for one in suite)} |
| boot | {" | ".join(f"{one.boot_s:.0f}" for one in suite)} |
| requests | {" | ".join(str(one.answers.asked.requests) for one in suite)} |

## n-gram against the baseline

{found.sentence}

{", ".join(f"{count} {state}" for state, count in states.most_common())}. Those that were not held:

| case | state | |
|---|---|---|
{others}

{power_line(found)}

## The baseline against itself

{len(again)} further boots of the baseline, each judged as a candidate, as if drafts had been proposed in every answer:
{alarms} alarms, where a share of {found.false_alarms.alpha:.0%} is declared (so many or more come by chance in
{p:.0%} of such series).

| boot | outcome | broken | can't be told | greedy, unexcused (control) | p of sampled parity | smallest shift noticed |
|---:|---|---|---|---|---:|---:|
{each}
"""


def run_line(one: SuiteResult) -> str:
    greedy = next(case for case in one.cases if case.id == "greedy-parity")
    numbers: list[dict[str, Any]] = [dict(run.finding.numbers) for run in greedy.runs]
    unexcused = ", ".join(
        f"{each['candidate']['unexcused']} ({each['control']['unexcused']})" for each in numbers if "candidate" in each
    )
    sampled = next(case for case in one.cases if case.id == "sampled-parity").runs[0].finding.numbers
    open_ = ", ".join(one.named("cannot_tell")) or "none"
    p, shift = sampled.get("p"), sampled.get("smallest_shift")
    told = ["" if p is None else f"{p:.2f}", "" if shift is None else f"{shift:.1%}"]
    return " | ".join([one.outcome, ", ".join(one.broken) or "none", open_, unexcused, *told])


def power_line(found: SuiteResult) -> str:
    greedy = next(case for case in found.cases if case.id == "greedy-parity")
    powers = ", ".join(f"{run.manner} {run.finding.numbers.get('power', 0.0):.2f}" for run in greedy.runs)
    sampled = next(case for case in found.cases if case.id == "sampled-parity").runs[0].finding.numbers
    shift = sampled.get("smallest_shift")
    noticed = "no shift" if shift is None else f"a shift of {shift:.1%} of the mass in every prompt"
    return (
        f"What it would have noticed: greedy tokens flipped at 2 % of the positions, with a chance of {powers}; "
        f"{noticed} in sampled text, with a chance of {sampled.get('chance', 0.0):.0%}."
    )


def main() -> int:
    plan = suite_plan()
    arms = {"baseline": arm("baseline", "baseline", None, plan), "control": arm("control", "control", None, plan)}
    arms["n-gram"] = arm("n-gram", "candidate", NGRAM, plan)
    baseline, control = arms["baseline"].answers, arms["control"].answers
    found = judge(plan, baseline, arms["n-gram"].answers, control)
    again = []
    for number in range(1, TIMES + 1):
        other = arm(f"baseline-again-{number}", "candidate", None, plan).answers
        again.append(judge(plan, baseline, as_if_drafted(other), control))
        print(f"baseline again, {number}: {again[-1].sentence}", file=sys.stderr, flush=True)
    written = page(arms, found, again)
    RESULT.write_text(written, encoding="utf-8")
    print(written)
    alarms = sum(bool(one.broken) for one in again)
    return 1 if stats.binom.sf(alarms - 1, len(again), plan.alpha) <= ALPHA else 0


if __name__ == "__main__":
    sys.exit(main())
