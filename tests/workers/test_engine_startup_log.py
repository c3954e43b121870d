"""Facts from the start-up log; the lines are those of vLLM 0.32 on a CPU, cut."""

from pathlib import Path

from workers.engines.startup_log import StartupFacts, log_tail, startup_facts

CPU_LOG = """\
(APIServer pid=1) WARNING [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead.
(EngineCore pid=2) INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: dtype=torch.bfloat16, \
device_config=cpu, seed=0
(EngineCore pid=2) INFO [ompmultiprocessing.py:185] \tlocal_world_size=1, reserve_cpu_num=1
(EngineCore pid=2) INFO [ompmultiprocessing.py:185] \tlocal_rank=0, core ids=[0, 1, 2]
(EngineCore pid=2) INFO [kv_cache_utils.py:2327] CPU KV cache size: 46,592 tokens, Maximum concurrency for 2,048 \
tokens per request: 22.75x
"""


def test_a_cpu_start_tells_cache_runner_threads_and_scheduling() -> None:
    assert startup_facts(CPU_LOG) == StartupFacts(kv_cache_tokens=46592, runner="V1", threads=3, async_scheduling=False)


def test_threads_are_counted_over_all_ranks() -> None:
    log = "local_rank=0, core ids=[0,1]\nlocal_rank=1, core ids=[2,3]\n"
    assert startup_facts(log).threads == 4


def test_a_gpu_start_tells_the_v2_runner_and_only_that_scheduling_was_switched_off() -> None:
    log = (
        "Async scheduling not supported with ngram-based speculative decoding and will be disabled.\n"
        "Using V2 Model Runner\nGPU KV cache size: 1,234,567 tokens, Maximum concurrency\n"
    )
    assert startup_facts(log) == StartupFacts(
        kv_cache_tokens=1234567, runner="V2", threads=None, async_scheduling=False
    )


def test_what_the_log_does_not_say_is_missing() -> None:
    assert startup_facts("hello\n") == StartupFacts(
        kv_cache_tokens=None, runner=None, threads=None, async_scheduling=None
    )


def test_the_tail_holds_the_last_lines_and_one_line_per_progress_bar(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"one\ntwo\nbar 0%\rbar 50%\rbar 100%\nlast \xff\n")
    assert log_tail(log, 3) == "two\nbar 100%\nlast \ufffd"
    assert log_tail(log, 60) == "one\ntwo\nbar 100%\nlast \ufffd"


def test_a_log_that_was_never_written_has_no_tail(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "engine.log") == ""
