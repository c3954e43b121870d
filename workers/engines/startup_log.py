"""What vLLM says about itself in its start-up log. Every fact may be missing; none is guessed."""

import re
from dataclasses import dataclass
from pathlib import Path

TAIL_BYTES = 256 * 1024

KV_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
V1_RUNNER = re.compile(r"using the V1 model runner", re.IGNORECASE)
V2_RUNNER = re.compile(r"Using V2 Model Runner")
CORES = re.compile(r"local_rank=\d+, core ids=\[([\d, ]*)\]")
# vLLM only says when it switches asynchronous scheduling off; its CPU platform does so without a word.
NOT_ASYNC = re.compile(r"Async scheduling [^\n]*\bdisabled\b|device_config=cpu\b")


@dataclass(frozen=True)
class StartupFacts:
    kv_cache_tokens: int | None
    runner: str | None
    threads: int | None
    async_scheduling: bool | None


def startup_facts(log: str) -> StartupFacts:
    kv_cache = KV_CACHE.search(log)
    return StartupFacts(
        kv_cache_tokens=int(kv_cache[1].replace(",", "")) if kv_cache else None,
        runner=runner(log),
        threads=compute_threads(log),
        async_scheduling=False if NOT_ASYNC.search(log) else None,
    )


def runner(log: str) -> str | None:
    if V2_RUNNER.search(log):
        return "V2"
    return "V1" if V1_RUNNER.search(log) else None


def compute_threads(log: str) -> int | None:
    """OpenMP threads over all ranks, where vLLM bound them (CPU only)."""
    ranks = CORES.findall(log)
    return sum(len(cores.split(",")) for cores in ranks) if ranks else None


def log_tail(path: Path, lines: int = 60) -> str:
    """The log's last lines; a progress bar that redrew itself counts as one line, in its last state."""
    if not path.exists():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
        text = stream.read().decode("utf-8", errors="replace")
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return "\n".join(shown[-lines - 1 :] if text.endswith("\n") else shown[-lines:]).rstrip("\n")
