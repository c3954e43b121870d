"""Imported trials as pages show them: beside each other, each with what its file tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from decisions.charts.completion import completion_ecdf
from decisions.charts.figure import Chart
from decisions.models import BriefRevision, ImportedTrial
from decisions.rules.brief import Brief
from decisions.rules.evidence import Floats, columns_of
from decisions.rules.imported import label, refusal
from decisions.rules.states import DRAFT, FROZEN
from loadtests.evidence.foreign import ImportedManifest
from loadtests.evidence.foreign.reading import CLASS
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceDamaged, EvidenceMissing
from loadtests.evidence.stores import evidence_store
from loadtests.statistics.attainment import seconds_since_planned, within_deadline
from loadtests.traffic.levels import Deadline

BASELINE = "baseline"
SINCE = {"scheduled": "scheduled time", "released": "release", "sent": "send"}
OWN_STARTS = "start, as each tool counts it"


@dataclass(frozen=True)
class Times:
    """Seconds from the stand-in for the planned arrival, one per recorded request; +inf where it never completed.

    ``untold`` are completed requests of which the file doesn't tell when the first or the last token came.
    """

    first_s: Floats
    completion_s: Floats
    completed: int

    @property
    def untold(self) -> int:
        return self.completed - int((np.isfinite(self.first_s) & np.isfinite(self.completion_s)).sum())

    @property
    def endless(self) -> int:
        return self.completed - int(np.isfinite(self.completion_s).sum())


@dataclass(frozen=True)
class ImportedRow:
    """``attainment`` is None where the file or the brief doesn't tell what it needs: ``why_not`` says which."""

    trial: ImportedTrial
    label: str
    since: str
    completed: int | None
    others: list[tuple[str, int]]
    attainment: float | None
    why_not: str
    # Why its records can't be read, where the file told of its requests.
    unread: str = ""

    @property
    def summary(self) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self.trial.summary
        return told


@dataclass(frozen=True)
class Comparison:
    """The latest baseline and the latest trial of one candidate at a level; ``chart`` is None where ``why_not``."""

    level: str
    baseline: ImportedRow
    candidate: ImportedRow
    chart: Chart | None
    caution: str
    why_not: str

    @property
    def rows(self) -> tuple[ImportedRow, ImportedRow]:
        return self.baseline, self.candidate


def standing(revision: BriefRevision) -> list[ImportedTrial]:
    """Those that nobody has set aside."""
    return list(revision.imported_trials.filter(set_aside_at=None))


def why_unjudged(revision: BriefRevision) -> str:
    """Why a revision can't be approved that has imported trials and was never started; empty elsewhere."""
    trials = standing(revision) if revision.state in (DRAFT, FROZEN) else []
    return refusal([one.summary for one in trials]) if trials else ""


def row_of(trial: ImportedTrial, document: Brief | None) -> ImportedRow:
    statuses: dict[str, int] | None = trial.summary["statuses"]
    attainment, why_not, unread = None, "", ""
    try:
        attainment, why_not = attained(trial, document)
    except (EvidenceMissing, EvidenceDamaged) as error:
        why_not = unread = str(error)
    return ImportedRow(
        trial=trial,
        label=label(trial.tool),
        since=SINCE.get(trial.summary["planned_times"], ""),
        completed=None if statuses is None else statuses.get("completed"),
        others=[(name, count) for name, count in (statuses or {}).items() if count and name != "completed"],
        attainment=attainment,
        why_not=why_not,
        unread=unread,
    )


def attained(trial: ImportedTrial, document: Brief | None) -> tuple[float | None, str]:
    """Requests within the brief's deadline ÷ requests planned, or why that can't be said. Raises EvidenceMissing or
    EvidenceDamaged."""
    if not trial.records_digest:
        return None, "the file tells of no single request"
    if trial.summary["recorded"] != trial.summary["planned"]:
        return None, "the file holds a part of the requests"
    deadline = deadline_of(document, trial.level)
    if deadline is None:
        return None, "the brief has no deadline for it"
    return attainment_of(trial.records_digest, deadline.first_token_s, deadline.completion_s)


def deadline_of(document: Brief | None, level: str) -> Deadline | None:
    """Other tools know no classes: it is the one that the brief has for every other class."""
    if document is None or level not in {one.name for one in document.levels}:
        return None
    return document.deadline(CLASS, level)


@lru_cache(maxsize=1024)
def attainment_of(records: str, first_token_s: float, completion_s: float) -> tuple[float | None, str]:
    times = times_of(records)
    if times.untold:
        return None, f"of {times.untold:,} answers the file doesn’t tell when they began or ended"
    limits = (np.full(len(times.first_s), one) for one in (first_token_s, completion_s))
    return float(within_deadline(times.first_s, times.completion_s, *limits).mean()), ""


@lru_cache(maxsize=8)
def times_of(records: str) -> Times:
    """Evidence never changes under its digest, so it is read once."""
    columns = columns_of(read_records(evidence_store().get(records)))
    completed = np.asarray(columns["status"] == "completed", dtype=bool)
    first, last = (
        seconds_since_planned(columns[name], columns["planned_ns"], completed)
        for name in ("first_token_ns", "last_token_ns")
    )
    return Times(first, last, int(completed.sum()))


def comparisons(rows: Sequence[ImportedRow], document: Brief | None) -> list[Comparison]:
    """In the brief's order of levels and candidates; a level without both arms has nothing to compare."""
    if document is None:
        return []
    latest = {(row.trial.level, row.trial.arm): row for row in rows}
    found = [
        (latest.get((level.name, BASELINE)), latest.get((level.name, candidate.name)))
        for level in document.levels
        for candidate in document.all_candidates
    ]
    return [compared(one, other, document) for one, other in found if one and other]


def compared(baseline: ImportedRow, candidate: ImportedRow, document: Brief) -> Comparison:
    level = baseline.trial.level
    chart, why_not = None, ""
    try:
        why_not = next(filter(None, map(why_no_curve, (baseline.trial, candidate.trial))), "")
        chart = None if why_not else drawn(baseline, candidate, deadline_of(document, level))
    except (EvidenceMissing, EvidenceDamaged) as error:
        why_not = str(error)
    return Comparison(level, baseline, candidate, chart, " ".join(cautions(baseline, candidate)), why_not)


def why_no_curve(trial: ImportedTrial) -> str:
    if not trial.records_digest:
        return f"{trial.file_name} tells of no single request: there is no distribution to draw."
    endless = times_of(trial.records_digest).endless
    return (
        f"{trial.file_name} doesn’t tell when {endless:,} of its answers ended: no curve is drawn." if endless else ""
    )


def drawn(baseline: ImportedRow, candidate: ImportedRow, deadline: Deadline | None) -> Chart:
    arms = [times_of(row.trial.records_digest).completion_s for row in (baseline, candidate)]
    completed = [[float(one) for one in times[np.isfinite(times)]] for times in arms]
    return completion_ecdf(
        baseline.trial.level,
        baseline_s=completed[0],
        candidate_s=completed[1],
        baseline_planned=len(arms[0]),
        candidate_planned=len(arms[1]),
        deadline_s=deadline.completion_s if deadline else None,
        since=baseline.since if baseline.since == candidate.since else OWN_STARTS,
    )


def cautions(baseline: ImportedRow, candidate: ImportedRow) -> Iterator[str]:
    """What makes two trials differ beyond their configurations, as far as the files tell."""
    yield "Nobody can show that both arms got the same requests."
    if baseline.since and candidate.since and baseline.since != candidate.since:
        yield (
            f"The latencies are not the same quantity: the baseline’s count from the {baseline.since}, the candidate’s "
            f"from the {candidate.since}."
        )
    if baseline.trial.tool != candidate.trial.tool:
        yield "Two tools measured them, and each has its own definitions."
    pairs = (("model", "The models have different names"), ("planned", "They planned different numbers of requests"))
    for name, words in pairs:
        one, other = (row.summary[name] for row in (baseline, candidate))
        if one is not None and other is not None and one != other:
            yield f"{words}: {one} and {other}."


def manifest_of(trial: ImportedTrial) -> ImportedManifest:
    """Raises EvidenceMissing or EvidenceDamaged."""
    return ImportedManifest.model_validate_json(evidence_store().get(trial.manifest_digest))
