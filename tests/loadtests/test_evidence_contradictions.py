"""Files of a trial that deny each other are named with the request or field; what we write ourselves never is."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from config.cli import main
from loadtests.canonical import canonical, digest
from loadtests.evidence.contradictions import check_told, too_late
from loadtests.evidence.directories import KeptTrial, UnusableEvidence, boots_in, kept_trial
from loadtests.evidence.manifest import named
from loadtests.evidence.plans import BadPlan, read_plan
from loadtests.evidence.record_columns import records_in as columns_in
from loadtests.evidence.records import RequestRecord, read_records, records_content, records_of, records_table
from loadtests.traffic.levels import Level
from loadtests.traffic.planned import PlannedRequest, plan_content, plan_document
from loadtests.traffic.rows import Message, Row

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
    check_told(found)


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


def test_a_replay_with_a_think_time_moves_its_later_turns(server_process: Any, tmp_path: Path) -> None:
    """From answer to answer; a turn that left at any other time was not planned so."""
    rows = [a_row(n).model_copy(update={"conversation": "one", "turn": n + 1, "arrival_s": 0.02 * n}) for n in range(4)]
    rows = [row.model_copy(update={"messages": (Message(role="user", content="plain-answer"),)}) for row in rows]
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(b"".join(row.content + b"\n" for row in rows))
    where = ["--base-url", server_process.base_url, "--model", "hostile", "--out", str(tmp_path / "out")]
    words = ["replay", "--traffic", str(path), *where, "--think-time", "0.1", "--duration", "3"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    check(tmp_path / "out")
    records = records_in(tmp_path / "out")
    assert records[1].planned_ns == (records[0].ended_ns or 0) + S // 10
    at = records[1].planned_ns - 7_000_000
    records[1] = replace(records[1], planned_ns=at, due_ns=at, sent_ns=at)
    manifest = manifest_in(tmp_path / "out")
    write(tmp_path / "out", manifest, records)
    assert said(tmp_path / "out") == (f"records.parquet: request r-00001: planned_ns {at} isn't that of plan.json")


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
    "another row": (told(row=777), r"row 777 isn't the one that plan.json plans"),
    "a planned time of its own": (
        told(planned_ns=4 * S, due_ns=4 * S),
        "planned_ns 4000000000 isn't that of plan.json",
    ),
    "of the window and called warm-up": (told(warm_up=True), "warm_up is true, and it was planned within the window"),
    "another level": (told(level="quiet"), "its level isn't peak, that of its plan"),
    "the class of all": (
        told(class_="all"),
        "its class is 'all', which stands for all classes together: give the class another name",
    ),
    "completed with an error": (told(error="it broke"), "status is completed, and error says why it isn't"),
    "sent and never ended": (
        told(status="timed_out", ended_ns=None),
        r"status is timed_out, sent_ns \d+ is told, and ended_ns is missing",
    ),
    "sent and not sent": (told(status="not_sent"), r"status is not_sent, and sent_ns \d+ is told"),
    "completed after the drain": (
        told(ended_ns=68 * S),
        "status is completed, and ended_ns 68000000000 lies after the end of the drain, 66000000000",
    ),
    "a first token after the drain": (
        told(status="failed", error="it broke", first_token_ns=68 * S, last_token_ns=68 * S, ended_ns=69 * S),
        "first_token_ns 68000000000 lies after the end of the drain, 66000000000",
    ),
    "a queue that took longer than the answer": (
        told(server_queue_ms=90_000.0),
        r"server_queue_ms \+ server_prefill_ms are longer than from sent_ns \d+ to first_token_ns \d+",
    ),
    "a decode that took longer than the answer": (
        told(server_decode_ms=90_000.0),
        r"server_queue_ms \+ server_prefill_ms \+ server_decode_ms are longer than from sent_ns \d+ to "
        r"last_token_ns \d+",
    ),
    "a decode that took less in virtual time": (
        told(server_decode_ms=0.0),
        r"server_queue_ms \+ server_prefill_ms \+ server_decode_ms are shorter than from sent_ns \d+ to last_token_ns "
        r"\d+, and there is no way between",
    ),
    "a decode of less than no time": (told(server_decode_ms=-1.0), "server_decode_ms is below 0"),
    "rounds that no histogram counts": (
        told(accepted_histogram=[1, 1], rounds=3, accepted_tokens=1),
        "rounds 3 isn't the sum of accepted_histogram",
    ),
    "drafts accepted that no histogram counts": (
        told(accepted_histogram=[1, 2], rounds=3, accepted_tokens=1),
        "accepted_tokens 1 isn't what accepted_histogram counts",
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
LATENCY = "vllm:e2e_request_latency_seconds"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


def counters(**changes: dict[str, float]) -> Callable[[Manifest], None]:
    def change(manifest: Manifest) -> None:
        for part, numbers in changes.items():
            manifest["counters"][part] |= numbers

    return change


def fields(**changes: Any) -> Callable[[Manifest], None]:
    return lambda manifest: manifest.update(changes)


def unfinished(manifest: Manifest) -> None:
    for part in manifest["counters"].values():
        part.update({name: 0.0 for name in part if name.startswith("vllm:request_success_total")})


DENIED: dict[str, tuple[Callable[[Manifest], Any], str]] = {
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
    "warm-up without its errors": (
        fields(warm_up={"planned": 3, "completed": 2, "errors": []}),
        "warm_up.completed is 2 of 3 planned, and warm_up.errors has 0",
    ),
    "measured on a simulated device": (
        fields(evidence_class="measured"),
        "evidence_class is measured, and engine.engine_model is told: that engine is a simulated one",
    ),
    "imported from a simulation": (
        fields(evidence_class="imported", engine={"device": "simulated"}),
        "evidence_class is imported, and engine.device is simulated: that engine is a simulated one",
    ),
    "measured by the simulator": (
        fields(evidence_class="measured", engine={"command": ["python", "-m", "loadtests.simulator.server"]}),
        "evidence_class is measured, and engine.command is that of loadtests.simulator.server: that engine is a "
        "simulated one",
    ),
    "measured without a server": (
        fields(evidence_class="measured", engine={}),
        "evidence_class is measured, and base_url is missing: no server was asked",
    ),
    "fewer drafts than the requests tell": (
        counters(after={DRAFTED: 1.0}, difference={DRAFTED: 1.0}),
        rf"counters.difference.{DRAFTED} is 1, and by the records draft_tokens are [\d,]+",
    ),
    "more completed than the engine finished": (
        unfinished,
        r"counters.difference.vllm:request_success_total is \d, and by the records \d+ completed",
    ),
    "latencies that nobody waited for": (
        counters(after={f"{LATENCY}_sum": 9e6}, before={f"{LATENCY}_sum": 0.0}, difference={f"{LATENCY}_sum": 9e6}),
        rf"counters.difference.{LATENCY}_sum is 9000000.000 s, and by the records its requests waited [\d.]+ s from "
        "sent_ns to ended_ns",
    ),
    "preemptions in its timeline alone": (
        fields(engine={"timeline": [{"preemptions": 3}]}),
        rf"counters.difference.{PREEMPTED} is 0, and engine.timeline has 3",
    ),
    "a number in quotes": (
        lambda manifest: manifest["level"].update(warm_up_s="1"),
        "level.warm_up_s: Input should be a valid number",
    ),
    "a truth for a number": (
        lambda manifest: manifest["level"].update(warm_up_s=True),
        "level.warm_up_s: Input should be a valid number",
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


@pytest.mark.parametrize(("early_ns", "refused"), [(1_499_999, False), (2_500_000, True)])
def test_a_timer_may_fire_a_little_too_early(early_ns: int, refused: bool, trial: Path) -> None:
    """As those of the client do, by a millisecond and a half at most."""
    manifest, records = manifest_in(trial), records_in(trial)
    untold = ("first_token_ns", "last_token_ns", "finish_reason", "output_tokens", "fingerprint", "server_queue_ms")
    nothing: dict[str, Any] = dict.fromkeys((*untold, "server_prefill_ms", "server_decode_ms"))
    records[-1] = replace(records[-1], status="timed_out", ended_ns=66 * S - early_ns, **nothing)
    manifest["statuses"] |= {"completed": manifest["statuses"]["completed"] - 1, "timed_out": 1}
    manifest["fingerprints"] = {name: count - 1 for name, count in manifest["fingerprints"].items()}
    write(trial, manifest, records)
    if refused:
        assert "timed_out, and ended_ns" in said(trial)
    else:
        check(trial)


@pytest.mark.parametrize(("late_s", "refused"), [(0.0, True), (2.9, True), (3.1, False)])
def test_a_client_that_sends_late_closes_late_too(late_s: float, refused: bool, trial: Path) -> None:
    """It hears four seconds after the drain what came before it: three of its own lag, and one that any client may."""
    manifest, records, end = manifest_in(trial), records_in(trial), 66 * S
    *others, last = [one for one in records if one.status == "completed"]
    ended = replace(last, last_token_ns=end + 4 * S, ended_ns=end + 4 * S)
    late = replace(others[0], sent_ns=(others[0].due_ns or 0) + round(late_s * S))
    table = records_table([{last.request_id: ended, late.request_id: late}.get(one.request_id, one) for one in records])
    found = list(too_late(columns_in(table), Level.model_validate(manifest["level"])))
    assert any(one.wrong.any() for one in found) is refused


@pytest.mark.parametrize(("details", "refused"), [({}, True), ({"base_url": "http://gpu.example:8000"}, False)])
def test_a_server_that_others_start_may_count_its_queue_twice(
    details: dict[str, str], refused: bool, trial: Path
) -> None:
    """Its time to the first token may have the queue in it; what a hook said in its place is no command of ours."""
    manifest, records = manifest_in(trial), records_in(trial)
    manifest |= {"evidence_class": "measured", "base_url": "http://gpu.example:8000/v1", "counters": None}
    manifest["client"]["command"] = ["worker"]
    manifest["engine"] = {"version": "0.32.0", "command": ["start-engine"], "details": details}
    one = records[0]
    whole_ms = ((one.ended_ns or 0) - (one.sent_ns or 0)) / 1e6
    records[0] = replace(
        one,
        server_queue_ms=whole_ms / 2,
        server_prefill_ms=whole_ms / 2,
        server_decode_ms=whole_ms / 2,
        first_token_ns=(one.sent_ns or 0) + round(whole_ms * 5e5),
    )
    records[0] = replace(records[0], last_token_ns=one.ended_ns, ended_ns=one.ended_ns)
    write(trial, manifest, records)
    if refused:
        assert "server_queue_ms + server_prefill_ms" in said(trial)
    else:
        check(trial)


def test_fingerprints_of_one_name_are_counted_together() -> None:
    """A server may well tell the name that stands for none."""
    assert named({None: 2, "(none)": 3, "": 1, "f": 4}) == {"(none)": 6, "f": 4}


def test_a_gauge_may_fall(trial: Path) -> None:
    manifest = manifest_in(trial)
    counters(
        before={"vllm:num_requests_running": 3.0},
        after={"vllm:num_requests_running": 0.0},
        difference={"vllm:num_requests_running": -3.0},
    )(manifest)
    write(trial, manifest)
    check(trial)


def planned_anew(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another plan, whose digest the manifest tells."""
    plan = json.loads((path / "plan.json").read_bytes())
    change(plan)
    manifest = manifest_in(path)
    manifest["digests"]["plan"] = digest(canonical(plan))
    (path / "plan.json").unlink()
    (path / "plan.json").write_bytes(canonical(plan))
    write(path, manifest)


def shifted(plan: dict[str, Any]) -> None:
    plan["requests"] = [[name, row, key, at + S] for name, row, key, at, *_ in plan["requests"]]


PLANS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another level": (lambda plan: plan.update(level="calm"), "level is 'calm', and by the manifest's level 'peak'"),
    "another warm-up": (
        lambda plan: plan.update(warm_up_s=2.0),
        "warm_up_s is 2, and by the manifest's level 1.0",
    ),
    "a request left out": (
        lambda plan: plan["requests"].pop(),
        r"\d+ requests are planned, and the manifest's level and seed draw \d+",
    ),
    "other times": (
        lambda plan: plan["requests"][2].__setitem__(3, plan["requests"][2][3] + 1),
        r"request peak-0-00002 is planned at \d+ ns, and the manifest's level and seed draw \d+",
    ),
    "a user who gives up": (
        lambda plan: plan["requests"][2].__setitem__(4, 5 * S),
        "request peak-0-00002 is to give up at 5000000000 ns, and the manifest's level and seed draw no time",
    ),
    "a row twice": (
        lambda plan: plan["requests"][2].__setitem__(1, plan["requests"][1][1]),
        r"row \d+ is planned twice: a trial sends no row twice",
    ),
    "an id twice": (
        lambda plan: plan["requests"][2].__setitem__(0, "peak-0-00001"),
        "request peak-0-00001 is planned twice",
    ),
    "nothing of a plan": (lambda plan: plan.clear(), "is no plan of a trial: it lists no requests"),
    "junk among the requests": (
        lambda plan: plan["requests"][2].__setitem__(2, "junk"),
        "is no plan of a trial: a row's SHA-256 doesn't have 64 hexadecimal digits",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_its_level_does_not_give_is_refused(name: str, trial: Path) -> None:
    forge, expected = PLANS[name]
    planned_anew(trial, forge)
    assert re.fullmatch(f"plan.json:? {expected}", said(trial)), said(trial)


def test_a_plan_whose_seed_nobody_tells_is_refused(trial: Path) -> None:
    write(trial, manifest_in(trial) | {"seeds": {}})
    assert said(trial) == (
        "plan.json: the manifest's seeds tell neither segment nor arrivals: its times can't be drawn again"
    )


def test_requests_that_nobody_planned_and_that_come_twice(trial: Path) -> None:
    records = records_in(trial)
    write(trial, manifest_in(trial), [*records, replace(records[0], request_id="more")])
    assert said(trial) == "records.parquet: request more: plan.json beside it plans no such request"
    write(trial, manifest_in(trial), [*records, records[-1]])
    assert said(trial) == f"records.parquet: request {records[-1].request_id}: request_id comes twice"


def test_a_level_that_caps_what_is_open(traffic: Path, tmp_path: Path) -> None:
    path = simulated(traffic, tmp_path / "out", LEVEL | {"max_concurrency": 2}) / "boot-001" / "peak"
    check(path)
    records = records_in(path)
    place = next(place for place, one in enumerate(records) if (one.due_ns or 0) > one.planned_ns + S)
    waited = records[place]
    planned = waited.planned_ns
    records[place] = replace(waited, due_ns=planned, sent_ns=planned)
    write(path, manifest_in(path), records)
    assert re.fullmatch(
        r"records.parquet: request \S+: sent_ns \d+: 2 others were open, and the level allows no more", said(path)
    ), said(path)
    late = (waited.due_ns or 0) + 3_000_000
    records[place] = replace(waited, due_ns=late, sent_ns=late, first_token_ns=late + S)
    write(path, manifest_in(path), records)
    assert re.fullmatch(
        r"records.parquet: request \S+: due_ns \d+ is neither planned_ns \d+ nor when another request ended and its "
        "slot came free",
        said(path),
    ), said(path)


def a_row(number: int) -> Row:
    return Row.model_validate(
        {
            "id": f"r-{number}",
            "conversation": f"c-{number}",
            "arrival_s": float(number),
            "class": "chat",
            "messages": [{"role": "user", "content": f"question {number}"}],
            "max_tokens": 64,
        }
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptTrial:
    root = tmp_path_factory.mktemp("kept")
    traffic = root / "traffic.jsonl"
    traffic.write_bytes(b"".join(a_row(n).content + b"\n" for n in range(120)))
    level = LEVEL | {"patience": {"share": 0.3, "after_s": 40}}
    return kept_trial(simulated(traffic, root / "out", level, "--speculative", NGRAM) / "boot-001" / "peak")


CHANGES = st.sampled_from(["row", "planned_ns", "give_up_ns", "warm_up", "level", "request_id"])


@given(changed=CHANGES, by=st.integers(1, 10**12), draw=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_whatever_a_record_says_of_its_plan_is_the_plans(
    kept: KeptTrial, changed: str, by: int, draw: random.Random
) -> None:
    """In any order, and one of them changed."""
    records = records_of(kept.records)
    draw.shuffle(records)
    check_told(replace(kept, records=records_table(records)))
    value = getattr(records[0], changed)
    other: Any = f"{value}-{by}" if isinstance(value, str) else (value or 0) + by
    other = not value if isinstance(value, bool) else min(other, 2**31 - 1) if changed == "row" else other
    records[0] = replace(records[0], **{changed: other})
    with pytest.raises(UnusableEvidence):
        check_told(replace(kept, records=records_table(records)))


NAMES = st.text("abcdefghijklmnopqrstuvwxyz-0123456789\u00e9\u4e00", min_size=1, max_size=12)
MOMENTS = st.integers(0, 2**53 - 1)


@given(
    requests=st.lists(st.tuples(NAMES, st.integers(0, 10**9), MOMENTS, st.none() | MOMENTS), min_size=1, max_size=20),
    patient=st.booleans(),
)
def test_a_plan_is_read_back_as_it_was_written(requests: list[tuple[str, int, int, int | None]], patient: bool) -> None:
    level = Level.model_validate(LEVEL | ({} if patient else {"warm_up_s": 0}))
    planned = [PlannedRequest(name, row, a_row(row), at, give_up) for name, row, at, give_up in requests]
    found = read_plan(plan_content(planned, level))
    assert dict(found.document) == json.loads(canonical(plan_document(level)))
    assert found.request_ids.to_pylist() == [one.request_id for one in planned]
    assert found.rows.tolist() == [one.row for one in planned]
    assert found.planned_ns.tolist() == [one.planned_ns for one in planned]
    assert found.row_keys.tolist() == [int(digest(one.traffic_row.content)[:16], 16) for one in planned]
    give_ups = [-1 if one.give_up_ns is None or not patient else one.give_up_ns for one in planned]
    assert found.give_up_ns.tolist() == give_ups


@given(st.binary(max_size=200) | st.from_regex(rb'\{"requests":\[\[.{0,80}\]\],"schema":"draftproof.plan/1"\}'))
def test_what_is_no_plan_is_refused_and_never_an_error(content: bytes) -> None:
    with pytest.raises(BadPlan):
        read_plan(content)
