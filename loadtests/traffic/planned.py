"""The plan of a trial: which row leaves when. The same plan gives the same bytes, so its digest names it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loadtests.canonical import canonical, digest
from loadtests.traffic.levels import Level
from loadtests.traffic.rows import Row

SCHEMA = "draftproof.plan/1"
# Of levels that warm up, cap what is open or let users give up.
SECOND_SCHEMA = "draftproof.plan/2"
SENT_OTHERWISE = {"warm_up_s", "max_concurrency", "patience"}


@dataclass(frozen=True)
class PlannedRequest:
    """One request of a trial. ``row`` is its index in its part; times count from the trial's start, in nanoseconds.
    At ``give_up_ns`` its user gives up waiting; one of the ``warm_up`` is sent and left out of every number."""

    request_id: str
    row: int
    traffic_row: Row
    planned_ns: int
    give_up_ns: int | None = None
    warm_up: bool = False

    @property
    def class_(self) -> str:
        return self.traffic_row.class_


def plan_document(level: Level) -> dict[str, Any]:
    """A plan of the level, but for its requests; in the second schema with what else the level does to them."""
    otherwise = level.model_dump(mode="json", include=SENT_OTHERWISE)
    return {"schema": SECOND_SCHEMA if otherwise else SCHEMA, "level": level.name} | otherwise


def plan_content(planned: Sequence[PlannedRequest], level: Level) -> bytes:
    """The plan's canonical bytes: [request id, row index, SHA-256 of the row's bytes, planned ns] per request; in the
    second schema also when its user gives up (ns or null)."""
    document = plan_document(level)
    requests: list[list[Any]] = [
        [one.request_id, one.row, digest(one.traffic_row.content), one.planned_ns] for one in planned
    ]
    if document["schema"] == SECOND_SCHEMA:
        requests = [[*request, one.give_up_ns] for request, one in zip(requests, planned, strict=True)]
    return canonical(document | {"requests": requests})
