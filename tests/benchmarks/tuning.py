"""Does the race find the right draft length, or schedule, on few engine minutes? ``make bench-tuning``: a quarter of
an hour of one core. Exits 1 where it doesn't.

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
from pathlib import Path
from typing import Any

from loadtests.canonical import digest_of
from loadtests.evidence.manifest import this_host
from loadtests.tuning import cost_model, field, nomination, posterior, propose, race, rehearsal
from tests.benchmarks import tuning_oracle, tuning_race, tuning_world
from tests.benchmarks.decision import Done, Line, Stale, pool_of, run_all, timed, to_the_end
from tests.benchmarks.tuning_race import Race, document, sweep
from tests.benchmarks.tuning_table import FARTHER, SPREAD, holds, page, summary
from tests.benchmarks.tuning_world import TRUTHS, Truth

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
SCRATCH = ROOT / "var" / "bench-tuning"
# One truth in so many is raced at the larger spread too, with fixed draft lengths alone, and without predictions.
MORE_EVERY = 3


def settings() -> str:
    """What results must have in common to stand in one file: the code that made them."""
    ours = (cost_model, field, nomination, posterior, propose, race, rehearsal)
    modules = (*ours, tuning_oracle, tuning_race, tuning_world)
    return digest_of({one.__name__: inspect.getsource(one) for one in modules})


def judged(name: str) -> Line:
    """One truth: its races, the grid beside them, and what is true."""
    return timed({"kind": "truth", "truth": name}, lambda: judge(TRUTHS[name]))


def judge(truth: Truth) -> Line:
    races = {"race": Race(truth, SPREAD)}
    if list(TRUTHS).index(truth.name) % MORE_EVERY == 0:
        races |= {
            "fixed": Race(truth, SPREAD, proposing=False),
            "uninformed": Race(truth, SPREAD, informed=False),
            "farther": Race(truth, FARTHER),
        }
    found: Line = {"races": {label: document(race) for label, race in races.items()}}
    found["sweep"] = vars(sweep(truth, SPREAD))
    ideal = tuning_oracle.ideal_schedule(truth)
    found["ideal"] = f"s{ideal}" if ideal else None
    schedules = [found["ideal"], *(name for one in found["races"].values() for name in one["schedules"])]
    found["effects"] = tuning_oracle.effects_of(truth, tuning_oracle.names_of(schedules))
    return found


def run(done: Done, names: list[str], processes: int, until: float) -> bool:
    """Every truth that is missing; False where the time was over before."""
    known = {one["truth"] for one in done.of("truth")}
    missing = [name for name in names if name not in known]
    with pool_of(processes) as pool:
        run_all(pool, [(judged, (name,)) for name in missing], done, processes, until, lambda _: tell(done, len(names)))
    return len(done.of("truth")) >= len(names)


def tell(done: Done, wanted: int) -> None:
    print(f"{len(done.of('truth'))} of {wanted}: {done.lines[-1]['truth']}", flush=True)


def machine(done: Done) -> dict[str, Any]:
    host = this_host()
    return {
        "processor": host.processor,
        "cores": host.logical_cpus,
        "python": platform.python_version(),
        "processor_minutes": round(done.seconds / 60, 1),
    }


def write(done: Done, out: Path) -> bool:
    """The page and its figures; whether every target holds."""
    rows, told = done.of("truth"), machine(done)
    found = summary(rows)
    out.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"machine": told, "summary": found, "truths": rows}, indent=2, ensure_ascii=False)
    (out / "tuning.json").write_text(content + "\n", encoding="utf-8")
    (out / "tuning.md").write_text(page(rows, found, told), encoding="utf-8")
    print(page(rows, found, told))
    return holds(found)


def options() -> argparse.Namespace:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--scratch", type=Path, default=SCRATCH, help="where finished truths are kept")
    found.add_argument("--out", type=Path, default=RESULTS, help="where tuning.md and tuning.json go")
    found.add_argument("--only", action="append", choices=list(TRUTHS), help="this truth alone; several")
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
    # Those of all kinds first, so that what is unfinished says something too.
    names = asked.only or sorted(TRUTHS, key=lambda one: TRUTHS[one].loads)
    until = time.time() + 3600 * asked.hours
    return to_the_end(
        done,
        lambda: asked.table or run(done, names, asked.processes, until),
        lambda: write(done, asked.out),
    )


if __name__ == "__main__":
    sys.exit(main())
