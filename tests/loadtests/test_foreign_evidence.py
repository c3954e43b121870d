"""Result files of other load generators: what they tell is kept, what they don't tell stays missing."""

import gzip
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from config.cli import main
from loadtests.canonical import digest
from loadtests.evidence.foreign import FORMATS, EvidenceRefused, ImportedManifest, import_evidence
from loadtests.evidence.foreign import importing as edge
from loadtests.evidence.foreign.values import Value
from loadtests.evidence.records import read_records

DOCS = Path(__file__).resolve().parents[2] / "docs"
MS = 1_000_000
EPOCH_NS = 1_759_522_419_000_000_000
TRACEBACK = 'Traceback (most recent call last):\n  File "client.py", line 1\nTimeoutError: a prompt of somebody\n'
AIPERF_JSONL = "aiperf_run1_profile_export_records1-40.jsonl"
AIPERF_SUMMARY = "aiperf_run1_profile_export_aiperf.json"
GUIDELLM = "guidellm_report_v2_fixture.json"

VLLM: dict[str, Any] = {
    "date": "20260801-101112",
    "endpoint_type": "openai-chat",
    "backend": "openai-chat",
    "label": None,
    "model_id": "target",
    "tokenizer_id": "target",
    "num_prompts": 5,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": None,
    "commit": "4f67e655",
    "duration": 2.5,
    "completed": 2,
    "failed": 3,
    "request_goodput:": 0.4,
    "input_lens": [10, 11, 12, 13, 14],
    "output_lens": [3, 0, 0, 0, 1],
    "ttfts": [0.25, 0.0, 0.5, 0.0, 0.125],
    "itls": [[0.25, 0.5], [], [0.125], [], []],
    "start_times": [1000.5, 1000.0, 1001.0, 1001.25, 1002.0],
    "generated_texts": ["hello", "", "he", "", ""],
    "errors": ["", "Too Many Requests", TRACEBACK, "Internal Server Error", ""],
    "p99_ttft_ms": 248.75,
    "spec_decode_acceptance_rate": 43.75,
}


def timings(start: float, **more: Any) -> dict[str, Any]:
    return {
        "targeted_start": start - 0.5,
        "resolve_start": start,
        "request_start": start,
        "first_token_iteration": start + 0.25,
        "first_output_token_iteration": start + 0.375,
        "last_token_iteration": start + 1,
        "request_end": start + 1.125,
        "token_iterations": 4,
        **more,
    }


def entry(number: int, start: float, *, error: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type_": "generative_request_stats",
        "request_id": f"g-{number}",
        "request_args": '{"body": {"messages": "a prompt of somebody"}}',
        "output": "hello",
        "info": {"status": "completed", "timings": timings(start, **more), "error": error},
        "input_metrics": {"text_tokens": 30},
        "output_metrics": {"text_tokens": 5},
    }


def distribution(value: float, count: int) -> dict[str, Any]:
    return {"mean": value, "count": count, "percentiles": {"p99": value}, "pdf": [[0.0, 1.0]]}


def guidellm(strategy: str = "constant", **totals: int) -> dict[str, Any]:
    nothing = dict.fromkeys(("first_token_iteration", "first_output_token_iteration", "last_token_iteration"))
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.0"},
        "config": {"spec": {"backend": {"api_key": "hidden"}}},
        "benchmarks": [
            {
                "config": {
                    "run_index": 0,
                    "strategy": {"type_": strategy, "rate": 2.0},
                    "backend": {
                        "target": "https://me:hidden@serving:8000/v1?key=hidden",
                        "model": "target",
                        "api_key": "hidden",
                    },
                },
                "duration": 4.0,
                "requests": {
                    "successful": [entry(0, 1_786_678_148.0), entry(1, 1_786_678_149.5)],
                    "errored": [entry(2, 1_786_678_149.0, error="503", **nothing, token_iterations=0)],
                    "incomplete": [entry(3, 1_786_678_150.0, last_token_iteration=None, request_end=None)],
                },
                "metrics": {
                    "request_totals": {"successful": 2, "errored": 1, "incomplete": 1, "total": 4, **totals},
                    "time_to_first_token_ms": {"successful": distribution(250, 2), "errored": distribution(0, 0)},
                },
            }
        ],
    }


def aiperf(number: int, **more: Any) -> dict[str, Any]:
    start = EPOCH_NS + number * 100 * MS
    metadata = {
        "x_request_id": f"a-{number}",
        "conversation_id": "the same",
        "request_start_ns": start,
        "request_end_ns": start + 40 * MS,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
        "cancellation_time_ns": None,
    }
    metrics = {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "time_to_first_token": {"value": 10.5, "unit": "ms"},
        "request_latency": {"value": 30.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [9.5, 10.0], "unit": "ms"},
        "output_sequence_length": {"value": 4, "unit": "tokens"},
    }
    return {
        "metadata": metadata | more.get("metadata", {}),
        "metrics": more.get("metrics", metrics),
        **{name: value for name, value in more.items() if name not in ("metadata", "metrics")},
    }


def lines(*documents: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in documents)


class Imported:
    def __init__(self, out: Path, summary: dict[str, Any]) -> None:
        self.out, self.summary, self.runs = out, summary, summary["runs"]

    def manifest(self, run: int = 1) -> dict[str, Any]:
        content = (self.out / f"run-{run}" / "manifest.json").read_bytes()
        return ImportedManifest.model_validate_json(content).model_dump(mode="json", by_alias=True)

    def records(self, run: int = 1) -> list[dict[str, Any]]:
        return list(read_records(self.out / f"run-{run}" / "records.parquet").to_pylist())


Import = Callable[..., Imported]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    def run(content: bytes | Path | dict[str, Any], name: str = "result.json", out: str = "out") -> Imported:
        path = content if isinstance(content, Path) else tmp_path / name
        if isinstance(content, dict):
            content = json.dumps(content).encode()
        if isinstance(content, bytes):
            path.write_bytes(content)
        return Imported(tmp_path / out, import_evidence(path, tmp_path / out))

    return run


def told(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: record[name] for name in names}


# --- vllm bench serve


def test_vllm_details_become_records_in_the_order_of_sending(imported: Import) -> None:
    found = imported(VLLM)
    names = ("row", "planned_ns", "sent_ns", "first_token_ns", "last_token_ns", "status", "output_tokens", "chunks")
    assert [tuple(told(one, *names).values()) for one in found.records()] == [
        (1, 0, 0, None, None, "refused", None, 0),
        (0, 500 * MS, 500 * MS, 750 * MS, 1500 * MS, "completed", 3, 3),
        (2, 1000 * MS, 1000 * MS, 1500 * MS, 1625 * MS, "timed_out", None, 2),
        (3, 1250 * MS, 1250 * MS, None, None, "failed", None, 0),
        (4, 2000 * MS, 2000 * MS, 2125 * MS, 2125 * MS, "completed", 1, 1),
    ]
    untold = ("prompt_sha256", "ended_ns", "finish_reason", "server_queue_ms", "rounds", "fingerprint", "due_ns")
    assert all(one[name] is None for one in found.records() for name in untold)
    assert [one["error"] for one in found.records()] == [
        "Too Many Requests",
        None,
        "TimeoutError: a prompt of somebody",
        "Internal Server Error",
        None,
    ]


def test_a_vllm_manifest_says_what_the_file_says_and_what_it_lacks(imported: Import) -> None:
    manifest = imported(VLLM).manifest()
    assert told(manifest, "evidence_class", "model", "window_s", "planned", "recorded", "planned_times") == {
        "evidence_class": "imported",
        "model": "target",
        "window_s": 2.5,
        "planned": 5,
        "recorded": 5,
        "planned_times": "sent",
    }
    assert manifest["statuses"] == {"completed": 2, "failed": 1, "timed_out": 1, "refused": 1}
    assert manifest["started_at"] is None
    assert manifest["lag_ms"] is None
    assert manifest["source"]["tool_version"] is None
    assert manifest["settings"]["request_rate"] == "inf"
    assert manifest["settings"]["commit"] == "4f67e655"
    assert manifest["aggregates"]["p99_ttft_ms"] == {"unit": "ms", "value": 248.75}
    assert manifest["aggregates"]["request_goodput:"] == {"unit": "requests/s", "value": 0.4}
    assert any("send times stand in" in one for one in manifest["lacks"])
    assert "somebody" not in json.dumps(manifest)


def test_vllm_latencies_count_from_the_send_and_interpolate_as_the_tool_does(imported: Import) -> None:
    run = imported(VLLM).runs[0]
    assert run["first_token_ms"] == {"p50": 187.5, "p90": 237.5, "p99": 248.75, "max": 250.0}
    assert run["completion_ms"]["max"] == 1000.0
    assert "from the send to" in run["percentiles"]


def test_a_recorded_wait_for_a_slot_moves_the_planned_time_to_the_release(imported: Import) -> None:
    document = VLLM | {"queue_times": [0.5, 0.0, 0.25, 0.0, 0.0], "latencies": [1.0, 0.0, 0.0, 0.0, 0.125]}
    found = imported(document | {"max_concurrency": 2})
    manifest = found.manifest()
    assert manifest["planned_times"] == "released"
    assert manifest["lag_ms"] == {"p50": 0.0, "p90": 400.0, "p99": 490.0, "max": 500.0}
    first = next(one for one in found.records() if one["row"] == 0)
    assert told(first, "planned_ns", "sent_ns", "ended_ns") == {
        "planned_ns": 0,
        "sent_ns": 500 * MS,
        "ended_ns": 1500 * MS,
    }


@pytest.mark.parametrize(
    ("left_out", "sentence"), [(("start_times",), "Send times are absent"), (("ttfts", "itls"), "--save-detailed")]
)
def test_a_vllm_file_without_details_keeps_its_numbers_alone(
    imported: Import, left_out: tuple[str, ...], sentence: str
) -> None:
    found = imported({name: value for name, value in VLLM.items() if name not in left_out})
    manifest = found.manifest()
    assert [one.name for one in (found.out / "run-1").iterdir()] == ["manifest.json"]
    assert manifest["digests"] == {"records": None}
    assert manifest["statuses"] == {"completed": 2, "failed": 3}
    assert manifest["planned_times"] is None
    assert found.runs[0]["aggregates"]["p99_ttft_ms"]["value"] == 248.75
    assert any(sentence in one for one in manifest["lacks"])


@pytest.mark.parametrize(("rate", "p99"), [("1", 220.69239653646943), ("4", 336.84755120426394), ("inf", None)])
def test_shared_vllm_files_of_an_old_version(shared_data: Path, imported: Import, rate: str, p99: float | None) -> None:
    found = imported(shared_data / "results" / f"vllm_bench_serve_ascend_llama8B_sharegpt_qps_{rate}.json")
    manifest = found.manifest()
    assert (manifest["planned"], manifest["statuses"], manifest["window_s"]) == (200, None, None)
    assert manifest["settings"]["request_rate"] == ("inf" if rate == "inf" else float(rate))
    assert "max_concurrency" not in manifest["settings"]
    assert manifest["settings"]["date"].startswith("20250217-10")
    assert p99 is None or manifest["aggregates"]["p99_ttft_ms"] == {"unit": "ms", "value": p99}
    assert any("num_prompts is what was asked for" in one for one in manifest["lacks"])


def test_appended_vllm_results_are_several_runs(imported: Import) -> None:
    found = imported(json.dumps(VLLM).encode() + b"\n" + json.dumps(VLLM | {"burstiness": float("inf")}).encode())
    assert [run["directory"] for run in found.runs] == ["run-1", "run-2"]
    assert found.manifest(2)["settings"]["burstiness"] == "inf"
    assert told(found.manifest(2)["source"], "run", "runs") == {"run": 2, "runs": 2}


def test_lists_that_contradict_the_total_are_a_finding(imported: Import) -> None:
    findings = imported(VLLM | {"completed": 4}).manifest()["findings"]
    assert findings == ["the file counts 4 completed requests; its lists hold 2"]


# --- AIPerf


def test_shared_aiperf_records(shared_data: Path, imported: Import) -> None:
    path = shared_data / "results" / AIPERF_JSONL
    found, source = imported(path), [json.loads(line) for line in path.read_bytes().splitlines()]
    manifest, records = found.manifest(), found.records()
    assert manifest["statuses"] == {"completed": 29, "failed": 0, "timed_out": 0, "cancelled": 11, "refused": 0}
    assert manifest["started_at"].startswith("2025-10-03T20:13:39.154")
    cancelled = [one for one in records if one["status"] == "cancelled"]
    assert len(cancelled) == 11
    untold = ("first_token_ns", "last_token_ns", "prompt_tokens", "output_tokens", "chunks")
    assert all(one[name] is None for one in cancelled for name in untold)
    assert len({one["request_id"] for one in records}) == 40
    assert sum(one["chunks"] != one["output_tokens"] for one in records if one["status"] == "completed") == 3
    firsts = [one["metrics"]["ttft"]["value"] for one in source if not one["error"]]
    assert found.runs[0]["first_token_ms"]["p99"] == pytest.approx(np.percentile(firsts, 99), abs=1e-5)
    assert [one["planned_ns"] for one in records] == sorted(one["planned_ns"] for one in records)


def test_shared_aiperf_summary(shared_data: Path, imported: Import) -> None:
    manifest = imported(shared_data / "results" / AIPERF_SUMMARY).manifest()
    assert (manifest["planned"], manifest["statuses"]["completed"], manifest["statuses"]["cancelled"]) == (100, 89, 11)
    assert manifest["aggregates"]["ttft.p99"] == {"unit": "ms", "value": pytest.approx(3833.389, abs=0.001)}
    assert manifest["aggregates"]["ttft.count"] == {"unit": "requests", "value": 89}
    assert "error_request_count.p99" not in manifest["aggregates"]
    assert manifest["settings"]["start_time"] == "2025-10-03T13:13:39.146443"
    assert manifest["started_at"] is None
    assert manifest["model"] == "openai/gpt-oss-20b"
    assert manifest["digests"]["records"] is None


def test_newer_aiperf_records(imported: Import) -> None:
    more = {
        "time_to_first_output_token": {"value": 0.0125, "unit": "s"},
        "usage_completion_tokens": {"value": 5, "unit": "tokens"},
        "usage_prompt_tokens": {"value": 551, "unit": "tokens"},
    }
    acceptance = {
        "acceptance_histogram": {"0": 2, "3": 1},
        "num_accepted_draft_tokens": 3,
        "num_draft_tokens": 9,
        "num_spec_steps": 3,
    }
    issued = {"credit_issued_ns": EPOCH_NS - 5 * MS}
    document = aiperf(0, metadata=issued, spec_decode_acceptance=acceptance)
    document["metrics"] |= more
    found = imported(lines(document), "profile_export.jsonl")
    names = (
        *("request_id", "planned_ns", "sent_ns", "first_token_ns", "last_token_ns", "ended_ns", "status", "chunks"),
        *("prompt_tokens", "output_tokens", "rounds", "draft_tokens", "accepted_tokens", "accepted_histogram"),
    )
    assert tuple(told(found.records()[0], *names).values()) == (
        *("a-0", 0, 5 * MS, 17_500_000, 35 * MS, 45 * MS, "completed", 3),
        *(551, 5, 3, 9, 3, [2, 0, 0, 1]),
    )
    manifest = found.manifest()
    assert manifest["planned_times"] == "released"
    assert not any("Acceptance" in one or "reasoning" in one or "usage" in one for one in manifest["lacks"])


@pytest.mark.parametrize(
    ("error", "metadata", "status"),
    [
        ({"code": 499, "type": "RequestCancellationError", "message": "x"}, {}, "cancelled"),
        ({"code": 500, "type": "HTTPError", "message": "x"}, {"was_cancelled": True}, "cancelled"),
        ({"code": 429, "type": "HTTPError", "message": "x"}, {}, "refused"),
        ({"code": 503, "type": "HTTPError", "message": "x"}, {}, "failed"),
        ({"code": None, "type": "TimeoutError", "message": "x"}, {}, "timed_out"),
        ({"message": "x"}, {}, "failed"),
        (None, {}, "completed"),
    ],
)
def test_statuses_of_aiperf(
    imported: Import, error: dict[str, Any] | None, metadata: dict[str, Any], status: str
) -> None:
    record = imported(lines(aiperf(0, error=error, metadata=metadata)), "p.jsonl").records()[0]
    assert record["status"] == status
    assert (record["error"] is None) == (status == "completed")


def test_the_warm_up_of_aiperf_is_left_out_and_counted(imported: Import) -> None:
    warm_up = aiperf(0, metadata={"benchmark_phase": "warmup"})
    manifest = imported(lines(warm_up, aiperf(1), aiperf(2)), "p.jsonl").manifest()
    assert told(manifest, "planned", "recorded", "left_out") == {
        "planned": 2,
        "recorded": 2,
        "left_out": {"warmup": 1},
    }


def test_request_ids_that_come_twice_give_way_to_places(imported: Import) -> None:
    found = imported(lines(aiperf(0), aiperf(1, metadata={"x_request_id": "a-0"})), "p.jsonl")
    assert [one["request_id"] for one in found.records()] == ["entry-0", "entry-1"]
    assert any("come twice" in one for one in found.manifest()["lacks"])


def test_one_reasoning_answer_without_visible_text_moves_every_first_token_of_the_run(imported: Import) -> None:
    """Two definitions in one percentile would be neither."""
    visible = aiperf(0)
    visible["metrics"]["time_to_first_output_token"] = {"value": 20, "unit": "ms"}
    found = imported(lines(visible, aiperf(1)), "p.jsonl")
    assert [one["first_token_ns"] - one["sent_ns"] for one in found.records()] == [10_500_000, 10_500_000]
    assert any("reasoning" in one for one in found.manifest()["lacks"])


# --- GuideLLM


def test_guidellm_requests_count_from_the_time_that_the_schedule_aimed_at(imported: Import) -> None:
    found = imported(guidellm())
    names = ("request_id", "planned_ns", "sent_ns", "first_token_ns", "last_token_ns", "ended_ns", "status", "chunks")
    assert [tuple(told(one, *names).values()) for one in found.records()] == [
        ("g-0", 0, 500 * MS, 875 * MS, 1500 * MS, 1625 * MS, "completed", 4),
        ("g-2", 1000 * MS, 1500 * MS, None, None, 2625 * MS, "failed", 0),
        ("g-1", 1500 * MS, 2000 * MS, 2375 * MS, 3000 * MS, 3125 * MS, "completed", 4),
        ("g-3", 2000 * MS, 2500 * MS, 2875 * MS, None, None, "cancelled", 4),
    ]
    manifest = found.manifest()
    assert manifest["planned_times"] == "scheduled"
    assert manifest["lag_ms"] == {"p50": 500.0, "p90": 500.0, "p99": 500.0, "max": 500.0}
    assert manifest["statuses"] == {"completed": 2, "failed": 1, "cancelled": 1}
    assert manifest["started_at"] == "2026-08-14T03:29:07.500000000Z"
    assert manifest["source"]["tool_version"] == "0.8.0"
    assert found.runs[0]["first_token_ms"]["p50"] == 875.0


def test_a_strategy_that_aims_at_no_times_counts_from_the_send(imported: Import) -> None:
    found = imported(guidellm("concurrent"))
    assert found.manifest()["planned_times"] == "sent"
    assert found.runs[0]["first_token_ms"]["p50"] == 375.0
    assert any("'concurrent' aims at no times" in one for one in found.manifest()["lacks"])


def test_secrets_and_prompts_of_a_report_stay_behind(imported: Import) -> None:
    found = imported(guidellm())
    everything = b"".join(one.read_bytes() for one in found.out.rglob("*") if one.is_file())
    assert b"hidden" not in everything
    assert b"somebody" not in everything
    assert found.manifest()["base_url"] == "https://serving:8000/v1"


URL = "https://me:s3cret@serving/v1?api_key=s3cret"
ERROR = f"ClientError: 401, url='{URL}', sent Authorization: Bearer s3cret-77"


def with_credentials() -> Iterator[dict[str, Any] | bytes]:
    """A result of each tool with a credential in every text that may be kept."""
    remarks = {
        "api_key": "s3cret",
        "served_at": URL,
        "command": "vllm bench serve --api-key s3cret --header 'Token: s3cret'",
    }
    yield VLLM | {"errors": ["", ERROR, ERROR, "", ""], "label": URL, "model_id": URL, **remarks}
    error = {"type": "ClientError", "code": 401, "message": ERROR}
    yield lines(aiperf(0), aiperf(1, error=error, metadata={"x_request_id": URL}))
    yield {
        "aiperf_version": URL,
        "input_config": {
            "endpoint": {"model_names": [URL], "urls": ["me:s3cret@serving:8000"]},
            "loadgen": {"token": "s3cret"},
        },
        "request_count": {"unit": "requests", "avg": 3},
        "benchmark_id": URL,
    }
    report = guidellm()
    report["metadata"]["guidellm_version"] = URL
    report["benchmarks"][0]["requests"]["errored"][0]["info"]["error"] = ERROR
    report["benchmarks"][0]["config"]["strategy"] |= {"access_token": "s3cret", "target": URL}
    report["benchmarks"][0]["config"]["backend"] |= {"model": URL, "target": "https://me:s3?cret@serving/v1"}
    yield report


@pytest.mark.parametrize(
    "content", list(with_credentials()), ids=["vllm", "aiperf records", "aiperf summary", "guidellm"]
)
def test_no_credential_of_a_file_is_kept_or_told(imported: Import, content: dict[str, Any] | bytes) -> None:
    found = imported(content, name="of token=s3cret.json")
    assert "s3cret" not in json.dumps(found.summary).replace(str(found.out), "")
    assert "s3cret" not in json.dumps(found.manifest())
    if found.manifest()["digests"]["records"]:
        assert not any("s3cret" in str(value) for one in found.records() for value in one.values())
    assert "[hidden]" in json.dumps(found.manifest())


def test_no_beginning_of_a_long_password_is_kept(imported: Import) -> None:
    """It is cut before the @ that tells that it is one."""
    url = f"https://me:{'s3cret' * 700}@serving/v1"
    errors = ["", f"ClientError: 401, url='{url}'", f"401 {url}", "", ""]
    found = imported(VLLM | {"errors": errors, "label": url, "model_id": url, url: 1.5})
    assert "s3cret" not in json.dumps([found.summary, found.manifest()])
    assert not any("s3cret" in str(value) for one in found.records() for value in one.values())
    assert "ClientError: 401, url='[hidden]" in [one["error"] for one in found.records()]


def test_no_beginning_of_a_long_password_is_told_with_its_field() -> None:
    field = Value(None, ("line 3:", f"https://me:{'s3cret' * 20}@serving"))
    assert str(field.bad("is none")) == "line 3: https://serving is none"


def test_numbers_over_nothing_are_left_out(imported: Import) -> None:
    aggregates = imported(guidellm()).manifest()["aggregates"]
    name = "metrics.time_to_first_token_ms"
    assert aggregates[f"{name}.successful.percentiles.p99"] == {"unit": "ms", "value": 250}
    assert not any(one.startswith(f"{name}.errored") or ".pdf" in one for one in aggregates)


def test_a_sample_of_the_requests_is_called_one(imported: Import) -> None:
    manifest = imported(guidellm(successful=200)).manifest()
    assert told(manifest, "planned", "recorded") == {"planned": 202, "recorded": 4}
    assert any("hold 4 of 202 requests" in one for one in manifest["lacks"])


def test_a_request_without_any_time_is_counted_and_has_no_record(imported: Import) -> None:
    report = guidellm("throughput")
    report["benchmarks"][0]["requests"]["errored"][0]["info"]["timings"] = {}
    manifest = imported(report).manifest()
    assert told(manifest, "planned", "recorded") == {"planned": 4, "recorded": 3}
    assert manifest["statuses"]["failed"] == 1


def test_shared_guidellm_report_has_two_runs_and_no_requests(shared_data: Path, imported: Import) -> None:
    found = imported(shared_data / "results" / GUIDELLM)
    assert [run["directory"] for run in found.runs] == ["run-1", "run-2"]
    assert [found.manifest(run)["settings"]["rate"] for run in (1, 2)] == [2.0, 4.0]
    manifest = found.manifest(1)
    assert manifest["statuses"] == {"completed": 2, "failed": 0, "cancelled": 0}
    assert manifest["source"]["tool_version"] == "0.8.0.dev18"
    assert manifest["recorded"] == 0
    assert any("not told one by one" in one for one in manifest["lacks"])


# --- any tool


def test_the_same_file_gives_the_same_bytes(imported: Import) -> None:
    first, second = imported(VLLM, out="a"), imported(VLLM, out="b")
    for name in ("manifest.json", "records.parquet"):
        assert (first.out / "run-1" / name).read_bytes() == (second.out / "run-1" / name).read_bytes()
    assert first.manifest()["digests"]["records"] == digest((first.out / "run-1" / "records.parquet").read_bytes())
    assert first.runs[0]["manifest_sha256"] == digest((first.out / "run-1" / "manifest.json").read_bytes())


def test_the_source_is_named_by_the_bytes_on_the_disk(imported: Import) -> None:
    content = gzip.compress(json.dumps(VLLM).encode())
    source = imported(content, "result.json.gz").manifest()["source"]
    assert told(source, "file", "bytes", "sha256", "compression") == {
        "file": "result.json.gz",
        "bytes": len(content),
        "sha256": digest(content),
        "compression": "gzip",
    }


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}


def changed(document: dict[str, Any], *path: Any, to: Any) -> bytes:
    whole = deepcopy(document)
    inner: Any = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return json.dumps(whole).encode()


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "text": (b"hello", "not JSON: Expecting value at line 1, column 1"),
    "binary": (b"\xff\xfe\x00", "not UTF-8 at byte 0"),
    "another document": (b'{"a": 1}', "its fields are 'a'; known are results of vllm bench serve"),
    "a list": (b"[1]", "it holds no JSON object"),
    "cut short": (json.dumps(VLLM).encode()[:-30], "the file may be cut short"),
    "too deep": (b"[" * 100_000, "nested too deeply"),
    "no run": (changed(guidellm(), "benchmarks", to=[]), "holds 0 runs"),
    "lengths": (changed(VLLM, "errors", to=[""]), "lists of different lengths"),
    "negative": (changed(VLLM, "ttfts", 3, to=-1), r"ttfts\[3\] is -1, no duration in s; export the file again"),
    "not finite": (changed(VLLM, "itls", 0, 1, to=float("nan")), r"itls\[0\]\[1\] is nan, no duration in s"),
    "no gap": (changed(VLLM, "itls", 0, 1, to=None), r"itls\[0\]\[1\] is no number, no duration in s"),
    "long": (changed(VLLM, "itls", 0, to=[9e6, 9e6]), r"itls\[0\] adds up to no duration"),
    "text for a number": (changed(VLLM, "output_lens", 0, to="3"), r"output_lens\[0\] is no number"),
    "count": (changed(VLLM, "output_lens", 0, to=2**31), r"output_lens\[0\] is 2.14748e\+09, no whole number"),
    "second run": (json.dumps(VLLM).encode() + b'{"a": 1}', "its fields are 'a'"),
    "other tool": (json.dumps(VLLM).encode() + json.dumps(guidellm()).encode(), "object 2 is of another tool"),
    "two reports": (json.dumps(guidellm()).encode() * 2, "something follows the end of the document"),
    "time": (
        changed(guidellm(), "benchmarks", 0, "requests", "successful", 0, "info", "timings", "request_start", to="x"),
        r"benchmarks\[0\].requests.successful\[0\].info.timings.request_start is no number",
    ),
    "line": (lines(aiperf(0)) + b"{\n", "line 2: not JSON .*a line or field that is left out would take its request"),
    "last line": (lines(aiperf(0)) + b'{"metadata"', "line 2: not JSON .*the file is cut short here"),
    "no record": (lines(aiperf(0), {"metadata": {}}), "line 2: no record with metadata and metrics"),
    "unit": (
        lines(aiperf(0, metrics={"request_latency": {"value": 1, "unit": "fortnights"}})),
        "line 1: metrics.request_latency.value is in 'fortnights'",
    ),
    "no start": (
        lines(aiperf(0), aiperf(1, metadata={"request_start_ns": None})),
        "line 2: metadata has neither request_start_ns nor timestamp_ns",
    ),
    "only warm-up": (lines(aiperf(0, metadata={"benchmark_phase": "warmup"})), "no request outside the warm-up"),
    "pretty": (json.dumps(aiperf(0), indent=1).encode(), "records of AIPerf stand one a line"),
    "damaged": (gzip.compress(lines(aiperf(0)))[:-12], "compressed file is damaged or cut short"),
}


@pytest.mark.parametrize(("content", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_what_can_not_be_read_is_refused_by_name_and_leaves_nothing(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(EvidenceRefused, match=rf"(?s)^result\.json.*{sentence}"):
        import_evidence(path, tmp_path / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]


def test_a_document_above_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge, "DOCUMENT_LIMIT", 1_000)
    (tmp_path / "result.json").write_bytes(json.dumps(VLLM).encode() + b" " * 1_000)
    with pytest.raises(EvidenceRefused, match="in one document"):
        import_evidence(tmp_path / "result.json", tmp_path / "out")


def test_evidence_is_never_written_over(imported: Import, tmp_path: Path) -> None:
    found = imported(VLLM)
    with pytest.raises(EvidenceRefused, match="never written over"):
        imported(VLLM)
    assert found.manifest()["planned"] == 5
    (tmp_path / "empty").mkdir()
    assert imported(VLLM, out="empty").records()


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "result.json").write_bytes(json.dumps(VLLM).encode())
    monkeypatch.setattr(edge, "manifest_content", full)
    with pytest.raises(OSError, match="No space"):
        import_evidence(tmp_path / "result.json", tmp_path / "out")
    command = ["import-evidence", str(tmp_path / "result.json"), "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(main, command)
    said = f"{tmp_path / 'result.json'} could not be imported into {tmp_path / 'out'}: No space left on device"
    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["result.json"]


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(json.dumps(VLLM).encode())

    def run(*options: str) -> Any:
        return CliRunner().invoke(main, ["import-evidence", str(path), "--out", str(tmp_path / "out"), *options])

    refused = run("--format", "guidellm")
    assert refused.exit_code == 2
    assert "this is a file of vllm-bench, not of guidellm: give --format vllm-bench" in refused.stderr
    done = run("--format", "vllm-bench")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["evidence_class"] == "imported"
    assert summary["runs"][0]["statuses"] == {"completed": 2, "failed": 1, "timed_out": 1, "refused": 1}


def test_the_page_names_every_format_and_every_field_of_the_manifest() -> None:
    page = (DOCS / "imported-evidence.md").read_text(encoding="utf-8")
    fields = [one.alias or name for name, one in ImportedManifest.model_fields.items()]
    assert [name for name in (*FORMATS, *fields) if f"`{name}`" not in page] == []


# --- whatever the bytes are


def outcome(path: Path, out: Path) -> dict[str, Any] | str:
    try:
        return import_evidence(path, out)
    except EvidenceRefused as refused:
        return str(refused)


def check(content: bytes) -> None:
    """A refusal and nothing, or whole directories whose digests hold."""
    with tempfile.TemporaryDirectory() as directory:
        path, out = Path(directory) / "result", Path(directory) / "out"
        path.write_bytes(content)
        found = outcome(path, out)
        if isinstance(found, str):
            assert re.fullmatch("result.*", found)
            assert [one.name for one in Path(directory).iterdir()] == ["result"]
            return
        for run in found["runs"]:
            check_run(out / run["directory"])


def check_run(run: Path) -> None:
    manifest = ImportedManifest.model_validate_json((run / "manifest.json").read_bytes())
    assert manifest.evidence_class == "imported"
    assert manifest.lacks
    if manifest.digests.records is None:
        assert [one.name for one in run.iterdir()] == ["manifest.json"]
        return
    content = (run / "records.parquet").read_bytes()
    assert digest(content) == manifest.digests.records
    assert read_records(content).num_rows == manifest.recorded


SAMPLES = [
    json.dumps(VLLM).encode(),
    json.dumps(guidellm()).encode(),
    lines(aiperf(0), aiperf(1, error={"code": 404, "type": "HTTPError", "message": "x"})),
]
SHARED = (AIPERF_JSONL, AIPERF_SUMMARY, GUIDELLM, "vllm_bench_serve_ascend_llama8B_sharegpt_qps_4.json")
STRUCTURE = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\x00", b"\xff", b"-", b"{}", b"[]"]
NUMBERS = [b"9" * 400, b"0", b"1e99", b"1e999", b"NaN", b"-Infinity"]
SIGNS = st.sampled_from([*STRUCTURE, *NUMBERS, b"null", b"true", b'"\\ud800"'])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    check(content)


def mutated(content: bytes, data: st.DataObject) -> bytes:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        content = content[:at] + data.draw(SIGNS) + content[at + data.draw(st.integers(0, 12)) :]
    return content[: data.draw(st.integers(0, len(content)))] if data.draw(st.integers(0, 9)) == 0 else content


@settings(max_examples=200)
@given(st.sampled_from(SAMPLES), st.data())
def test_mutated_bytes(content: bytes, data: st.DataObject) -> None:
    check(mutated(content, data))


@settings(max_examples=50)
@given(st.sampled_from(SHARED), st.data())
def test_mutated_shared_files(name: str, data: st.DataObject) -> None:
    path = DOCS.parent.parent / "shared" / "data" / "results" / name
    if not path.is_file():
        pytest.skip("the shared data are not beside this checkout")
    check(mutated(path.read_bytes(), data))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*path, key)
        yield from places(one, (*path, key))


@settings(max_examples=300)
@given(st.sampled_from([VLLM, guidellm(), aiperf(0), aiperf(0, error={"code": 1})]), st.data())
def test_any_value_in_any_place(document: dict[str, Any], data: st.DataObject) -> None:
    content = changed(document, *data.draw(st.sampled_from(list(places(document)))), to=data.draw(JSON))
    check(content + b"\n")


def test_sentences_end_as_sentences(imported: Import) -> None:
    for number, content in enumerate(SAMPLES):
        for sentence in imported(content, out=f"out-{number}").manifest()["lacks"]:
            assert re.fullmatch(r"[A-Z].*\.", sentence)
