"""A schedule as the settings of three engines: golden documents, and every limit of an engine refused in words."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from config.cli import main
from loadtests.configurations import Checkpoint, EngineArguments, Speculative
from loadtests.tuning.compile import ENGINES, EngineName, Uncompilable, compiled
from loadtests.tuning.schedule import Schedule

DRAFTER = Checkpoint(name="drafter-1b", weights_sha256="a" * 64, tokenizer_sha256="b" * 64)
NGRAM = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=3)
EAGLE3 = Speculative(method="eagle3", num_speculative_tokens=4, drafter=DRAFTER)
FALLING = Schedule.parse("1x8-5x2-17x1")
TO_ZERO = Schedule.parse("1x8-5x2-17x0")
FROM_ZERO = Schedule.parse("1x0-5x2")
RISING = Schedule.parse("1x2-5x8")
ARGUMENTS = EngineArguments(max_num_seqs=32)


def settings(engine: EngineName, speculative: Speculative, schedule: Schedule, **more: Any) -> Any:
    return compiled(engine, speculative, schedule, **({"arguments": ARGUMENTS} | more)).settings


def refusals(engine: EngineName, speculative: Speculative, schedule: Schedule, **more: Any) -> list[str]:
    with pytest.raises(Uncompilable) as refused:
        compiled(engine, speculative, schedule, **({"arguments": ARGUMENTS} | more))
    return refused.value.reasons


def test_vllm_takes_ranges_with_the_last_one_closed_at_max_num_seqs() -> None:
    assert settings("vllm", NGRAM, TO_ZERO) == {
        "method": "ngram",
        "num_speculative_tokens": 8,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 3,
        "num_speculative_tokens_per_batch_size": [[1, 4, 8], [5, 16, 2], [17, 32, 0]],
    }
    assert settings("vllm", EAGLE3, Schedule.fixed(5), drafter_path="/models/d") == {
        "method": "eagle3",
        "num_speculative_tokens": 5,
        "model": "/models/d",
    }


def test_steps_that_no_batch_reaches_are_left_out() -> None:
    few = EngineArguments(max_num_seqs=16)
    found = settings("vllm", NGRAM, TO_ZERO, arguments=few)
    assert found["num_speculative_tokens_per_batch_size"] == [[1, 4, 8], [5, 16, 2]]
    one = settings("vllm", NGRAM, TO_ZERO, arguments=EngineArguments(max_num_seqs=4))
    assert one == {
        "method": "ngram",
        "num_speculative_tokens": 8,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 3,
    }


def test_tensorrt_llm_takes_upper_bounds_and_drafts_nothing_above_the_last() -> None:
    expected = {
        "decoding_type": "Eagle3",
        "max_draft_len": 8,
        "speculative_model": "drafter-1b",
        "draft_len_schedule": {"4": 8, "16": 2, "32": 1},
    }
    assert settings("tensorrt-llm", EAGLE3, FALLING) == {"speculative_config": expected}
    # What K = 0 from 17 on says, the bound of 16 before it says.
    zero = settings("tensorrt-llm", EAGLE3, TO_ZERO)["speculative_config"]
    assert zero["draft_len_schedule"] == {"4": 8, "16": 2}
    assert settings("tensorrt-llm", NGRAM, Schedule.fixed(3)) == {
        "speculative_config": {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 3}
    }


def test_sglang_takes_a_slot_for_each_lower_bound() -> None:
    assert settings("sglang", EAGLE3, FALLING) == {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 8,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 9,
        "speculative_draft_model_path": "drafter-1b",
        "speculative_adaptive": True,
        "speculative_adaptive_config": {
            "1": {"candidate_steps": [8]},
            "5": {"candidate_steps": [2]},
            "17": {"candidate_steps": [1]},
        },
    }
    assert settings("sglang", NGRAM, Schedule.fixed(3)) == {
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": 4,
    }


def test_sglang_takes_a_step_of_zero_with_what_its_source_says_of_it() -> None:
    found = compiled("sglang", EAGLE3, TO_ZERO, arguments=ARGUMENTS)
    assert found.settings["speculative_adaptive_config"]["17"] == {"candidate_steps": [0]}
    assert any("needs SGLang PR 23994" in note for note in found.notes)
    assert not any("23994" in note for note in compiled("sglang", EAGLE3, FALLING, arguments=ARGUMENTS).notes)


def test_a_step_of_zero_is_flagged_with_its_price() -> None:
    for engine in ("vllm", "tensorrt-llm"):
        notes = compiled(engine, EAGLE3, TO_ZERO, arguments=ARGUMENTS).notes
        assert any("costs 6-22 % against a server without speculation" in note for note in notes)
        without = compiled(engine, EAGLE3, FALLING, arguments=ARGUMENTS).notes
        assert not any("6-22 %" in note for note in without)


def test_limits_of_vllm() -> None:
    two = EngineArguments(max_num_seqs=32, data_parallel_size=2)
    (said,) = refusals("vllm", NGRAM, TO_ZERO, arguments=two)
    assert "drops a schedule in silence where data_parallel_size is above 1 (here 2)" in said
    assert settings("vllm", NGRAM, Schedule.fixed(4), arguments=two)["num_speculative_tokens"] == 4


def test_limits_of_tensorrt_llm() -> None:
    (said,) = refusals("tensorrt-llm", EAGLE3, RISING)
    assert "wants the K of the smallest batches to be the largest" in said
    dspark = Speculative(method="dspark", num_speculative_tokens=4, drafter=DRAFTER)
    (said,) = refusals("tensorrt-llm", dspark, FALLING)
    assert "runs DSpark at one K" in said
    eagle = Speculative(method="eagle", num_speculative_tokens=4, drafter=DRAFTER)
    (said,) = refusals("tensorrt-llm", eagle, Schedule.fixed(4))
    assert "TensorRT-LLM can't run eagle: its PyTorch backend runs EAGLE 3 alone" in said


def test_limits_of_sglang() -> None:
    (said,) = refusals("sglang", EAGLE3, FROM_ZERO)
    assert "whether it starts with 0 was never checked" in said
    (said,) = refusals("sglang", NGRAM, FALLING)
    assert "changes K at run time for EAGLE and EAGLE3 alone: with NGRAM" in said
    two = EngineArguments(max_num_seqs=32, data_parallel_size=2)
    (said,) = refusals("sglang", EAGLE3, FALLING, arguments=two)
    assert "under data-parallel attention" in said
    medusa = Speculative(method="medusa", num_speculative_tokens=4, drafter=DRAFTER)
    assert refusals("sglang", medusa, Schedule.fixed(4)) == ["SGLang can't run medusa: it has no such method"]


@pytest.mark.parametrize("engine", ENGINES)
def test_limits_of_every_engine(engine: EngineName) -> None:
    above = refusals(engine, EAGLE3, FALLING, trained_block=7)
    assert any("K = 8 is above the drafter's trained block of 7" in said for said in above)
    never = refusals(engine, EAGLE3, Schedule.fixed(0))
    assert any("start the server without a speculative setting instead" in said for said in never)


def test_an_option_that_another_engine_lacks_is_refused() -> None:
    quantized = Speculative(method="eagle3", num_speculative_tokens=4, drafter=DRAFTER, quantization="fp8")
    assert settings("vllm", quantized, FALLING)["quantization"] == "fp8"
    for engine in ("tensorrt-llm", "sglang"):
        (said,) = refusals(engine, quantized, FALLING)
        assert said.startswith("quantization has no counterpart")


def test_every_reason_is_said_at_once() -> None:
    assert len(refusals("sglang", NGRAM, FROM_ZERO, trained_block=1)) == 3


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["compile", *words])


@pytest.fixture
def setting(tmp_path: Path) -> str:
    path = tmp_path / "setting.json"
    path.write_text(NGRAM.model_dump_json(exclude_none=True), encoding="utf-8")
    return str(path)


BASELINE = {
    "schema": "draftproof.configuration/1",
    "runtime": {"version": "0.32.0"},
    "target": {"name": "t", "weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64},
    "arguments": {"max_num_seqs": 16},
    "hardware": {"pool": "cpu", "accelerator": "cpu"},
}
SETTING = {"method": "ngram", "num_speculative_tokens": 4}


@pytest.fixture
def brief(tmp_path: Path) -> str:
    other = BASELINE | {"arguments": {"max_num_seqs": 8}, "speculative": SETTING}
    candidates = [
        {"name": "ngram-4", "speculative": SETTING},
        {"name": "whole", "configuration": BASELINE | {"speculative": SETTING}},
        {"name": "smaller", "configuration": other},
    ]
    look = {"name": "look", "speculative": {"method": "ngram"}, "draft_lengths": [2, 4], "trained_block": 4}
    search = [look | {"schedules": {"propose": True}}]
    path = tmp_path / "brief.yaml"
    document = {"baseline": BASELINE, "candidates": candidates, "search": search}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm", "sglang"])
def test_steps_that_no_batch_reaches_are_told(engine: EngineName) -> None:
    beyond = Schedule.parse(f"1x4-5x2-{ARGUMENTS.max_num_seqs + 1}x1")
    said = f"left out, as no batch is larger than {ARGUMENTS.max_num_seqs} (max_num_seqs): "
    notes = compiled(engine, EAGLE3, beyond, arguments=ARGUMENTS).notes
    assert [one for one in notes if one.startswith("left out")] == [f"{said}{ARGUMENTS.max_num_seqs + 1}x1"]
    reached = compiled(engine, EAGLE3, Schedule.parse("1x4-5x2"), arguments=ARGUMENTS).notes
    assert not any(one.startswith("left out") for one in reached)


def test_the_command_prints_settings_on_stdout_and_notes_on_stderr(setting: str) -> None:
    asked = ["--engine", "vllm", "--speculative", setting, "--max-num-seqs", "32", "--schedule", "1x8-5x2-17x0"]
    result = run(*asked)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == settings("vllm", NGRAM, TO_ZERO)
    assert "--speculative-config" in result.stderr


@pytest.mark.parametrize("name", ["ngram-4", "whole"])
def test_the_command_reads_a_candidate_of_a_brief(brief: str, name: str) -> None:
    found = run("--engine", "vllm", "--brief", brief, "--candidate", name)
    assert json.loads(found.stdout) == SETTING
    scheduled = run("--engine", "vllm", "--brief", brief, "--candidate", name, "--schedule", "1x4-9x1")
    assert json.loads(scheduled.stdout)["num_speculative_tokens_per_batch_size"] == [[1, 8, 4], [9, 16, 1]]


def test_the_command_reads_a_candidate_that_a_search_forms(brief: str) -> None:
    found = run("--engine", "vllm", "--brief", brief, "--candidate", "look-k4")
    assert json.loads(found.stdout) == SETTING
    proposed = run("--engine", "vllm", "--brief", brief, "--candidate", "look-s1x4-9x0")
    assert json.loads(proposed.stdout)["num_speculative_tokens_per_batch_size"] == [[1, 8, 4], [9, 16, 0]]
    outside = run("--engine", "vllm", "--brief", brief, "--candidate", "look-k3")
    assert (outside.exit_code, outside.stdout) == (2, "")
    assert "K = 3 is not among the draft lengths of look" in outside.stderr
    above = run("--engine", "vllm", "--brief", brief, "--candidate", "look-k4", "--schedule", "1x8-5x2")
    assert "K = 8 is above the drafter's trained block of 4" in above.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--engine", "vllm", "--schedule", "1x" + "9" * 5_000], "is no schedule: write lo x K"),
        (["--engine", "sglang", "--schedule", "1x4-9x0"], "SGLang changes K at run time for EAGLE and EAGLE3 alone"),
        (["--engine", "vllm", "--schedule", "9x1"], "a schedule starts at 1 running sequence, not at 9"),
        (["--engine", "vllm", "--schedule", "1:9"], "is no schedule: write lo x K"),
    ],
)
def test_refusals_go_to_stderr_with_exit_2(setting: str, more: list[str], said: str) -> None:
    result = run("--speculative", setting, "--max-num-seqs", "32", *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_what_the_command_cant_read_is_said(setting: str, brief: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(SETTING | {"num_speculative_tokens": 0}), encoding="utf-8")
    said = {
        "say --max-num-seqs": run("--engine", "vllm", "--speculative", setting),
        "say either --brief with --candidate, or": run("--engine", "vllm", "--brief", brief),
        "has no candidate k; it has ngram-4, whole, smaller, look-k2, look-k4": run(
            "--engine", "vllm", "--brief", brief, "--candidate", "k"
        ),
        "candidate smaller differs from the baseline in more than the speculative setting: arguments.max_num_seqs": run(
            "--engine", "vllm", "--brief", brief, "--candidate", "smaller"
        ),
        "num_speculative_tokens: Input should be greater than or equal to 1": run(
            "--engine", "vllm", "--speculative", str(bad), "--max-num-seqs", "4"
        ),
    }
    for words, result in said.items():
        assert result.exit_code == 2
        assert words in " ".join(result.stderr.split())


def test_a_file_that_cant_be_read_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 5_000 + "]" * 5_000, encoding="utf-8")
    twice = tmp_path / "twice.json"
    keys_twice = '{"method": "ngram",\n "num_speculative_tokens": 4,\n "num_speculative_tokens": 2}'
    twice.write_text(keys_twice, encoding="utf-8")
    said_twice = "is not YAML in line 3: the key 'num_speculative_tokens' stands twice in one mapping, first in line 2"
    read = ((deep, "is not YAML: nested too deeply"), (twice, said_twice))
    for path, why in (*read, (Path("/proc/self/mem"), "can't be read: Input/output error")):
        result = run("--engine", "vllm", "--speculative", str(path), "--max-num-seqs", "8")
        assert (result.exit_code, f"{path} {why}" in result.stderr) == (2, True), result.stderr
