"""What a verdict is computed from: one ``TrialEvidence`` per trial, as plain arrays and numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from decisions.rules.brief import Brief
from loadtests.statistics.attainment import seconds_since_planned, within_deadline

Purpose = Literal["noise-floor", "tuning", "held-out", "fallback"]
EvidenceClass = Literal["measured", "imported", "simulated"]
Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

MISSING = -1
ALL = "all"
STATUSES = ("completed", "failed", "timed_out", "cancelled", "refused", "not_sent")


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

    @property
    def order(self) -> tuple[str, int, str, str, str, int, str]:
        """A total order, so that a verdict doesn't depend on the order in which its trials were read."""
        pair = -1 if self.pair is None else self.pair
        return self.purpose, pair, self.arm, self.candidate or "", self.level, self.boot_started_ns, self.trial

    def with_warm_up(self, column: str) -> Array:
        """A column over everything that was sent."""
        if not self.warm_up_columns:
            return self.columns[column]
        return np.concatenate([self.warm_up_columns[column], self.columns[column]])


def columns_of(table: pa.Table) -> dict[str, Array]:
    """A records table as arrays of one length; missing is −1 in integers, NaN in floats, None in texts and lists."""
    return {name: array_of(table.column(name)) for name in table.column_names}


def window_and_warm_up(columns: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The columns of the requests in the window, and of those in the level's warm-up."""
    warm = columns["warm_up"]
    return ({name: one[~warm] for name, one in columns.items()}, {name: one[warm] for name, one in columns.items()})


def array_of(column: pa.ChunkedArray) -> Array:
    if pa.types.is_integer(column.type):
        filled = pc.fill_null(column.cast(pa.int64()), MISSING)
        return np.asarray(filled.to_numpy(), dtype=np.int64)
    if pa.types.is_floating(column.type):
        return np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(), dtype=np.float64)
    if pa.types.is_boolean(column.type):
        return np.asarray(column.to_pylist(), dtype=bool)
    texts = np.empty(len(column), dtype=object)
    texts[:] = column.to_pylist()
    return texts


def in_class(trial: TrialEvidence, class_: str) -> Bools:
    classes = trial.columns["class"]
    return np.ones(len(classes), dtype=bool) if class_ == ALL else np.asarray(classes == class_, dtype=bool)


def with_status(trial: TrialEvidence, *statuses: str) -> Bools:
    return np.isin(trial.columns["status"].astype(str), statuses)


def gave_up(trial: TrialEvidence) -> Bools:
    """Which requests their users cancelled as planned: no failure of the server, and not within deadline either."""
    columns = trial.columns
    if "give_up_ns" not in columns:
        return np.zeros(len(columns["status"]), dtype=bool)
    waited = (columns["give_up_ns"] != MISSING) & (columns["ended_ns"] >= columns["give_up_ns"])
    return np.asarray(waited & with_status(trial, "cancelled"), dtype=bool)


def classes_of(trial: TrialEvidence) -> list[str]:
    return sorted({str(one) for one in trial.columns["class"]})


def first_token_s(trial: TrialEvidence) -> Floats:
    """Seconds from the planned arrival to the first token, per planned request; +inf where it never completed, be it
    that its user gave up as planned."""
    columns = trial.columns
    return seconds_since_planned(columns["first_token_ns"], columns["planned_ns"], with_status(trial, "completed"))


def completion_s(trial: TrialEvidence) -> Floats:
    columns = trial.columns
    return seconds_since_planned(columns["last_token_ns"], columns["planned_ns"], with_status(trial, "completed"))


def has_deadline(trial: TrialEvidence, brief: Brief) -> Bools:
    judged = {name for name in classes_of(trial) if brief.deadline(name, trial.level) is not None}
    return np.isin(trial.columns["class"].astype(str), sorted(judged))


def within(trial: TrialEvidence, brief: Brief) -> Bools:
    """Which planned requests were within their class's deadline; one without any deadline never is."""
    classes = trial.columns["class"]
    first_limit, completion_limit = np.full(len(classes), -1.0), np.full(len(classes), -1.0)
    for name in classes_of(trial):
        deadline = brief.deadline(name, trial.level)
        if deadline is not None:
            first_limit[classes == name] = deadline.first_token_s
            completion_limit[classes == name] = deadline.completion_s
    return within_deadline(first_token_s(trial), completion_s(trial), first_limit, completion_limit)
