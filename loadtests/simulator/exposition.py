"""The engine's state as the text of ``/metrics``."""

from collections.abc import Iterator

from loadtests.simulator.live import Live
from loadtests.simulator.trial import counters_of

LABELS = {
    "vllm:request_success_total": "finished_reason",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "position",
}


def metrics_text(live: Live, model: str) -> str:
    """Seconds are the client's, as in the per-request metrics."""
    return "".join(f"{line}\n" for line in lines(live, f'engine="0",model_name="{escaped(model)}"'))


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def lines(live: Live, labels: str) -> Iterator[str]:
    engine = live.engine
    seen: set[str] = set()
    for key, number in counters_of(engine).items():
        name, _, kept = key.partition("{")
        value = number / live.speed if name.endswith("_seconds_sum") else number
        family, kind = (name, "counter") if name.endswith("_total") else (name.rpartition("_")[0], "histogram")
        if family not in seen:
            seen.add(family)
            yield f"# TYPE {family} {kind}"
        more = f',{LABELS[name]}="{kept[:-1]}"' if kept else ""
        yield f"{name}{{{labels}{more}}} {float(value)}"
        if name.endswith("_count"):
            yield f'{family}_bucket{{{labels},le="+Inf"}} {float(value)}'
    for name, gauge in gauges(live).items():
        yield f"# TYPE {name} gauge"
        yield f"{name}{{{labels}}} {gauge}"
    yield "# TYPE vllm:cache_config_info gauge"
    facts = f'block_size="{engine.model.block_size}",num_gpu_blocks="{engine.capacity}"'
    yield f"vllm:cache_config_info{{{facts}}} 1.0"


def gauges(live: Live) -> dict[str, float]:
    return {
        "vllm:num_requests_running": float(len(live.engine.running)),
        "vllm:num_requests_waiting": float(len(live.engine.waiting)),
        "vllm:kv_cache_usage_perc": live.engine.kv_use,
        "simulator:behind_seconds": live.behind_s,
    }
