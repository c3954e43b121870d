"""Typed settings become the engine's argument list and environment: nothing more, nothing less."""

from pathlib import Path

import pytest

from loadtests.configurations import (
    INSTRUMENTATION,
    Checkpoint,
    Configuration,
    EngineArguments,
    EngineEnvironment,
    Hardware,
    Runtime,
    Speculative,
)
from workers.engines.base import EngineUnfit
from workers.engines.vllm import (
    Preloads,
    engine_arguments,
    engine_environment,
    find_preloads,
    installed_runtime,
    instrumentation,
    preloaded,
)

MODEL = Path("/models/target one")
DRAFTER = Path("/models/drafter")


def checkpoint(name: str) -> Checkpoint:
    return Checkpoint(name=name, weights_sha256="a" * 64, tokenizer_sha256="b" * 64)


def configuration(speculative: Speculative | None = None, accelerator: str = "cpu") -> Configuration:
    return Configuration(
        schema="draftproof.configuration/1",
        runtime=Runtime(version="0.32.0"),
        target=checkpoint("target one"),
        arguments=EngineArguments(dtype="bfloat16", enforce_eager=True),
        environment=EngineEnvironment(VLLM_CPU_KVCACHE_SPACE=1),
        hardware=Hardware(pool="here", accelerator=accelerator),
        speculative=speculative,
    )


NGRAM = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=4)


def words(one: Configuration, drafter: Path | None = None) -> list[str]:
    return engine_arguments(one, model_path=MODEL, drafter_path=drafter, port=8001)


SETTINGS = [
    *("--dtype", "bfloat16"),
    *("--max-model-len", "2048"),
    *("--max-num-seqs", "16"),
    "--enforce-eager",
    "--enable-prefix-caching",
    *("--tensor-parallel-size", "1"),
    *("--data-parallel-size", "1"),
    *("--seed", "0"),
]


def watched(one: Configuration) -> list[str]:
    return [
        *("--model", "/models/target one"),
        *("--served-model-name", "target one"),
        *("--host", "127.0.0.1"),
        *("--port", "8001"),
        *("--fingerprint-mode", "custom"),
        *("--fingerprint-value", one.digest),
        "--enable-per-request-metrics",
        "--disable-uvicorn-access-log",
    ]


def test_a_baseline_has_no_word_about_speculation() -> None:
    baseline = configuration()
    assert words(baseline) == watched(baseline) + SETTINGS


def test_prompt_lookup_is_one_json_word_and_turns_its_metrics_on() -> None:
    candidate = configuration(NGRAM)
    assert words(candidate) == [
        *watched(candidate),
        *("--per-request-spec-decode-metrics", "summary"),
        *SETTINGS,
        "--speculative-config",
        '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4,"prompt_lookup_min":2}',
    ]


def test_a_drafter_is_named_by_its_path_and_a_schedule_is_a_list() -> None:
    speculative = Speculative(
        method="dflash",
        num_speculative_tokens=8,
        drafter=checkpoint("drafter"),
        num_speculative_tokens_per_batch_size=((1, 4, 8), (5, 16, 0)),
    )
    assert words(configuration(speculative), DRAFTER)[-2:] == [
        "--speculative-config",
        '{"method":"dflash","model":"/models/drafter","num_speculative_tokens":8,'
        '"num_speculative_tokens_per_batch_size":[[1,4,8],[5,16,0]]}',
    ]


@pytest.mark.parametrize("drafter", [None, DRAFTER])
def test_a_drafter_and_its_path_come_together(drafter: Path | None) -> None:
    named = checkpoint("drafter") if drafter is None else None
    speculative = Speculative(method="draft_model", num_speculative_tokens=2, drafter=named)
    with pytest.raises(ValueError, match="a drafter and its path come together"):
        words(configuration(speculative), drafter)


def test_an_argument_outside_the_digest_is_named_in_the_stated_list() -> None:
    candidate = configuration(NGRAM)
    flags = [word for word in instrumentation(candidate, model_path=MODEL, port=1) if word.startswith("--")]
    assert sorted(flags) == sorted(INSTRUMENTATION)


def test_every_engine_argument_of_the_digest_reaches_the_engine() -> None:
    every = EngineArguments(
        max_num_batched_tokens=512,
        block_size=16,
        gpu_memory_utilization=0.9,
        enable_prefix_caching=False,
        tool_call_parser="hermes",
    )
    given = words(configuration().model_copy(update={"arguments": every}))
    for name in EngineArguments.model_fields:
        flag = name.replace("_", "-")
        assert f"--{flag}" in given or f"--no-{flag}" in given


def test_a_tool_call_parser_is_named_and_allowed_in_both_arms_and_its_absence_changes_no_digest() -> None:
    plain, without = configuration(), EngineArguments(dtype="bfloat16", enforce_eager=True)
    calling = plain.model_copy(update={"arguments": without.model_copy(update={"tool_call_parser": "hermes"})})
    assert words(calling) == [
        *watched(calling),
        *SETTINGS,
        *("--tool-call-parser", "hermes"),
        "--enable-auto-tool-choice",
    ]
    assert words(calling.with_speculative(NGRAM))[-3] == "--enable-auto-tool-choice"
    assert calling.digest != plain.digest
    assert "tool_call_parser" not in plain.model_dump(mode="json")["arguments"]


@pytest.mark.parametrize("name", ["", "hermes --trust-remote-code", "--port", "a/b"])
def test_a_tool_call_parser_is_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="tool_call_parser"):
        EngineArguments(tool_call_parser=name)


def test_only_allowed_variables_reach_the_engine() -> None:
    base = {"PATH": "/bin", "HOME": "/home/one", "DATABASE_URL": "secret", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    assert engine_environment(configuration(), base, ("/lib/a.so", "/lib/b.so")) == {
        "PATH": "/bin",
        "HOME": "/home/one",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "LD_PRELOAD": "/lib/a.so:/lib/b.so",
    }


def test_a_gpu_is_started_without_preloads() -> None:
    gpu = configuration(accelerator="NVIDIA H200")
    assert preloaded(gpu, Preloads(openmp=None, tcmalloc=None), "x86_64") == ()
    assert "LD_PRELOAD" not in engine_environment(gpu, {"LD_PRELOAD": "/lib/other.so"})


def test_a_cpu_is_refused_without_its_own_openmp() -> None:
    with pytest.raises(EngineUnfit, match=r"libiomp5\.so is not in the engine environment"):
        preloaded(configuration(), Preloads(openmp=None, tcmalloc=Path("/lib/libtcmalloc.so.4")), "x86_64")


@pytest.mark.parametrize("accelerator", ["cpu", "cpu: AMD EPYC"])
def test_a_cpu_may_carry_its_name(accelerator: str) -> None:
    both = Preloads(openmp=Path("/env/libiomp5.so"), tcmalloc=Path("/lib/libtcmalloc.so.4"))
    assert preloaded(configuration(accelerator=accelerator), both, "x86_64") == (
        "/lib/libtcmalloc.so.4",
        "/env/libiomp5.so",
    )


def test_a_missing_tcmalloc_is_a_fact_and_no_error() -> None:
    assert preloaded(configuration(), Preloads(openmp=Path("/env/libiomp5.so"), tcmalloc=None), "x86_64") == (
        "/env/libiomp5.so",
    )


def test_the_environments_own_openmp_is_found(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    assert find_preloads(python).openmp is None
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libiomp5.so").touch()
    assert find_preloads(python).openmp == tmp_path / "lib/libiomp5.so"


@pytest.mark.parametrize(("folder", "distribution"), [("vllm", "vllm"), ("vllm_cpu", "vllm-cpu")])
def test_the_installed_distribution_is_read_without_starting_it(tmp_path: Path, folder: str, distribution: str) -> None:
    (tmp_path / f"lib/python3.11/site-packages/{folder}-0.32.0.dist-info").mkdir(parents=True)
    assert installed_runtime(tmp_path / "bin/python") == Runtime(distribution=distribution, version="0.32.0")


def test_an_environment_without_the_engine_is_unfit(tmp_path: Path) -> None:
    with pytest.raises(EngineUnfit, match="neither vllm nor vllm-cpu is installed"):
        installed_runtime(tmp_path / "bin/python")


def test_a_class_of_your_own_is_named_where_a_drafter_would_be() -> None:
    speculative = Speculative(method="custom_class", num_speculative_tokens=2, custom_class="house.drafting.Proposer")
    assert words(configuration(speculative))[-1] == (
        '{"method":"custom_class","model":"house.drafting.Proposer","num_speculative_tokens":2}'
    )
