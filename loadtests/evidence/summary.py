"""What a trial's records say, as one document. Pure: records in, numbers out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loadtests.evidence.records import RequestRecord, status_counts
from loadtests.traffic.levels import Deadline

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
DEFINITION = "sample quantiles of type 7 of Hyndman and Fan (1996): linear interpolation between order statistics"


def percentiles(values: Iterable[float]) -> dict[str, float] | None:
    """p50, p90, p99 and the maximum, in the unit of the values; None where there are none.

    Type 7 of Hyndman & Fan, "Sample quantiles in statistical packages", The American Statistician 50 (1996).
    """
    found = np.sort(np.fromiter(values, dtype=np.float64))
    if not found.size:
        return None
    return {name: round(float(np.quantile(found, share, method="linear")), 6) for name, share in QUANTILES.items()}


def lag_ms(records: Iterable[RequestRecord]) -> dict[str, float] | None:
    """The client's own lag, sent − planned, over the requests that left, in ms."""
    return percentiles((one.sent_ns - one.planned_ns) / NS_PER_MS for one in records if one.sent_ns is not None)


def since_planned_ms(moment_ns: int | None, record: RequestRecord) -> float | None:
    return None if moment_ns is None else (moment_ns - record.planned_ns) / NS_PER_MS


def within(record: RequestRecord, deadline: Deadline) -> bool:
    """Completed, with the first and the last token in time, both counted from the planned arrival (design §3)."""
    first = since_planned_ms(record.first_token_ns, record)
    last = since_planned_ms(record.last_token_ns, record)
    if record.status != "completed" or first is None or last is None:
        return False
    return first <= deadline.first_token_s * 1000 and last <= deadline.completion_s * 1000


def attainment(records: Sequence[RequestRecord], deadlines: Mapping[str, Deadline]) -> dict[str, Any]:
    """Requests within deadline ÷ requests planned, over the classes that have a deadline ('default' for the others)."""
    judged = [
        (record, deadline)
        for record in records
        if (deadline := deadlines.get(record.class_) or deadlines.get("default")) is not None
    ]
    met = sum(within(record, deadline) for record, deadline in judged)
    share = met / len(judged) if judged else None
    return {
        "planned": len(judged),
        "within_deadline": met,
        "attainment": share,
        "deadlines": {name: deadline.model_dump() for name, deadline in sorted(deadlines.items())},
    }


def summarise(
    records: Sequence[RequestRecord], *, window_s: float, deadlines: Mapping[str, Deadline] | None = None
) -> dict[str, Any]:
    """The summary of a trial; latencies are over completed requests, counted from the planned arrival."""
    completed = [record for record in records if record.status == "completed"]
    tokens = sum(record.output_tokens or 0 for record in completed)
    firsts = (since_planned_ms(record.first_token_ns, record) for record in completed)
    lasts = (since_planned_ms(record.last_token_ns, record) for record in completed)
    document: dict[str, Any] = {
        "planned": len(records),
        "statuses": status_counts(records),
        "lag_ms": lag_ms(records),
        "first_token_ms": percentiles(value for value in firsts if value is not None),
        "completion_ms": percentiles(value for value in lasts if value is not None),
        "percentiles": f"{DEFINITION}; over completed requests, from the planned arrival to the first and last token",
        "verified_output_tokens": tokens,
        "window_s": window_s,
        "output_tokens_per_s": tokens / window_s,
    }
    return document | ({"within_deadline": attainment(records, deadlines)} if deadlines else {})
