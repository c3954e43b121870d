"""The adapter against a real vLLM: one boot without speculation and one with prompt lookup."""

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtests.configurations import Checkpoint, Speculative
from tests.support.cpu_engine import complete, cpu_configuration
from workers.engines.base import RunningEngine
from workers.engines.local_process import is_port_open
from workers.engines.process_group import group_members
from workers.engines.vllm import find_preloads, start
from workers.target import find_checkpoint

pytestmark = pytest.mark.engine

NGRAM = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=4)
PROMPT = "Repeat exactly: red green blue, red green blue, red green blue, red green blue, red green blue."
SHARED = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
DRAFTS = ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total")


def settled(engine: RunningEngine) -> dict[str, float]:
    """The answer may be on its way before the engine has counted it."""
    until = time.monotonic() + 10
    while (counters := engine.counters())["vllm:num_requests_running"] and time.monotonic() < until:
        time.sleep(0.1)
    return counters


@pytest.mark.parametrize("speculative", [None, NGRAM], ids=["baseline", "ngram"])
def test_a_boot_from_settings_to_a_clean_stop(
    settings: Any, tmp_path: Path, engine_python: Path, target: Checkpoint, speculative: Speculative | None
) -> None:
    chosen = cpu_configuration(target, engine_python, speculative)
    engine = start(
        chosen,
        engine_python=engine_python,
        model_path=find_checkpoint(settings.MODELS_DIR, target),
        drafter_path=None,
        directory=tmp_path,
    )
    try:
        before = engine.counters()
        answer = complete(engine, PROMPT, max_tokens=48)
        after = settled(engine)
        facts, members = engine.facts, [member.pid for member in group_members(engine.process.group)]
    finally:
        engine.stop()
    port = int(engine.base_url.rpartition(":")[2])

    assert answer["system_fingerprint"] == chosen.digest
    assert answer["model"] == target.name
    usage = answer["usage"]
    assert {name: after[name] - before[name] for name in SHARED} == {
        "vllm:prompt_tokens_total": usage["prompt_tokens"],
        "vllm:generation_tokens_total": usage["completion_tokens"],
    }
    assert answer["metrics"]["queue_time_ms"] >= 0
    check_speculation(speculative, answer["metrics"]["speculative_decoding"], before, after)

    assert (facts.version, facts.runner, facts.async_scheduling) == (chosen.runtime.version, "V1", False)
    assert facts.threads is not None
    assert facts.threads >= 1
    assert facts.kv_cache_tokens is not None
    assert facts.kv_cache_tokens >= chosen.arguments.max_model_len
    assert facts.preloaded == tuple(str(path) for path in preloads(engine_python) if path)
    json.dumps(facts.document)

    assert len(members) >= 3
    assert [pid for pid in members if psutil.pid_exists(pid) and not is_zombie(pid)] == []
    assert not is_port_open(port)


def preloads(engine_python: Path) -> tuple[Path | None, Path | None]:
    found = find_preloads(engine_python)
    return found.tcmalloc, found.openmp


def is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def check_speculation(
    speculative: Speculative | None, told: dict[str, Any] | None, before: dict[str, float], after: dict[str, float]
) -> None:
    """The request's own numbers are the server's counters when it was alone."""
    if speculative is None:
        assert told is None
        assert not any("spec_decode" in name for name in after)
        return
    assert told is not None
    assert told["num_spec_steps"] > 0
    assert {name: after[name] - before[name] for name in DRAFTS} == {
        "vllm:spec_decode_num_drafts_total": told["num_spec_steps"],
        "vllm:spec_decode_num_draft_tokens_total": told["num_draft_tokens"],
    }
