"""By which rule an engine says that it accepts drafts: read from its setting, or from the command that started it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.behaviour.result import Declared, Rule

FLAG = "--speculative-config"
# vLLM 0.32 (vllm/config/speculative.py): both keep the target's distribution; ``block`` verifies drafts jointly.
EXACT = ("standard", "block")


def is_synthetic(key: str) -> bool:
    return key.startswith("synthetic_acceptance")


def is_lossy(key: str) -> bool:
    return key.startswith("fly_")


def is_threshold(key: str) -> bool:
    """Accepting by confidence: the words of older vLLM, SGLang and TensorRT-LLM for it."""
    return not is_lossy(key) and ("threshold" in key or key.startswith(("posterior_", "relaxed_", "use_relaxed_")))


def rule_of(setting: Mapping[str, Any] | None) -> Rule:
    """Of a speculative setting in the engine's words; without one all output is the target's own."""
    if setting is None:
        return "exact"
    method = setting.get("rejection_sample_method") or "standard"
    given = [name for name, value in setting.items() if value is not None]
    if method == "synthetic" or any(is_synthetic(one) for one in given):
        return "synthetic"
    loosened = any(is_lossy(one) or is_threshold(one) for one in given)
    return "exact" if method in EXACT and not loosened else "lossy"


def rule_of_command(command: Sequence[str]) -> Rule:
    """Of the command line that an engine was started by; ``unknown`` where there is none, or it can't be read."""
    if not command:
        return "unknown"
    words = [word for part in command for word in (part.split("=", 1) if part.startswith(f"{FLAG}=") else [part])]
    if FLAG not in words:
        return rule_of(None)
    try:
        setting = json.loads(words[words.index(FLAG) + 1])
    except (ValueError, IndexError):
        return "unknown"
    return rule_of(setting) if isinstance(setting, dict) else "unknown"


def declared_by(setting: Mapping[str, Any] | None, *, started_by_us: bool) -> Declared:
    source = (
        "the candidate's configuration, and the command line that its engine was started by"
        if started_by_us
        else "declared in the candidate's configuration: the server is started by others"
    )
    return Declared(rule=rule_of(setting), source=source)
