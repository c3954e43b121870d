"""Checkpoints are known by their content; the demo target is unpacked once and whole."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from loadtests.configurations import Checkpoint
from workers.target import (
    DEMO_TARGET,
    TargetError,
    checkpoint_digests,
    find_checkpoint,
    prepare_demo_target,
    record_checkpoint,
    verified_checkpoint,
)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_checkpoint(directory: Path, weights: str = "weights", tokenizer: str = "tokenizer") -> Path:
    directory.mkdir(parents=True)
    (directory / "model-00002-of-00002.safetensors").write_text("second")
    (directory / "model-00001-of-00002.safetensors").write_text(weights)
    (directory / "config.json").write_text("{}")
    (directory / "tokenizer.json").write_text(tokenizer)
    (directory / "README.md").write_text("not part of the identity")
    return directory


def engine_python(tmp_path: Path, script: str) -> Path:
    """Stands in for the engine environment's Python: it gets the unpacking script and the directory to fill."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport sys, pathlib\ndirectory = pathlib.Path(sys.argv[2])\n{script}\n")
    python.chmod(0o755)
    return python


UNPACK = """
directory.mkdir()
for name in ("model.safetensors", "config.json", "tokenizer.json"):
    (directory / name).write_text(name)
"""


def test_a_digest_is_over_sorted_names_and_contents(tmp_path: Path) -> None:
    found = checkpoint_digests(write_checkpoint(tmp_path / "one"))
    weights = (
        f'[["config.json","{sha256("{}")}"],["model-00001-of-00002.safetensors","{sha256("weights")}"],'
        f'["model-00002-of-00002.safetensors","{sha256("second")}"]]'
    )
    tokenizer = f'[["tokenizer.json","{sha256("tokenizer")}"]]'
    assert found == Checkpoint(name="one", weights_sha256=sha256(weights), tokenizer_sha256=sha256(tokenizer))


def test_weights_outside_safetensors_are_not_identified(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_text("pickle")
    with pytest.raises(TargetError, match=r"no \*\.safetensors file"):
        checkpoint_digests(tmp_path)


def test_a_checkpoint_is_found_by_content_under_any_name(tmp_path: Path) -> None:
    wanted = record_checkpoint(write_checkpoint(tmp_path / "b-copy", weights="other"))
    record_checkpoint(write_checkpoint(tmp_path / "a"))
    write_checkpoint(tmp_path / "never-recorded", weights="other")
    assert find_checkpoint(tmp_path, wanted.model_copy(update={"name": "any name"})) == tmp_path / "b-copy"


def test_a_missing_checkpoint_is_named_beside_what_is_there(tmp_path: Path) -> None:
    there = record_checkpoint(write_checkpoint(tmp_path / "a"))
    wanted = Checkpoint(name="wanted", weights_sha256="1" * 64, tokenizer_sha256="2" * 64)
    with pytest.raises(TargetError) as refusal:
        find_checkpoint(tmp_path, wanted)
    assert str(refusal.value) == (
        f"no checkpoint wanted (weights 111111111111…, tokenizer 222222222222…) under {tmp_path}; there is: "
        f"a (weights {there.weights_sha256[:12]}…, tokenizer {there.tokenizer_sha256[:12]}…)"
    )


def test_a_broken_neighbour_does_not_hide_a_checkpoint(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path / "a-broken") / "draftproof.json").write_text("not JSON")
    wanted = record_checkpoint(write_checkpoint(tmp_path / "b"))
    assert find_checkpoint(tmp_path, wanted) == tmp_path / "b"


@pytest.mark.parametrize(
    ("changed", "part"), [("config.json", "weights_sha256"), ("tokenizer.json", "tokenizer_sha256")]
)
def test_a_file_that_changed_after_it_was_recorded_is_refused(tmp_path: Path, changed: str, part: str) -> None:
    recorded = record_checkpoint(write_checkpoint(tmp_path / "a"))
    (tmp_path / "a" / changed).write_text('{"changed": true}')
    with pytest.raises(TargetError, match=f"{part} is .* the files changed after they were recorded"):
        find_checkpoint(tmp_path, recorded)


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"schema": "other/1"}', "\x00"])
def test_a_broken_record_is_refused_by_name(tmp_path: Path, record: str) -> None:
    write_checkpoint(tmp_path / "a")
    (tmp_path / "a/draftproof.json").write_text(record)
    with pytest.raises(TargetError, match=r"draftproof\.json is not a checkpoint record"):
        verified_checkpoint(tmp_path / "a")


def test_the_demo_target_is_unpacked_recorded_and_not_unpacked_again(tmp_path: Path) -> None:
    models = tmp_path / "models"
    target = prepare_demo_target(models, engine_python(tmp_path, UNPACK))
    assert json.loads((models / DEMO_TARGET / "draftproof.json").read_text()) == {
        "schema": "draftproof.checkpoint/1",
        "name": "SmolLM2-135M-Instruct",
        "weights_sha256": target.weights_sha256,
        "tokenizer_sha256": target.tokenizer_sha256,
    }
    again = prepare_demo_target(models, engine_python(tmp_path, "sys.exit('must not be asked again')"))
    assert again == target
    assert [path.name for path in models.iterdir()] == [DEMO_TARGET]


def test_a_failed_unpacking_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    models = tmp_path / "models"
    broken = engine_python(tmp_path, UNPACK + "sys.exit('the disk is full')")
    with pytest.raises(TargetError, match="the disk is full"):
        prepare_demo_target(models, broken)
    assert list(models.iterdir()) == []


def test_whoever_unpacks_second_keeps_the_first_ones_files(tmp_path: Path) -> None:
    models = tmp_path / "models"
    # While the second unpacks, the first moves its own into place.
    faster = engine_python(
        tmp_path,
        UNPACK + f"import shutil; shutil.copytree(directory, {str(models / DEMO_TARGET)!r})\n"
        f"(pathlib.Path({str(models / DEMO_TARGET)!r}) / 'draftproof.json').write_text('theirs')",
    )
    with pytest.raises(TargetError, match="is not a checkpoint record"):
        prepare_demo_target(models, faster)
    assert (models / DEMO_TARGET / "draftproof.json").read_text() == "theirs"


def test_a_missing_engine_environment_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"install the engine environment \(requirements/engine-cpu\.txt\)"):
        prepare_demo_target(tmp_path / "models", tmp_path / "missing/python")


def test_a_checkpoint_is_added_and_its_block_can_be_pasted_into_a_brief(
    tmp_path: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.MODELS_DIR = tmp_path / "models"
    directory = write_checkpoint(settings.MODELS_DIR / "mine")
    for _ in range(2):
        call_command("add_checkpoint", str(directory))
        printed = yaml.safe_load(capsys.readouterr().out)
        assert Checkpoint.model_validate(printed["target"]) == checkpoint_digests(directory)
    assert find_checkpoint(settings.MODELS_DIR, checkpoint_digests(directory)) == directory


def test_a_checkpoint_that_workers_would_not_find_or_that_changed_is_not_added(tmp_path: Path, settings: Any) -> None:
    settings.MODELS_DIR = tmp_path / "models"
    outside = write_checkpoint(tmp_path / "elsewhere")
    with pytest.raises(CommandError, match="move or link"):
        call_command("add_checkpoint", str(outside))
    with pytest.raises(CommandError, match="is no directory"):
        call_command("add_checkpoint", str(tmp_path / "none"))
    settings.MODELS_DIR.mkdir()
    linked = settings.MODELS_DIR / "linked"
    linked.symlink_to(outside)
    call_command("add_checkpoint", str(linked))
    (outside / "config.json").write_text('{"rope_theta": 1}')
    with pytest.raises(CommandError, match="the files changed after they were recorded"):
        call_command("add_checkpoint", str(linked))
