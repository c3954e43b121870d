"""A result of ``vllm bench serve``, made up: what it tells of its requests follows from a few numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def bench(
    *, requests: int = 40, failed: int = 2, first_s: float = 0.1, between_s: float = 0.01, **more: Any
) -> dict[str, Any]:
    """One request a second, each with 11 tokens: it completes 10 × ``between_s`` after its first token, and the last
    ``failed`` ones fail."""
    fails = [row >= requests - failed for row in range(requests)]
    return {
        "date": "20260801-101112",
        "backend": "openai-chat",
        "model_id": "target",
        "tokenizer_id": "target",
        "num_prompts": requests,
        "request_rate": 1.0,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": float(requests),
        "completed": requests - failed,
        "failed": failed,
        "input_lens": [10] * requests,
        "output_lens": [0 if fail else 11 for fail in fails],
        "ttfts": [0.0 if fail else first_s for fail in fails],
        "itls": [[] if fail else [between_s] * 10 for fail in fails],
        "start_times": [1000.0 + row for row in range(requests)],
        "generated_texts": ["" if fail else "an answer of somebody" for fail in fails],
        "errors": ["Internal Server Error" if fail else "" for fail in fails],
        "p99_ttft_ms": 1000 * first_s,
        **more,
    }


def without_details(**more: Any) -> dict[str, Any]:
    lists = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
    return {name: value for name, value in bench(**more).items() if name not in lists}


def written(path: Path, *documents: dict[str, Any]) -> Path:
    """More than one is what --append-result writes."""
    path.write_text("\n".join(json.dumps(one) for one in documents), encoding="utf-8")
    return path
