"""Reads the engine's /metrics: the counters that evidence keeps, under the names the engine exposes."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

COUNTERS = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
)
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
# Of a histogram its sum and count are kept: enough for the mean time in queue, prefill and decode.
HISTOGRAMS = tuple(
    f"{name}_{part}"
    for name in (
        "vllm:request_queue_time_seconds",
        "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:time_to_first_token_seconds",
        "vllm:e2e_request_latency_seconds",
    )
    for part in ("sum", "count")
)
KEPT = frozenset((*COUNTERS, *GAUGES, *HISTOGRAMS))
# Every other label (engine, model name) is summed over.
KEPT_LABEL = {
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "position",
    "vllm:request_success_total": "finished_reason",
}
# Column of a timeline → the engine's name for it.
TIMELINE = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_cache_use": "vllm:kv_cache_usage_perc",
    "preemptions": "vllm:num_preemptions_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
}
CACHE = "vllm:cache_config_info"
STARTED = "process_start_time_seconds"


def parse_metrics(text: str) -> dict[str, float]:
    """{exposed name: value}, with a kept label's value in braces: ``…_per_pos_total{0}``."""
    values: defaultdict[str, float] = defaultdict(float)
    for sample in samples_of(text, *KEPT):
        values[key(sample.name, sample.labels)] += sample.value
    return dict(values)


def samples_of(text: str, *names: str) -> Iterable[Sample]:
    """Those of the given names. The lines of all others are dropped unread: there are hundreds, and while the parser
    works on them, the thread that sends requests has to wait."""
    for family in text_string_to_metric_families("\n".join(lines_of(names).findall(text))):
        yield from family.samples


@cache
def lines_of(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join(map(re.escape, names))})[{{ ].*$", re.MULTILINE)


def key(name: str, labels: Mapping[str, str]) -> str:
    label = KEPT_LABEL.get(name)
    return f"{name}{{{labels.get(label, '')}}}" if label else name


def timeline_values(counters: Mapping[str, float]) -> dict[str, float]:
    """By column of a timeline; what the engine did not tell is left out."""
    return {column: counters[name] for column, name in TIMELINE.items() if name in counters}


def kv_cache_tokens(text: str) -> int | None:
    """Of all ranks; None where /metrics doesn't tell blocks and their size."""
    labels = [sample.labels for sample in samples_of(text, CACHE)]
    sizes = [(one.get("num_gpu_blocks", ""), one.get("block_size", "")) for one in labels]
    if not sizes or not all(blocks.isdigit() and size.isdigit() for blocks, size in sizes):
        return None
    return sum(int(blocks) * int(size) for blocks, size in sizes)


def process_started(text: str) -> float | None:
    """When the server's process started, in seconds since 1970: with its address it names the process."""
    return next((sample.value for sample in samples_of(text, STARTED)), None)
