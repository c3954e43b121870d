"""Reports of GuideLLM (JSON, as of 0.8): several benchmarks in one file, each a run; requests in three lists."""

from collections.abc import Iterator

from loadtests.evidence.foreign.reading import Request, Run, aggregates_of, counted, settings_of, text_sha256
from loadtests.evidence.foreign.values import Value, address, clean, leaves
from loadtests.evidence.records import Status

TOOL = "GuideLLM"
LISTS: dict[str, Status] = {"successful": "completed", "errored": "failed", "incomplete": "cancelled"}
TELLS = tuple(LISTS.values())
# Only these strategies aim at a time; the others target "as soon as possible".
SCHEDULED = {"constant", "poisson", "trace", "replay"}
UNITS = {
    "request_totals": "requests",
    "request_concurrency": "requests",
    "request_latency": "s",
    "request_streaming_iterations_count": "chunks",
    "output_tokens_per_iteration": "tokens/chunk",
    "iter_tokens_per_iteration": "tokens/chunk",
    "requests_per_second": "requests/s",
    "requests_made": "requests",
}
LACKS = (
    "Fingerprints are absent: nothing proves which configuration answered.",
    "Prompt digests are absent: it can't be shown that two runs got the same requests.",
    "Acceptance per request is absent.",
    "Finish reasons and server queue times are absent: an answer that ended early counts as completed.",
    "Requests that were open when the run ended were cut off by the tool and stand as cancelled; those that it had "
    "not started are left out of the file.",
    "The tool tells an error from a success, not what kind of error.",
)
NO_DETAILS = (
    "Requests are not told one by one (the report was written without them): there are no records, and no limit can "
    "be tested."
)
NO_SCHEDULE = "The strategy {strategy!r} aims at no times: it sends as soon as it can."
REASONING = "The first token is the first chunk that the tool counts, reasoning included."
TOOL_COUNTS = "Some output tokens are the tool's count of chunks, not the engine's usage."


def is_report(document: object) -> bool:
    return isinstance(document, dict) and isinstance(document.get("benchmarks"), list) and "metadata" in document


def runs(document: Value) -> list[Run]:
    version = document.at("metadata", "guidellm_version").text()
    benchmarks = document["benchmarks"].items() or []
    return [run_of(one, clean(version, 60) if version else None) for one in benchmarks]


def run_of(benchmark: Value, version: str | None) -> Run:
    benchmark.fields()
    config = benchmark["config"]
    strategy = config.at("strategy", "type_").text() or "(not told)"
    entries = [(status, entry) for name, status in LISTS.items() for entry in listed(benchmark, name)]
    visible = all(first_visible(entry) for status, entry in entries if status == "completed")
    requests = [
        request_of(entry, status, scheduled=strategy in SCHEDULED, visible=visible) for status, entry in entries
    ]
    statuses = told_statuses(benchmark) or (counted((one.status for one in requests), TELLS) if requests else None)
    backend = config["backend"]
    return Run(
        tool=TOOL,
        requests=requests,
        epoch=True,
        tool_version=version,
        model=text_or_none(backend["model"]),
        base_url=address(backend["target"].raw),
        window_s=benchmark["duration"].duration_s() or None,
        settings=settings_of(config["strategy"]) | {"run_index": config["run_index"].count()},
        planned=sum(statuses.values()) if statuses else None,
        statuses=statuses,
        aggregates=aggregates_of(numbers(benchmark)),
        lacks=tuple(lacks(requests, clean(strategy), visible=visible, usage=all(map(has_usage, entries)))),
        findings=tuple(contradictions(statuses, requests)),
    )


def text_or_none(value: Value) -> str | None:
    text = value.text()
    return clean(text) if text else None


def listed(benchmark: Value, name: str) -> list[Value]:
    return benchmark.at("requests", name).items() or []


def timings(entry: Value) -> Value:
    return entry.at("info", "timings")


def first_visible(entry: Value) -> Value:
    return timings(entry)["first_output_token_iteration"]


def has_usage(entry: tuple[Status, Value]) -> bool:
    status, value = entry
    return status != "completed" or bool(value.at("output_metrics", "text_tokens"))


def request_of(entry: Value, status: Status, *, scheduled: bool, visible: bool) -> Request:
    times = timings(entry)
    times.fields()
    completed = status == "completed"
    first = first_visible(entry) if visible else times["first_token_iteration"]
    identity = entry["request_id"].text()
    return Request(
        status=status,
        id=clean(identity) or None if identity else None,
        scheduled_ns=times["targeted_start"].instant_s() if scheduled else None,
        sent_ns=times["request_start"].instant_s(),
        first_token_ns=first.instant_s(),
        last_token_ns=times["last_token_iteration"].instant_s(),
        ended_ns=times["request_end"].instant_s(),
        prompt_tokens=(entry.at("input_metrics", "text_tokens") or entry["prompt_tokens"]).count(),
        output_tokens=(entry.at("output_metrics", "text_tokens") or entry["output_tokens"]).count()
        if completed
        else None,
        chunks=times["token_iterations"].count(),
        output_sha256=answer_sha256(entry) if completed else None,
        error=None if completed else error_of(entry),
    )


def answer_sha256(entry: Value) -> str | None:
    """Tool calls belong to what was answered, and the tool keeps them in a form of its own."""
    return None if entry["tool_calls"].raw else text_sha256(entry["output"].text())


def error_of(entry: Value) -> str:
    text = entry.at("info", "error").text()
    return (clean(text) if text else "") or "the tool gave no reason"


def told_statuses(benchmark: Value) -> dict[str, int] | None:
    """The report's own totals, since its lists may be a sample or empty."""
    totals = benchmark.at("metrics", "request_totals") or benchmark.at("scheduler_metrics", "requests_made")
    counts = {name: totals[name].count() for name in LISTS}
    known = {LISTS[name]: count for name, count in counts.items() if count is not None}
    return {str(status): count for status, count in known.items()} if len(known) == len(LISTS) else None


def numbers(benchmark: Value) -> Iterator[tuple[str, int | float, str | None]]:
    for part in ("metrics", "scheduler_metrics"):
        for name in benchmark[part].fields():
            for whole, number in leaves(benchmark.at(part, name), f"{part}.{name}"):
                if ".pdf." not in whole:
                    yield whole, number, "requests" if whole.endswith(".count") else unit_of(name)


def unit_of(name: str) -> str | None:
    if name in UNITS:
        return UNITS[name]
    if name.endswith("_ms"):
        return "ms"
    if name.endswith("tokens_per_second"):
        return "tokens/s"
    return "tokens" if name.endswith("_token_count") else "s" if name.endswith(("_avg", "_time")) else None


def lacks(requests: list[Request], strategy: str, *, visible: bool, usage: bool) -> Iterator[str]:
    yield from LACKS
    if not requests:
        yield NO_DETAILS
        return
    if strategy not in SCHEDULED:
        yield NO_SCHEDULE.format(strategy=strategy)
    if not visible:
        yield REASONING
    if not usage:
        yield TOOL_COUNTS


def contradictions(statuses: dict[str, int] | None, requests: list[Request]) -> Iterator[str]:
    for status, count in counted((one.status for one in requests), TELLS).items():
        if statuses is not None and count > statuses[status]:
            yield f"the report counts {statuses[status]} requests as {status} and lists {count}"
