"""What a trial's own files can't both say: evidence that denies itself was changed, or never measured.

Whatever holds here holds by construction of all that write trials: the client, the simulator, the workers. Nothing is
judged by it; a trial that breaks it can't be.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.evidence.directories import MANIFEST, RECORDS, KeptTrial, UnusableEvidence
from loadtests.evidence.manifest import NANOSECONDS, Manifest, named
from loadtests.evidence.records import STATUSES, read_records
from loadtests.evidence.summary import MISSING, NS_PER_MS, percentiles
from loadtests.traffic.arrivals import exact
from loadtests.traffic.levels import Level

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
# By what the same moment may differ from clock to clock: a timer fires so much too early at most.
CLOCKS_NS = 1_000_000
LAG_DIGITS_MS = 0.001
NEVER_FALL = ("_total", "_sum", "_count")
PREFIX_QUERIES, PREFIX_HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"

TIMES = ("planned_ns", "due_ns", "sent_ns", "first_token_ns", "last_token_ns", "ended_ns", "give_up_ns")
COUNTS = ("row", "prompt_tokens", "output_tokens", "chunks", "rounds", "draft_tokens", "accepted_tokens")
NUMBERS = (*TIMES, *COUNTS)
# What is read of the records beside what the caller reads.
CHECKED = (*NUMBERS, "accepted_histogram", "status", "finish_reason", "fingerprint", "warm_up")
# The later moment may not lie before the earlier one.
IN_ORDER = (
    ("planned_ns", "give_up_ns"),
    ("planned_ns", "due_ns"),
    ("planned_ns", "sent_ns"),
    ("planned_ns", "ended_ns"),
    ("due_ns", "sent_ns"),
    ("sent_ns", "first_token_ns"),
    ("first_token_ns", "last_token_ns"),
    ("sent_ns", "last_token_ns"),
    ("last_token_ns", "ended_ns"),
    ("first_token_ns", "ended_ns"),
    ("sent_ns", "ended_ns"),
)


@dataclass(frozen=True)
class Records:
    """The columns of a records file; integers with −1 for missing, statuses by their place in ``names``."""

    numbers: Mapping[str, Integers]
    known: Mapping[str, Bools]
    names: list[str]
    statuses: Integers
    has_finish_reason: Bools

    def of_status(self, status: str) -> Bools:
        place = self.names.index(status) if status in self.names else -1
        return np.asarray(self.statuses == place, dtype=bool)

    def status(self, place: int) -> str:
        return self.names[int(self.statuses[place])]


@dataclass(frozen=True)
class Contradiction:
    """``wrong`` marks the requests; ``said`` names columns in braces, for their values."""

    wrong: Bools
    said: str


def check_told(trial: KeptTrial, level: Level) -> None:
    """Raises UnusableEvidence with the file, the request or field, and what is wrong. ``level``: the manifest's own.
    The trial's records must have the columns of ``CHECKED``."""
    for said in in_manifest(trial.manifest, level):
        raise UnusableEvidence(f"{trial.path / MANIFEST}: {said}")
    records, table = trial.path / RECORDS, trial.records
    check_signs(table, records)
    found = records_in(table)
    for one in in_records(found, level, trial.manifest):
        if one.wrong.any():
            place = int(np.argmax(one.wrong))
            values = {name: int(column[place]) for name, column in found.numbers.items()}
            said = one.said.format(status=found.status(place), **values)
            raise UnusableEvidence(f"{records}: request {request_id(records, place)}: {said}")
    for said in in_summary(trial.manifest, table, found):
        raise UnusableEvidence(f"{trial.path / MANIFEST}: {said}")


def request_id(path: Path, place: int) -> str:
    """Read when there is something to say of it: a million names take their time."""
    return str(read_records(path, ["request_id"]).column("request_id")[place].as_py())


def records_in(table: pa.Table) -> Records:
    numbers = {
        name: np.asarray(pc.fill_null(table.column(name).cast(pa.int64()), MISSING).to_numpy(), dtype=np.int64)
        for name in NUMBERS
    }
    encoded = pc.fill_null(table.column("status"), "").combine_chunks().dictionary_encode()
    return Records(
        numbers=numbers,
        known={name: one != MISSING for name, one in numbers.items()},
        names=encoded.dictionary.to_pylist(),
        statuses=np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64),
        has_finish_reason=np.asarray(table.column("finish_reason").is_valid().to_numpy(), dtype=bool),
    )


def check_signs(table: pa.Table, path: Path) -> None:
    """Before missing becomes −1."""
    for name in NUMBERS:
        column = table.column(name)
        if (pc.min(column).as_py() or 0) < 0:
            place = pc.index(pc.less(column, 0), True).as_py()
            said = f"{name} {column[place].as_py()} is below 0"
            raise UnusableEvidence(f"{path}: request {request_id(path, place)}: {said}")
    counts = table.column("accepted_histogram").combine_chunks()
    if (pc.min(counts.flatten()).as_py() or 0) < 0:
        place = next(place for place, one in enumerate(counts.to_pylist()) if one and min(one) < 0)
        said = f"accepted_histogram {counts[place].as_py()} has a count below 0"
        raise UnusableEvidence(f"{path}: request {request_id(path, place)}: {said}")


def in_records(records: Records, level: Level, manifest: Manifest) -> Iterator[Contradiction]:
    strange = np.array([name not in STATUSES for name in records.names], dtype=bool)
    yield Contradiction(strange[records.statuses], f"status {{status!r}} is none of {', '.join(STATUSES)}")
    for earlier, later in IN_ORDER:
        both = records.known[earlier] & records.known[later]
        wrong = both & (records.numbers[later] < records.numbers[earlier] - CLOCKS_NS)
        yield Contradiction(wrong, f"{later} {{{later}}} lies before {earlier} {{{earlier}}}")
    yield from lacking(records, manifest)
    yield from unplanned_ends(records, level, manifest)
    yield from drafts(records)


def lacking(records: Records, manifest: Manifest) -> Iterator[Contradiction]:
    """A moment without the one it follows from, and a status without what it says of the request."""
    completed, came = records.of_status("completed"), records.numbers["chunks"] > 0
    for name in ("first_token_ns", "last_token_ns"):
        told = records.known[name] & ~records.known["sent_ns"]
        yield Contradiction(told, f"{name} {{{name}}} is told, and sent_ns is missing")
    for name in ("sent_ns", "ended_ns"):
        yield Contradiction(completed & ~records.known[name], f"status is completed, and {name} is missing")
    yield Contradiction(completed & ~records.has_finish_reason, "status is completed, and finish_reason is missing")
    text = ("last_token_ns", "first_token_ns") if streamed(manifest) else ("last_token_ns",)
    for name in text:
        wrong = completed & came & ~records.known[name]
        yield Contradiction(wrong, f"status is completed after {{chunks}} chunks, and {name} is missing")


def streamed(manifest: Manifest) -> bool:
    """Nobody sees the first token of an answer that comes whole. A manifest that says nothing is of streamed ones."""
    asked = manifest.engine.get("asked")
    return not (isinstance(asked, dict) and asked.get("stream") is False)


def unplanned_ends(records: Records, level: Level, manifest: Manifest) -> Iterator[Contradiction]:
    """What the client itself ends, it ends by the plan: its waiting, a user's patience, the drain."""
    numbers = records.numbers
    if level.max_concurrency is None:
        apart = np.abs(numbers["due_ns"] - numbers["planned_ns"]) > CLOCKS_NS
        said = "due_ns {due_ns} is another time than planned_ns {planned_ns}, and the level caps no concurrency"
        yield Contradiction(records.known["due_ns"] & apart, said)
    if level.patience is None:
        said = "give_up_ns {give_up_ns} is told, and the level has no patience: nobody was to give up"
        yield Contradiction(records.known["give_up_ns"], said)
    if manifest.stopped:
        return
    cancelled, gives_up = records.of_status("cancelled"), records.known["give_up_ns"]
    said = "status is cancelled, and give_up_ns is missing: its user was not to give up, and nobody stopped the trial"
    yield Contradiction(cancelled & ~gives_up, said)
    early = records.known["ended_ns"] & (numbers["ended_ns"] < numbers["give_up_ns"] - CLOCKS_NS)
    said = "status is cancelled, and ended_ns {ended_ns} lies before give_up_ns {give_up_ns}"
    yield Contradiction(cancelled & gives_up & early, said)
    end_ns = round((exact(level.span_s) + exact(level.drain_s)) * NANOSECONDS)
    open_till = records.known["ended_ns"] & (numbers["ended_ns"] < end_ns - CLOCKS_NS)
    said = f"status is timed_out, and ended_ns {{ended_ns}} lies before the end of the drain, {end_ns}"
    yield Contradiction(records.of_status("timed_out") & open_till, said)


def drafts(records: Records) -> Iterator[Contradiction]:
    numbers = records.numbers
    both = records.known["accepted_tokens"] & records.known["draft_tokens"]
    said = "accepted_tokens {accepted_tokens} are more than draft_tokens {draft_tokens}"
    yield Contradiction(both & (numbers["accepted_tokens"] > numbers["draft_tokens"]), said)
    # Of an answer that was cut off, the count of tokens may be older than that of the rounds.
    both = records.of_status("completed") & records.known["rounds"] & records.known["output_tokens"]
    said = "rounds {rounds} are more than output_tokens {output_tokens}: every round gives one at least"
    yield Contradiction(both & (numbers["rounds"] > numbers["output_tokens"]), said)


def in_manifest(manifest: Manifest, level: Level) -> Iterator[str]:
    for name, told, planned in (
        ("window_s", manifest.window_s, level.duration_s),
        ("drain_s", manifest.drain_s, level.drain_s),
    ):
        if told != planned:
            yield f"{name} is {told:g}, and {planned:g} in level"
    warm_up = manifest.warm_up
    if warm_up is not None and not 0 <= warm_up.completed <= warm_up.planned:
        yield f"warm_up.completed is {warm_up.completed} of {warm_up.planned} planned"
    tokens = manifest.engine.get("kv_cache_tokens")
    if isinstance(tokens, int | float) and tokens < 0:
        yield f"engine.kv_cache_tokens is {tokens:g}, below 0"
    yield from in_counters(manifest)


def in_counters(manifest: Manifest) -> Iterator[str]:
    if manifest.counters is None:
        return
    before, after, difference = (getattr(manifest.counters, one) for one in ("before", "after", "difference"))
    for name in sorted(before.keys() & after.keys() | difference.keys()):
        yield from in_counter(name, before.get(name), after.get(name), difference.get(name))
    queries, hits = difference.get(PREFIX_QUERIES), difference.get(PREFIX_HITS)
    if queries is not None and hits is not None and hits > queries:
        yield f"counters.difference: {PREFIX_HITS} {hits:g} is more than {PREFIX_QUERIES} {queries:g}"


def in_counter(name: str, before: float | None, after: float | None, difference: float | None) -> Iterator[str]:
    place = f"counters.difference.{name}"
    if before is None or after is None:
        yield f"{place} is told, and counters.{'before' if before is None else 'after'} has none"
        return
    if difference is None:
        yield f"{place} is missing, and before and after are told"
        return
    if not np.isclose(after - before, difference, rtol=1e-9, atol=1e-6):
        yield f"{place} is {difference:g}, and after − before is {after - before:g} ({after:g} − {before:g})"
    if name.partition("{")[0].endswith(NEVER_FALL) and (before < 0 or after < before):
        yield f"counters: {name} went from {before:g} to {after:g}, which no counter of one server does"


def in_summary(manifest: Manifest, table: pa.Table, records: Records) -> Iterator[str]:
    """The figures that the manifest tells of its records."""
    warm = np.asarray(table.column("warm_up").to_numpy(), dtype=bool)
    for name, told, found in (
        ("planned", manifest.planned, int((~warm).sum())),
        ("warm_up_requests", manifest.warm_up_requests, int(warm.sum())),
    ):
        if told != found:
            yield f"{name} is {told:,}, and {found:,} requests are in {RECORDS}"
    yield from other_counts("statuses", manifest.statuses, counts_of(records, ~warm))
    completed = pa.array(records.of_status("completed") & ~warm)
    fingerprints = pc.value_counts(table.column("fingerprint").filter(completed)).to_pylist()
    echoed = named({one["values"]: one["counts"] for one in fingerprints})
    yield from other_counts("fingerprints", manifest.fingerprints, echoed)
    yield from other_lag(manifest.lag_ms, lag_of(records, ~warm))


def counts_of(records: Records, chosen: Bools) -> dict[str, int]:
    counts = np.bincount(records.statuses[chosen], minlength=len(records.names))
    return dict(zip(records.names, counts.tolist(), strict=True))


def other_counts(field: str, told: Mapping[str, int], found: Mapping[str, int]) -> Iterator[str]:
    for name in sorted(told.keys() | found.keys()):
        if told.get(name, 0) != found.get(name, 0):
            yield f"{field}.{name} is {told.get(name, 0):,}, and {found.get(name, 0):,} requests are in {RECORDS}"


def lag_of(records: Records, chosen: Bools) -> dict[str, float] | None:
    numbers = records.numbers
    due = np.where(records.known["due_ns"], numbers["due_ns"], numbers["planned_ns"])
    left = records.known["sent_ns"] & chosen
    return percentiles(((numbers["sent_ns"] - due) / NS_PER_MS)[left])


def other_lag(told: Mapping[str, float] | None, found: Mapping[str, float] | None) -> Iterator[str]:
    if told is None or found is None:
        if told is not found:
            yield f"lag_ms is {shown(told)}, and by {RECORDS} it is {shown(found)}"
        return
    for name, number in found.items():
        if name not in told or abs(told[name] - number) > LAG_DIGITS_MS:
            yield f"lag_ms.{name} is {told.get(name, 'missing')}, and by {RECORDS} it is {number:g}"


def shown(lag: Mapping[str, float] | None) -> str:
    return "null" if lag is None else f"at most {max(lag.values(), default=0):g} ms"
