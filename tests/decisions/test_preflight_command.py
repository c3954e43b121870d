"""``draftproof lint``: findings as JSON, without a database."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from config.cli import main
from decisions.commands import lint as command
from decisions.rules.findings import FACTS_VERSION
from tests.support.judged import a_brief

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
DRAFTER = {"name": "drafter", "weights_sha256": "c" * 64, "tokenizer_sha256": "b" * 64}
BLOCK = {"method": "dflash", "num_speculative_tokens": 8}
CONFIG = {"vocab_size": 1_000, "hidden_size": 64, "num_hidden_layers": 4}


def lint(*words: str) -> Result:
    return CliRunner().invoke(main, ["lint", *words])


def of_setting(setting: Any, *more: str, version: str = FACTS_VERSION) -> Result:
    text = setting if isinstance(setting, str) else json.dumps(setting)
    return lint("--speculative-config", text, "--engine-version", version, *more)


def rules(result: Result) -> list[str]:
    return [one["rule"] for one in json.loads(result.stdout)["findings"]]


def written(directory: Path, **changes: Any) -> str:
    path = directory / "brief.json"
    path.write_text(json.dumps(json.loads(a_brief().content) | changes), encoding="utf-8")
    return str(path)


def checkpoint(directory: Path, config: dict[str, Any], digests: dict[str, str] | None = None) -> str:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if digests:
        (directory / "draftproof.json").write_text(json.dumps(digests), encoding="utf-8")
    return str(directory)


def test_a_setting_that_passes_is_an_empty_list() -> None:
    result = of_setting({"method": "mtp", "num_speculative_tokens": 1})
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "schema": "draftproof.preflight/1",
        "facts": {"engine": "vLLM", "version": FACTS_VERSION},
        "refused": 0,
        "flagged": 0,
        "findings": [],
    }


def test_a_flag_is_no_refusal_and_says_whose_facts_it_rests_on() -> None:
    result = of_setting(NGRAM, version="0.31.0")
    assert (result.exit_code, rules(result)) == (0, ["async-scheduling", "other-version"])
    first = json.loads(result.stdout)["findings"][0]
    assert first | {"sentence": ""} == {
        "rule": "async-scheduling",
        "severity": "flagged",
        "sentence": "",
        "engine": "vLLM",
        "version": FACTS_VERSION,
        "where": "speculative",
        "of": "",
        "link": "docs/preflight.md#async-scheduling",
    }


@pytest.mark.parametrize(
    ("setting", "more", "refused"),
    [
        (NGRAM | {"rejection_sample_method": "synthetic"}, [], ["synthetic-acceptance"]),
        (NGRAM | {"posterior_alpha": 0.1, "revision": "main"}, [], ["confidence-threshold", "key-outside-brief"]),
        ({"num_speculative_tokens": 0}, [], ["method-missing", "zero-draft-length"]),
        ({"method": "dspark", "model": "d", "num_speculative_tokens": 4}, ["--cpu"], ["new-runner-only"]),
        (NGRAM | {"num_speculative_tokens_per_batch_size": [[2, 256, 4]]}, [], ["schedule-start"]),
        (
            NGRAM | {"num_speculative_tokens_per_batch_size": [[1, 256, 4]]},
            ["--data-parallel-size", "2"],
            ["schedule-data-parallel"],
        ),
    ],
)
def test_a_refusal_ends_with_1(setting: dict[str, Any], more: list[str], refused: list[str]) -> None:
    result = of_setting(setting, *more)
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)["findings"]
    assert sorted(one["rule"] for one in found if one["severity"] == "refused") == refused


def test_the_words_of_the_engine_are_taken_for_a_drafter_and_a_class() -> None:
    assert "needs-drafter" not in rules(of_setting({"method": "eagle3", "model": "d", "num_speculative_tokens": 4}))
    assert "needs-drafter" in rules(of_setting({"method": "eagle3", "num_speculative_tokens": 4}))
    custom = {"method": "custom_class", "model": "house.Proposer", "num_speculative_tokens": 4}
    assert of_setting(custom).exit_code == 0


def test_checkpoints_are_looked_at_where_they_are_named(tmp_path: Path) -> None:
    drafter = checkpoint(tmp_path / "d", CONFIG | {"dflash_config": {"block_size": 4, "target_layer_ids": [9]}})
    target = checkpoint(tmp_path / "t", CONFIG)
    blind = of_setting(BLOCK | {"model": "d"})
    assert (blind.exit_code, rules(blind)) == (0, ["drafter-not-checked"])
    seen = of_setting(BLOCK | {"model": "d"}, "--drafter", drafter, "--target", target)
    assert (seen.exit_code, rules(seen)) == (1, ["above-trained-block", "drafter-layers"])


def test_a_brief_is_read_with_the_checkpoints_of_a_directory(tmp_path: Path) -> None:
    candidates = [{"name": "block", "speculative": BLOCK | {"drafter": DRAFTER}}]
    brief = written(tmp_path, candidates=candidates)
    blind = lint(brief)
    assert (blind.exit_code, rules(blind)) == (0, ["drafter-not-checked", "dflash-cpu-norm", "sampled-on-cpu"])
    digests = {name: DRAFTER[name] for name in ("weights_sha256", "tokenizer_sha256")}
    checkpoint(tmp_path / "models" / "drafter", CONFIG | {"dflash_config": {"block_size": 4}}, digests)
    seen = lint(brief, "--models", str(tmp_path / "models"))
    assert (seen.exit_code, rules(seen)[0]) == (1, "above-trained-block")
    assert json.loads(seen.stdout)["findings"][0]["of"] == "candidate block"


def test_a_brief_that_cant_be_read_for_its_setting_is_refused_by_rule(tmp_path: Path) -> None:
    candidates = [{"name": "one", "speculative": NGRAM | {"rejection_sample_method": "fly"}}]
    result = lint(written(tmp_path, candidates=candidates))
    assert (result.exit_code, rules(result)) == (1, ["lossy-verification"])
    where = json.loads(result.stdout)["findings"][0]["where"]
    assert where == "candidates.0.speculative.rejection_sample_method"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say either a brief, or --speculative-config with --engine-version"),
        (["--speculative-config", "{}"], "say either a brief"),
        (["--engine-version", "1", "--speculative-config", "[1]"], "is an object of the engine's keys"),
        (
            ["--engine-version", "1", "--speculative-config", '{"method": "ngram", "method": "mtp"}'],
            "the key 'method' stands twice in one mapping",
        ),
        (
            ["--engine-version", "1", "--speculative-config", '{"method": "magic", "num_speculative_tokens": 4}'],
            "speculative.method: Input should be",
        ),
        # A slip of the pen beside a refusal is still one.
        (
            ["--engine-version", "1", "--speculative-config", '{"method": "ngram", "fly_window_size": 4}'],
            "speculative.num_speculative_tokens: Field required",
        ),
    ],
)
def test_what_cant_be_checked_ends_with_2_and_prints_nothing(words: list[str], said: str) -> None:
    result = lint(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())


def test_a_brief_with_other_faults_ends_with_2(tmp_path: Path) -> None:
    for changes in ({"title": ""}, {"title": "", "candidates": [{"name": "a", "speculative": {"method": "ngram"}}]}):
        result = lint(written(tmp_path, **changes))
        assert (result.exit_code, result.stdout) == (2, "")
        assert "is no brief: title:" in " ".join(result.stderr.split())


def test_a_directory_without_json_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1]", encoding="utf-8")
    result = of_setting(BLOCK | {"model": "d"}, "--drafter", str(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is no checkpoint that can be read" in " ".join(result.stderr.split())


def test_what_nobody_thought_of_is_unusable_and_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(command, "of_setting", fails)
    result = of_setting(NGRAM)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "an error of this program: OverflowError: too large" in " ".join(result.stderr.split())
