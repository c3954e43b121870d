"""``draftproof rerun``: the same bytes at the same planned times, anywhere; and what is missing where it can't be."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from config.cli import main
from loadtests.evidence.manifest import document_of
from loadtests.evidence.records import read_records
from loadtests.evidence.store import EvidenceStore
from loadtests.traffic.outline import outline_lines
from loadtests.traffic.rows import Row

ROOT = Path(__file__).parents[2]
CHUNK = {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}


@dataclass
class Recorder:
    """An OpenAI-compatible server that keeps every request as it came."""

    received: list[tuple[float, bytes]] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer("application/json", json.dumps({"data": [{"id": "m"}]}))

            def do_POST(self) -> None:
                at = time.monotonic()
                received.append((at, self.rfile.read(int(self.headers["Content-Length"]))))
                events = "".join(f"data: {json.dumps(one)}\n\n" for one in (CHUNK, USAGE))
                self.answer("text/event-stream", f"{events}data: [DONE]\n\n")

            def answer(self, kind: str, text: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *words: object) -> None:
                pass

        return Handler

    def taken(self) -> dict[bytes, float]:
        """When each body came, counted from the first; emptied for the next run."""
        found = sorted(self.received)
        self.received.clear()
        return {body: at - found[0][0] for at, body in found}


@pytest.fixture
def recorder() -> Iterator[tuple[Recorder, str]]:
    keeper = Recorder()
    with ThreadingHTTPServer(("127.0.0.1", 0), keeper.handler()) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield keeper, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def part(tmp_path: Path, traffic_row: Callable[..., Row]) -> Path:
    texts = ["plain", "naïve café", "日本語の質問", "emoji 👩‍🚀 here", '{"json": [1, 2.50]}', "line\u2028separator"] * 3
    path = tmp_path / "part.jsonl"
    rows = [traffic_row(f"{text} {number}", number) for number, text in enumerate(texts)]
    path.write_bytes(b"".join(row.content + b"\n" for row in rows))
    return path


@pytest.fixture
def first(part: Path, recorder: tuple[Recorder, str], tmp_path: Path) -> Path:
    """The directory of a first run, with a warm-up and users who give up."""
    arrivals = ["--arrival", "gamma", "--rate", "12", "--cv", "1.5", "--seed", "3", "--duration", "0.6"]
    more = ["--warm-up", "0.2", "--patience", "0.5:5", "--drain", "5"]
    ran = draftproof(
        "replay",
        "--traffic",
        part,
        "--base-url",
        recorder[1],
        "--model",
        "m",
        "--out",
        tmp_path / "first",
        *arrivals,
        *more,
    )
    assert ran.exit_code == 0, ran.output
    return tmp_path / "first"


def draftproof(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def elsewhere(directory: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """In a fresh process of another checkout, with another hash seed and another time zone."""
    for package in ("config", "loadtests"):
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = known | {
        "PYTHONHASHSEED": "4711",
        "TZ": "Pacific/Auckland",
        "LC_ALL": "C",
        "PYTHONPATH": str(directory),
    }
    program = "import config.cli; assert config.cli.__file__.startswith(__import__('os').getcwd()); config.cli.main()"
    command = [sys.executable, "-c", program, *(str(word) for word in words)]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)


def test_another_checkout_sends_the_same_bytes_at_the_same_times(
    first: Path, part: Path, recorder: tuple[Recorder, str], tmp_path: Path
) -> None:
    keeper, _ = recorder
    bodies = keeper.taken()
    there = tmp_path / "there"
    there.mkdir()
    ran = elsewhere(there, "rerun", first / "manifest.json", "--rows", part, "--out", there / "again")
    assert ran.returncode == 0, ran.stderr
    # Equal keys: the same bytes. How punctual a busy machine is, is another question.
    assert keeper.taken() == pytest.approx(bodies, abs=0.5)
    assert len(bodies) > 5

    # Planned times, who gives up when and what is warm-up: the same to the nanosecond.
    kept = ["request_id", "row", "prompt_sha256", "planned_ns", "give_up_ns", "warm_up", "class"]
    before, after = (read_records(one / "records.parquet").select(kept) for one in (first, there / "again"))
    assert after.equals(before)
    assert (there / "again" / "plan.json").read_bytes() == (first / "plan.json").read_bytes()
    manifest = document_of((there / "again" / "manifest.json").read_bytes())
    assert manifest["rerun_of"] == sha256((first / "manifest.json").read_bytes()).hexdigest()
    assert json.loads(ran.stdout)["rerun_of"] == manifest["rerun_of"]
    # As of every manifest from before deadlines stood in it: there is nothing to judge by.
    assert "within_deadline" not in json.loads(ran.stdout)


def test_deadlines_of_the_first_run_are_those_of_every_other(
    part: Path, recorder: tuple[Recorder, str], tmp_path: Path
) -> None:
    sent = ["--traffic", part, "--base-url", recorder[1], "--model", "m", "--arrival", "constant", "--rate", "50"]
    deadlines = ["--first-token-deadline", "40", "--completion-deadline", "60"]
    ran = draftproof("replay", *sent, *deadlines, "--out", tmp_path / "1")
    assert ran.exit_code == 0, ran.output
    judged = json.loads(ran.stdout)["within_deadline"]
    assert judged["deadlines"] == {"default": {"first_token_s": 40.0, "completion_s": 60.0}}
    for number in (2, 3):
        before = tmp_path / f"{number - 1}" / "manifest.json"
        ran = draftproof("rerun", before, "--rows", part, "--out", tmp_path / f"{number}")
        assert ran.exit_code == 0, ran.output
        assert json.loads(ran.stdout)["within_deadline"] == judged


def test_a_bundle_for_an_address_without_tls_is_refused(
    first: Path, part: Path, recorder: tuple[Recorder, str], tmp_path: Path
) -> None:
    recorder[0].taken()
    ran = draftproof("rerun", first / "manifest.json", "--rows", part, "--out", tmp_path / "again", "--ca-bundle", part)
    said = "is asked without TLS, so nothing would be checked against the CA bundle"
    assert (ran.exit_code, said in ran.output) == (2, True), ran.output
    assert recorder[0].received == []


def test_an_empty_address_is_no_missing_one(first: Path, part: Path, tmp_path: Path) -> None:
    asked = ["--rows", part, "--out", tmp_path / "again", "--base-url", ""]
    ran = draftproof("rerun", first / "manifest.json", *asked)
    assert (ran.exit_code, "the base URL must start with http:// or https://" in ran.output) == (2, True), ran.output


def test_a_trial_in_an_evidence_store_finds_its_plan_there(first: Path, part: Path, tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "evidence")
    names = {name: store.put((first / name).read_bytes()) for name in ("manifest.json", "plan.json")}
    manifest = store.path(names["manifest.json"])
    ran = draftproof("rerun", manifest, "--rows", part, "--out", tmp_path / "again")
    assert ran.exit_code == 0, ran.output
    store.forget(names["plan.json"])
    ran = draftproof("rerun", manifest, "--rows", part, "--out", tmp_path / "third")
    assert (ran.exit_code, f"the plan is missing: no evidence {names['plan.json']}" in ran.output) == (2, True)


Spoil = Callable[[Path, Path], None]


def change_row(first: Path, part: Path) -> None:
    lines = part.read_bytes().splitlines(keepends=True)
    sent = json.loads((first / "plan.json").read_bytes())["requests"][1][1]
    lines[sent] = lines[sent].replace(b'"max_tokens":64', b'"max_tokens":65')
    part.write_bytes(b"".join(lines))


def change_a_row_that_was_not_sent(first: Path, part: Path) -> None:
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:-1]))


def cut_the_part(first: Path, part: Path) -> None:
    part.write_bytes(part.read_bytes().splitlines(keepends=True)[0])


def delete_text(first: Path, part: Path) -> None:
    part.write_bytes(b"".join(outline_lines(part.read_bytes().splitlines(), name="part")))


def give_the_foreign_file(first: Path, part: Path) -> None:
    part.write_text('{"question_id": 1, "category": "qa", "turns": ["Why?"]}\n')


def change_plan(first: Path, part: Path) -> None:
    plan = first / "plan.json"
    plan.write_bytes(plan.read_bytes().replace(b'"level":"gamma"', b'"level":"gammb"'))


def lose_plan(first: Path, part: Path) -> None:
    (first / "plan.json").unlink()


def change_level(first: Path, part: Path) -> None:
    manifest = first / "manifest.json"
    document = json.loads(manifest.read_bytes())
    document["level"] |= {"max_concurrency": 2}
    manifest.write_text(json.dumps(document))


def spoil_manifest(first: Path, part: Path) -> None:
    (first / "manifest.json").write_text('{"schema": "draftproof.manifest/9"}')


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (change_row, "row 2 of part.jsonl (row-1) has changed since request r-00001 was sent"),
        (change_a_row_that_was_not_sent, "part.jsonl is not the part of this trial: its SHA-256 is"),
        (cut_the_part, "part.jsonl has 1 rows and request r-00001 was row 2: rows are missing"),
        (delete_text, "part.jsonl is the outline that was kept when the part's text was deleted"),
        (give_the_foreign_file, "part.jsonl holds no rows in our own form"),
        (change_plan, "plan.json is not the plan of this trial: its SHA-256 is"),
        (lose_plan, "is missing: there is no"),
        (change_level, "the manifest's level and its plan don't belong together"),
        (spoil_manifest, "is no manifest of a trial: schema"),
    ],
)
def test_what_is_missing_or_changed_is_named_and_nothing_is_sent(
    first: Path, part: Path, recorder: tuple[Recorder, str], tmp_path: Path, spoil: Spoil, said: str
) -> None:
    recorder[0].taken()
    spoil(first, part)
    ran = draftproof("rerun", first / "manifest.json", "--rows", part, "--out", tmp_path / "again")
    assert (ran.exit_code, said in ran.output.replace("\n", " ")) == (2, True), ran.output
    assert recorder[0].received == []
    assert not (tmp_path / "again").exists()


def test_a_damaged_manifest_in_a_store_is_refused(first: Path, part: Path, tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path / "evidence")
    name = store.put((first / "manifest.json").read_bytes())
    store.path(name).chmod(0o644)
    store.path(name).write_bytes((first / "manifest.json").read_bytes() + b" ")
    ran = draftproof("rerun", store.path(name), "--rows", part, "--out", tmp_path / "again")
    assert (ran.exit_code, f"it should have the digest {name}" in ran.output) == (2, True)


def test_no_address_anywhere_is_asked_for(first: Path, part: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads((first / "manifest.json").read_bytes())
    (first / "manifest.json").write_text(json.dumps(document | {"base_url": None}))
    ran = draftproof("rerun", first / "manifest.json", "--rows", part, "--out", tmp_path / "again")
    assert (ran.exit_code, "say which with --base-url" in ran.output) == (2, True)


def forged(field: int, value: object) -> Callable[[Any], None]:
    def change(plan: Any) -> None:
        plan["requests"][1][field] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (forged(1, -40), "plan.json: requests.1.row must be a row's index from 0, not -40"),
        (forged(1, "x"), 'plan.json: requests.1.row must be a row\'s index from 0, not "x"'),
        (forged(0, "r-00000"), "plan.json: requests.1.request_id is 'r-00000', which 0 has already"),
        (forged(2, None), "plan.json: requests.1.row_sha256 must be a SHA-256, not null"),
        (
            forged(3, -(10**12)),
            "plan.json: requests.1.planned_ns must be a time of the level's, in whole ns, not -1000000",
        ),
        (forged(3, 10**25), "plan.json: requests.1.planned_ns must be a time of the level's, in whole ns"),
        (forged(4, -1), "plan.json: requests.1.give_up_ns must be a time in whole ns, or null, not -1"),
        (
            lambda plan: plan["requests"].__setitem__(0, ["a"]),
            "plan.json: requests.0 must be a list of request_id, row",
        ),
        (lambda plan: plan.update(requests=None), "plan.json is no plan: requests is no list, or empty"),
        (lambda plan: plan.pop("requests"), "plan.json is no plan: requests is no list, or empty"),
    ],
)
def test_a_plan_that_no_plan_can_be_is_refused(
    first: Path, part: Path, recorder: tuple[Recorder, str], tmp_path: Path, change: Callable[[Any], None], said: str
) -> None:
    recorder[0].taken()
    plan = json.loads((first / "plan.json").read_bytes())
    change(plan)
    content = json.dumps(plan).encode()
    (first / "plan.json").write_bytes(content)
    manifest = json.loads((first / "manifest.json").read_bytes())
    manifest["digests"]["plan"] = sha256(content).hexdigest()
    (first / "manifest.json").write_text(json.dumps(manifest))
    ran = draftproof("rerun", first / "manifest.json", "--rows", part, "--out", tmp_path / "again")
    assert (ran.exit_code, said in ran.output) == (2, True), ran.output
    assert recorder[0].received == []


def test_a_level_that_is_none_is_refused(first: Path, part: Path, tmp_path: Path) -> None:
    document = json.loads((first / "manifest.json").read_bytes())
    (first / "manifest.json").write_text(json.dumps(document | {"level": {"x": 1}}))
    ran = draftproof("rerun", first / "manifest.json", "--rows", part, "--out", tmp_path / "again")
    assert (ran.exit_code, "manifest.json: level.name: Field required" in ran.output) == (2, True), ran.output


def test_a_trial_with_a_think_time_is_not_run_at_other_times(
    part: Path, recorder: tuple[Recorder, str], tmp_path: Path
) -> None:
    asked = ["--traffic", part, "--base-url", recorder[1], "--model", "m", "--arrival", "constant", "--rate", "50"]
    ran = draftproof("replay", *asked, "--think-time", "0.1", "--out", tmp_path / "thought")
    assert ran.exit_code == 0, ran.output
    ran = draftproof("rerun", tmp_path / "thought" / "manifest.json", "--rows", part, "--out", tmp_path / "again")
    assert (ran.exit_code, "can't be run again at its times" in ran.output) == (2, True), ran.output


def test_a_bundle_that_is_none_is_refused_before_anything_is_sent(first: Path, part: Path, tmp_path: Path) -> None:
    asked = ["--rows", part, "--out", tmp_path / "again", "--base-url", "https://127.0.0.1:1", "--ca-bundle", part]
    ran = draftproof("rerun", first / "manifest.json", *asked)
    assert (ran.exit_code, "can't be used" in ran.output) == (2, True), ran.output
