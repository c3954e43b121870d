"""From directories of trials to the evidence that the rules take."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from decisions.commands.between_trials import DRAFTS, check_between
from decisions.commands.boots import Boot, Place
from decisions.rules.brief import Brief
from decisions.rules.evidence import (
    COLUMNS,
    MISSING,
    UNKNOWN_SERVER,
    Purpose,
    TrialEvidence,
    columns_of,
    window_and_warm_up,
)
from decisions.rules.validity import engine_tokens, issue_gaps, neighbours, token_gap, tokens_told, warm_up
from decisions.rules.wording import counted
from loadtests.evidence.against_engine import luck_of
from loadtests.evidence.contradictions import check_told
from loadtests.evidence.directories import MANIFEST, KeptTrial, UnusableEvidence, boots_in, kept_trial
from loadtests.evidence.manifest import Manifest
from loadtests.evidence.plans import Plan
from loadtests.evidence.record_columns import CHECKED
from loadtests.generator.exchange import client_faults
from loadtests.statistics.order import arm_orders
from loadtests.traffic.arrivals import exact
from loadtests.traffic.levels import Level
from loadtests.traffic.rows import NANOSECONDS

GENERATION_TOKENS = "vllm:generation_tokens_total"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
PREEMPTIONS = "vllm:num_preemptions_total"
# What a level must have in common with the brief's; the brief has the say on deadlines.
SAME_LOAD = {"arrival", "duration_s", "drain_s", "warm_up_s", "max_concurrency", "patience"}
# What is kept of the records once they are checked.
KEPT = (*COLUMNS, *DRAFTS)
# Between two boots in virtual time, which has no date: longer than any of them.
APART_NS = 10**15
# By their digest: both arms of a pair have the same plan, which is read once.
Plans = dict[str, Plan]
# Files and columns are read without the interpreter's lock; each reader holds one trial's records at a time.
READERS = 2


def read_boots(directories: Sequence[Path], purpose: Purpose, arm: str, plans: Plans) -> list[Boot]:
    """The boots of an arm, in the order of the directories given: the first is of the first pair."""
    found = [trials for one in directories for trials in boots_in(one)]
    with ThreadPoolExecutor(READERS) as readers:
        read = readers.map(lambda path: read_trial(path, plans), [one for trials in found for one in trials])
        # In the order of the directories, so that of several problems always the same is told.
        return [Boot(Place(purpose, pair, arm), list(islice(read, len(trials)))) for pair, trials in enumerate(found)]


def read_trial(path: Path, plans: Plans) -> KeptTrial:
    """With the columns that the rules read, once its files are found not to deny each other."""
    found = kept_trial(path, tuple(dict.fromkeys((*COLUMNS, *CHECKED))), plans)
    with as_evidence(path):
        check_told(found)
    return replace(found, records=found.records.select(list(KEPT)))


def check_pairs(baseline: Sequence[Boot], other: Sequence[Boot], names: tuple[str, str]) -> None:
    if len(baseline) != len(other):
        raise UnusableEvidence(
            f"{names[0]} has {counted(len(baseline), 'boot')} and {names[1]} {len(other)}: every pair takes one of each"
        )


def check_once(boots: Sequence[Boot]) -> None:
    """Another manifest makes no other trial of the same records. Two of which nothing was sent, their engine having
    died before them, may well agree."""
    seen: dict[str, Path] = {}
    for trial in (one for boot in boots for one in boot.trials):
        records = [trial.manifest.digests.records + luck_of(trial.manifest)] if anything_sent(trial) else []
        for told in (trial.manifest_sha256, *records):
            if told in seen:
                raise UnusableEvidence(same_trial(trial.path, seen[told]))
            seen[told] = trial.path


def same_trial(path: Path, other: Path) -> str:
    if path.resolve() == other.resolve():
        return f"{path} is named twice: a trial belongs to one boot of one arm"
    return f"{path} is the same trial as {other}: name it once"


def anything_sent(trial: KeptTrial) -> bool:
    sent = trial.records.column("sent_ns")
    return bool(len(sent) > sent.null_count)


def check_brief(brief: Brief, boots: Sequence[Boot]) -> None:
    """That the trials were run for this brief, as far as they tell."""
    wanted = brief.digest
    for boot in boots:
        part = brief.traffic.held_out if boot.place.purpose == "held-out" else brief.traffic.tuning
        kind = "held-out" if boot.place.purpose == "held-out" else "tuning"
        for trial in boot.trials:
            told = trial.manifest.digests
            if trial.manifest.stopped:
                raise UnusableEvidence(f"{trial.path} was stopped before its end: run it again")
            if told.brief not in (None, wanted):
                raise UnusableEvidence(f"{trial.path} was run for another brief: {told.brief}, not {wanted}")
            if told.part not in (None, part):
                raise UnusableEvidence(
                    f"{trial.path} was run on traffic {told.part}; the brief's {kind} part is {part}"
                )
            level_of(brief, trial)
    check_between(brief, boots)


def level_of(brief: Brief, trial: KeptTrial) -> Level:
    """The brief's level of that name, or the one with the same load: ``draftproof replay`` names none."""
    ran = trial.level
    load = ran.model_dump(include=SAME_LOAD)
    same = [one for one in brief.levels if one.model_dump(include=SAME_LOAD) == load]
    named = [one for one in same if one.name == ran.name]
    if named or len(same) == 1:
        return (named or same)[0]
    raise UnusableEvidence(f"{trial.path} ran level {ran.name}, {unlike(brief, ran, same)}")


def unlike(brief: Brief, ran: Level, same: Sequence[Level]) -> str:
    """Why none of the brief's levels is the one that ran."""
    if same:
        names = ", ".join(one.name for one in same)
        return f"and the brief has {len(same)} levels with this load, none of that name: {names}"
    named = next((one for one in brief.levels if one.name == ran.name), None)
    if named is None:
        return f"whose load is that of none of the brief's levels: {', '.join(one.name for one in brief.levels)}"
    theirs, ours = ran.model_dump(mode="json", include=SAME_LOAD), named.model_dump(mode="json", include=SAME_LOAD)
    differ = [name for name in Level.model_fields if theirs.get(name) != ours.get(name)]
    told = "; ".join(f"{name} {shown(theirs.get(name))}, in the brief {shown(ours.get(name))}" for name in differ)
    return f"under another load than the brief's level of that name: {told}"


def shown(value: Any) -> str:
    """A part of a level as in a brief, without what isn't set."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(one)}" for name, one in value.items() if one is not None) + "}"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def evidence_in(brief: Brief, boots: Sequence[Boot]) -> list[TrialEvidence]:
    """Raises UnusableEvidence where a boot has two trials at one level."""
    starts = virtual_starts(brief, boots) if all(one.virtual for one in boots) else {}
    return [trial for boot in boots for trial in boot_evidence(brief, boot, starts.get(boot.place))]


def virtual_starts(brief: Brief, boots: Sequence[Boot]) -> dict[Place, int]:
    """When boots in virtual time count as started: one after another, in the order that the brief drew."""
    starts: dict[Place, int] = {}
    for number, purpose in enumerate(("noise-floor", "held-out")):
        here = [one.place for one in boots if one.place.purpose == purpose]
        arms = sorted({one.arm for one in here} | {"baseline"}, key=lambda arm: arm != "baseline")
        pairs = max((one.pair + 1 for one in here), default=0)
        orders = arm_orders(pairs + pairs % 2, brief.rule.seed, arms=(arms[0], arms[-1]))
        for place in here:
            turn = 2 * place.pair + orders[place.pair].index(place.arm)
            starts[place] = APART_NS * (10_000 * number + turn)
    return starts


def boot_evidence(brief: Brief, boot: Boot, start_ns: int | None) -> Iterator[TrialEvidence]:
    levels: set[str] = set()
    began = [started_ns(one) for one in boot.trials]
    ended = [at + last_ns(one) for at, one in zip(began, boot.trials, strict=True)]
    times = (min(began), max(ended)) if start_ns is None else (start_ns, start_ns + APART_NS // 2)
    for trial in boot.trials:
        level = level_of(brief, trial)
        if level.name in levels:
            raise UnusableEvidence(f"{trial.path}: a boot has one trial at level {level.name}, and this is the second")
        levels.add(level.name)
        with as_evidence(trial.path):
            found = trial_evidence(brief, boot, trial, level, times)
        yield found


@contextmanager
def as_evidence(path: Path) -> Iterator[None]:
    """Whatever goes wrong within is for want of sense in the trial's files."""
    try:
        yield
    except UnusableEvidence:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UnusableEvidence(f"{path} can't be read as evidence: {type(error).__name__}: {error}") from error


def trial_evidence(brief: Brief, boot: Boot, trial: KeptTrial, level: Level, times: tuple[int, int]) -> TrialEvidence:
    manifest, place = trial.manifest, boot.place
    columns, warm_up_columns = window_and_warm_up(columns_of(trial.records.select(list(COLUMNS))))
    start_ns = round(exact(level.warm_up_s) * NANOSECONDS)
    difference = manifest.counters.difference if manifest.counters else {}
    expected = brief.configuration(place.candidate or "baseline").digest
    found = TrialEvidence(
        trial=f"{place.name}/{level.name}",
        boot=place.name,
        server=server_of(trial, place),
        purpose=place.purpose,
        pair=place.pair,
        arm=place.arm,
        candidate=place.candidate,
        level=level.name,
        evidence_class=manifest.evidence_class,
        # Where nobody recorded it, the fingerprints that the responses echo have to tell.
        configuration=manifest.digests.configuration or expected,
        planned=len(trial.plan) - len(warm_up_columns["row"]),
        window_s=level.duration_s,
        columns=columns,
        engine_tokens=whole(difference.get(GENERATION_TOKENS)),
        prefix_queries=whole(difference.get(PREFIX_QUERIES)),
        prefix_hits=whole(difference.get(PREFIX_HITS)),
        kv_cache_tokens=kv_cache_tokens(manifest),
        boot_started_ns=times[0],
        boot_stopped_ns=times[1],
        neighbour_cpu_share=neighbour_share(trial),
        warm_up_planned=manifest.warm_up.planned if manifest.warm_up else 0,
        warm_up_completed=manifest.warm_up.completed if manifest.warm_up else 0,
        died=False,
        window_start_ns=start_ns,
        warm_up_columns=warm_up_columns,
        preemptions=whole(difference.get(PREEMPTIONS)),
        client_faults=tuple(client_faults(manifest.findings)),
    )
    return replace(found, died=True) if boot.died and excused(found, told=bool(manifest.died)) else found


def excused(trial: TrialEvidence, *, told: bool) -> bool:
    """What died can't have counted everything. But the word alone excuses nothing: a trial before the death passes all
    the same, and in one after it the death shows in its requests and in no counter that says less than they do."""
    untouched = not issue_gaps(trial) and trial.prefix_queries is not None and trial.prefix_hits is not None
    checks = (warm_up([trial]), tokens_told(engine_tokens([trial]), [trial]), neighbours([trial], later=True))
    if untouched and all(one.ok for one in checks):
        return True
    return told and death_shows(trial) and (trial.engine_tokens is None or token_gap(trial) >= 0)


def death_shows(trial: TrialEvidence) -> bool:
    """After the last token that came, something failed, or something was sent and nothing came any more."""
    status, ended, sent = (trial.with_warm_up(name) for name in ("status", "ended_ns", "sent_ns"))
    last_ns = trial.with_warm_up("last_token_ns").max(initial=MISSING)
    failed = np.isin(status, ("failed", "not_sent")) & ((ended == MISSING) | (ended >= last_ns))
    unheard = (status == "timed_out") & ((sent == MISSING) | (sent > last_ns))
    return bool((failed | unheard).any())


def server_of(trial: KeptTrial, place: Place) -> str:
    """As this one trial tells it: two identities in one boot are for the check on fresh servers to find."""
    told = trial.manifest.engine.get("server_id")
    return str(told) if told else f"{UNKNOWN_SERVER}{place.name}"


def neighbour_share(trial: KeptTrial) -> float | None:
    """Raises UnusableEvidence for what can't be a share: it would count as a quiet machine."""
    told = trial.manifest.neighbour_cpu_share
    if told is not None and not 0 <= told <= 1:
        raise UnusableEvidence(
            f"{trial.path / MANIFEST}: neighbour_cpu_share: {told:g} is no share of the machine, from 0 to 1"
        )
    return told


def kv_cache_tokens(manifest: Manifest) -> int | None:
    told = manifest.engine.get("kv_cache_tokens")
    return int(told) if isinstance(told, int | float) else None


def whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def started_ns(trial: KeptTrial) -> int:
    """Of RFC 3339 in UTC; nine digits of a second are more than a datetime holds."""
    said = trial.manifest.started_at
    whole_seconds, _, rest = said.removesuffix("Z").partition(".")
    try:
        seconds = round(datetime.fromisoformat(f"{whole_seconds}+00:00").timestamp())
        return seconds * NANOSECONDS + int(rest.ljust(9, "0")[:9])
    except ValueError:
        raise UnusableEvidence(f"{trial.path / MANIFEST}: started_at: {said!r} is no time in UTC") from None


def last_ns(trial: KeptTrial) -> int:
    """When the trial's last request ended, from the trial's start."""
    return int(pc.max(trial.records.column("ended_ns")).as_py() or 0)
