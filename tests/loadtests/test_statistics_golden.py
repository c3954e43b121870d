"""Every statistic against values worked out by hand, in golden/statistics.json; each says how."""

import importlib
import inspect
import json
import pkgutil
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadtests.statistics
from loadtests.statistics.capacity import Rung
from loadtests.statistics.looks import Look
from loadtests.statistics.shares import requests_needed, share_limit, still_needed

CASES = json.loads((Path(__file__).parent / "golden" / "statistics.json").read_text(encoding="utf-8"))
# The order of arms has golden orders of its own; traffic is compared elsewhere.
ELSEWHERE = {"order", "resemblance"}
# Steps of a statistic that is among the golden values itself, or sums of such.
PARTS = {"checked_sorted", "sign_patterns", "ladder", "rung_test", "more_requests", "more_boots"}


def number(value: Any) -> Any:
    if isinstance(value, list):
        return [number(one) for one in value]
    return float("inf") if value == "inf" else value


def arguments_of(case: dict[str, Any]) -> dict[str, Any]:
    found = {name: number(value) for name, value in case["arguments"].items()}
    if case["of"] == "capacity.capacity":
        return found | {"rungs": [Rung(*one) for one in found["rungs"]]}
    if case["of"] == "looks.look_after":
        return found | {"looks": [Look(*one) for one in found["looks"]]}
    if case["of"].startswith(("attainment.", "quantiles.", "bootstrap.")):
        return {name: np.array(value) if isinstance(value, list) else value for name, value in found.items()}
    return found


def shown(found: Any, expected: Any) -> Any:
    """What a function gave, in the shape of the golden value."""
    if is_dataclass(found) and not isinstance(found, type):
        return {name: asdict(found)[name] for name in expected}
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, tuple | list):
        return [shown(one, wanted) for one, wanted in zip(found, expected, strict=True)]
    return found


def assert_close(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(found[name], value)
    elif isinstance(expected, list):
        for one, wanted in zip(found, expected, strict=True):
            assert_close(one, wanted)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-6)
    else:
        assert found == expected


@pytest.mark.parametrize("case", CASES, ids=[one["of"] for one in CASES])
def test_golden(case: dict[str, Any]) -> None:
    module, _, name = case["of"].partition(".")
    expected = number(case["expected"])
    if name == "still_needed":
        given = case["arguments"]
        found: Any = still_needed(share_limit(**given), alpha=given["alpha"])
    else:
        found = getattr(importlib.import_module(f"loadtests.statistics.{module}"), name)(**arguments_of(case))
    assert_close(shown(found, expected), expected)
    assert case["by_hand"]


def test_every_statistic_has_a_golden_value_and_names_its_source() -> None:
    golden = {one["of"] for one in CASES}
    for module in pkgutil.iter_modules(loadtests.statistics.__path__):
        if module.name in ELSEWHERE:
            continue
        loaded = importlib.import_module(f"loadtests.statistics.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            if function.__module__ == loaded.__name__ and name not in PARTS:
                assert f"{module.name}.{name}" in golden, f"{module.name}.{name} has no golden value"
                said = inspect.getdoc(function) or ""
                assert "Source:" in said or name == "log_ratio_bounds", f"{module.name}.{name} names no source"


def at_most(late: int, requests: int, quantile: float) -> float:
    """P(X ≤ late) by the sum itself, in whole numbers as far as it goes."""
    return sum(comb(requests, one) * (1 - quantile) ** one * quantile ** (requests - one) for one in range(late + 1))


# Wilks (1941) and every later table of one-sided tolerance limits.
PUBLISHED: dict[tuple[float, float], Sequence[int]] = {
    (0.90, 0.95): (29, 46, 61, 76, 89, 103, 116, 129, 142, 154),
    (0.95, 0.95): (59, 93, 124, 153, 181, 208, 234, 260, 286, 311),
    (0.99, 0.95): (299, 473, 628, 773, 913, 1049, 1182, 1312, 1441, 1568),
    (0.99, 0.99): (459, 662, 838, 1001, 1157, 1307, 1453, 1596, 1736, 1874),
}


@pytest.mark.parametrize(("quantile", "confidence"), PUBLISHED)
def test_the_published_table_of_fewest_requests(quantile: float, confidence: float) -> None:
    for late, requests in enumerate(PUBLISHED[quantile, confidence]):
        assert requests_needed(quantile, confidence=confidence, late=late) == requests
        assert at_most(late, requests, quantile) <= 1 - confidence < at_most(late, requests - 1, quantile)
