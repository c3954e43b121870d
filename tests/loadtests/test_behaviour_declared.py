"""By which rule a setting, or the command that started an engine, says that drafts are accepted."""

import json
from typing import Any

import pytest

from loadtests.behaviour.declared import declared_by, rule_of, rule_of_command

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        (None, "exact"),
        (NGRAM, "exact"),
        (NGRAM | {"rejection_sample_method": "block"}, "exact"),
        (NGRAM | {"posterior_threshold": None}, "exact"),
        (NGRAM | {"rejection_sample_method": "synthetic"}, "synthetic"),
        (NGRAM | {"synthetic_acceptance_length": 3.0}, "synthetic"),
        (NGRAM | {"rejection_sample_method": "fly"}, "lossy"),
        (NGRAM | {"fly_window": 2}, "lossy"),
        (NGRAM | {"posterior_alpha": 0.3}, "lossy"),
        (NGRAM | {"use_relaxed_acceptance": True}, "lossy"),
    ],
)
def test_a_setting_says_its_rule_and_so_does_the_command_that_has_it(setting: dict[str, Any] | None, rule: str) -> None:
    assert rule_of(setting) == rule
    text = json.dumps(setting)
    command = ["python", *([] if setting is None else ["--speculative-config", text])]
    assert rule_of_command(command) == rule
    if setting is not None:
        assert rule_of_command(["python", f"--speculative-config={text}"]) == rule


@pytest.mark.parametrize(
    "command",
    [[], ["python", "--speculative-config"], ["python", "--speculative-config", "{"], ["--speculative-config", "[]"]],
)
def test_a_command_that_cannot_be_read_says_nothing(command: list[str]) -> None:
    assert rule_of_command(command) == "unknown"


def test_what_others_start_is_declared_alone() -> None:
    assert "declared" in declared_by(NGRAM, started_by_us=False).source
    assert "command line" in declared_by(NGRAM, started_by_us=True).source
