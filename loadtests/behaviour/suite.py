"""The whole suite against servers that run at the same time."""

import asyncio
from collections.abc import Callable

from loadtests.behaviour.answers import Answers
from loadtests.behaviour.collect import Tell, collect
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.result import Server, SuiteResult
from loadtests.generator.endpoint import Endpoint
from loadtests.generator.reach import Unreachable, reach

# Called with the name and the bytes of each file of evidence: three of answers, then the result.
Keep = Callable[[str, bytes], None]
RESULT = "result.json"


def answers_name(server: Server) -> str:
    return f"{server}.jsonl"


async def run_suite(
    baseline: Endpoint,
    candidate: Endpoint,
    plan: SuitePlan,
    keep: Keep,
    *,
    control: Endpoint | None = None,
    on_progress: Tell | None = None,
    stop: asyncio.Event | None = None,
) -> SuiteResult:
    """Ask baseline, control and candidate in turn, never two at once: on shared hardware they would slow each other
    down. Without an address of its own the control is the baseline again.

    Whoever can't run two servers at a time calls ``collect`` for each and then ``judge``. Raises Unreachable where one
    of them doesn't answer before anything was asked, ClientFault; what ``keep`` raises ends the suite.
    """
    for endpoint in (baseline, candidate, *([control] if control else [])):
        await reach(endpoint)
    addresses: dict[Server, Endpoint] = {"baseline": baseline, "control": control or baseline, "candidate": candidate}
    answers: dict[Server, Answers] = {}
    for server, endpoint in addresses.items():
        if server == "control" and not any(case.control for case in plan.cases):
            continue
        over = any(one.died is not None or one.stopped for one in answers.values())
        if over or (stop is not None and stop.is_set()):
            answers[server] = unasked(endpoint, plan, server)
            continue
        try:
            answers[server] = await collect(endpoint, plan, server=server, on_progress=on_progress, stop=stop)
        except Unreachable as error:
            answers[server] = unasked(endpoint, plan, server, died=str(error))
    result = judge(plan, answers["baseline"], answers["candidate"], answers.get("control"))
    for server, one in answers.items():
        keep(answers_name(server), one.content)
    keep(RESULT, result.content)
    return result


def unasked(endpoint: Endpoint, plan: SuitePlan, server: Server, *, died: str | None = None) -> Answers:
    """Of a server that is asked nothing, for there is nothing left to compare its answers with, or it is gone."""
    return Answers(server, endpoint.base_url, plan.digest, (), died=died, stopped=died is None)
