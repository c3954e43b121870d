"""Is the share of false PASS at most α, and does a clear improvement pass? ``make bench-decision``. Exits 1 where it
isn't so.

What is finished is appended to a file in the scratch directory, and a run that was ended goes on there with the same
result: everything is drawn from fixed seeds. Beside the tables the lines themselves are kept, so that another machine
goes on from there, or decides some of them again.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from decisions.rules.verdict import VERDICT_CODE
from loadtests.canonical import digest_of
from loadtests.evidence.manifest import this_host
from tests.benchmarks import decision_truths as truths
from tests.benchmarks import decision_world as world
from tests.benchmarks.decision_rules import decide
from tests.benchmarks.decision_table import DECISIONS, count_all, document, page
from tests.benchmarks.decision_truths import CLEAR, TRUTHS, calibrate, ground
from tests.benchmarks.decision_world import GRID, PAIRS, Drafter

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
SCRATCH = ROOT / "var" / "bench-decision"
DONE, KEPT = "done.jsonl", "decision.jsonl.gz"
KINDS = ("ground", "calibration", "decision")
INTERRUPTED = 130

Line = dict[str, Any]
Task = tuple[Callable[..., Line], tuple[Any, ...]]


def settings() -> str:
    """What results must have in common to stand in one file."""
    told = {
        "level": world.LEVEL,
        "deadlines": world.DEADLINES,
        "rails": world.RAILS,
        "lengths": world.LENGTHS,
        "classes": world.CLASSES,
        "pairs": {str(spread): pairs for spread, pairs in PAIRS.items()},
        "grid": [*world.GRID, world.NOMINEE, world.TUNING_RUNS],
        "truths": {name: repr(one) for name, one in TRUTHS.items()},
        "boots": [truths.COARSE, truths.MIDDLE, truths.FINE, truths.OTHERS, truths.HALVINGS],
        "minimum": world.MINIMUM,
        "rules": VERDICT_CODE,
    }
    return digest_of(told)


class Stale(ValueError):
    """What lies in the scratch directory belongs to another benchmark."""


@dataclass
class Done:
    """The lines of the file, which only grows. A line that was cut off by a kill is taken away and done again."""

    path: Path
    lines: list[Line] = field(default_factory=list)

    @classmethod
    def opened(cls, directory: Path, settings_: str, kept: Path | None = None) -> "Done":
        """``kept``: lines to begin with where there are none yet, if they are of these settings."""
        directory.mkdir(parents=True, exist_ok=True)
        done = cls(directory / DONE)
        if kept is not None and kept.exists() and not done.path.exists():
            lines = gzip.decompress(kept.read_bytes())
            if json.loads(lines[: lines.index(b"\n")])["sha256"] == settings_:
                done.path.write_bytes(lines)
        content = done.path.read_bytes() if done.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        done.lines = [json.loads(line) for line in whole.splitlines()]
        if len(whole) < len(content):
            os.truncate(done.path, len(whole))
        if not done.lines:
            done.add({"kind": "settings", "sha256": settings_})
        if done.lines[0].get("sha256") != settings_:
            raise Stale(f"{done.path} holds results of other settings or rules: name another --scratch, or remove it")
        return done

    def add(self, line: Line) -> None:
        with self.path.open("ab") as out:
            out.write(json.dumps(line).encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        self.lines.append(line)

    def keep(self, path: Path) -> None:
        """All lines in a fixed order, since processes finish in any."""
        first, *rest = self.lines
        order = sorted(
            rest, key=lambda one: (one["spread"], KINDS.index(one["kind"]), str(one.get("truth")), one.get("number", 0))
        )
        lines = b"".join(json.dumps(one).encode() + b"\n" for one in [first, *order])
        path.write_bytes(gzip.compress(lines, mtime=0))

    def of(self, kind: str) -> list[Line]:
        return [one for one in self.lines if one["kind"] == kind]

    @property
    def grounds(self) -> dict[float, Line]:
        return {one["spread"]: one for one in self.of("ground")}

    @property
    def calibrations(self) -> dict[tuple[float, str], Line]:
        return {(one["spread"], one["truth"]): one for one in self.of("calibration")}

    @property
    def seconds(self) -> float:
        return sum(float(one.get("seconds", 0)) for one in self.lines)


def grounded(spread: float) -> Line:
    return timed({"kind": "ground", "spread": spread}, lambda: ground(spread))


def calibrated(spread: float, name: str, shared: Mapping[str, Any]) -> Line:
    return timed({"kind": "calibration", "spread": spread, "truth": name}, lambda: calibrate(spread, name, shared))


def decided(spread: float, number: int, drafters: Mapping[str, Mapping[str, float]]) -> Line:
    known = {name: Drafter(**one) for name, one in drafters.items()}
    told = {"kind": "decision", "spread": spread, "number": number}
    return timed(told, lambda: {"truths": decide(spread, number, known)})


def timed(told: Line, compute: Callable[[], Line]) -> Line:
    begun = time.process_time()
    found = compute()
    return told | found | {"seconds": round(time.process_time() - begun, 3)}


def tasks(done: Done, spread: float, decisions: int) -> Iterator[list[Task]]:
    """What is still to do at one spread, in steps of which each needs the one before."""
    if spread not in done.grounds:
        yield [(grounded, (spread,))]
    shared = done.grounds[spread]
    missing = [name for name in TRUTHS if (spread, name) not in done.calibrations]
    yield [(calibrated, (spread, name, shared)) for name in missing]
    drafters = {name: done.calibrations[spread, name]["drafter"] for name in TRUTHS}
    known = {one["number"] for one in done.of("decision") if one["spread"] == spread}
    yield [(decided, (spread, number, drafters)) for number in range(decisions) if number not in known]


def run(done: Done, spreads: list[float], decisions: int, processes: int, until: float) -> bool:
    """Everything that is missing; False where the time was over before."""
    with pool_of(processes) as pool:
        return all(
            run_all(pool, step, done, processes, until, tell)
            for spread in spreads
            for step in tasks(done, spread, decisions)
        )


@contextmanager
def pool_of(processes: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=ignore_interrupts) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            # A calibration takes minutes: what is under way is lost, and done again. Killed, because one that has only
            # just begun has our own handler of SIGTERM still, and would wait for work for ever.
            for child in multiprocessing.active_children():
                child.kill()
            raise


def ignore_interrupts() -> None:
    """Ctrl-C goes to the whole group; the parent alone decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run_all(
    pool: ProcessPoolExecutor,
    step: list[Task],
    done: Done,
    processes: int,
    until: float,
    told: Callable[[Done], None],
) -> bool:
    """No more than one task waits for each process, so that an end is never far."""
    waiting: set[Future[Line]] = set()
    rest = iter(step)
    left = True
    while True:
        while left and len(waiting) < 2 * processes and time.time() < until:
            task = next(rest, None)
            left = task is not None
            if task is not None:
                waiting.add(pool.submit(task[0], *task[1]))
        if not waiting:
            return not left
        finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for one in finished:
            done.add(one.result())
            told(done)


def tell(done: Done) -> None:
    last = done.lines[-1]
    what = last.get("truth") or last.get("number", "baseline")
    counts = {spread: sum(one["spread"] == spread for one in done.of("decision")) for spread in PAIRS}
    so_far = ", ".join(f"{spread:.0%}: {count}" for spread, count in counts.items())
    print(f"{last['kind']} {what} at {last['spread']:.0%}, {last['seconds']:.1f} s; decisions {so_far}", flush=True)


def estimate(done: Done, spreads: list[float], decisions: int, processes: int) -> str:
    """From one decision at each spread, on truths that cost as much as the calibrated ones."""
    seconds = 0.0
    for spread in spreads:
        missing = decisions - sum(one["spread"] == spread for one in done.of("decision"))
        drafters = {name: one.drafter for name, one in TRUTHS.items()}
        begun = time.process_time()
        decide(spread, -1, drafters)
        each = time.process_time() - begun
        calibration = 0.0 if (spread, CLEAR) in done.calibrations else boots() * each / (8 * PAIRS[spread] + 48)
        seconds += missing * each + calibration
        print(f"spread {spread:.0%}: {each:.1f} s a decision on {len(TRUTHS)} truths, {missing} to do", flush=True)
    return f"about {seconds / 3600 / processes:.1f} hours with {processes} processes that have a core each"


def boots() -> int:
    """That the calibration of a spread takes."""
    search = (truths.HALVINGS + 2) * truths.COARSE + truths.MIDDLE + truths.FINE + (len(GRID) - 1) * truths.OTHERS
    return truths.FINE * 3 // 2 + len(TRUTHS) * search


def again(done: Done, count: int) -> bool:
    """Whether the first decisions at each spread come out as they stand in the file, by the rules as they are now."""
    same = True
    for spread in PAIRS:
        found = [one for one in done.of("decision") if one["spread"] == spread and one["number"] < count]
        for one in sorted(found, key=itemgetter("number")):
            drafters = {name: done.calibrations[spread, name]["drafter"] for name in one["truths"]}
            equal = decided(spread, one["number"], drafters)["truths"] == one["truths"]
            same = same and equal
            print(f"decision {one['number']} at {spread:.0%}: {'the same' if equal else 'ANOTHER'}", flush=True)
    return same


def machine(done: Done) -> dict[str, Any]:
    host = this_host()
    return {
        "processor": host.processor,
        "cores": host.logical_cpus,
        "python": platform.python_version(),
        "processor_hours": round(done.seconds / 3600, 2),
        "rules": VERDICT_CODE,
    }


def write(done: Done, out: Path) -> bool:
    """The page and its figures; whether everything holds."""
    counts = count_all(done.of("decision"), done.calibrations)
    told = machine(done)
    out.mkdir(parents=True, exist_ok=True)
    found = json.dumps(document(counts, done.calibrations, told), indent=2, ensure_ascii=False)
    (out / "decision.json").write_text(found + "\n", encoding="utf-8")
    (out / "decision.md").write_text(page(counts, done.calibrations, told), encoding="utf-8")
    done.keep(out / KEPT)
    print(page(counts, done.calibrations, told))
    return bool(counts) and all(one.holds for one in counts)


def options() -> argparse.Namespace:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--scratch", type=Path, default=SCRATCH, help="where finished decisions are kept")
    found.add_argument("--out", type=Path, default=RESULTS, help="where decision.md and decision.json go")
    found.add_argument("--decisions", type=int, default=DECISIONS, help="on every truth at every spread")
    found.add_argument("--only", type=float, action="append", choices=list(PAIRS), help="this spread alone; several")
    found.add_argument("--hours", type=float, default=float("inf"), help="begin nothing new after so long")
    found.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    found.add_argument("--again", type=int, metavar="N", help="decide the first N at each spread again, and compare")
    found.add_argument("--table", action="store_true", help="write the tables of what is finished, and run nothing")
    return found.parse_args()


def main() -> int:
    asked = options()
    # Whoever ends the parent ends its processes with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        done = Done.opened(asked.scratch, settings(), asked.out / KEPT)
    except Stale as error:
        print(error, file=sys.stderr)
        return 2
    if asked.table:
        return 0 if write(done, asked.out) else 1
    if asked.again:
        return 0 if again(done, asked.again) else 1
    spreads = asked.only or list(PAIRS)
    until = time.time() + 3600 * asked.hours
    print(estimate(done, spreads, asked.decisions, asked.processes), flush=True)
    return to_the_end(
        done,
        lambda: run(done, spreads, asked.decisions, asked.processes, until),
        lambda: write(done, asked.out),
    )


def to_the_end(done: Done, go: Callable[[], bool], write_: Callable[[], bool]) -> int:
    """The exit status."""
    try:
        finished = go()
    except KeyboardInterrupt:
        print(f"ended; what is finished is in {done.path}, and the same command goes on there", file=sys.stderr)
        return INTERRUPTED
    if not finished:
        print(f"the time is over; what is finished is in {done.path}, and the same command goes on there")
        return 0
    return 0 if write_() else 1


if __name__ == "__main__":
    sys.exit(main())
