"""Where a trial's plan isn't one of its level, or its records aren't those of its plan."""

import math
import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.evidence.directories import PLAN, RECORDS, KeptTrial, UnusableEvidence
from loadtests.evidence.manifest import NANOSECONDS, Manifest
from loadtests.evidence.plans import Plan
from loadtests.evidence.record_columns import Bools, Contradiction, Integers, Records
from loadtests.generator.trial import THOUGHT
from loadtests.traffic.arrivals import arrival_times_ns, exact, give_up_times_ns
from loadtests.traffic.levels import Arrival, Level, Patience
from loadtests.traffic.planned import plan_document

THINK = re.compile(rf"later turns left (\d+(?:\.\d+)?(?:e-\d\d)?) s after {re.escape(THOUGHT)}")
# A think time is told in six digits, and a turn leaves when it is over: nothing else may move a planned time.
THOUGHT_DIGITS = 1e-5
THOUGHT_NS = 1_000
LONGEST_THOUGHT_S = 1_000_000
# Under which name a manifest tells the seed of its plan: a campaign's and a simulation's, a replay's.
SEEDS = ("segment", "arrivals")
PLANS_DRAWN = 64


def in_plan(plan: Plan, level: Level, manifest: Manifest) -> Iterator[str]:
    """What of a plan isn't as its level has it."""
    expected = plan_document(level)
    for name in sorted(expected.keys() | plan.document.keys()):
        told, wanted = plan.document.get(name), expected.get(name)
        if told != wanted:
            yield f"{name} is {told!r}, and by the manifest's level {wanted!r}"
    if plan.repeated_id is not None:
        yield f"request {plan.repeated_id} is planned twice"
    if plan.repeated_row is not None:
        yield f"row {plan.repeated_row} is planned twice: a trial sends no row twice"
    yield from in_times(plan, level, manifest)


def in_times(plan: Plan, level: Level, manifest: Manifest) -> Iterator[str]:
    times = plan.planned_ns
    end_ns = math.ceil((exact(level.warm_up_s) + exact(level.duration_s)) * NANOSECONDS)
    backwards = np.flatnonzero(np.diff(times) < 0)
    if len(backwards):
        yield f"request {plan.request_ids[int(backwards[0]) + 1]} is planned before the one above it"
    if times[0] < 0 or times[-1] >= end_ns:
        place = 0 if times[0] < 0 else len(times) - 1
        yield f"request {plan.request_ids[place]} is planned at {times[place]} ns, outside of the level's {end_ns} ns"
    if level.arrival.process == "replay" and times[0]:
        yield f"request {plan.request_ids[0]} is planned at {times[0]} ns, and a replay begins with its first request"
    yield from in_draws(plan, level, manifest)


def in_draws(plan: Plan, level: Level, manifest: Manifest) -> Iterator[str]:
    """The seed draws when requests leave and who gives up: nobody can leave out the slow ones of a plan."""
    drawn = level.arrival.process != "replay"
    seed = next((manifest.seeds[name] for name in SEEDS if name in manifest.seeds), None)
    if seed is None and (level.patience or level.arrival.process not in ("replay", "constant")):
        yield f"the manifest's seeds tell neither {' nor '.join(SEEDS)}: its times can't be drawn again"
        return
    if drawn:
        times = drawn_times(level.arrival, level.duration_s, level.warm_up_s, seed or 0)
        if len(times) != len(plan):
            yield f"{len(plan):,} requests are planned, and the manifest's level and seed draw {len(times):,}"
            return
        if (times != plan.planned_ns).any():
            place = int(np.argmax(times != plan.planned_ns))
            said = f"request {plan.request_ids[place]} is planned at {plan.planned_ns[place]} ns"
            yield f"{said}, and the manifest's level and seed draw {times[place]}"
            return
    give_ups = drawn_give_ups(level.patience, plan, seed or 0)
    if (give_ups != plan.give_up_ns).any():
        place = int(np.argmax(give_ups != plan.give_up_ns))
        said = f"request {plan.request_ids[place]} is to give up at {shown(plan.give_up_ns[place])}"
        yield f"{said}, and the manifest's level and seed draw {shown(give_ups[place])}"


@lru_cache(PLANS_DRAWN)
def drawn_times(arrival: Arrival, duration_s: float, warm_up_s: float, seed: int) -> Integers:
    """Both arms of a pair plan the same, so each is drawn once; none where nothing would fall into the window."""
    try:
        times = arrival_times_ns(arrival, duration_s=duration_s, warm_up_s=warm_up_s, seed=seed, recorded_ns=())
    except ValueError:
        times = []
    return np.array(times, dtype=np.int64)


def drawn_give_ups(patience: Patience | None, plan: Plan, seed: int) -> Integers:
    if patience is None:
        return np.full(len(plan), -1, dtype=np.int64)
    moments = give_up_times_ns(patience, plan.planned_ns.tolist(), seed=seed)
    return np.array([-1 if one is None else one for one in moments], dtype=np.int64)


def shown(moment_ns: int) -> str:
    return "no time" if moment_ns < 0 else f"{moment_ns} ns"


def places_in_plan(trial: KeptTrial) -> Integers:
    """Of every record, where the plan has its request. Raises UnusableEvidence for one that comes twice and one that
    nobody planned; what was planned and is missing is judged."""
    ids, planned = trial.records.column("request_id").combine_chunks(), trial.plan.request_ids
    if ids.equals(planned):
        return np.arange(len(planned), dtype=np.int64)
    records = trial.path / RECORDS
    twice = first_of(pc.value_counts(ids).filter(pc.greater(pc.value_counts(ids).field("counts"), 1)).field("values"))
    if twice is not None:
        raise UnusableEvidence(f"{records}: request {twice}: request_id comes twice")
    surplus = first_of(ids.filter(pc.invert(pc.is_in(ids, planned))))
    if surplus is not None:
        raise UnusableEvidence(f"{records}: request {surplus}: {PLAN} beside it plans no such request")
    return np.asarray(pc.index_in(ids, planned).to_numpy(zero_copy_only=False), dtype=np.int64)


def first_of(texts: pa.Array) -> str | None:
    return str(texts[0]) if len(texts) else None


def against_plan(trial: KeptTrial, records: Records, places: Integers) -> Iterator[Contradiction]:
    """Each request of the records against the one of the plan."""
    plan, numbers = trial.plan, records.numbers
    yield Contradiction(numbers["row"] != plan.rows[places], f"row {{row}} isn't the one that {PLAN} plans")
    moved = moved_by_thinking(trial.manifest, records, plan.planned_ns[places])
    for name, planned in (("planned_ns", plan.planned_ns), ("give_up_ns", plan.give_up_ns)):
        wrong = (numbers[name] != planned[places]) & ~moved
        yield Contradiction(wrong, f"{name} {{{name}}} isn't that of {PLAN}")
    apart = (numbers["give_up_ns"] - numbers["planned_ns"]) != (plan.give_up_ns - plan.planned_ns)[places]
    yield Contradiction(moved & apart & records.known["give_up_ns"], f"give_up_ns {{give_up_ns}} isn't that of {PLAN}")
    warm = plan.planned_ns[places] < trial.window_ns
    yield Contradiction(warm & ~records.warm_up, "warm_up is false, and it was planned before the window")
    yield Contradiction(~warm & records.warm_up, "warm_up is true, and it was planned within the window")
    other = pc.not_equal(trial.records.column("level"), trial.level.name).to_numpy()
    yield Contradiction(np.asarray(other, dtype=bool), f"its level isn't {trial.level.name}, that of its plan")


def moved_by_thinking(manifest: Manifest, records: Records, planned_ns: Integers) -> Bools:
    """Later turns of a replay with a think time, which the client plans anew: each that long after an answer."""
    moved = records.numbers["planned_ns"] != planned_ns
    told = next((found for one in manifest.findings if (found := THINK.fullmatch(one))), None)
    if told is None or manifest.evidence_class != "imported":
        return np.zeros(len(moved), dtype=bool)
    think_ns = round(min(float(told[1]), LONGEST_THOUGHT_S) * NANOSECONDS)
    leaves = np.sort(records.numbers["ended_ns"][records.known["ended_ns"]]) + think_ns
    within = THOUGHT_NS + THOUGHT_DIGITS * think_ns
    return np.asarray(moved & near(leaves, records.numbers["planned_ns"], within), dtype=np.bool_)


def near(ascending: Integers, wanted: Integers, within: float) -> Bools:
    """Is one of the ascending moments at most so far from each wanted one?"""
    if not len(ascending):
        return np.zeros(len(wanted), dtype=bool)
    after = np.searchsorted(ascending, wanted)
    gaps = [np.abs(ascending[np.clip(after - step, 0, len(ascending) - 1)] - wanted) for step in (0, 1)]
    return np.asarray(np.minimum(*gaps) <= within, dtype=bool)
