"""``draftproof compare --behaviour``: the suite's result has its part in a verdict on directories."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from decisions.rules.brief import parse_brief
from loadtests.behaviour.judge import judge
from loadtests.behaviour.registry import suite_plan
from loadtests.behaviour.suite import RESULT, answers_name
from loadtests.canonical import canonical, digest
from tests.benchmarks.behaviour_world import DRAFTER, asked, serving
from tests.decisions.test_compare_command import a_brief, compare, evidence, judged, refused

__all__ = ["evidence"]

CASES = ["greedy-parity", "max-tokens"]
# Two cases alone have less to notice anything with than the suite.
ALPHA = 0.05
RAIL = {"id": "same-output", "metric": "behaviour", "kind": "absolute", "cell": {"level": "busy"}, "limit": 0}


def suite_in(directory: Path, flips: float = 0.0, *, only: list[str] = CASES) -> Path:
    """What ``draftproof behaviour --out`` leaves, of two simulated servers; returns its result."""
    plan = suite_plan(only=only, alpha=ALPHA)
    servers = {"baseline": serving(None, 1), "control": serving(None, 2), "candidate": serving(DRAFTER, 3, flips=flips)}
    answers = {name: asked(one, plan, name) for name, one in servers.items()}  # type: ignore[arg-type]
    directory.mkdir()
    for name, one in answers.items():
        (directory / answers_name(name)).write_bytes(one.content)  # type: ignore[arg-type]
    result = judge(plan, answers["baseline"], answers["candidate"], answers["control"])
    (directory / RESULT).write_bytes(result.content)
    return directory / RESULT


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    root = tmp_path_factory.mktemp("suites")
    return {"held": suite_in(root / "held"), "broken": suite_in(root / "broken", 0.1)}


@pytest.fixture
def asking(evidence: Path, tmp_path: Path) -> Path:
    """The same evidence, of a brief that asks for two cases of the suite."""
    return brief_beside(evidence, tmp_path / "asking", behaviour={"only": CASES, "false_alarm": ALPHA})


def brief_beside(root: Path, place: Path, **more: Any) -> Path:
    document = a_brief(root)
    document |= {"guardrails": [*document["guardrails"], RAIL]} | more
    place.mkdir()
    for one in root.iterdir():
        if one.name != "brief.json":
            (place / one.name).symlink_to(one)
    (place / "brief.json").write_bytes(parse_brief(document).content)
    return place


def row(document: Mapping[str, Any]) -> dict[str, Any]:
    return next(one for one in document["guardrails"] if one["id"] == "same-output")


def test_a_broken_case_turns_the_verdict_to_fail_and_is_named(asking: Path, suites: Mapping[str, Path]) -> None:
    document = judged(asking, "--behaviour", str(suites["broken"]))
    assert document["verdict"] == "FAIL"
    assert "greedy-parity" in document["sentence"]
    assert row(document)["cases"] == ["greedy-parity"]
    assert digest(suites["broken"].read_bytes()) in document["evidence"]


def test_a_suite_that_held_shows_its_guardrail(asking: Path, suites: Mapping[str, Path]) -> None:
    document = judged(asking, "--behaviour", str(suites["held"]))
    assert (row(document)["shown"], row(document)["candidate"]) == ("shown", 0)
    assert "same-output" not in document["broken"]
    assert any("these cases alone: greedy-parity, max-tokens" in one for one in document["limits"])


def test_a_brief_that_asks_the_suite_and_was_given_none_says_so(asking: Path) -> None:
    document = judged(asking)
    assert row(document)["shown"] == "open"
    assert document["verdict"] == "INCONCLUSIVE"
    said = compare(asking).stderr
    assert "no result of it was given" in said
    assert "--behaviour" in said


def test_a_brief_that_asks_no_suite_refuses_a_result(evidence: Path, suites: Mapping[str, Path]) -> None:
    assert "no guardrail of the brief has the metric behaviour" in refused(
        evidence, "--behaviour", str(suites["broken"])
    )


@pytest.mark.parametrize(
    ("laid_down", "said"),
    [
        ({"temperature": 0.5}, "the brief says temperature 0.5: ask again, --temperature"),
        ({"false_alarm": 0.01}, "the brief says false_alarm 0.01: ask again, --alpha"),
        ({"uses": ["min_p"]}, "the service uses min_p: ask again with --uses"),
        ({"only": ["stop-strings"]}, "1 of the cases that the brief asks for were left out, stop-strings among them"),
        ({"only": []}, "were left out"),
        ({"cases": "a" * 64}, "the brief asks the service's own cases too"),
    ],
)
def test_a_suite_that_was_asked_otherwise_is_none_of_this_brief(
    evidence: Path,
    tmp_path: Path,
    suites: Mapping[str, Path],
    laid_down: dict[str, Any],
    said: str,
) -> None:
    root = brief_beside(evidence, tmp_path / "other", behaviour={"only": CASES, "false_alarm": ALPHA} | laid_down)
    assert said in refused(root, "--behaviour", str(suites["held"]))


def test_a_result_that_was_changed_by_hand_is_refused(asking: Path, suites: Mapping[str, Path], tmp_path: Path) -> None:
    document = json.loads(suites["broken"].read_bytes())
    changed = tmp_path / "changed"
    changed.mkdir()
    for one in suites["broken"].parent.iterdir():
        (changed / one.name).write_bytes(one.read_bytes())
    (changed / RESULT).write_bytes(canonical(document | {"outcome": "held"}))
    assert "its outcome is held, and greedy-parity is broken" in refused(asking, "--behaviour", str(changed / RESULT))
    cases = [one | {"state": "held"} for one in document["cases"]]
    (changed / RESULT).write_bytes(canonical(document | {"outcome": "held", "cases": cases}))
    assert "not what the answers beside it come to" in refused(asking, "--behaviour", str(changed / RESULT))
    (changed / RESULT).write_bytes(canonical(document))
    (changed / "candidate.jsonl").write_bytes((changed / "baseline.jsonl").read_bytes())
    assert "it was changed, or is of another run" in refused(asking, "--behaviour", str(changed / RESULT))
    (changed / RESULT).write_text("{}")
    assert "is no result.json of draftproof behaviour" in refused(asking, "--behaviour", str(changed / RESULT))
    (changed / RESULT).write_bytes(canonical(document | {"plan": document["plan"] | {"seed": 5}}))
    assert "its plan is not the one that" in refused(asking, "--behaviour", str(changed / RESULT))
    (changed / RESULT).write_bytes(canonical(document | {"asked": {}}))
    assert "it names no answers" in refused(asking, "--behaviour", str(changed / RESULT))
    nonsense = b"[]"
    (changed / "candidate.jsonl").write_bytes(nonsense)
    asked = document["asked"]
    asked["candidate"]["answers_sha256"] = digest(nonsense)
    (changed / RESULT).write_bytes(canonical(document | {"asked": asked}))
    assert "holds no answers" in refused(asking, "--behaviour", str(changed / RESULT))
