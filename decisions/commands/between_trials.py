"""What the trials of a brief can't tell beside each other, or as an arm of it: such evidence is refused, not judged."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decisions.commands.boots import Boot
from decisions.rules.brief import Brief
from decisions.rules.validity import SHARED_LIMIT
from decisions.rules.wording import share
from loadtests.evidence.against_engine import DRAFTED, luck_of, started_by
from loadtests.evidence.directories import MANIFEST, PLAN, RECORDS, KeptTrial, UnusableEvidence
from loadtests.evidence.record_columns import Bools, Integers, integers_of
from loadtests.evidence.records import read_records

SPECULATIVE_OPTIONS = ("--speculative-config", "--speculative", "-sc")
SPECULATIVE_COUNTERS = "vllm:spec_decode_"
Columns = Integers | npt.NDArray[np.uint64]
DRAFTS = tuple(name for name, _ in DRAFTED)
# What a server tells of its start, whichever trial is asked.
OF_A_START = ("kv_cache_tokens", "version", "device", "command")
# Of fewer answers than these it may be chance that they took the same nanoseconds.
TWIN_ANSWERS = 5


def check_between(brief: Brief, boots: Sequence[Boot]) -> None:
    """Raises UnusableEvidence."""
    for boot in boots:
        for trial in boot.trials:
            check_arm(trial, boot.place.arm)
    check_classes(brief, boots)
    for purposes in (("held-out",), ("noise-floor", "tuning")):
        check_rows([boot for boot in boots if boot.place.purpose in purposes])
    check_twins(one for boot in boots for one in boot.trials)
    for boot in boots:
        check_server(boot)


def check_arm(trial: KeptTrial, arm: str) -> None:
    """The baseline has no speculation at all, be it in noise floor or pair; a candidate was started with it."""
    command, manifest = started_by(trial.manifest), trial.path / MANIFEST
    speculates = any(word.partition("=")[0] in SPECULATIVE_OPTIONS for word in command)
    if arm == "candidate":
        if command and not speculates:
            raise UnusableEvidence(f"{manifest}: engine.command starts no speculation, and the trial is a candidate's")
        return
    without = f"and the trial is of the {arm}: a baseline is a server that was started without speculation"
    if speculates:
        raise UnusableEvidence(f"{manifest}: engine.command starts speculation, {without}")
    for name, number in counted_drafts(trial):
        raise UnusableEvidence(f"{manifest}: counters: {name} is {number:g}, {without}")
    for name in DRAFTS:
        column = trial.records.column(name)
        if (pc.max(column).as_py() or 0) > 0:
            place = pc.index(pc.greater(column, 0), True).as_py()
            said = f"request {request_id(trial.path / RECORDS, place)}: {name} is {column[place].as_py()}, {without}"
            raise UnusableEvidence(f"{trial.path / RECORDS}: {said}")


def request_id(path: Path, place: int) -> str:
    """Read when there is something to say of it: a million names take their room."""
    return str(read_records(path, ["request_id"]).column("request_id")[place].as_py())


def counted_drafts(trial: KeptTrial) -> Iterator[tuple[str, float]]:
    counters = trial.manifest.counters
    for told in (counters.after, counters.before, counters.difference) if counters else ():
        yield from ((name, one) for name, one in sorted(told.items()) if name.startswith(SPECULATIVE_COUNTERS) and one)


def check_classes(brief: Brief, boots: Sequence[Boot]) -> None:
    """Nobody measures an engine that the brief itself calls simulated."""
    for boot in boots:
        runtime = brief.configuration(boot.place.candidate or "baseline").runtime
        for trial in boot.trials:
            if trial.manifest.evidence_class == "measured" and runtime.evidence_class != "measured":
                said = f"evidence_class is measured, and the brief's configuration runs a {runtime.engine} engine"
                raise UnusableEvidence(f"{trial.path / MANIFEST}: {said}")


def check_rows(boots: Sequence[Boot]) -> None:
    """A row of a part is one row in every plan; a request under another row's number is the same request again."""
    trials: dict[int, KeptTrial] = {}
    for one in (trial for boot in boots for trial in boot.trials):
        trials.setdefault(id(one.plan), one)
    if not trials:
        return
    plans = [one.plan for one in trials.values()]
    rows, keys = np.concatenate([one.rows for one in plans]), np.concatenate([one.row_keys for one in plans])
    owners = np.repeat(np.arange(len(plans)), [len(one) for one in plans])
    order, wrong = neighbours_apart(rows, keys)
    if wrong.any():
        first = int(np.argmax(wrong))
        paths = [list(trials.values())[owners[order[one]]].path for one in (first, first + 1)]
        raise UnusableEvidence(
            f"{paths[1] / PLAN}: row {rows[order[first]]} has another SHA-256 than in {paths[0] / PLAN}: both are of "
            "one part of the traffic"
        )
    order, renumbered = neighbours_apart(keys, rows)
    counts = np.bincount(owners[order[1:][renumbered]], minlength=len(plans))
    for trial, plan, count in zip(trials.values(), plans, counts.tolist(), strict=True):
        # Rows of a part differ, at least in their ids; a file of lines that somebody repeated is no forgery.
        if count > SHARED_LIMIT * len(plan):
            said = f"{share(count / len(plan))} of its requests are those of other rows under another number"
            raise UnusableEvidence(f"{trial.path / PLAN}: {said}: a part has each of its rows once")


def neighbours_apart(names: Columns, values: Columns) -> tuple[Integers, Bools]:
    """An order by name, and which of its steps from one to the next keep the name and change the value."""
    for kind in ("quicksort", "stable"):
        order = np.argsort(names, kind=kind)
        ordered, told = names[order], values[order]
        apart = (ordered[1:] == ordered[:-1]) & (told[1:] != told[:-1])
        if not apart.any():
            break
    # Where something is to be said, it is the same on every machine: slower, in the order given.
    return order, apart


def check_twins(trials: Iterable[KeptTrial]) -> None:
    """No two measurements take the same nanoseconds, request by request."""
    seen: dict[str, Path] = {}
    for trial in trials:
        took = durations(trial.records)
        if took is None:
            continue
        took += luck_of(trial.manifest)
        if took in seen:
            said = f"every answer took the same nanoseconds as in {seen[took] / RECORDS}: one is a copy of the other"
            raise UnusableEvidence(f"{trial.path / RECORDS}: {said}")
        seen[took] = trial.path


def durations(records: pa.Table) -> str | None:
    """A digest of how long the answers took, whenever they came; None where there are too few."""
    sent, last = records.column("sent_ns"), records.column("last_token_ns")
    if len(last) - last.null_count < TWIN_ANSWERS:
        return None
    return sha256(integers_of(pc.subtract(last, sent)).tobytes()).hexdigest()


def check_server(boot: Boot) -> None:
    """The trials of one server tell one start of it."""
    for before, after in pairwise(boot.trials):
        first, second = before.manifest.engine, after.manifest.engine
        if not first.get("server_id") or first.get("server_id") != second.get("server_id"):
            continue
        for name in OF_A_START:
            if first.get(name) != second.get(name):
                said = f"engine.{name} is another than in {before.path / MANIFEST}, and the server is the same"
                raise UnusableEvidence(f"{after.path / MANIFEST}: {said}")


def drafted(boots: Sequence[Boot]) -> int | None:
    """Tokens that the candidate drafted in its held-out trials, by the engine's counters, else by the answers; None
    where a trial with answers tells neither."""
    found = [drafts_of(one) for boot in boots if boot.place.arm == "candidate" for one in boot.trials]
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def drafts_of(trial: KeptTrial) -> int | None:
    counters, column = trial.manifest.counters, trial.records.column("draft_tokens")
    counted = counters.difference.get(dict(DRAFTED)["draft_tokens"]) if counters else None
    told = None if len(column) == column.null_count else int(pc.sum(column).as_py())
    return told if counted is None else round(counted)
