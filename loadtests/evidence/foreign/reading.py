"""What a reader finds in a result file, whichever tool wrote it, and how that becomes records. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields
from hashlib import sha256
from itertools import islice
from typing import Any, Literal

from pydantic import JsonValue

from loadtests.credentials import HIDDEN, names_a_credential
from loadtests.evidence.foreign.values import Value, clean, plain
from loadtests.evidence.records import RequestRecord, Status

# What stands in for a planned time: the tool's own schedule, the moment it let the request go, or the send itself.
PlannedTimes = Literal["scheduled", "released", "sent"]
LEVEL = "imported"
CLASS = "default"
MOST_AGGREGATES = 5_000
# A record begins with every column missing; what the tool tells is filled in.
UNTOLD: dict[str, Any] = {one.name: None for one in fields(RequestRecord) if one.default is MISSING}


class EvidenceRefused(Exception):
    """The file can't be imported; nothing was written."""


@dataclass(slots=True)
class Request:
    """One request as a tool tells of it. Times are ns on one clock of the tool; None is what it doesn't tell."""

    status: Status
    id: str | None = None
    scheduled_ns: int | None = None
    released_ns: int | None = None
    sent_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    ended_ns: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    chunks: int | None = None
    rounds: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_histogram: list[int] | None = None
    output_sha256: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Run:
    """One run of a tool. ``planned`` and ``statuses`` are None where the file doesn't tell them; ``epoch`` says
    whether the clock of the requests counts from 1970."""

    tool: str
    requests: Sequence[Request] = ()
    epoch: bool = False
    tool_version: str | None = None
    model: str | None = None
    base_url: str | None = None
    window_s: float | None = None
    settings: dict[str, JsonValue] = field(default_factory=dict)
    planned: int | None = None
    statuses: dict[str, int] | None = None
    aggregates: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placed:
    """The requests that have a place in time, as records in plan order; ``zero_ns`` is 0 of their times."""

    records: list[RequestRecord]
    planned_times: PlannedTimes | None
    zero_ns: int | None
    own_ids: bool


def counted(statuses: Iterable[Status], told: Iterable[Status]) -> dict[str, int]:
    """The statuses that a tool can tell, each with its count: what it can't tell is absent, not 0."""
    found = Counter(statuses)
    return {str(status): found[status] for status in told}


def planned_times_of(requests: Sequence[Request]) -> PlannedTimes:
    """The best that every request has: one run has one definition of its latencies."""
    if all(one.scheduled_ns is not None for one in requests):
        return "scheduled"
    return "released" if all(one.released_ns is not None for one in requests) else "sent"


def planned_ns_of(request: Request, which: PlannedTimes) -> int | None:
    return {"scheduled": request.scheduled_ns, "released": request.released_ns, "sent": request.sent_ns}[which]


def placed(requests: Sequence[Request]) -> Placed:
    which = planned_times_of(requests)
    dated = [(planned, row) for row, one in enumerate(requests) if (planned := planned_ns_of(one, which)) is not None]
    if not dated:
        return Placed([], None, None, own_ids=False)
    dated.sort()
    own_ids = len({one.id for one in requests} - {None}) == len(requests)
    zero_ns = dated[0][0]
    records = [record_of(requests[row], row, planned, zero_ns, own_ids=own_ids) for planned, row in dated]
    return Placed(records, which, zero_ns, own_ids=own_ids)


def record_of(request: Request, row: int, planned_ns: int, zero_ns: int, *, own_ids: bool) -> RequestRecord:
    def moment(ns: int | None) -> int | None:
        return None if ns is None else ns - zero_ns

    return RequestRecord(
        **UNTOLD
        | {
            "request_id": request.id if own_ids else f"entry-{row}",
            "row": row,
            "class_": CLASS,
            "level": LEVEL,
            "prompt_tokens": request.prompt_tokens,
            "planned_ns": planned_ns - zero_ns,
            "sent_ns": moment(request.sent_ns),
            "first_token_ns": moment(request.first_token_ns),
            "last_token_ns": moment(request.last_token_ns),
            "ended_ns": moment(request.ended_ns),
            "status": request.status,
            "output_tokens": request.output_tokens,
            "chunks": request.chunks,
            "rounds": request.rounds,
            "draft_tokens": request.draft_tokens,
            "accepted_tokens": request.accepted_tokens,
            "accepted_histogram": request.accepted_histogram,
            "output_sha256": request.output_sha256,
            "error": request.error,
        }
    )


def status_of_code(code: int | None) -> Status:
    """As for our own requests: an answer of 300 to 499 is refused, everything else is the server's failure."""
    return "refused" if code is not None and 300 <= code < 500 else "failed"


def text_sha256(text: str | None) -> str | None:
    """SHA-256 of an answer's text in UTF-8; None where there is none."""
    if not text:
        return None
    return sha256(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()).hexdigest()


def after(start_ns: int | None, duration_ns: int | None) -> int | None:
    return None if start_ns is None or duration_ns is None else start_ns + duration_ns


def aggregates_of(found: Iterator[tuple[str, int | float, str | None]]) -> dict[str, dict[str, JsonValue]]:
    """The tool's own numbers under its own names, each with its unit; None is a unit that isn't told."""
    kept = islice(found, MOST_AGGREGATES)
    return {
        clean(name): {"unit": None if unit is None else clean(unit, 40), "value": plain(value)}
        for name, value, unit in kept
    }


def settings_of(value: Value, names: Iterable[str] | None = None) -> dict[str, JsonValue]:
    """The texts, numbers and truth values among the fields, under the tool's names. A text under the name of a
    credential is none that may be kept."""
    found = value.fields()
    wanted = found if names is None else [name for name in names if name in found]
    kept = {
        clean(name): HIDDEN if isinstance(found[name], str) and names_a_credential(name) else plain(found[name])
        for name in wanted
    }
    return {name: one for name, one in kept.items() if one is not None}
