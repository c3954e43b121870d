"""Result files of ``vllm bench serve``: one JSON object a run, with lists over the requests where it was started with
--save-detailed. Its clock has no zone and no date: only differences count."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from loadtests.evidence.foreign.reading import (
    Request,
    Run,
    after,
    aggregates_of,
    counted,
    settings_of,
    status_of_code,
    text_sha256,
)
from loadtests.evidence.foreign.values import Value, clean, leaves
from loadtests.evidence.records import Status

TOOL = "vllm bench serve"
NAMES = {"date", "model_id", "num_prompts", "request_rate"}
SETTINGS = (
    "date",
    "endpoint_type",
    "backend",
    "label",
    "model_id",
    "tokenizer_id",
    "best_of",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "ramp_up_strategy",
    "ramp_up_start_rps",
    "ramp_up_end_rps",
)
# Of a request that failed the tool keeps the error's text, of a run without details the number alone.
TELLS: tuple[Status, ...] = ("completed", "failed", "timed_out", "refused")
NEEDED = ("output_lens", "ttfts", "itls", "start_times", "errors")
LISTS = (*NEEDED, "input_lens", "generated_texts", "latencies", "queue_times")
# The tool keeps the reason of an HTTP answer and drops its code.
CODES = {status.phrase: status.value for status in HTTPStatus}
UNITS = {
    "duration": "s",
    "completed": "requests",
    "failed": "requests",
    "request_throughput": "requests/s",
    "request_goodput": "requests/s",
    "max_concurrent_requests": "requests",
    "total_input_tokens": "tokens",
    "total_output_tokens": "tokens",
    "output_throughput": "tokens/s",
    "total_token_throughput": "tokens/s",
    "max_output_tokens_per_s": "tokens/s",
    "spec_decode_acceptance_rate": "%",
    "spec_decode_acceptance_length": "tokens",
    "spec_decode_num_drafts": "drafts",
    "spec_decode_draft_tokens": "tokens",
    "spec_decode_accepted_tokens": "tokens",
}
LACKS = (
    "Fingerprints are absent: nothing proves which configuration answered.",
    "Prompt digests are absent: it can't be shown that two runs got the same requests.",
    "Acceptance is told for the run at best, not per request.",
    "Finish reasons and server queue times are absent: an answer that ended early counts as completed.",
    "The tool counts its first chunk of any kind as the first token, an empty one included.",
    "Output tokens are those of the engine's usage where it gave them and the tool's own count elsewhere; the file "
    "doesn't tell which.",
    "The version of the tool isn't told.",
    "The date is local time without a zone, and the requests' clock has neither date nor zone.",
)
NO_DETAILS = (
    "Requests are not told one by one (the tool writes them with --save-detailed): there are no records, and no limit "
    "can be tested."
)
NO_TIMES = (
    "Send times are absent, so no request has a place in time: there are no records. Versions of the tool that record "
    "start_times do."
)
NUM_PROMPTS = "How many requests were sent, completed and failed isn't told: num_prompts is what was asked for."


def runs(documents: Sequence[Value]) -> list[Run]:
    return [run_of(document) for document in documents]


def run_of(document: Value) -> Run:
    lists = {name: found for name in LISTS if (found := document[name].items()) is not None}
    check_lengths(document, lists)
    detailed = all(name in lists for name in NEEDED)
    requests = [request_of(lists, at) for at in range(len(lists["errors"]))] if detailed else []
    statuses = counted((one.status for one in requests), TELLS) if requests else told_statuses(document)
    return Run(
        tool=TOOL,
        requests=requests,
        model=cleaned(document["model_id"].text()),
        window_s=document["duration"].duration_s() or None,
        settings=settings_of(document, [*SETTINGS, *remarks(document)]),
        planned=sum(statuses.values()) if statuses else document["num_prompts"].count(),
        statuses=statuses,
        aggregates=aggregates_of(numbers(document)),
        lacks=tuple(lacks(requests, lists, told=statuses is not None)),
        findings=tuple(contradictions(document, statuses)),
    )


def cleaned(text: str | None) -> str | None:
    return None if text is None else clean(text)


def check_lengths(document: Value, lists: dict[str, list[Value]]) -> None:
    lengths = {name: len(found) for name, found in lists.items()}
    if len(set(lengths.values())) > 1:
        raise document.bad(f"has lists of different lengths over the same requests: {lengths}")


def request_of(lists: dict[str, list[Value]], at: int) -> Request:
    def of(name: str) -> Value:
        return lists[name][at] if name in lists else Value(None)

    error = of("errors").text() or ""
    # A time of exactly 0.0 is the tool's default for what never came.
    first = of("ttfts").duration_ns("s") or None
    start = of("start_times").instant_s() or None
    gaps = of("itls")
    queued, latency = of("queue_times"), of("latencies")
    completed = not error and first is not None
    status: Status = "completed" if completed else status_of(error)
    return Request(
        status=status,
        released_ns=released(start, queued),
        sent_ns=start,
        first_token_ns=after(start, first),
        last_token_ns=None if first is None else after(start, first + gaps.total_s()),
        ended_ns=after(start, latency.duration_ns("s") or None) if completed else None,
        prompt_tokens=of("input_lens").count(),
        output_tokens=of("output_lens").count() if completed else None,
        chunks=0 if first is None else 1 + len(gaps.elements() or []),
        output_sha256=text_sha256(of("generated_texts").text()) if completed else None,
        error=None if completed else last_line(error),
    )


def released(start: int | None, queued: Value) -> int | None:
    """When the tool let the request go; it may then have waited for one of max_concurrency slots."""
    if start is None or not queued:
        return None
    waited = queued.duration_ns("s")
    return None if waited is None or waited > start else start - waited


def last_line(error: str) -> str:
    """The end of a traceback says what happened; what comes before it may quote the request."""
    lines = [line for line in map(clean, error.splitlines()) if line]
    return lines[-1] if lines else "the tool gave no reason"


def status_of(error: str) -> Status:
    reason = last_line(error)
    if "Timeout" in reason.partition(":")[0]:
        return "timed_out"
    return status_of_code(CODES.get(reason))


def told_statuses(document: Value) -> dict[str, int] | None:
    """The tool tells completed from failed, and nothing finer."""
    completed, failed = document["completed"].count(), document["failed"].count()
    return None if completed is None or failed is None else {"completed": completed, "failed": failed}


def remarks(document: Value) -> Iterator[str]:
    """What --metadata added: texts under names of the user's own."""
    return (name for name, raw in document.fields().items() if isinstance(raw, str) and name not in SETTINGS)


def numbers(document: Value) -> Iterator[tuple[str, int | float, str | None]]:
    for name in document.fields():
        if name in SETTINGS or name in LISTS or name == "rps_change_events":
            continue
        for whole, number in leaves(document[name], name):
            yield whole, number, unit_of(name)


def unit_of(name: str) -> str | None:
    # Some versions write the key "request_goodput:".
    return "ms" if name.endswith("_ms") else UNITS.get(name.rstrip(":"))


def lacks(requests: Sequence[Request], lists: dict[str, Any], *, told: bool) -> Iterator[str]:
    yield from LACKS
    if not requests:
        yield NO_TIMES if "ttfts" in lists and "start_times" not in lists else NO_DETAILS
    if not told:
        yield NUM_PROMPTS


def contradictions(document: Value, statuses: dict[str, int] | None) -> Iterator[str]:
    completed = document["completed"].count()
    if statuses is not None and completed is not None and completed != statuses["completed"]:
        yield f"the file counts {completed} completed requests; its lists hold {statuses['completed']}"
