"""The whole behaviour suite on real vLLM, and how long it takes: the baseline against itself, five times, and n-gram
against it. ``make bench-behaviour-engine``; exits 1 where the baseline raises an alarm against itself.

Each time all of it is asked again. What every case came to is printed as JSON.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loadtests.behaviour.answers import Answers
from loadtests.behaviour.collect import collect
from loadtests.behaviour.judge import judge
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.result import Server, SuiteResult
from loadtests.configurations import Speculative
from loadtests.generator.endpoint import Endpoint
from tests.support.cpu_engine import cpu_engine
from workers.engines.base import RunningEngine

NGRAM = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=4)
MOST, TIMES = 8, 5


def asked(engine: RunningEngine, plan: SuitePlan, server: Server, told: dict[str, float], what: str) -> Answers:
    begun = time.monotonic()
    answers = asyncio.run(collect(Endpoint(engine.base_url, engine.model), plan, server=server))
    told[what] = round(time.monotonic() - begun, 1)
    print(f"{what}: {len(answers.lines)} requests in {told[what]} s", file=sys.stderr, flush=True)
    return answers


def summary(result: SuiteResult) -> dict[str, Any]:
    return {
        "outcome": result.outcome,
        "sentence": result.sentence,
        "states": {case.id: case.state for case in result.cases},
        "broken": {case.id: case.said for case in result.cases if case.state == "broken"},
    }


def main() -> int:
    plan, seconds, again = suite_plan(), dict[str, float](), list[SuiteResult]()
    with cpu_engine(Path(tempfile.mkdtemp()), None, max_num_seqs=MOST) as engine:
        baseline, control = (asked(engine, plan, one, seconds, one) for one in ("baseline", "control"))
        for number in range(TIMES):
            other = asked(engine, plan, "candidate", seconds, f"baseline again, {number + 1}")
            again.append(judge(plan, baseline, other, control))
    with cpu_engine(Path(tempfile.mkdtemp()), NGRAM, max_num_seqs=MOST) as engine:
        found = judge(plan, baseline, asked(engine, plan, "candidate", seconds, "n-gram"), control)
    whole = sum(seconds[one] for one in ("baseline", "control", "n-gram"))
    told = {"seconds": seconds, "whole_suite_s": whole, "n-gram": summary(found)}
    print(json.dumps(told | {"again": [summary(one) for one in again]}, indent=2))
    return 1 if any(one.broken for one in again) else 0


if __name__ == "__main__":
    sys.exit(main())
