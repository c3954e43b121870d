"""What a verdict is computed from: one ``TrialEvidence`` per trial, as plain arrays and numbers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decisions.rules.brief import Brief
from loadtests.evidence.record_columns import floats_of, integers_of
from loadtests.statistics.attainment import seconds_since_planned, within_deadline

Purpose = Literal["noise-floor", "tuning", "held-out", "fallback"]
EvidenceClass = Literal["measured", "imported", "simulated"]
Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MISSING = -1
ALL = "all"
STATUSES = ("completed", "failed", "timed_out", "cancelled", "refused", "not_sent")
# A server that nobody identified is named so, and by what stands for it.
UNKNOWN_SERVER = "unknown server of "
# What the rules and the tested range read of a records file; the rest isn't made into arrays.
COLUMNS = (
    *("row", "class", "prompt_sha256", "prompt_tokens", "planned_ns", "due_ns", "sent_ns", "first_token_ns"),
    *("last_token_ns", "ended_ns", "give_up_ns", "server_decode_ms", "status", "finish_reason", "output_tokens"),
    *("fingerprint", "warm_up"),
)
DIGESTS = "prompt_sha256"


@dataclass(frozen=True, eq=False)
class TrialEvidence:
    """One trial. ``columns`` are those of its Parquet as ``columns_of`` gives them: shape (planned,) each, integers
    with −1 for missing (a time or a count can't be negative), floats with NaN, texts with None.

    Both they and ``planned`` leave the level's warm-up out; its requests are in ``warm_up_columns``, for what the
    engine counted of all. The window of ``window_s`` begins at ``window_start_ns``."""

    trial: str
    boot: str
    server: str
    purpose: Purpose
    pair: int | None
    arm: str
    candidate: str | None
    level: str
    evidence_class: EvidenceClass
    configuration: str
    planned: int
    window_s: float
    columns: Mapping[str, Array]
    engine_tokens: int | None
    prefix_queries: int | None
    prefix_hits: int | None
    kv_cache_tokens: int | None
    boot_started_ns: int
    boot_stopped_ns: int
    neighbour_cpu_share: float | None
    warm_up_planned: int
    warm_up_completed: int
    died: bool
    window_start_ns: int = 0
    warm_up_columns: Mapping[str, Array] = field(default_factory=dict)
    preemptions: int | None = None
    # Findings of requests that failed by the client's own fault.
    client_faults: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, int, str, str, str, int, str]:
        """A total order, so that a verdict doesn't depend on the order in which its trials were read."""
        pair = -1 if self.pair is None else self.pair
        return self.purpose, pair, self.arm, self.candidate or "", self.level, self.boot_started_ns, self.trial

    @cached_property
    def classes(self) -> tuple[list[str], Integers]:
        """The classes by name, and of every request which of them."""
        return coded(self.columns["class"])

    @cached_property
    def statuses(self) -> tuple[list[str], Integers]:
        return coded(self.columns["status"])

    @cached_property
    def completion_s(self) -> Floats:
        return self.since_planned_s("last_token_ns")

    @cached_property
    def first_token_s(self) -> Floats:
        return self.since_planned_s("first_token_ns")

    def since_planned_s(self, moment: str) -> Floats:
        columns = self.columns
        return seconds_since_planned(columns[moment], columns["planned_ns"], with_status(self, "completed"))

    def with_warm_up(self, column: str) -> Array:
        """A column over everything that was sent."""
        if not self.warm_up_columns:
            return self.columns[column]
        return np.concatenate([self.warm_up_columns[column], self.columns[column]])


def columns_of(table: pa.Table) -> dict[str, Array]:
    """A records table as arrays of one length; missing is −1 in integers, NaN in floats, None in texts and lists. The
    prompts' digests, of which every request has its own, are bytes, empty for missing."""
    return {
        name: digests_of(table.column(name)) if name == DIGESTS else array_of(table.column(name))
        for name in table.column_names
    }


def window_and_warm_up(columns: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The columns of the requests in the window, and of those in the level's warm-up."""
    warm = columns["warm_up"]
    first = int(warm.sum())
    if warm[:first].all():  # As a trial is planned: nothing needs to be copied.
        return (
            {name: one[first:] for name, one in columns.items()},
            {name: one[:first] for name, one in columns.items()},
        )
    return ({name: one[~warm] for name, one in columns.items()}, {name: one[warm] for name, one in columns.items()})


def array_of(column: pa.ChunkedArray) -> Array:
    if pa.types.is_integer(column.type):
        return integers_of(column)
    if pa.types.is_floating(column.type):
        return floats_of(column)
    if pa.types.is_boolean(column.type):
        return np.asarray(column.to_numpy(), dtype=bool)
    if pa.types.is_string(column.type):
        # Each text is made once, however often it comes.
        encoded = column.combine_chunks().dictionary_encode()
        texts = objects([*encoded.dictionary.to_pylist(), None])
        places = pc.fill_null(encoded.indices, len(texts) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(texts[places], dtype=object)
    return objects(column.to_pylist())


def digests_of(column: pa.ChunkedArray) -> Array:
    """As bytes of one width, where they lie: as texts a million of them would take most of the reading."""
    texts = pc.fill_null(column, "").combine_chunks()
    widths = pc.min_max(pc.binary_length(texts)).as_py()
    if not widths["min"] or widths["min"] != widths["max"]:
        return np.array(texts.cast(pa.binary()).to_pylist(), dtype=np.bytes_)
    _, offsets, content = texts.buffers()
    start = int(np.frombuffer(offsets, dtype=np.int32)[texts.offset])
    return np.frombuffer(content, dtype=f"S{widths['min']}", count=len(texts), offset=start)


def objects(values: list[Any]) -> Array:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def coded(texts: Array) -> tuple[list[str], Integers]:
    """The different texts in order, and of each one its place among them."""
    encoded = pa.array(texts.astype(object), pa.string()).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=lambda one: str(names[one]))
    places = np.empty(len(names), dtype=np.int64)
    places[order] = np.arange(len(names))
    return [names[one] for one in order], places[np.asarray(encoded.indices.to_numpy(zero_copy_only=False))]


def in_class(trial: TrialEvidence, class_: str) -> Bools:
    if class_ == ALL:
        return np.ones(len(trial.columns["row"]), dtype=bool)
    return among(*trial.classes, {class_})


def among(names: list[str], places: Integers, chosen: Collection[str]) -> Bools:
    return np.array([name in chosen for name in names], dtype=bool)[places]


def with_status(trial: TrialEvidence, *statuses: str) -> Bools:
    return among(*trial.statuses, statuses)


def gave_up(trial: TrialEvidence) -> Bools:
    """Which requests their users cancelled as planned: no failure of the server, and not within deadline either."""
    columns = trial.columns
    if "give_up_ns" not in columns:
        return np.zeros(len(columns["status"]), dtype=bool)
    waited = (columns["give_up_ns"] != MISSING) & (columns["ended_ns"] >= columns["give_up_ns"])
    return np.asarray(waited & with_status(trial, "cancelled"), dtype=bool)


def classes_of(trial: TrialEvidence) -> list[str]:
    return list(trial.classes[0])


def first_token_s(trial: TrialEvidence) -> Floats:
    """Seconds from the planned arrival to the first token, per planned request; +inf where it never completed, be it
    that its user gave up as planned."""
    return trial.first_token_s


def completion_s(trial: TrialEvidence) -> Floats:
    return trial.completion_s


def has_deadline(trial: TrialEvidence, brief: Brief) -> Bools:
    judged = {name for name in classes_of(trial) if brief.deadline(name, trial.level) is not None}
    return among(*trial.classes, judged)


def within(trial: TrialEvidence, brief: Brief) -> Bools:
    """Which planned requests were within their class's deadline; one without any deadline never is."""
    names, places = trial.classes
    deadlines = [brief.deadline(name, trial.level) for name in names]
    first = np.array([-1.0 if one is None else one.first_token_s for one in deadlines])
    completion = np.array([-1.0 if one is None else one.completion_s for one in deadlines])
    return within_deadline(trial.first_token_s, trial.completion_s, first[places], completion[places])


ByRow = tuple[Integers, Array]


def by_row(trial: TrialEvidence, values: Array, chosen: Bools) -> ByRow:
    """The chosen requests' rows, rising, and their values; of a row that was sent more than once the last."""
    rows, found = trial.columns["row"][chosen], values[chosen]
    order = np.argsort(rows, kind="stable")
    rows, found = rows[order], found[order]
    last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
    return rows[last], found[last]


def matched(before: ByRow, after: ByRow) -> tuple[Array, Array]:
    """The values of both arms at the rows that both have."""
    _, left, right = np.intersect1d(before[0], after[0], assume_unique=True, return_indices=True)
    return before[1][left], after[1][right]
