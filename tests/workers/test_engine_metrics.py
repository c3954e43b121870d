"""The counters that evidence keeps, read from what a vLLM server really exposed."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from workers.engines.metrics import parse_metrics

EXCERPT = "metrics/vllm_v1_metrics_spec_decode_excerpt.prom"


def test_a_live_dump_gives_exactly_the_kept_counters(shared_data: Path) -> None:
    assert parse_metrics((shared_data / EXCERPT).read_text()) == {
        "vllm:generation_tokens_total": 44995.0,
        "vllm:prompt_tokens_total": 3675428.0,
        "vllm:num_preemptions_total": 0.0,
        "vllm:request_success_total{stop}": 26.0,
        "vllm:request_success_total{length}": 0.0,
        "vllm:request_success_total{abort}": 0.0,
        "vllm:request_success_total{error}": 0.0,
        "vllm:request_success_total{repetition}": 0.0,
        "vllm:prefix_cache_queries_total": 3675428.0,
        "vllm:prefix_cache_hits_total": 3241216.0,
        "vllm:spec_decode_num_drafts_total": 17807.0,
        "vllm:spec_decode_num_draft_tokens_total": 106842.0,
        "vllm:spec_decode_num_accepted_tokens_total": 27189.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{0}": 12129.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{1}": 7083.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{2}": 3978.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{3}": 2130.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{4}": 1201.0,
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{5}": 668.0,
        "vllm:num_requests_running": 0.0,
        "vllm:num_requests_waiting": 0.0,
        "vllm:kv_cache_usage_perc": 0.0,
    }


def test_what_is_not_kept_is_not_counted() -> None:
    text = (
        "# TYPE vllm:generation_tokens_total counter\n"
        'vllm:generation_tokens_total{engine="0"} 5.0\n'
        "# TYPE vllm:generation_tokens_created gauge\n"
        'vllm:generation_tokens_created{engine="0"} 1.7888602775330775e+09\n'
        "# TYPE vllm:request_queue_time_seconds histogram\n"
        'vllm:request_queue_time_seconds_bucket{le="+Inf"} 2.0\n'
        "vllm:request_queue_time_seconds_sum 0.5\n"
        "vllm:request_queue_time_seconds_count 2.0\n"
    )
    assert parse_metrics(text) == {
        "vllm:generation_tokens_total": 5.0,
        "vllm:request_queue_time_seconds_sum": 0.5,
        "vllm:request_queue_time_seconds_count": 2.0,
    }


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=8))
def test_engines_of_one_server_are_summed(values: list[int]) -> None:
    lines = [f'vllm:prompt_tokens_total{{engine="{rank}"}} {value}\n' for rank, value in enumerate(values)]
    text = "# TYPE vllm:prompt_tokens_total counter\n" + "".join(lines)
    assert parse_metrics(text) == {"vllm:prompt_tokens_total": float(sum(values))}


def test_an_empty_answer_holds_no_counter() -> None:
    assert parse_metrics("") == {}
