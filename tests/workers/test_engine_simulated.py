"""The simulated engine as a worker starts it: its model found by digest, its luck the boot's, its class plain."""

from pathlib import Path

import pytest

from loadtests.configurations import Checkpoint, Configuration, EngineArguments, Hardware, Runtime, Speculative
from loadtests.simulator import EngineModel, preset
from workers.engines import simulated
from workers.engines.base import EngineFailed, EngineUnfit, Tells
from workers.engines.process_group import group_members
from workers.engines.simulated import SUFFIX, find_engine_model

NGRAM = Speculative(method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=4)


def target_of(model: EngineModel) -> Checkpoint:
    return Checkpoint(name="any name", weights_sha256=model.digest, tokenizer_sha256=model.digest)


def configuration(
    model: EngineModel, speculative: Speculative | None = None, version: str = "simulated-1"
) -> Configuration:
    return Configuration(
        runtime=Runtime(engine="simulated", distribution="draftproof", version=version),
        target=target_of(model),
        arguments=EngineArguments(max_num_seqs=8),
        hardware=Hardware(pool="here", accelerator="simulated"),
        speculative=speculative,
    )


def test_only_evidence_of_a_simulated_engine_is_simulated() -> None:
    classes = {engine: Runtime(engine=engine, version="1").evidence_class for engine in ("vllm", "remote", "simulated")}
    assert classes == {"vllm": "measured", "remote": "measured", "simulated": "simulated"}


def test_an_engine_model_is_found_by_its_digest(tmp_path: Path) -> None:
    assert find_engine_model(tmp_path, target_of(preset("gpu-8b"))) == ["--preset", "gpu-8b"]
    own = EngineModel.model_validate(preset("cpu-2core").model_dump(by_alias=True) | {"name": "own"})
    with pytest.raises(EngineUnfit, match=r"it is no preset \(cpu-2core, gpu-8b\), and no \*\.engine-model\.json"):
        find_engine_model(tmp_path, target_of(own))
    path = tmp_path / f"own{SUFFIX}"
    path.write_bytes(own.content)
    assert find_engine_model(tmp_path, target_of(own)) == ["--model", str(path)]
    (tmp_path / f"broken{SUFFIX}").write_text("{}")
    with pytest.raises(EngineUnfit, match=r"broken\.engine-model\.json, field"):
        find_engine_model(tmp_path, target_of(own))


def test_a_simulated_engine_starts_tells_and_stops(tmp_path: Path) -> None:
    engine = simulated.start(
        configuration(preset("cpu-2core"), NGRAM), models_dir=tmp_path, directory=tmp_path / "run", seed=7, speed=10.0
    )
    try:
        facts = engine.facts
        assert (facts.version, facts.device, facts.tells) == ("simulated-1", "simulated", Tells(True, True, True))
        assert (facts.details["engine_model"], facts.details["seed"], facts.details["speed"]) == ("cpu-2core", 7, 10.0)
        assert facts.kv_cache_tokens is not None
        assert facts.kv_cache_tokens > 40_000
        assert engine.counters()["vllm:num_requests_running"] == 0.0
    finally:
        engine.stop()
    assert group_members(engine.process.group) == []


def test_a_setting_that_the_model_cannot_run_is_a_result(tmp_path: Path) -> None:
    medusa = Speculative(method="medusa", num_speculative_tokens=2)
    with pytest.raises(EngineFailed, match="ended with exit status 1") as failure:
        simulated.start(
            configuration(preset("cpu-2core"), medusa), models_dir=tmp_path, directory=tmp_path, seed=0, speed=1.0
        )
    assert "has no drafter for medusa" in failure.value.log_tail


def test_another_version_of_the_simulator_is_another_configuration(tmp_path: Path) -> None:
    old = configuration(preset("cpu-2core"), version="simulated-0")
    with pytest.raises(EngineUnfit, match="the engine is version simulated-1, the configuration names simulated-0"):
        simulated.start(old, models_dir=tmp_path, directory=tmp_path, seed=0, speed=1.0)
