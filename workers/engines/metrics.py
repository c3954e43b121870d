"""Reads the engine's /metrics: the counters that evidence keeps, under the names the engine exposes."""

from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

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


def parse_metrics(text: str) -> dict[str, float]:
    """{exposed name: value}, with a kept label's value in braces: ``…_per_pos_total{0}``."""
    values: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in KEPT:
                values[key(sample.name, sample.labels)] += sample.value
    return dict(values)


def key(name: str, labels: dict[str, str]) -> str:
    label = KEPT_LABEL.get(name)
    return f"{name}{{{labels.get(label, '')}}}" if label else name
