"""Does the behaviour suite leave a candidate alone that behaves as its baseline? ``make bench-behaviour``. Exits 1
where it raises more false alarms than it declares.

What is finished is appended to a file in the scratch directory, and a run that was ended goes on there with the same
result: everything is drawn from fixed seeds.
"""

import argparse
import inspect
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from loadtests.behaviour import greedy, judge, sampled
from loadtests.behaviour.cases import parity
from loadtests.behaviour.greedy import TIE_NATS
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.result import SuiteResult
from loadtests.canonical import digest_of
from loadtests.evidence.manifest import this_host
from loadtests.statistics.shares import binomial_bounds
from tests.benchmarks import behaviour_world
from tests.benchmarks.behaviour_world import ROUNDED, WORLDS, one_run
from tests.benchmarks.decision import Done, Line, Stale, pool_of, run_all, timed, to_the_end

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
SCRATCH = ROOT / "var" / "bench-behaviour"
RUNS = 400
# A share of alarms above the declared one is called so at this level.
ALPHA = 0.01
SMALL = (0.01, 0.05, 0.5)


def plan_of(number: int) -> SuitePlan:
    """Another seed draws other samples, in every arm."""
    return suite_plan(seed=number)


def settings() -> str:
    """What results must have in common to stand in one file: the code that made them, and what was asked."""
    sources = {one.__name__: inspect.getsource(one) for one in (greedy, judge, parity, sampled, behaviour_world)}
    return digest_of(sources | {"plan": plan_of(0).document})


def judged(world: str, number: int) -> Line:
    return timed(
        {"kind": "run", "world": world, "number": number}, lambda: line_of(one_run(plan_of(number), world, number))
    )


def line_of(result: SuiteResult) -> Line:
    return {
        "outcome": result.outcome,
        "broken": list(result.broken),
        "states": dict(Counter(one.state for one in result.cases)),
        "requests": sum(one.requests for one in result.asked.values()),
        "alpha": result.false_alarms.alpha,
        "tests": result.false_alarms.tests,
        "p": {
            f"{case.id}/{one.manner}": one.finding.numbers["p"]
            for case in result.cases
            for one in case.runs
            if isinstance(one.finding.numbers.get("p"), float)
        },
    }


def run(done: Done, worlds: list[str], runs: int, processes: int, until: float) -> bool:
    """Every run that is missing; False where the time was over before."""
    known = {(one["world"], one["number"]) for one in done.of("run")}
    missing = [(world, number) for number in range(runs) for world in worlds if (world, number) not in known]
    with pool_of(processes) as pool:
        step = [(judged, one) for one in missing]
        return run_all(pool, step, done, processes, until, lambda _: tell(done, runs * len(worlds)))


def tell(done: Done, wanted: int) -> None:
    last = done.lines[-1]
    print(
        f"{len(done.of('run'))} of {wanted}: {last['world']} {last['number']}, {last['seconds']:.1f} s, "
        f"{last['outcome']} {', '.join(last['broken'])}",
        flush=True,
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By world: the alarms and what they show. ``highest`` is the exact upper bound on the share of alarms; it holds
    where the alarms don't show a share above the declared one."""
    found = {}
    for world in WORLDS:
        here = [one for one in rows if one["world"] == world]
        if not here:
            continue
        alarms = sum(bool(one["broken"]) for one in here)
        declared = max(one["alpha"] for one in here)
        found[world] = {
            "runs": len(here),
            "alarms": alarms,
            "share": alarms / len(here),
            "declared": declared,
            "highest": binomial_bounds(alarms, len(here), alpha=0.05)[1],
            "p": float(stats.binom.sf(alarms - 1, len(here), declared)),
            "unsettled": sum(one["outcome"] not in ("held", "broken") for one in here),
            "broken": dict(Counter(case for one in here for case in one["broken"])),
            "small_p": small_p(here),
            "tests": here[0]["tests"],
            "requests": here[0]["requests"],
        }
    return found


def small_p(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Which share of each test's p-values is at most 0.01, 0.05 and 0.5: no more than that, where it is a test."""
    by_test: dict[str, list[float]] = {}
    for one in rows:
        for name, p in one["p"].items():
            by_test.setdefault(name, []).append(p)
    return {
        name: {"runs": len(ps)} | {str(limit): sum(p <= limit for p in ps) / len(ps) for limit in SMALL}
        for name, ps in sorted(by_test.items())
    }


def holds(found: Mapping[str, Any]) -> bool:
    return bool(found) and all(one["p"] > ALPHA and one["unsettled"] == 0 for one in found.values())


def page(found: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    rows = "\n".join(world_line(world, one) for world, one in found.items())
    tests = "\n".join(
        f"| {world} | {name} | {one['runs']} | {one['0.01']:.1%} | {one['0.05']:.1%} | {one['0.5']:.1%} |"
        for world, each in found.items()
        for name, one in each["small_p"].items()
    )
    broken = "\n".join(
        f"- {world}: {case}, {count} times" for world, one in found.items() for case, count in one["broken"].items()
    )
    return f"""# False alarms of the behaviour suite

Written by `make bench-behaviour` (`tests/benchmarks/behaviour.py`): the whole suite, over HTTP, against simulated
servers of which none has a fault. The candidate drafts, and its text is distributed as the baseline's.

Machine: {told["processor"]}, {told["cores"]} cores, Python {told["python"]};
{told["processor_minutes"]} minutes of one core in all.

| world | runs | alarms | share | at most (95 %) | declared | |
|---|---:|---:|---:|---:|---:|---|
{rows}

An alarm is a run in which any case is broken. "At most" is the exact one-sided binomial bound on its share. It holds
where so many alarms, or more, come by chance in more than {ALPHA:.0%} of such series if the declared share is the true
one, and where no run was left unsettled. In `exact` a greedy answer is the same whenever it is asked. In `rounding`
{ROUNDED:.0%} of the greedy tokens whose next best is within {TIE_NATS} nat are that one, in all arms alike: a target
that rounds.

{broken or "No case was ever broken."}

## The tests

Shares of p-values up to a limit; a test that keeps its level has no more of them than the limit says, within the
error of so many runs.

| world | test | runs | ≤ 0.01 | ≤ 0.05 | ≤ 0.5 |
|---|---|---:|---:|---:|---:|
{tests}
"""


def world_line(world: str, one: Mapping[str, Any]) -> str:
    good = one["p"] > ALPHA and one["unsettled"] == 0
    return (
        f"| {world} | {one['runs']} | {one['alarms']} | {one['share']:.2%} | {one['highest']:.2%} | "
        f"{one['declared']:.0%} | {'holds' if good else '**doesn’t hold**'} |"
    )


def machine(done: Done) -> dict[str, Any]:
    host = this_host()
    return {
        "processor": host.processor,
        "cores": host.logical_cpus,
        "python": platform.python_version(),
        "processor_minutes": round(done.seconds / 60, 1),
    }


def write(done: Done, out: Path) -> bool:
    """The page and its figures; whether every world holds."""
    rows, told = done.of("run"), machine(done)
    found = summary(rows)
    out.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"machine": told, "summary": found, "runs": rows}, indent=2, ensure_ascii=False)
    (out / "behaviour.json").write_text(content + "\n", encoding="utf-8")
    (out / "behaviour.md").write_text(page(found, told), encoding="utf-8")
    print(page(found, told))
    return holds(found)


def options() -> argparse.Namespace:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--scratch", type=Path, default=SCRATCH, help="where finished runs are kept")
    found.add_argument("--out", type=Path, default=RESULTS, help="where behaviour.md and behaviour.json go")
    found.add_argument("--runs", type=int, default=RUNS, help="in every world")
    found.add_argument("--only", action="append", choices=list(WORLDS), help="this world alone; several")
    found.add_argument("--hours", type=float, default=float("inf"), help="begin nothing new after so long")
    found.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    found.add_argument("--table", action="store_true", help="write the tables of what is finished, and run nothing")
    return found.parse_args()


def main() -> int:
    asked = options()
    try:
        done = Done.opened(asked.scratch, settings())
    except Stale as error:
        print(error, file=sys.stderr)
        return 2
    until = time.time() + 3600 * asked.hours
    worlds = asked.only or list(WORLDS)
    return to_the_end(
        done,
        lambda: asked.table or run(done, worlds, asked.runs, asked.processes, until),
        lambda: write(done, asked.out),
    )


if __name__ == "__main__":
    sys.exit(main())
