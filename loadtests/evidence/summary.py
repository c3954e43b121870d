"""What a trial's records say, as one document. Pure: records in, numbers out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loadtests.evidence.records import RequestRecord, measured, status_counts
from loadtests.statistics.attainment import seconds_since_planned, within_deadline
from loadtests.traffic.levels import Deadline, deadline_of

NS_PER_MS = 1_000_000
MISSING = -1
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
COMMONEST = 5
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
    """The client's own lag, sent − due, over the requests of the window that left, in ms."""
    return percentiles(lag_ns / NS_PER_MS for one in measured(records) if (lag_ns := one.lag_ns) is not None)


def since_planned_ms(moment_ns: int | None, record: RequestRecord) -> float | None:
    return None if moment_ns is None else (moment_ns - record.planned_ns) / NS_PER_MS


def count_within(judged: Sequence[tuple[RequestRecord, Deadline]]) -> int:
    """How many were within their deadline (design §3), by the arithmetic that verdicts use."""
    planned = np.array([record.planned_ns for record, _ in judged], dtype=np.int64)
    completed = np.array([record.status == "completed" for record, _ in judged], dtype=bool)
    firsts = np.array([moment(record.first_token_ns) for record, _ in judged], dtype=np.int64)
    lasts = np.array([moment(record.last_token_ns) for record, _ in judged], dtype=np.int64)
    met = within_deadline(
        seconds_since_planned(firsts, planned, completed),
        seconds_since_planned(lasts, planned, completed),
        np.array([deadline.first_token_s for _, deadline in judged], dtype=np.float64),
        np.array([deadline.completion_s for _, deadline in judged], dtype=np.float64),
    )
    return int(met.sum())


def moment(at_ns: int | None) -> int:
    return MISSING if at_ns is None else at_ns


def attainment(records: Sequence[RequestRecord], deadlines: Mapping[str, Deadline]) -> dict[str, Any]:
    """Requests within deadline ÷ requests planned, over the classes that have a deadline ('default' for the others)."""
    judged = [
        (record, deadline) for record in records if (deadline := deadline_of(record.class_, deadlines)) is not None
    ]
    met = count_within(judged)
    return {
        "planned": len(judged),
        "within_deadline": met,
        "attainment": met / len(judged) if judged else None,
        "deadlines": {name: deadline.model_dump() for name, deadline in sorted(deadlines.items())},
    }


def commonest_errors(records: Iterable[RequestRecord]) -> dict[str, int]:
    """What the records say went wrong, the five commonest with their number of requests, warm-up included."""
    return dict(Counter(one.error for one in records if one.error).most_common(COMMONEST))


def summarise(
    records: Sequence[RequestRecord], *, window_s: float, deadlines: Mapping[str, Deadline] | None = None
) -> dict[str, Any]:
    """The summary of a trial's window; latencies are over completed requests, counted from the planned arrival.

    Requests of the warm-up are counted once, in ``warm_up_requests``, and are in no other number.
    """
    everything, records = len(records), measured(records)
    completed = [record for record in records if record.status == "completed"]
    # Returned to the client, whatever became of the request: also before its user gave up.
    tokens = sum(record.output_tokens or 0 for record in records)
    firsts = (since_planned_ms(record.first_token_ns, record) for record in completed)
    lasts = (since_planned_ms(record.last_token_ns, record) for record in completed)
    gave_up = sum(record.gave_up for record in records)
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
    untold = sum(record.output_tokens is None for record in completed)
    counted = {"warm_up_requests": everything - len(records), "gave_up_as_planned": gave_up}
    counted |= {"completed_without_token_count": untold}
    document |= {name: count for name, count in counted.items() if count}
    return document | ({"within_deadline": attainment(records, deadlines)} if deadlines else {})
