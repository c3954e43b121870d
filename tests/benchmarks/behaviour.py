"""Does the behaviour suite leave a candidate alone that behaves as its baseline, and what do its two comparisons
notice? ``make bench-behaviour``. Exits 1 where it raises more false alarms than it declares.

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
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from scipy import stats

from loadtests.behaviour import cases, greedy, judge, sampled
from loadtests.behaviour.case import Settings
from loadtests.behaviour.greedy import TIE_NATS
from loadtests.behaviour.plan import SuitePlan
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.result import State, SuiteResult
from loadtests.canonical import digest_of
from loadtests.evidence.manifest import this_host
from loadtests.simulator import language
from loadtests.statistics.shares import binomial_bounds
from tests.benchmarks import behaviour_world
from tests.benchmarks.behaviour_world import WORLDS, one_run
from tests.benchmarks.decision import Done, Line, Stale, Task, pool_of, run_all, timed, to_the_end

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
SCRATCH = ROOT / "var" / "bench-behaviour"
RUNS = {"rounding": 400, "exact": 100}
# A share of alarms above the declared one is called so at this level.
ALPHA = 0.01
MOST_UNSETTLED = 0.1
SMALL = (0.01, 0.05, 0.5)
STATES = get_args(State)


def plan_of(number: int) -> SuitePlan:
    """Another seed draws other samples, in every arm."""
    return suite_plan(seed=number)


@dataclass(frozen=True)
class Planted:
    """A fault in the candidate that one comparison, asked alone, has to notice; ``runs`` of it."""

    case: str
    says: str
    runs: int
    bias: float = 0.0
    flips: float = 0.0
    thorough: bool = False

    def plan(self, number: int) -> SuitePlan:
        return suite_plan(only=[self.case], settings=Settings(thorough=self.thorough), seed=number)


PLANTED = {
    "flips": Planted("greedy-parity", "2 % of the greedy tokens are the next best", 100, flips=0.02),
    "flips-0.5": Planted("greedy-parity", "0.5 % of the greedy tokens are the next best", 100, flips=0.005),
    "mass": Planted("sampled-parity", "5 % of the mass moved, at one position of every prompt", 100, bias=0.05),
    "mass-20": Planted("sampled-parity", "20 % of the mass moved, at one position of every prompt", 100, bias=0.2),
    "mass-thorough": Planted(
        "sampled-parity", "5 % of the mass moved, at one position of every prompt", 20, bias=0.05, thorough=True
    ),
}


def settings() -> str:
    """What results must have in common to stand in one file: the code that made them, and what was asked."""
    modules = (greedy, judge, sampled, behaviour_world, language)
    sources = {one.__name__: inspect.getsource(one) for one in (*modules, *(cases_of(plan_of(0))))}
    return digest_of(sources | {"plan": plan_of(0).document, "planted": repr(PLANTED)})


def cases_of(plan: SuitePlan) -> list[ModuleType]:
    """The modules that the plan's cases are written in."""
    written = {getattr(one.rule or one.judge, "__module__", "") for one in plan.cases}
    return [sys.modules[one] for one in sorted(written) if one.startswith(cases.__name__)]


def noticed(name: str, number: int) -> Line:
    one = PLANTED[name]

    def compute() -> Line:
        result = one_run(one.plan(number), "rounding", number, bias=one.bias, flips=one.flips)
        return {"state": result.cases[0].state}

    return timed({"kind": "planted", "planted": name, "number": number}, compute)


def judged(world: str, number: int) -> Line:
    return timed(
        {"kind": "run", "world": world, "number": number}, lambda: line_of(one_run(plan_of(number), world, number))
    )


def line_of(result: SuiteResult) -> Line:
    return {
        "outcome": result.outcome,
        "broken": list(result.broken),
        "cases": {one.id: one.state for one in result.cases},
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


def run(done: Done, runs: Mapping[str, int], processes: int, until: float) -> bool:
    """Whatever is missing; False where the time was over before."""
    known = {(one["world"], one["number"]) for one in done.of("run")}
    planted = {(one["planted"], one["number"]) for one in done.of("planted")}
    step: list[Task] = [
        (judged, (world, number))
        for world, many in runs.items()
        for number in range(many)
        if (world, number) not in known
    ]
    step += [
        (noticed, (name, number))
        for name, one in PLANTED.items()
        for number in range(one.runs)
        if (name, number) not in planted
    ]
    with pool_of(processes) as pool:
        return run_all(pool, step, done, processes, until, lambda _: tell(done))


def tell(done: Done) -> None:
    last = done.lines[-1]
    found = last["state"] if last["kind"] == "planted" else f"{last['outcome']} {', '.join(last['broken'])}"
    name = last.get("world") or last["planted"]
    print(f"{len(done.lines) - 1}: {name} {last['number']}, {last['seconds']:.1f} s, {found}", flush=True)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By world: the alarms and what they show. ``highest`` is the exact upper bound on the share of alarms; it holds
    where the alarms don't show a share above the declared one."""
    found = {}
    for world in WORLDS:
        here = [one for one in rows if one["world"] == world]
        if not here:
            continue
        alarms = sum(bool(one["broken"]) for one in here)
        unsettled = sum(one["outcome"] not in ("held", "broken") for one in here)
        declared = max(one["alpha"] for one in here)
        found[world] = {
            "runs": len(here),
            "alarms": alarms,
            "share": alarms / max(1, len(here) - unsettled),
            "declared": declared,
            "highest": binomial_bounds(alarms, max(1, len(here) - unsettled), alpha=0.05)[1],
            "p": float(stats.binom.sf(alarms - 1, len(here) - unsettled, declared)),
            "unsettled": unsettled,
            "by_case": by_case(here),
            "small_p": small_p(here),
            "tests": here[0]["tests"],
            "requests": here[0]["requests"],
        }
    return found


def by_case(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """In how many runs a case came to what."""
    found: dict[str, Counter[str]] = {}
    for one in rows:
        for case, state in one["cases"].items():
            found.setdefault(case, Counter())[state] += 1
    return {case: dict(states) for case, states in found.items()}


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
    return bool(found) and all(world_holds(one) for one in found.values())


def world_holds(one: Mapping[str, Any]) -> bool:
    """Unsettled runs raise no alarm, and they are none without one either: too many, and nothing is shown."""
    return bool(one["p"] > ALPHA and one["unsettled"] <= MOST_UNSETTLED * one["runs"])


def page(found: Mapping[str, Any], power: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    rows = "\n".join(world_line(world, one) for world, one in found.items())
    tests = "\n".join(
        f"| {world} | {name} | {one['runs']} | {one['0.01']:.1%} | {one['0.05']:.1%} | {one['0.5']:.1%} |"
        for world, each in found.items()
        for name, one in each["small_p"].items()
    )
    states = "\n".join(
        f"| {case} | {world} | " + " | ".join(str(by.get(state, 0)) for state in STATES) + " |"
        for world, one in found.items()
        for case, by in one["by_case"].items()
        if set(by) != {"held"}
    )
    faults = "\n".join(power_line(name, one) for name, one in power.items())
    return f"""# False alarms of the behaviour suite

Written by `make bench-behaviour` (`tests/benchmarks/behaviour.py`): the whole standard suite against simulated
servers of which none has a fault. The candidate drafts, and its text is distributed as the baseline's.

Machine: {told["processor"]}, {told["cores"]} cores, Python {told["python"]};
{told["processor_minutes"]} minutes of one core in all.

| world | runs | alarms | share | at most (95 %) | declared | unsettled | |
|---|---:|---:|---:|---:|---:|---:|---|
{rows}

An alarm is a run in which any case is broken. A run is unsettled, and left out of the share, where the baseline differs
from itself too much: by chance, or so often that what it would take to notice a fault is more than it had. "At most" is
the exact one-sided binomial bound on the share. It holds where so many alarms, or more, come by chance in more than
{ALPHA:.0%} of such series if the declared share is the true one, and where no more than {MOST_UNSETTLED:.0%} of the
runs are unsettled. In `exact` a greedy answer is the same whenever it is asked.
In `rounding` every logit is off by a normal error of {WORLDS["rounding"]} nat, another one in every answer and in all
arms alike, as those of a target whose sums depend on what runs beside a request: there texts part where the best tokens
are close (a tie is {TIE_NATS} nat).

**What is real and what is shortened.** Every request is made, sent, read, collected and judged by the suite's own code,
and answered by the simulated server's. Left out are the socket between the two (the bytes are the same), the server's
clock (a request has the engine to itself, so nothing runs beside it but in the order of asking), the probe of what a
server can, and the evidence files. The samples of sampled parity are drawn by the same model for a whole prompt at once
and handed to the suite as answers, without JSON. None of it has a part in an alarm.

## By case

Cases that held in every run of a world are left out.

| case | world | {" | ".join(STATES)} |
|---|---|{"---:|" * len(STATES)}
{states}

## The tests

Shares of p-values up to a limit; a test that keeps its level has no more of them than the limit says, within the
error of so many runs. Greedy parity counts few divergences, so most of its p-values are 1.

| world | test | runs | ≤ 0.01 | ≤ 0.05 | ≤ 0.5 |
|---|---|---:|---:|---:|---:|
{tests}

## What is noticed

One comparison asked alone, in `rounding`, with a fault planted in the candidate. The interval is the exact two-sided
one of 95 %. The standard suite takes few samples, so that it ends in minutes: 5 % of the mass are for `--thorough`.

| planted | case | suite | runs | noticed | interval | not settled |
|---|---|---|---:|---:|---|---:|
{faults}
"""


def power_line(name: str, one: Mapping[str, Any]) -> str:
    planted = PLANTED[name]
    low, high = one["interval"]
    return (
        f"| {planted.says} | `{planted.case}` | {'thorough' if planted.thorough else 'standard'} | {one['runs']} | "
        f"{one['noticed'] / one['runs']:.0%} | {low:.0%} to {high:.0%} | {one['open']} |"
    )


def powers(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often each planted fault was noticed."""
    found = {}
    for name in PLANTED:
        states = [one["state"] for one in rows if one["planted"] == name]
        if states:
            noticed = states.count("broken")
            found[name] = {
                "runs": len(states),
                "noticed": noticed,
                "open": len(states) - noticed - states.count("held"),
                "interval": binomial_bounds(noticed, len(states), alpha=0.025),
            }
    return found


def world_line(world: str, one: Mapping[str, Any]) -> str:
    return (
        f"| {world} | {one['runs']} | {one['alarms']} | {one['share']:.2%} | {one['highest']:.2%} | "
        f"{one['declared']:.0%} | {one['unsettled']} | {'holds' if world_holds(one) else '**doesn’t hold**'} |"
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
    found, power = summary(rows), powers(done.of("planted"))
    out.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"machine": told, "summary": found, "planted": power}, indent=2, ensure_ascii=False)
    (out / "behaviour.json").write_text(content + "\n", encoding="utf-8")
    (out / "behaviour.md").write_text(page(found, power, told), encoding="utf-8")
    print(page(found, power, told))
    return holds(found)


def options() -> argparse.Namespace:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--scratch", type=Path, default=SCRATCH, help="where finished runs are kept")
    found.add_argument("--out", type=Path, default=RESULTS, help="where behaviour.md and behaviour.json go")
    found.add_argument("--runs", type=int, help="in every world")
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
    runs = {one: asked.runs or RUNS[one] for one in asked.only or WORLDS}
    return to_the_end(
        done,
        lambda: asked.table or run(done, runs, asked.processes, until),
        lambda: write(done, asked.out),
    )


if __name__ == "__main__":
    sys.exit(main())
