"""What a checkpoint's own files say beside its weights: the sizes that decide whether a drafter fits its target."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Beside a checkpoint's files: its digests of weights and tokenizer.
RECORD = "draftproof.json"


@dataclass(frozen=True)
class CheckpointFacts:
    """None wherever the files don't say. ``trained_block``: the longest draft that a block drafter was trained for.
    ``target_layer_ids``: the target's layers, from 0, whose hidden states a drafter reads; ``target_hidden_size``:
    their size, where it isn't its own. ``mixed_attention``: some of its layers see a sliding window, and others all.
    ``min_p``: a sampling default that the checkpoint brings along."""

    vocab_size: int | None = None
    hidden_size: int | None = None
    target_hidden_size: int | None = None
    layers: int | None = None
    target_layer_ids: tuple[int, ...] = ()
    trained_block: int | None = None
    architectures: tuple[str, ...] = ()
    mixed_attention: bool = False
    min_p: float | None = None

    @property
    def reads_hidden_size(self) -> int | None:
        """Of the hidden states that it takes from a target: as vLLM's drafters read their config."""
        return self.target_hidden_size or self.hidden_size


def facts_of(config: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> CheckpointFacts:
    """From ``config.json`` and ``generation_config.json``; a multimodal target says its sizes in ``text_config``."""
    own, text = inner(config, "dflash_config"), inner(config, "text_config") or config
    layer_ids = listed(first(own, config, names=("target_layer_ids", "dspark_target_layer_ids")))
    sliding = [one == "sliding_attention" for one in listed(text.get("layer_types"))]
    min_p = (generation or {}).get("min_p")
    return CheckpointFacts(
        vocab_size=whole(text.get("vocab_size")),
        hidden_size=whole(text.get("hidden_size")),
        target_hidden_size=whole(config.get("target_hidden_size")),
        layers=whole(text.get("num_hidden_layers")),
        target_layer_ids=tuple(one for one in layer_ids if whole(one) is not None),
        trained_block=whole(first(own, config, names=("block_size", "dspark_block_size"))),
        architectures=tuple(one for one in listed(config.get("architectures")) if isinstance(one, str)),
        mixed_attention=any(sliding) and not all(sliding),
        min_p=float(min_p) if isinstance(min_p, int | float) and not isinstance(min_p, bool) else None,
    )


def inner(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def first(*configs: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((one[name] for one in configs for name in names if one.get(name)), None)


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_facts(directory: Path) -> CheckpointFacts:
    """Of a checkpoint's directory; a file that isn't there says nothing. Raises OSError, or ValueError for a file that
    holds no JSON object."""
    return facts_of(json_object(directory / "config.json"), json_object(directory / "generation_config.json"))


def json_object(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no JSON object")
    return found


def recorded_facts(models_dir: Path) -> dict[tuple[str, str], CheckpointFacts]:
    """{(SHA-256 of weights, of tokenizer): facts} of the checkpoints recorded under ``models_dir``, as their records
    name them: whoever starts one reads its files again. What can't be read isn't known."""
    found: dict[tuple[str, str], CheckpointFacts] = {}
    for record in sorted(models_dir.glob(f"[!.]*/{RECORD}")):
        with suppress(OSError, ValueError, KeyError, RecursionError):
            document = json_object(record)
            found[str(document["weights_sha256"]), str(document["tokenizer_sha256"])] = read_facts(record.parent)
    return found
