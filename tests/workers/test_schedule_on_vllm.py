"""A compiled schedule on a real vLLM: it is accepted, and the counters show K change with the running batch."""

import json
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from loadtests.configurations import Checkpoint, Configuration, Speculative
from loadtests.tuning.compile import compiled
from loadtests.tuning.schedule import Schedule, with_schedule
from tests.support.cpu_engine import complete, cpu_configuration
from workers.engines.base import RunningEngine
from workers.engines.vllm import start
from workers.target import find_checkpoint

pytestmark = pytest.mark.engine

NGRAM = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=4)
SCHEDULE = Schedule.parse("1x4-2x1")
MOST = 4
PROMPT = "Repeat exactly: red green blue, red green blue, red green blue, red green blue, red green blue."
ROUNDS, DRAFTS = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"


@pytest.fixture
def configuration(target: Checkpoint, engine_python: Path) -> Configuration:
    return cpu_configuration(
        target, engine_python, with_schedule(NGRAM, SCHEDULE, max_num_seqs=MOST), max_num_seqs=MOST
    )


def ask(engine: RunningEngine, number: int) -> None:
    complete(engine, f"{PROMPT} ({number})", max_tokens=160, ignore_eos=True)


def drafts_a_round(engine: RunningEngine, requests: int) -> float:
    """Until the first of so many at once has ended: from then on fewer run."""
    before = engine.counters()
    with ThreadPoolExecutor(requests) as clients:
        wait([clients.submit(ask, engine, number) for number in range(requests)], return_when=FIRST_COMPLETED)
        after = engine.counters()
    return (after[DRAFTS] - before[DRAFTS]) / (after[ROUNDS] - before[ROUNDS])


def test_k_changes_with_the_batch(settings: Any, tmp_path: Path, configuration: Configuration) -> None:
    engine = start(
        configuration,
        engine_python=Path(settings.ENGINE_PYTHON),
        model_path=find_checkpoint(settings.MODELS_DIR, configuration.target),
        drafter_path=None,
        directory=tmp_path,
    )
    try:
        words = list(engine.facts.command)
        found = {requests: drafts_a_round(engine, requests) for requests in (1, 4)}
    finally:
        engine.stop()
    said = json.loads(words[words.index("--speculative-config") + 1])
    assert said == compiled("vllm", NGRAM, SCHEDULE, arguments=configuration.arguments).settings
    assert said["num_speculative_tokens_per_batch_size"] == [[1, 1, 4], [2, 4, 1]]
    # Prompt lookup may find fewer tokens than K, never more; a moment may pass before the second of four arrives.
    assert 2 < found[1] <= 4
    assert 1 <= found[4] < 1.5
