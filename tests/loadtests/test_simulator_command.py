"""``draftproof simulate``: trials in the layout of evidence, without a server and without a database."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loadtests.canonical import digest
from loadtests.commands.simulate import simulate
from loadtests.configurations import Configuration, foreign_difference
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import read_records
from loadtests.traffic.rows import Row

PEAK = {"name": "peak", "arrival": {"process": "poisson", "rate": 4}, "duration_s": 5, "drain_s": 60, "warm_up_s": 1}
QUIET = {"name": "quiet", "arrival": {"process": "constant", "rate": 1}, "duration_s": 5}
NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 4})


@pytest.fixture
def traffic(tmp_path: Path, traffic_row: Callable[..., Row]) -> Path:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(b"".join(traffic_row(f"question {n}", n).content + b"\n" for n in range(120)))
    return path


def run(traffic: Path, out: Path, *more: str, levels: tuple[dict[str, Any], ...] = (PEAK, QUIET)) -> Result:
    chosen = [word for level in levels for word in ("--level", json.dumps(level))]
    return CliRunner().invoke(simulate, ["--traffic", str(traffic), "--out", str(out), "--boots", "2", *chosen, *more])


def test_every_boot_and_level_leaves_plan_records_and_manifest(traffic: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(traffic, out, "--speculative", NGRAM)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [(one["boot"], one["level"]) for one in told["trials"]] == [
        (1, "peak"),
        (1, "quiet"),
        (2, "peak"),
        (2, "quiet"),
    ]
    assert Configuration.model_validate_json((out / "configuration.json").read_bytes()).label == "ngram K=4"
    for one in told["trials"]:
        place = Path(one["out"])
        assert sorted(file.name for file in place.iterdir()) == ["manifest.json", "plan.json", "records.parquet"]
        manifest = document_of((place / "manifest.json").read_bytes())
        assert manifest["evidence_class"] == "simulated"
        assert manifest["digests"]["plan"] == digest((place / "plan.json").read_bytes())
        assert manifest["digests"]["records"] == digest((place / "records.parquet").read_bytes())
        assert manifest["digests"]["configuration"] == told["configuration_sha256"]
        assert manifest["fingerprints"] == {told["configuration_sha256"]: manifest["statuses"]["completed"]}
        records = read_records(place / "records.parquet")
        assert records.num_rows == manifest["planned"] + manifest["warm_up_requests"]
        generated = manifest["counters"]["difference"]["vllm:generation_tokens_total"]
        assert generated == sum(records["output_tokens"].to_pylist())


def test_two_arms_get_the_same_requests_and_fresh_servers_with_a_luck_of_their_own(
    traffic: Path, tmp_path: Path
) -> None:
    arms = {"baseline": (), "candidate": ("--speculative", NGRAM)}
    for name, more in arms.items():
        assert run(traffic, tmp_path / name, *more, "--seed", "3").exit_code == 0
    baseline, candidate = (
        Configuration.model_validate_json((tmp_path / name / "configuration.json").read_bytes()) for name in arms
    )
    assert foreign_difference(baseline, candidate) == {}
    servers = set()
    for place in ("boot-001/peak", "boot-002/peak"):
        plans = {(tmp_path / name / place / "plan.json").read_bytes() for name in arms}
        assert len(plans) == 1
        servers |= {
            document_of((tmp_path / name / place / "manifest.json").read_bytes())["engine"]["server_id"]
            for name in arms
        }
    assert len(servers) == 4


def test_equal_arguments_leave_equal_records(traffic: Path, tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        assert run(traffic, tmp_path / name).exit_code == 0
        contents.append((tmp_path / name / "boot-002/quiet/records.parquet").read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--speculative", '{"method":"medusa","num_speculative_tokens":2}'), "has no drafter for medusa"),
        (("--boots", "9"), "the held-out part has 120 requests"),
        (("--level", json.dumps(QUIET)), "two levels have the same name"),
        (("--level", "{}"), "name: Field required"),
    ],
)
def test_what_can_t_be_run_is_refused_and_nothing_is_written(
    traffic: Path, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    result = run(traffic, tmp_path / "out", *more)
    assert result.exit_code == 2
    assert said in result.output
    assert not (tmp_path / "out").exists()


def test_evidence_is_never_written_over(traffic: Path, tmp_path: Path) -> None:
    assert run(traffic, tmp_path / "out").exit_code == 0
    again = run(traffic, tmp_path / "out")
    assert again.exit_code == 2
    assert "never written over" in again.output
