"""The plan of a trial: which row leaves when. The same plan gives the same bytes, so its digest names it."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.canonical import canonical, digest
from loadtests.traffic.rows import Row

SCHEMA = "draftproof.plan/1"


@dataclass(frozen=True)
class PlannedRequest:
    """One request of a trial. ``row`` is its index in its part, ``planned_ns`` counts from the trial's start."""

    request_id: str
    row: int
    traffic_row: Row
    planned_ns: int

    @property
    def class_(self) -> str:
        return self.traffic_row.class_


def plan_content(planned: Sequence[PlannedRequest], level: str) -> bytes:
    """The plan's canonical bytes: [request id, row index, SHA-256 of the row's bytes, planned ns] per request."""
    requests = [[one.request_id, one.row, digest(one.traffic_row.content), one.planned_ns] for one in planned]
    return canonical({"schema": SCHEMA, "level": level, "requests": requests})


def plan_digest(planned: Sequence[PlannedRequest], level: str) -> str:
    return digest(plan_content(planned, level))
