"""Files of AIPerf: profile_export.jsonl with one request a line, and profile_export_aiperf.json with the summary."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loadtests.evidence.foreign.reading import (
    Request,
    Run,
    after,
    aggregates_of,
    counted,
    settings_of,
    status_of_code,
)
from loadtests.evidence.foreign.values import Value, address, clean, leaves
from loadtests.evidence.records import Status

TOOL = "AIPerf"
CANCELLED_CODE = 499
WARM_UP = "warmup"
TELLS: tuple[Status, ...] = ("completed", "failed", "timed_out", "cancelled", "refused")
# Times before this are no nanoseconds since 1970, but those of a clock that starts anywhere.
EPOCH_FROM_NS = 10**18
LONGEST_WAIT_NS = 86_400 * 10**9
MOST_ACCEPTED = 1_000
LACKS = (
    "Fingerprints are absent: nothing proves which configuration answered.",
    "Prompt digests are absent: it can't be shown that two runs got the same requests.",
    "Finish reasons and server queue times are absent: an answer that ended early counts as completed.",
    "The pacer gives up on a backlog, so requests that it let go late or never can't be told from a lighter load.",
)
RECORDS_LACK = (
    "The file has no total: whether it holds every request of the run can't be told.",
    "Version, model and address stand in profile_export_aiperf.json, not in this file.",
)
SUMMARY_LACKS = (
    "Requests are not told one by one (profile_export.jsonl holds them): there are no records, and no limit can be "
    "tested.",
    "Start and end are local times without a zone.",
)
REASONING = "The first token is the first chunk that the tool counts, reasoning included."
TOOL_COUNTS = "Output tokens were counted by the tool, not taken from the engine's usage."
NO_ACCEPTANCE = "Acceptance per request is absent."
NO_CHUNKS = "How many chunks failed and cancelled requests got isn't told."
UNTOLD_ERRORS = "Why requests failed isn't told for all of them, so the statuses are not known."


@dataclass(frozen=True)
class Line:
    """A request, and the readings of which a run uses one for all its requests."""

    request: Request
    first_any_ns: int | None
    first_output_ns: int | None
    usage_tokens: int | None
    counted_tokens: int | None


def is_record(document: Any) -> bool:
    return (
        isinstance(document, dict)
        and isinstance(document.get("metadata"), dict)
        and isinstance(document.get("metrics"), dict)
    )


def is_summary(document: Any) -> bool:
    if not isinstance(document, dict) or not document.keys() & {"input_config", "aiperf_version"}:
        return False
    if not isinstance(document.get("records"), dict | None):
        return False
    return any(isinstance(one, dict) and "unit" in one for one in metrics_of(Value(document)).fields().values())


def run_of_records(lines: Iterable[Value]) -> Run:
    """One line after the other, so that only what the records need is held."""
    kept, left_out = list[Line](), Counter[str]()
    for line in lines:
        metadata = line["metadata"]
        phase = metadata["benchmark_phase"].text() or metadata["credit_phase"].text()
        if phase == WARM_UP:
            left_out[WARM_UP] += 1
        else:
            kept.append(line_of(line))
    completed = [one for one in kept if one.request.status == "completed"]
    visible = settle_first_tokens(kept, completed)
    usage = settle_output_tokens(completed)
    requests = [one.request for one in kept]
    return Run(
        tool=TOOL,
        requests=requests,
        epoch=all((one.sent_ns or 0) >= EPOCH_FROM_NS for one in requests),
        planned=len(requests),
        statuses=counted((one.status for one in requests), TELLS),
        left_out=dict(left_out),
        lacks=tuple(lacks(requests, visible=visible, usage=usage)),
    )


def settle_first_tokens(lines: Iterable[Line], completed: list[Line]) -> bool:
    """The first visible token where every completed request tells it, the first chunk of any kind elsewhere."""
    visible = bool(completed) and all(one.first_output_ns is not None for one in completed)
    for one in lines:
        one.request.first_token_ns = one.first_output_ns if visible else one.first_any_ns
    return visible


def settle_output_tokens(completed: list[Line]) -> bool:
    usage = bool(completed) and all(one.usage_tokens is not None for one in completed)
    for one in completed:
        one.request.output_tokens = one.usage_tokens if usage else one.counted_tokens
    return usage


def lacks(requests: list[Request], *, visible: bool, usage: bool) -> Iterator[str]:
    yield from LACKS
    yield from RECORDS_LACK
    if not visible:
        yield REASONING
    if not usage:
        yield TOOL_COUNTS
    if any(one.rounds is None for one in requests):
        yield NO_ACCEPTANCE
    if any(one.chunks is None for one in requests):
        yield NO_CHUNKS


def line_of(line: Value) -> Line:
    metadata, error = line["metadata"], line["error"]
    metrics = line["metrics"]
    metrics.fields()
    start_field = metadata["request_start_ns"] or metadata["timestamp_ns"]
    if (start := start_field.instant_ns()) is None:
        raise metadata.bad("has neither request_start_ns nor timestamp_ns: the request has no place in time")
    status = status_of(error, cancelled=metadata["was_cancelled"].flag())
    acceptance = line["spec_decode_acceptance"]
    request = Request(
        status=status,
        id=identifier(metadata["x_request_id"]),
        released_ns=released(metadata["credit_issued_ns"].instant_ns(), start),
        sent_ns=start,
        last_token_ns=after(start, duration(metrics["request_latency"])),
        ended_ns=metadata["request_end_ns"].instant_ns() or metadata["cancellation_time_ns"].instant_ns(),
        prompt_tokens=first_count(metrics, "usage_prompt_tokens", "input_sequence_length", "error_isl"),
        chunks=chunks_of(metrics, completed=status == "completed"),
        rounds=acceptance["num_spec_steps"].count(),
        draft_tokens=acceptance["num_draft_tokens"].count(),
        accepted_tokens=acceptance["num_accepted_draft_tokens"].count(),
        accepted_histogram=histogram(acceptance["acceptance_histogram"]),
        error=None if status == "completed" else reason(error),
    )
    first_any = duration(metrics["time_to_first_token"] or metrics["ttft"])
    return Line(
        request,
        first_any_ns=after(start, first_any),
        first_output_ns=after(start, duration(metrics["time_to_first_output_token"])),
        usage_tokens=first_count(metrics, "usage_completion_tokens"),
        counted_tokens=first_count(metrics, "output_sequence_length"),
    )


def identifier(value: Value) -> str | None:
    text = value.text()
    return clean(text) or None if text else None


def released(issued: int | None, start: int) -> int | None:
    """When the credit for the request was issued; a time that can't be of the same clock is left aside."""
    return issued if issued is not None and 0 <= start - issued <= LONGEST_WAIT_NS else None


def duration(metric: Value) -> int | None:
    return metric["value"].duration_ns(metric["unit"].text() or "") if metric.fields() else None


def first_count(metrics: Value, *names: str) -> int | None:
    counts = (metrics.at(name, "value").count() for name in names)
    return next((count for count in counts if count is not None), None)


def chunks_of(metrics: Value, *, completed: bool) -> int | None:
    gaps = metrics.at("inter_chunk_latency", "value").elements()
    return 1 + len(gaps) if completed and gaps is not None else None


def histogram(sparse: Value) -> list[int] | None:
    """Rounds by the number of drafts that were accepted, from the tool's map that leaves zeros out."""
    if not sparse:
        return None
    counts = dict[int, int]()
    for name in sparse.fields():
        if not (name.isascii() and name.isdigit() and len(name) < 5 and int(name) <= MOST_ACCEPTED):
            raise sparse.bad("has a name that is no number of accepted drafts")
        counts[int(name)] = sparse[name].count() or 0
    return [counts.get(accepted, 0) for accepted in range(max(counts, default=-1) + 1)]


def status_of(error: Value, *, cancelled: bool) -> Status:
    if not error and not cancelled:
        return "completed"
    kind, code = error["type"].text() or "", error["code"].count()
    if cancelled or "Cancel" in kind or code == CANCELLED_CODE:
        return "cancelled"
    return "timed_out" if "Timeout" in kind else status_of_code(code)


def reason(error: Value) -> str:
    parts = (error["type"].text(), error["message"].text())
    return clean(": ".join(part for part in parts if part)) or "the tool gave no reason"


def metrics_of(document: Value) -> Value:
    """Older versions keep the metrics under "records", newer ones beside everything else."""
    return document["records"] or document


def run_of_summary(document: Value) -> Run:
    metrics, config = metrics_of(document), document["input_config"]
    statuses = told_statuses(document, metrics)
    names = config.at("endpoint", "model_names").raw
    model = names[0] if isinstance(names, list) and names else config.at("endpoint", "model_name").raw
    urls = config.at("endpoint", "url").raw or config.at("endpoint", "urls").raw
    seconds = metrics["benchmark_duration"]
    window_ns = (
        duration(Value({"value": seconds["avg"].raw, "unit": seconds["unit"].raw}, seconds.path)) if seconds else 0
    )
    return Run(
        tool=TOOL,
        tool_version=version_of(document),
        model=clean(model) if isinstance(model, str) else None,
        base_url=address(urls[0] if isinstance(urls, list) and urls else urls),
        window_s=window_ns / 10**9 if window_ns else None,
        settings={
            **settings_of(document, ("start_time", "end_time", "was_cancelled", "benchmark_id", "schema_version")),
            **(settings_of(config["loadgen"]) if isinstance(config["loadgen"].raw, dict) else {}),
        },
        planned=sum(statuses.values()) if statuses else None,
        statuses=statuses,
        aggregates=aggregates_of(numbers(metrics)),
        lacks=(*LACKS, *SUMMARY_LACKS, NO_ACCEPTANCE, *(() if statuses else (UNTOLD_ERRORS,))),
    )


def version_of(document: Value) -> str | None:
    text = document["aiperf_version"].text()
    return clean(text, 60) if text else None


def told_statuses(document: Value, metrics: Value) -> dict[str, int] | None:
    """Known where the reasons that the summary lists add up to the errors that it counts."""
    completed = metrics.at("request_count", "avg").count()
    errors = metrics.at("error_request_count", "avg").count() or 0
    if completed is None:
        return None
    found = dict.fromkeys(TELLS, 0)
    for one in document["error_summary"].items() or []:
        found[status_of(one["error_details"], cancelled=False)] += one["count"].count() or 0
    if found["completed"] or sum(found.values()) != errors:
        return None
    return {str(status): count for status, count in (found | {"completed": completed}).items()}


def numbers(metrics: Value) -> Iterator[tuple[str, int | float, str | None]]:
    for name, raw in metrics.fields().items():
        if isinstance(raw, dict) and isinstance(raw.get("unit"), str):
            for whole, number in leaves(metrics[name], name):
                yield whole, number, "requests" if whole.endswith(".count") else raw["unit"]
