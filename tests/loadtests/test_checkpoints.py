"""What a checkpoint's own files say: the sizes by which a drafter is held against its target."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtests.checkpoints import CheckpointFacts, facts_of, read_facts, recorded_facts

SIZES = {"vocab_size": 1_000, "hidden_size": 64, "num_hidden_layers": 4}
TOLD: dict[str, Any] = {"vocab_size": 1_000, "hidden_size": 64, "layers": 4}
DIGESTS = {"weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64}


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        ({}, {}),
        (SIZES, TOLD),
        ({"text_config": SIZES, "vocab_size": 7}, TOLD),
        (
            {"dflash_config": {"block_size": 4, "target_layer_ids": [1, 3]}},
            {"trained_block": 4, "target_layer_ids": (1, 3)},
        ),
        ({"block_size": 4, "target_layer_ids": [0]}, {"trained_block": 4, "target_layer_ids": (0,)}),
        ({"dspark_block_size": 4, "dspark_target_layer_ids": [2]}, {"trained_block": 4, "target_layer_ids": (2,)}),
        ({"target_hidden_size": 128, "hidden_size": 64}, {"target_hidden_size": 128, "hidden_size": 64}),
        ({"architectures": ["DFlash2DraftModel"]}, {"architectures": ("DFlash2DraftModel",)}),
        ({"layer_types": ["sliding_attention", "full_attention"]}, {"mixed_attention": True}),
        ({"layer_types": ["sliding_attention"] * 2}, {}),
        # Nothing is made of what isn't a number.
        ({"vocab_size": "many", "block_size": True, "target_layer_ids": "all", "architectures": 1}, {}),
    ],
)
def test_facts_stand_where_the_drafters_of_the_engine_look(config: dict[str, Any], facts: dict[str, Any]) -> None:
    assert facts_of(config) == CheckpointFacts(**facts)


def test_a_sampling_default_comes_from_the_generation_config() -> None:
    assert facts_of({"min_p": 0.1}).min_p is None
    assert facts_of({}, {"min_p": 0.1}).min_p == 0.1
    assert facts_of({}, {"min_p": None}).min_p is None


def test_a_drafter_reads_its_own_size_unless_it_says_another() -> None:
    assert CheckpointFacts(hidden_size=64).reads_hidden_size == 64
    assert CheckpointFacts(hidden_size=64, target_hidden_size=128).reads_hidden_size == 128


def checkpoint(directory: Path, config: str, record: str | None = None) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(config, encoding="utf-8")
    if record is not None:
        (directory / "draftproof.json").write_text(record, encoding="utf-8")
    return directory


def test_a_directory_without_a_config_says_nothing(tmp_path: Path) -> None:
    assert read_facts(tmp_path) == CheckpointFacts()


def test_a_config_that_is_no_object_is_an_error(tmp_path: Path) -> None:
    for number, text in enumerate(("[1]", "{")):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says of JSON
            read_facts(checkpoint(tmp_path / str(number), text))


def test_only_what_is_recorded_and_can_be_read_is_known(tmp_path: Path) -> None:
    record = json.dumps(DIGESTS)
    checkpoint(tmp_path / "good", json.dumps(SIZES), record)
    checkpoint(tmp_path / "unrecorded", json.dumps(SIZES))
    checkpoint(tmp_path / "broken", "{", json.dumps(DIGESTS | {"weights_sha256": "c" * 64}))
    checkpoint(tmp_path / "nameless", json.dumps(SIZES), "{}")
    checkpoint(tmp_path / ".half", json.dumps(SIZES), json.dumps(DIGESTS | {"weights_sha256": "d" * 64}))
    assert recorded_facts(tmp_path) == {("a" * 64, "b" * 64): CheckpointFacts(**TOLD)}
    assert recorded_facts(tmp_path / "nowhere") == {}
