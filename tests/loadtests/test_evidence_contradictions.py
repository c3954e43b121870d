"""Files of a trial that deny each other are named with the request or field; what we write ourselves never is."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from config.cli import main
from loadtests.canonical import canonical, digest
from loadtests.evidence.contradictions import check_told
from loadtests.evidence.directories import UnusableEvidence, boots_in, kept_trial
from loadtests.evidence.records import RequestRecord, read_records, records_content, records_of
from loadtests.traffic.levels import Level
from loadtests.traffic.rows import Row

S = 1_000_000_000
LEVEL = {"name": "peak", "arrival": {"process": "poisson", "rate": 4}, "duration_s": 5, "drain_s": 60, "warm_up_s": 1}
EVERYTHING = LEVEL | {"max_concurrency": 1, "patience": {"share": 0.5, "after_s": 2}, "drain_s": 1}
NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 4})
Rows = Callable[..., Row]
Manifest = dict[str, Any]


@pytest.fixture
def traffic(tmp_path: Path, traffic_row: Rows) -> Path:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(b"".join(traffic_row(f"question {n}", n).content + b"\n" for n in range(120)))
    return path


def simulated(traffic: Path, out: Path, level: dict[str, Any], *more: str) -> Path:
    words = ["simulate", "--traffic", str(traffic), "--level", json.dumps(level), "--out", str(out), *more]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture
def trial(traffic: Path, tmp_path: Path) -> Path:
    return simulated(traffic, tmp_path / "out", LEVEL, "--speculative", NGRAM) / "boot-001" / "peak"


def check(path: Path) -> None:
    found = kept_trial(path)
    check_told(found, Level.model_validate(found.manifest.level))


def said(path: Path) -> str:
    with pytest.raises(UnusableEvidence) as raised:
        check(path)
    return str(raised.value).replace(f"{path}/", "")


def records_in(path: Path) -> list[RequestRecord]:
    return records_of(read_records(path / "records.parquet"))


def write(path: Path, manifest: Manifest, records: list[RequestRecord] | None = None) -> None:
    if records is not None:
        content = records_content(records)
        manifest["digests"]["records"] = digest(content)
        (path / "records.parquet").unlink()
        (path / "records.parquet").write_bytes(content)
    (path / "manifest.json").unlink()
    (path / "manifest.json").write_bytes(canonical(manifest))


def manifest_in(path: Path) -> Manifest:
    found: Manifest = json.loads((path / "manifest.json").read_bytes())
    return found


def test_what_the_simulator_writes_denies_itself_nowhere(trial: Path, traffic: Path, tmp_path: Path) -> None:
    check(trial)
    boots = simulated(traffic, tmp_path / "everything", EVERYTHING, "--boots", "2")
    statuses = set()
    for one in (trial for boot in boots_in(boots) for trial in boot):
        check(one)
        statuses |= {record.status for record in records_in(one)}
    assert {"completed", "cancelled", "timed_out"} <= statuses


@pytest.mark.parametrize(
    "more",
    [
        ("--warm-up", "0.2", "--duration", "0.6", "--max-concurrency", "4", "--patience", "0.5:0.4", "--drain", "0.5"),
        ("--processes", "2", "--drain", "1"),
    ],
)
def test_what_the_client_writes_denies_itself_nowhere(
    more: tuple[str, ...], server_process: Any, tmp_path: Path, traffic_row: Rows
) -> None:
    """Of answers that complete, fail, are refused, are given up and never come."""
    texts = ["plain-answer", "error-400-inside-200", "http-500-json", "slow-answer", "reset-mid-stream"] * 3
    path = tmp_path / "traffic.jsonl"
    rows = [traffic_row(text, n, arrival_s=0.05 * n) for n, text in enumerate([*texts, "never-answers"])]
    path.write_bytes(b"".join(row.content + b"\n" for row in rows))
    where = ["--base-url", server_process.base_url, "--model", "hostile", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["replay", "--traffic", str(path), *where, *more])
    assert result.exit_code == 0, result.output
    check(tmp_path / "out")


def earlier(name: str, by_ns: int) -> Callable[[RequestRecord], RequestRecord]:
    return lambda one: replace(one, **{name: getattr(one, name) - by_ns})


def told(**fields: Any) -> Callable[[RequestRecord], RequestRecord]:
    return lambda one: replace(one, **fields)


FORGED = {
    "sent before it was planned": (earlier("sent_ns", 3 * S), r"sent_ns \d+ lies before planned_ns \d+"),
    "a first token before it was sent": (told(first_token_ns=0), r"first_token_ns 0 lies before sent_ns \d+"),
    "a last token before the first": (told(last_token_ns=5), r"last_token_ns 5 lies before first_token_ns \d+"),
    "an end before the last token": (told(ended_ns=5), r"ended_ns 5 lies before planned_ns \d+"),
    "never sent and completed": (told(sent_ns=None), r"first_token_ns \d+ is told, and sent_ns is missing"),
    "never sent, without a token": (
        told(sent_ns=None, first_token_ns=None, last_token_ns=None),
        r"status is completed, and sent_ns is missing",
    ),
    "never ended and completed": (told(ended_ns=None), r"status is completed, and ended_ns is missing"),
    "no reason and completed": (told(finish_reason=None), r"status is completed, and finish_reason is missing"),
    "no first token and completed": (
        told(first_token_ns=None),
        r"status is completed after \d+ chunks, and first_token_ns is missing",
    ),
    "an unknown status": (told(status="lovely"), r"status 'lovely' is none of completed, failed, timed_out, .*"),
    "cancelled by nobody": (
        told(status="cancelled"),
        r"status is cancelled, and give_up_ns is missing: its user was not to give up, and nobody stopped the trial",
    ),
    "a user who was not to give up": (
        told(status="cancelled", give_up_ns=61 * S, ended_ns=62 * S),
        r"give_up_ns 61000000000 is told, and the level has no patience: nobody was to give up",
    ),
    "a drain that ended early": (
        told(status="timed_out"),
        r"status is timed_out, and ended_ns \d+ lies before the end of the drain, 66000000000",
    ),
    "a slot where none is waited for": (
        told(due_ns=40 * S, sent_ns=40 * S, first_token_ns=41 * S, last_token_ns=42 * S, ended_ns=42 * S),
        r"due_ns 40000000000 is another time than planned_ns \d+, and the level caps no concurrency",
    ),
    "tokens below 0": (told(output_tokens=-3), "output_tokens -3 is below 0"),
    "drafts below 0": (told(draft_tokens=-1), "draft_tokens -1 is below 0"),
    "a time below 0": (told(sent_ns=-1), "sent_ns -1 is below 0"),
    "a histogram below 0": (told(accepted_histogram=[4, -1]), r"accepted_histogram \[4, -1\] has a count below 0"),
    "more accepted than drafted": (
        told(accepted_tokens=9, draft_tokens=8),
        "accepted_tokens 9 are more than draft_tokens 8",
    ),
    "more rounds than tokens": (
        told(rounds=8, output_tokens=7),
        "rounds 8 are more than output_tokens 7: every round gives one at least",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_record_that_cannot_be_is_named_with_its_request(name: str, trial: Path) -> None:
    forge, expected = FORGED[name]
    records = records_in(trial)
    # Late enough that nothing is before the trial's start.
    place = next(place for place, one in enumerate(records) if one.planned_ns > 4 * S)
    records[place] = forge(records[place])
    write(trial, manifest_in(trial), records)
    assert re.fullmatch(f"records.parquet: request {records[place].request_id}: {expected}", said(trial)), said(trial)


def test_a_user_who_gave_up_too_early(traffic: Path, tmp_path: Path) -> None:
    patient = LEVEL | {"patience": {"share": 1, "after_s": 50}}
    path = simulated(traffic, tmp_path / "out", patient) / "boot-001" / "peak"
    records = records_in(path)
    records[-1] = replace(records[-1], status="cancelled")
    write(path, manifest_in(path), records)
    assert re.fullmatch(
        r"records.parquet: request \S+: status is cancelled, and ended_ns \d+ lies before give_up_ns \d+", said(path)
    )


def test_who_stopped_a_trial_cancels_what_is_open(trial: Path) -> None:
    records = records_in(trial)
    records[-1] = replace(records[-1], status="cancelled")
    manifest = manifest_in(trial) | {"stopped": True}
    for name, change in (("completed", -1), ("cancelled", 1)):
        manifest["statuses"][name] += change
    manifest["fingerprints"] = {name: count - 1 for name, count in manifest["fingerprints"].items()}
    write(trial, manifest, records)
    check(trial)


GENERATED, PREEMPTED = "vllm:generation_tokens_total", "vllm:num_preemptions_total"
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


def counters(**changes: dict[str, float]) -> Callable[[Manifest], None]:
    def change(manifest: Manifest) -> None:
        for part, numbers in changes.items():
            manifest["counters"][part] |= numbers

    return change


def fields(**changes: Any) -> Callable[[Manifest], None]:
    return lambda manifest: manifest.update(changes)


DENIED = {
    "planned": (fields(planned=3), r"planned is 3, and \d+ requests are in records.parquet"),
    "warm-up": (fields(warm_up_requests=0), r"warm_up_requests is 0, and \d+ requests are in records.parquet"),
    "statuses": (
        fields(statuses={"completed": 2}),
        r"statuses.completed is 2, and \d+ requests are in records.parquet",
    ),
    "lag": (
        fields(lag_ms={"p50": 0.0, "p90": 0.0, "p99": 7.0, "max": 7.0}),
        "lag_ms.p99 is 7.0, and by records.parquet it is 0",
    ),
    "no lag": (fields(lag_ms=None), "lag_ms is null, and by records.parquet it is at most 0 ms"),
    "fingerprints": (
        fields(fingerprints={"f" * 64: 2}),
        r"fingerprints.[0-9a-f]{64} is \d+, and \d+ requests are in records.parquet",
    ),
    "window": (fields(window_s=4.0), "window_s is 4, and 5 in level"),
    "drain": (fields(drain_s=4.0), "drain_s is 4, and 60 in level"),
    "warm-up of the server": (
        fields(warm_up={"planned": -2, "completed": -2, "errors": []}),
        "warm_up.completed is -2 of -2 planned",
    ),
    "a difference of its own": (
        counters(difference={PREEMPTED: 4.0}),
        rf"counters.difference.{PREEMPTED} is 4, and after − before is 0 \(0 − 0\)",
    ),
    "a difference of nothing": (
        counters(difference={"vllm:new_total": 4.0}),
        "counters.difference.vllm:new_total is told, and counters.before has none",
    ),
    "a counter that falls": (
        counters(before={PREEMPTED: 7.0}, difference={PREEMPTED: -7.0}),
        f"counters: {PREEMPTED} went from 7 to 0, which no counter of one server does",
    ),
    "more hits than queries": (
        counters(after={QUERIES: 5.0, HITS: 6.0}, difference={QUERIES: 5.0, HITS: 6.0}),
        f"counters.difference: {HITS} 6 is more than {QUERIES} 5",
    ),
}


@pytest.mark.parametrize("name", DENIED)
def test_a_manifest_that_denies_its_records_or_itself_is_named_with_its_field(name: str, trial: Path) -> None:
    forge, expected = DENIED[name]
    manifest = manifest_in(trial)
    forge(manifest)
    write(trial, manifest)
    assert re.fullmatch(f"manifest.json: {expected}", said(trial)), said(trial)


def test_nobody_sees_the_first_token_of_an_answer_that_comes_whole(trial: Path) -> None:
    manifest = manifest_in(trial)
    manifest["engine"]["asked"] = {"api": "chat", "stream": False, "token_ids": False}
    write(trial, manifest, [replace(one, first_token_ns=None) for one in records_in(trial)])
    check(trial)


def test_a_gauge_may_fall(trial: Path) -> None:
    manifest = manifest_in(trial)
    counters(
        before={"vllm:num_requests_running": 3.0},
        after={"vllm:num_requests_running": 0.0},
        difference={"vllm:num_requests_running": -3.0},
    )(manifest)
    write(trial, manifest)
    check(trial)
