"""What a trial's own files can't both say: evidence that denies itself was changed, or never measured.

Whatever holds here holds by construction of all that write trials: the client, the simulator, the workers. Nothing is
judged by it; a trial that breaks it can't be. What records and plan tell of each other is in ``as_planned``.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadtests.evidence.against_engine import in_class, in_drafts, server_times
from loadtests.evidence.as_planned import against_plan, in_plan, near, places_in_plan
from loadtests.evidence.directories import MANIFEST, PLAN, RECORDS, KeptTrial, UnusableEvidence
from loadtests.evidence.manifest import NANOSECONDS, Manifest, named
from loadtests.evidence.record_columns import NUMBERS, Bools, Contradiction, Records, records_in
from loadtests.evidence.records import STATUSES
from loadtests.evidence.summary import NS_PER_MS, percentiles
from loadtests.traffic.arrivals import exact
from loadtests.traffic.levels import Level
from loadtests.traffic.rows import EVERY_CLASS

# By what the same moment may differ from clock to clock. The timers of a client round to milliseconds twice, each its
# delay and the time of its loop, and so fire one and a half too early at most.
CLOCKS_NS = 2_000_000
# So late a client may be in hearing what came before it closed, or before a user gave up.
HEARD_LATE_NS = 1_000_000_000
LAG_DIGITS_MS = 0.001
NEVER_FALL = ("_total", "_sum", "_count")
PREFIX_QUERIES, PREFIX_HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"

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


def check_told(trial: KeptTrial) -> None:
    """Raises UnusableEvidence with the file, the request or field, and what is wrong. The trial's records must have the
    columns of ``CHECKED``."""
    manifest, table = trial.manifest, trial.records
    refuse_first(trial.path / MANIFEST, in_manifest(manifest, trial.level))
    refuse_first(trial.path / PLAN, in_plan(trial.plan, trial.level, manifest))
    check_signs(trial)
    found, places = records_in(table), places_in_plan(trial)
    for one in (*in_records(found, trial), *against_plan(trial, found, places), *server_times(found, manifest)):
        if one.wrong.any():
            place = int(np.argmax(one.wrong))
            values = {name: int(column[place]) for name, column in found.numbers.items()}
            raise UnusableEvidence(said_of(trial, place, one.said.format(status=found.status(place), **values)))
    refuse_first(trial.path / MANIFEST, in_summary(manifest, table, found))
    refuse_first(trial.path / MANIFEST, in_drafts(found, manifest))


def refuse_first(path: Path, contradictions: Iterator[str]) -> None:
    for said in contradictions:
        raise UnusableEvidence(f"{path}: {said}")


def said_of(trial: KeptTrial, place: int, said: str) -> str:
    name = trial.records.column("request_id")[place].as_py()
    return f"{trial.path / RECORDS}: request {name}: {said}"


def check_signs(trial: KeptTrial) -> None:
    """Before missing becomes −1."""
    table = trial.records
    for name in NUMBERS:
        column = table.column(name)
        if (pc.min(column).as_py() or 0) < 0:
            place = pc.index(pc.less(column, 0), True).as_py()
            raise UnusableEvidence(said_of(trial, place, f"{name} {column[place].as_py()} is below 0"))
    counts = table.column("accepted_histogram").combine_chunks()
    if (pc.min(counts.flatten()).as_py() or 0) < 0:
        place = next(place for place, one in enumerate(counts.to_pylist()) if one and min(one) < 0)
        said = f"accepted_histogram {counts[place].as_py()} has a count below 0"
        raise UnusableEvidence(said_of(trial, place, said))


def in_records(records: Records, trial: KeptTrial) -> Iterator[Contradiction]:
    strange = np.array([name not in STATUSES for name in records.names], dtype=bool)
    yield Contradiction(strange[records.statuses], f"status {{status!r}} is none of {', '.join(STATUSES)}")
    for earlier, later in IN_ORDER:
        both = records.known[earlier] & records.known[later]
        wrong = both & (records.numbers[later] < records.numbers[earlier] - CLOCKS_NS)
        yield Contradiction(wrong, f"{later} {{{later}}} lies before {earlier} {{{earlier}}}")
    reserved = pc.equal(trial.records.column("class"), EVERY_CLASS).to_numpy()
    said = f"its class is {EVERY_CLASS!r}, which stands for all classes together: give the class another name"
    yield Contradiction(np.asarray(reserved, dtype=bool), said)
    yield from lacking(records, trial.manifest)
    yield from unplanned_ends(records, trial.level, trial.manifest)
    yield from too_late(records, trial.level)
    yield from too_many_open(records, trial.level)
    yield from drafts(records)


def lacking(records: Records, manifest: Manifest) -> Iterator[Contradiction]:
    """A moment without the one it follows from, and a status without what it says of the request."""
    completed, came = records.of_status("completed"), records.numbers["chunks"] > 0
    for name in ("first_token_ns", "last_token_ns"):
        told = records.known[name] & ~records.known["sent_ns"]
        yield Contradiction(told, f"{name} {{{name}}} is told, and sent_ns is missing")
    for name in ("sent_ns", "ended_ns"):
        yield Contradiction(completed & ~records.known[name], f"status is completed, and {name} is missing")
    never_ended = records.known["sent_ns"] & ~records.known["ended_ns"]
    yield Contradiction(never_ended, "status is {status}, sent_ns {sent_ns} is told, and ended_ns is missing")
    sent = records.of_status("not_sent") & records.known["sent_ns"]
    yield Contradiction(sent, "status is not_sent, and sent_ns {sent_ns} is told")
    yield Contradiction(completed & records.has_error, "status is completed, and error says why it isn't")
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
    end_ns = drain_end_ns(level)
    open_till = records.known["ended_ns"] & (numbers["ended_ns"] < end_ns - CLOCKS_NS)
    said = f"status is timed_out, and ended_ns {{ended_ns}} lies before the end of the drain, {end_ns}"
    yield Contradiction(records.of_status("timed_out") & open_till, said)


def drain_end_ns(level: Level) -> int:
    return math.ceil((exact(level.span_s) + exact(level.drain_s)) * NANOSECONDS)


def too_late(records: Records, level: Level) -> Iterator[Contradiction]:
    """Once the drain is over the client has closed every connection, and once a user has given up, theirs."""
    numbers, end_ns = records.numbers, drain_end_ns(level)
    # A client that was late in sending was as late in closing: its lag is judged, and no contradiction.
    lags = (numbers["sent_ns"] - numbers["due_ns"])[records.known["sent_ns"] & records.known["due_ns"]]
    heard_late_ns = HEARD_LATE_NS + int(lags.max(initial=0))
    for name in ("sent_ns", "first_token_ns", "last_token_ns"):
        late = records.known[name] & (numbers[name] > end_ns + heard_late_ns)
        yield Contradiction(late, f"{name} {{{name}}} lies after the end of the drain, {end_ns}")
    completed, ended = records.of_status("completed"), numbers["ended_ns"]
    late = completed & (ended > end_ns + heard_late_ns)
    said = f"status is completed, and ended_ns {{ended_ns}} lies after the end of the drain, {end_ns}"
    yield Contradiction(late, said)
    late = completed & records.known["give_up_ns"] & (ended > numbers["give_up_ns"] + heard_late_ns)
    said = "status is completed, and ended_ns {ended_ns} lies after give_up_ns {give_up_ns}: its user had given up"
    yield Contradiction(late, said)


def too_many_open(records: Records, level: Level) -> Iterator[Contradiction]:
    """Where the level caps what is open, a request leaves as planned or when another one ends."""
    if level.max_concurrency is None:
        return
    numbers, known = records.numbers, records.known
    ends = np.sort(numbers["ended_ns"][known["ended_ns"]])
    waited = known["due_ns"] & (numbers["due_ns"] > numbers["planned_ns"] + CLOCKS_NS)
    said = "due_ns {due_ns} is neither planned_ns {planned_ns} nor when another request ended and its slot came free"
    yield Contradiction(waited & ~near(ends, numbers["due_ns"], CLOCKS_NS), said)
    left = np.flatnonzero(known["sent_ns"] & known["ended_ns"])
    order = left[np.argsort(numbers["sent_ns"][left], kind="stable")]
    freed = np.sort(numbers["ended_ns"][left])[: max(0, len(order) - level.max_concurrency)]
    beyond = np.zeros(len(waited), dtype=bool)
    later = order[level.max_concurrency :]
    beyond[later] = numbers["sent_ns"][later] < freed - CLOCKS_NS
    said = f"sent_ns {{sent_ns}}: {level.max_concurrency} others were open, and the level allows no more"
    yield Contradiction(beyond, said)


def drafts(records: Records) -> Iterator[Contradiction]:
    numbers = records.numbers
    both = records.known["accepted_tokens"] & records.known["draft_tokens"]
    said = "accepted_tokens {accepted_tokens} are more than draft_tokens {draft_tokens}"
    yield Contradiction(both & (numbers["accepted_tokens"] > numbers["draft_tokens"]), said)
    # Of an answer that was cut off, the count of tokens may be older than that of the rounds.
    both = records.of_status("completed") & records.known["rounds"] & records.known["output_tokens"]
    said = "rounds {rounds} are more than output_tokens {output_tokens}: every round gives one at least"
    yield Contradiction(both & (numbers["rounds"] > numbers["output_tokens"]), said)
    told = records.histograms
    for name, counted, what in (
        ("rounds", told.rounds, "the sum of accepted_histogram"),
        ("accepted_tokens", told.accepted, "what accepted_histogram counts"),
    ):
        wrong = told.told & records.known[name] & (counted != numbers[name])
        yield Contradiction(wrong, f"{name} {{{name}}} isn't {what}")


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
    if warm_up is not None and warm_up.completed + len(warm_up.errors) != warm_up.planned:
        said = f"warm_up.completed is {warm_up.completed} of {warm_up.planned} planned"
        yield f"{said}, and warm_up.errors has {len(warm_up.errors)}"
    yield from in_class(manifest)
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
    warm = records.warm_up
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
