"""A block drafter isn't started with more drafts than it was trained for, which the engine takes in silence."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtests.configurations import Speculative
from workers.engines.base import EngineUnfit
from workers.engines.starting import check_block


def drafter(directory: Path, config: dict[str, Any]) -> Path:
    path = directory / "drafter"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("config", [{"dflash_config": {"block_size": 4}}, {"block_size": 4}, {"dspark_block_size": 4}])
def test_k_up_to_the_block_runs_and_one_more_does_not(config: dict[str, Any], tmp_path: Path) -> None:
    path = drafter(tmp_path, config)
    check_block(Speculative(method="dflash", num_speculative_tokens=4), path)
    with pytest.raises(EngineUnfit, match="K = 5 is above the block of 4 that drafter was trained for"):
        check_block(Speculative(method="dflash", num_speculative_tokens=5), path)


def test_a_block_that_nobody_tells_limits_nothing(tmp_path: Path) -> None:
    path = drafter(tmp_path, {"model_type": "qwen3"})
    check_block(Speculative(method="dflash", num_speculative_tokens=64), path)
    # An autoregressive head has no block: its config may have a field of that name for something else.
    check_block(Speculative(method="eagle3", num_speculative_tokens=64), path)
