"""The brief in docs/examples is one, and the commands in docs/verdict.md lead with it to a verdict."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from config.cli import main
from decisions.commands.compare import EXIT
from decisions.rules.brief import Brief, read_brief

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "brief.yaml"


@pytest.fixture
def brief() -> Brief:
    return read_brief(EXAMPLE.read_text(encoding="utf-8"))


def rehearsal() -> list[str]:
    """The lines of the block that begins with the demo traffic."""
    text = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    (block,) = (one for one in text.split("```\n") if one.startswith("head -n 200 loadtests/demo/"))
    return block.splitlines()


def test_the_example_is_a_brief(brief: Brief) -> None:
    assert [one.name for one in brief.all_candidates] == ["ngram-4"]
    assert brief.fallback_plan


def test_the_commands_of_the_page_lead_to_a_verdict(
    brief: Brief, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, tail, *lines = rehearsal()
    demo = (ROOT / "loadtests" / "demo" / "support_assistant.jsonl").read_bytes().splitlines(keepends=True)
    monkeypatch.chdir(tmp_path)
    assert (shlex.split(head)[-1], shlex.split(tail)[-1]) == ("tuning.jsonl", "held-out.jsonl")
    Path("tuning.jsonl").write_bytes(b"".join(demo[:200]))
    Path("held-out.jsonl").write_bytes(b"".join(demo[200:]))
    values: dict[str, str] = {}
    for line in lines:
        if not line.startswith("draftproof "):
            name, _, value = line.partition("=")
            (values[name],) = shlex.split(value)
            continue
        words = [values.get(one.removeprefix("$"), one) for one in shlex.split(line)[1:]]
        result = CliRunner().invoke(main, [one.replace("docs/examples/brief.yaml", str(EXAMPLE)) for one in words])
        if words[0] == "simulate":
            assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert result.exit_code == EXIT[document["verdict"]]
    assert document["brief"] == brief.digest
    assert [one["id"] for one in document["validity"] if one["ok"] is False] == []
    assert (Path("base") / "configuration.json").read_bytes() == brief.baseline.content
