"""The tables of the tuning benchmark: regrets, engine minutes, schedules, and what they mean. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loadtests.tuning.race import NONE
from tests.benchmarks.tuning_oracle import SEGMENTS, worths_of
from tests.benchmarks.tuning_race import SWEEP_RUNS, trials_s
from tests.benchmarks.tuning_world import DRAFT_LENGTHS, IMPROVE, MARGIN, QUANTILE, START_S, TRUTHS

SPREAD, FARTHER = 0.06, 0.12
MEDIAN_REGRET, LARGE_REGRET, THIRD, SCHEDULES = 0.02, 0.06, 1 / 3, 0.9
# From here on the oracle says that a schedule is better.
CLEARLY = 0.03

Rows = Sequence[Mapping[str, Any]]
LABELS = {
    "race": f"race, spread {SPREAD:.0%}",
    "fixed": "race with fixed draft lengths alone",
    "uninformed": "race without predictions or schedules",
    "farther": f"race, spread {FARTHER:.0%}",
    "sweep": f"grid of today, spread {SPREAD:.0%}",
    "grid": "the same, on the truths of the third line",
}


def regret(worths: Mapping[str, float], name: str, *, fixed: bool = False) -> float:
    """By how much longer completion takes than with the best there is (of fixed draft lengths and none, where
    ``fixed``), at the level where the nominee improves least."""
    best = max(worth for one, worth in worths.items() if not fixed or not one.startswith("s"))
    return math.expm1(best - worths[name])


def nominees(row: Mapping[str, Any]) -> dict[str, str]:
    races = row["races"]
    found = {label: one["nominee"] for label, one in races.items()}
    return found | {"sweep": row["sweep"]["nominee"]} | ({"grid": row["sweep"]["nominee"]} if "fixed" in races else {})


def summary(rows: Rows) -> dict[str, Any]:
    found: dict[str, Any] = {"truths": len(rows)}
    for label in LABELS:
        with_it = [row for row in rows if label in nominees(row)]
        worths = [worths_of(row["effects"]) for row in with_it]
        names = [nominees(row)[label] for row in with_it]
        every = [regret(one, name) for one, name in zip(worths, names, strict=True)]
        single = [regret(one, name, fixed=True) for one, name in zip(worths, names, strict=True)]
        found[label] = {"truths": len(with_it), "all": spread_of(every), "fixed": spread_of(single)}
    minutes = [(row["races"]["race"]["engine_minutes"], row["sweep"]["engine_minutes"]) for row in rows]
    shares = [ours / theirs for ours, theirs in minutes]
    shared = [ours / one_boot_sweep(row["truth"]) for row, (ours, _) in zip(rows, minutes, strict=True)]
    found["minutes"] = {"share": spread_of(shares), "share_of_one_boot": spread_of(shared)}
    found["boots"] = spread_of([float(row["races"]["race"]["boots"]) for row in rows])
    return found | {"schedules": schedules(rows)}


def spread_of(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "median": float(np.median(values)),
        "mean": float(np.mean(values)),
        "p95": float(np.quantile(values, 0.95)),
        "largest": float(np.max(values)),
    }


def one_boot_sweep(name: str) -> float:
    """Engine minutes of the same grid with one boot for each draft length, as vLLM's own sweep has it."""
    truth = TRUTHS[name]
    each = START_S[truth.engine] + SWEEP_RUNS * trials_s(truth)
    return (len(DRAFT_LENGTHS) + 1) * each / 60


def schedules(rows: Rows) -> dict[str, Any]:
    """Where a schedule truly beats the best fixed draft length clearly: how often the nominee is better than that."""
    clear, better, proposed = [], [], []
    for row in rows:
        worths = worths_of(row["effects"])
        fixed = max(worth for name, worth in worths.items() if not name.startswith("s"))
        best = max([worth for name, worth in worths.items() if name.startswith("s")], default=-math.inf)
        if math.expm1(best - fixed) > CLEARLY:
            clear.append(row["truth"])
            better.append(worths[row["races"]["race"]["nominee"]] > fixed)
            proposed.append(any(worths[one] > fixed for one in row["races"]["race"]["schedules"]))
    return {"clear": len(clear), "nominee_better": sum(better), "proposed_better": sum(proposed)}


def targets(found: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """(what, figure, whether it holds)."""
    ours, grid, share = found["race"]["all"], found["sweep"]["all"], found["minutes"]["share"]
    fixed, beside, schedule = found["fixed"]["fixed"], found["grid"]["fixed"], found["schedules"]
    return [
        (f"median regret ≤ {MEDIAN_REGRET:.0%}", f"{ours['median']:.1%}", ours["median"] <= MEDIAN_REGRET),
        (f"95th percentile of regret ≤ {LARGE_REGRET:.0%}", f"{ours['p95']:.1%}", ours["p95"] <= LARGE_REGRET),
        (
            "engine minutes ≤ a third of the grid's, in every truth",
            f"median {share['median']:.0%}, largest {share['largest']:.1%}",
            share["largest"] <= THIRD + 1e-9,
        ),
        (
            "less regret than the grid's pick (mean)",
            f"{ours['mean']:.1%} and {grid['mean']:.1%}",
            ours["mean"] < grid["mean"],
        ),
        (
            "less regret than the grid's pick among fixed draft lengths (mean)",
            f"{fixed['mean']:.1%} and {beside['mean']:.1%}",
            fixed["mean"] < beside["mean"],
        ),
        (
            f"better than the best fixed draft length in ≥ {SCHEDULES:.0%} of the truths where a schedule is, by "
            f"more than {CLEARLY:.0%}",
            f"{schedule['nominee_better']} of {schedule['clear']}",
            schedule["nominee_better"] >= SCHEDULES * schedule["clear"],
        ),
    ]


def holds(found: Mapping[str, Any]) -> bool:
    return found["truths"] >= len(TRUTHS) and all(one for _, _, one in targets(found))


def page(rows: Rows, found: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    whole = "" if found["truths"] >= len(TRUTHS) else f" Unfinished: {found['truths']} of {len(TRUTHS)} truths."
    share = found["minutes"]
    return f"""# Tuning

Written by `make bench-tuning` (`tests/benchmarks/tuning.py`): whole races on the simulator, where the truth is
known.{whole}

Machine: {machine["processor"]}, {machine["cores"]} cores, Python {machine["python"]};
{machine["processor_minutes"]:.0f} minutes of one core in all.

| target | found | |
|---|---:|---|
{lines(target_line(*one) for one in targets(found))}

## What is tuned

{found["truths"]} truths: engines in the shape of a GPU with an 8B model (`eagle3`) and of two CPU cores (a block
drafter), short and long prompts, three levels of acceptance, five triples of load each. The brief asks for completion
p{QUANTILE * 100:g} better at {" and ".join(IMPROVE)}, and at peak no more than {MARGIN:.0%} longer; draft lengths
{", ".join(map(str, DRAFT_LENGTHS))}, and whatever schedule tuning proposes. A configuration is worth its smallest
improvement, and nothing where it breaks the margin at peak. Boots differ by {SPREAD:.0%} (standard deviation of the
logarithm of a boot's time factor); here 6 to 24 % were measured.

What is true: the mean over {SEGMENTS} segments of each level that no race saw, of boots without luck. Regret: by how
much longer completion takes with the nominee than with the best there is.

## Regret

Of everything, schedules counted; and of fixed draft lengths alone, where a schedule may be better than the best
(negative).

| | truths | median | mean | 95th percentile | largest | of fixed: median | mean | 95th percentile |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
{lines(regret_line(LABELS[label], found[label]) for label in LABELS if found[label]["all"])}

The grid: every draft length and no speculation, three runs, every level of every run in a boot of its own, the best
mean. It knows no schedules. The race without predictions shows what the cost model adds: predictions come from costs
that are fitted to the race's own boots, with the functional form that the simulator has. A real engine has another, so
that the truth for real engines lies between the two.

## Engine minutes

The race used {share["share"]["median"]:.0%} of the grid's engine minutes (median; {share["share"]["largest"]:.0%} at
most), with {found["boots"]["median"]:.0f} boots (median). A grid with one boot for each draft length, all levels and
runs in it, as vLLM's own sweep does it, takes less: of that, the race used
{share["share_of_one_boot"]["median"]:.0%}. There three runs share the luck of their boot, and their mean says no more
about it than one.

## Truth by truth

| truth | best | nominee | regret | boots | minutes | ended | grid's pick | regret |
|---|---|---|---:|---:|---:|---|---|---:|
{lines(map(truth_line, rows))}
"""


def lines(several: Iterable[str]) -> str:
    return "\n".join(several)


def target_line(what: str, figure: str, good: bool) -> str:
    return f"| {what} | {figure} | {'holds' if good else '**doesn’t hold**'} |"


def regret_line(label: str, one: Mapping[str, Any]) -> str:
    every, fixed = one["all"], one["fixed"]
    cells = [
        every["median"],
        every["mean"],
        every["p95"],
        every["largest"],
        fixed["median"],
        fixed["mean"],
        fixed["p95"],
    ]
    return f"| {label} | {one['truths']} | " + " | ".join(f"{100 * cell:.1f} %" for cell in cells) + " |"


def truth_line(row: Mapping[str, Any]) -> str:
    worths = worths_of(row["effects"])
    best = max(worths, key=lambda one: worths[one])
    race, grid = row["races"]["race"], row["sweep"]
    ours, theirs = regret(worths, race["nominee"]), regret(worths, grid["nominee"])
    return (
        f"| {row['truth']} | {told(best, worths)} | {told(race['nominee'], worths)} | {ours:.1%} | {race['boots']} | "
        f"{race['engine_minutes']:.0f} | {race['ended']} | {told(grid['nominee'], worths)} | {theirs:.1%} |"
    )


def told(name: str, worths: Mapping[str, float]) -> str:
    return "none" if name == NONE else f"{name} ×{math.exp(worths[name]):.2f}"
