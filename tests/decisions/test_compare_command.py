"""``draftproof compare``: verdicts on directories, and every planted fault found in them."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from config.cli import main
from decisions.commands import compare as command
from decisions.commands import directories
from decisions.commands.compare import EXIT
from decisions.rules.brief import parse_brief
from loadtests.canonical import canonical, digest
from loadtests.evidence.manifest import named
from loadtests.evidence.records import RequestRecord, measured, read_records, records_content, records_of
from loadtests.evidence.summary import summarise
from loadtests.simulator import preset
from loadtests.statistics.order import A_A_ARMS, arm_orders
from loadtests.traffic.rows import Row, part_digest, read_rows

QUIET = {"name": "quiet", "arrival": {"process": "poisson", "rate": 1.0}, "duration_s": 60, "drain_s": 60.0}
BUSY = {"name": "busy", "arrival": {"process": "poisson", "rate": 2.0}, "duration_s": 60, "drain_s": 60.0}
BUSY |= {"warm_up_s": 3.0}
EAGLE = {"method": "eagle3", "num_speculative_tokens": 4}
ARMS = ("baseline", "candidate", "control-of", "control")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A brief and four simulated pairs of each kind, held-out and noise floor."""
    root = tmp_path_factory.mktemp("compare")
    for part, rows in (("tuning", range(800)), ("held-out", range(800, 1_700))):
        (root / f"{part}.jsonl").write_bytes(b"".join(a_row(number).content + b"\n" for number in rows))
    model = preset("gpu-8b").model_copy(update={"prefix_caching": True})
    (root / "model.json").write_bytes(model.content)
    simulated(root, "baseline", "held-out")
    simulated(root, "candidate", "held-out", "--speculative", json.dumps(EAGLE))
    simulated(root, "control-of", "tuning", seed=4)
    simulated(root, "control", "tuning", "--control", seed=4)
    (root / "brief.json").write_bytes(parse_brief(a_brief(root)).content)
    return root


def a_row(number: int) -> Row:
    return Row.model_validate(
        {
            "id": f"r-{number}",
            "conversation": f"c-{number}",
            "arrival_s": float(number),
            "class": "chat",
            "messages": [{"role": "user", "content": f"What is said of matter {number}, and by whom?"}],
            "max_tokens": 128,
        }
    )


def simulated(root: Path, out: str, part: str, *more: str, seed: int = 3) -> None:
    levels = [word for level in (QUIET, BUSY) for word in ("--level", json.dumps(level))]
    words = ["simulate", "--traffic", str(root / f"{part}.jsonl"), "--model", str(root / "model.json"), "--boots", "4"]
    result = CliRunner().invoke(main, [*words, "--seed", str(seed), *levels, "--out", str(root / out), *more])
    assert result.exit_code == 0, result.output


def a_brief(root: Path) -> dict[str, Any]:
    baseline = json.loads((root / "baseline" / "configuration.json").read_bytes())
    parts = {kind: part_digest(list(read_rows(root / f"{kind}.jsonl"))) for kind in ("tuning", "held-out")}
    return {
        "schema": "draftproof.brief/1",
        "title": "Speculation for chat",
        "service": "support-assistant",
        "route": "chat",
        "question": "May chat run with speculation at its real load?",
        "population": "Requests of the chat route in one week",
        "decision_owner": "owner",
        "baseline": baseline,
        "candidates": [
            {"name": "eagle-k4", "speculative": EAGLE},
            {"name": "eagle-k8", "speculative": EAGLE | {"num_speculative_tokens": 8}},
        ],
        "traffic": {"name": "demo", "set": "1" * 64, "tuning": parts["tuning"], "held_out": parts["held-out"]},
        "levels": [QUIET, BUSY],
        "peak": "busy",
        "deadlines": {"default": {"first_token_s": 2, "completion_s": 6}},
        "outcome": {
            "metric": "completion_quantile",
            "quantile": 0.5,
            "improve_in": [{"level": "busy"}],
            "minimum_improvement": 0.3,
            "non_inferiority_margin": 0.1,
        },
        "guardrails": [
            {"id": "failed", "metric": "failed_share", "kind": "absolute", "cell": {"level": "busy"}, "limit": 0.05},
            {"id": "preempted", "metric": "preemptions", "kind": "relative", "cell": {"level": "busy"}, "limit": 0.2},
        ],
        "rule": {"seed": 5},
        "budget_engine_minutes": 60,
        "fallback_plan": "Requests queue at peak; admission is reduced.",
    }


def compare(root: Path, *more: str, arms: tuple[str, ...] = ARMS) -> Result:
    words = [word for arm in arms for word in (f"--{arm}", str(root / arm))]
    return CliRunner().invoke(main, ["compare", "--brief", str(root / "brief.json"), *words, *more])


def judged(root: Path, *more: str, arms: tuple[str, ...] = ARMS) -> dict[str, Any]:
    """The verdict, whose exit status says the same."""
    result = compare(root, *more, arms=arms)
    assert result.exit_code != 2, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == EXIT[document["verdict"]]
    assert result.stdout_bytes == canonical(document) + b"\n"
    return document


def refused(root: Path, *more: str, arms: tuple[str, ...] = ARMS) -> str:
    """What is said where nothing can be judged: nothing on standard output, exit status 2."""
    result = compare(root, *more, arms=arms)
    assert (result.exit_code, result.stdout) == (2, ""), result.output[:500]
    return result.stderr.replace(str(root), "ROOT").removeprefix("Error: ").rstrip("\n")


def failed_checks(document: dict[str, Any]) -> list[str]:
    return [one["id"] for one in document["validity"] if one["ok"] is False]


def test_the_verdict_of_directories(evidence: Path) -> None:
    document = judged(evidence)
    assert document["verdict"] == "PASS", (document["sentence"], document["settles"])
    assert (document["nominee"], document["evidence_class"]) == ("eagle-k4", "simulated")
    assert document["code"] == "draftproof.verdict/2"
    assert document["brief"] == digest((evidence / "brief.json").read_bytes())
    manifests = sorted(digest(one.read_bytes()) for one in evidence.rglob("manifest.json"))
    assert document["evidence"] == manifests
    assert len(manifests) == 32
    assert [one["ok"] for one in document["validity"]] == [True] * 13
    assert str(evidence) not in json.dumps(document)


def test_the_first_rules_can_be_asked_for(evidence: Path) -> None:
    said = refused(evidence, "--rules", "draftproof.verdict/1")
    assert said == "draftproof.verdict/1 knows no preemptions"


def test_boots_one_by_one_and_the_same_bytes(evidence: Path) -> None:
    """As a shell writes them for boot-*: one option, several directories; and one option for each."""
    whole = compare(evidence).stdout_bytes
    words = ["compare", "--brief", str(evidence / "brief.json")]
    for arm in ARMS[:2]:
        words += [f"--{arm}", *(str(evidence / arm / f"boot-00{one}") for one in range(1, 5))]
    for arm in ARMS[2:]:
        words += [word for one in range(1, 5) for word in (f"--{arm}", str(evidence / arm / f"boot-00{one}"))]
    assert CliRunner().invoke(main, words).stdout_bytes == whole


def test_a_brief_in_yaml_has_the_same_digest(evidence: Path, tmp_path: Path) -> None:
    written = tmp_path / "brief.yaml"
    written.write_text(yaml.safe_dump(json.loads((evidence / "brief.json").read_bytes())))
    document = judged(evidence, "--brief", str(written))
    assert document["brief"] == judged(evidence)["brief"]


def test_without_a_noise_floor_it_is_inconclusive(evidence: Path) -> None:
    document = judged(evidence, arms=ARMS[:2])
    assert document["verdict"] == "INCONCLUSIVE"
    assert document["settles"][0].startswith("More A/A pairs")


Manifest = dict[str, Any]
Records = list[RequestRecord]
Fault = Callable[[Manifest, Records], Records]


def planted(evidence: Path, root: Path, where: str, fault: Fault) -> Path:
    """A copy in which the trials that match ``where`` are changed, and named by manifests that fit and tell their
    figures: only what was measured can tell."""
    if root != evidence:
        shutil.copytree(evidence, root)
    found = list(root.glob(where))
    assert found
    for place in found:
        manifest = json.loads((place / "manifest.json").read_bytes())
        records = fault(manifest, records_of(read_records(place / "records.parquet")))
        content = records_content(records)
        manifest |= figures_of(records)
        manifest["digests"]["records"] = digest(content)
        for name, written in (("records.parquet", content), ("manifest.json", canonical(manifest))):
            (place / name).unlink()
            (place / name).write_bytes(written)
    return root


def figures_of(records: Records) -> Manifest:
    """What a manifest tells of its records."""
    summary = summarise(records, window_s=60)
    completed = Counter(one.fingerprint for one in measured(records) if one.status == "completed")
    told = {name: summary[name] for name in ("planned", "statuses", "lag_ms")}
    return told | {"fingerprints": named(completed), "warm_up_requests": summary.get("warm_up_requests", 0)}


def lagging(manifest: Manifest, records: Records) -> Records:
    late = 200_000_000
    moments = ("sent_ns", "first_token_ns", "last_token_ns", "ended_ns")
    return [replace(one, **{name: getattr(one, name) + late for name in moments}) for one in records]


def one_missing(manifest: Manifest, records: Records) -> Records:
    return records[:-1]


def failed_and_dropped(manifest: Manifest, records: Records) -> Records:
    """Slow requests left out of records, statuses and count alike."""
    slow = sorted(records, key=lambda one: (one.last_token_ns or 0) - one.planned_ns)[-5:]
    return [one for one in records if one not in slow]


def foreign_fingerprint(manifest: Manifest, records: Records) -> Records:
    return [replace(records[0], fingerprint="f" * 64), *records[1:]]


def reused_server(manifest: Manifest, records: Records) -> Records:
    manifest["engine"]["server_id"] = "the only one"
    return records


def longer_output(manifest: Manifest, records: Records) -> Records:
    longer = [replace(one, output_tokens=round(1.3 * (one.output_tokens or 0))) for one in records]
    engine_counts(manifest, "vllm:generation_tokens_total", sum(one.output_tokens or 0 for one in longer))
    return longer


def engine_counts(manifest: Manifest, name: str, number: float) -> None:
    counters = manifest["counters"]
    counters["difference"][name] = number
    counters["after"][name] = counters["before"][name] + number


def cached(manifest: Manifest, records: Records) -> Records:
    queries = manifest["counters"]["difference"]["vllm:prefix_cache_queries_total"]
    engine_counts(manifest, "vllm:prefix_cache_hits_total", 0.5 * queries)
    return records


def neighbour(manifest: Manifest, records: Records) -> Records:
    manifest["neighbour_cpu_share"] = 0.4
    return records


def fewer_counted(manifest: Manifest, records: Records) -> Records:
    name = "vllm:generation_tokens_total"
    engine_counts(manifest, name, manifest["counters"]["difference"][name] - 7)
    return records


def other_prompt(manifest: Manifest, records: Records) -> Records:
    return [replace(records[0], prompt_sha256="e" * 64), *records[1:]]


FAULTS: dict[str, tuple[str, Fault, str]] = {
    "lag": ("candidate/boot-002/busy", lagging, "client-lag"),
    "a missing request": ("candidate/boot-002/busy", one_missing, "issued"),
    "slow requests dropped": ("candidate/boot-*/*", failed_and_dropped, "issued"),
    "a foreign fingerprint": ("candidate/boot-003/quiet", foreign_fingerprint, "fingerprint"),
    "a reused server": ("*/boot-001/*", reused_server, "fresh-server"),
    "longer output": ("candidate/boot-*/*", longer_output, "output-length"),
    "a cache advantage": ("candidate/boot-*/*", cached, "prefix-cache"),
    "a neighbour": ("baseline/boot-004/quiet", neighbour, "neighbours"),
    "another prompt": ("baseline/boot-001/quiet", other_prompt, "same-requests"),
    "uncounted tokens": ("candidate/boot-001/busy", fewer_counted, "engine-tokens"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_planted_in_a_directory_is_invalid(name: str, evidence: Path, tmp_path: Path) -> None:
    where, fault, check = FAULTS[name]
    document = judged(planted(evidence, tmp_path / "copy", where, fault))
    assert document["verdict"] == "INVALID"
    assert check in failed_checks(document)
    assert document["sentence"].startswith("These measurements can't be judged: ")


def dead_halfway(manifest: Manifest, records: Records) -> Records:
    manifest |= {"died": "the engine died during level busy (exit 137)", "counters": None}
    half = len(records) // 2
    return [*records[:half], *map(failed, records[half:])]


def failed(one: RequestRecord) -> RequestRecord:
    return replace(one, status="failed", first_token_ns=None, last_token_ns=None, output_tokens=None)


def test_an_engine_that_died_is_a_result_in_directories_too(evidence: Path, tmp_path: Path) -> None:
    """What it never got or counted breaks no check, and its whole boot is told as died."""
    document = judged(planted(evidence, tmp_path / "copy", "candidate/boot-002/busy", dead_halfway))
    assert failed_checks(document) == []
    assert [one["ok"] for one in document["validity"] if one["id"] == "engine-tokens"] == [True]
    died = {(one["arm"], one["level"]): one["died"] for one in document["levels"] if one["class"] == "all"}
    assert died == {
        ("baseline", "busy"): 0,
        ("candidate", "busy"): 1,
        ("baseline", "quiet"): 0,
        ("candidate", "quiet"): 1,
    }


def copied(evidence: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(evidence, tmp_path / "copy"))


def test_directories_that_cannot_be_judged_say_why(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    place = root / "candidate" / "boot-002" / "busy"
    files = {name: (place / name).read_bytes() for name in ("manifest.json", "records.parquet", "plan.json")}

    def without(name: str, instead: bytes | None = None) -> str:
        (place / name).unlink()
        if instead is not None:
            (place / name).write_bytes(instead)
        said = refused(root)
        (place / name).unlink(missing_ok=True)
        (place / name).write_bytes(files[name])
        return said

    layout = "a trial's directory holds manifest.json, plan.json and records.parquet, a boot's the directories of its"
    at = "ROOT/candidate/boot-002/busy"
    assert without("records.parquet") == f"{at}/records.parquet is missing: {layout} trials"
    assert without("plan.json") == f"{at}/plan.json is missing: {layout} trials"
    other = (evidence / "candidate" / "boot-001" / "busy" / "records.parquet").read_bytes()
    named = json.loads(files["manifest.json"])["digests"]["records"]
    assert without("records.parquet", other) == (
        f"{at}/records.parquet is not the file that manifest.json beside it names: its SHA-256 is {digest(other)}, "
        f"there it is {named}"
    )
    assert without("manifest.json", b"{}").startswith(f"{at}/manifest.json is no manifest of a trial: evidence_class: ")
    assert judged(root)["verdict"] == "PASS"


def test_a_directory_without_trials_is_named(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    for one in (root / "candidate").rglob("manifest.json"):
        one.unlink()
    assert refused(root).startswith("ROOT/candidate has no manifest.json, and neither has anything in it: ")


def test_unequal_pairs(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    shutil.rmtree(root / "candidate" / "boot-004")
    assert refused(root) == "--baseline has 4 boots and --candidate 3: every pair takes one of each"
    for number in (2, 3, 4):
        shutil.rmtree(root / "baseline" / f"boot-00{number}")
    assert refused(root) == "--baseline has 1 boot and --candidate 3: every pair takes one of each"


def test_one_trial_twice(evidence: Path) -> None:
    words = ("--control-of", str(evidence / "baseline"), "--control", str(evidence / "control"))
    said = refused(evidence, *words, arms=ARMS[:2])
    assert said == "ROOT/baseline/boot-001/busy is named twice: a trial belongs to one boot of one arm"


def test_the_records_of_one_trial_under_two_manifests(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    for name in ("plan.json", "records.parquet", "manifest.json"):
        place = root / "candidate" / "boot-002" / "busy" / name
        content = (root / "candidate" / "boot-001" / "busy" / name).read_bytes()
        if name == "manifest.json":
            content = canonical(json.loads(content) | {"neighbour_cpu_share": 0.01})
        place.unlink()
        place.write_bytes(content)
    assert refused(root) == (
        "ROOT/candidate/boot-002/busy is the same trial as ROOT/candidate/boot-001/busy: name it once"
    )


def test_trials_of_which_nothing_was_sent_may_agree(evidence: Path, tmp_path: Path) -> None:
    """Both arms' engines died before level busy of pair 2: nothing tells the records of their same requests apart."""

    def lost(manifest: Manifest, records: Records) -> Records:
        manifest |= {"died": "the engine died before level busy (exit 137)", "counters": None}
        return [replace(failed(one), status="not_sent", sent_ns=None) for one in records]

    root = planted(evidence, tmp_path / "copy", "*/boot-002/busy", lost)
    assert judged(root)["verdict"] != "PASS"


def test_another_brief(evidence: Path, tmp_path: Path) -> None:
    def for_another(manifest: Manifest, records: Records) -> Records:
        manifest["digests"]["brief"] = "b" * 64
        return records

    root = planted(evidence, tmp_path / "copy", "candidate/boot-001/quiet", for_another)
    mine = digest((root / "brief.json").read_bytes())
    assert refused(root) == f"ROOT/candidate/boot-001/quiet was run for another brief: {'b' * 64}, not {mine}"


def stopped(manifest: Manifest, records: Records) -> Records:
    manifest["stopped"] = True
    return records


def undated(manifest: Manifest, records: Records) -> Records:
    manifest |= {"started_at": "yesterday", "base_url": "http://127.0.0.1:8000"}
    return records


def no_level(manifest: Manifest, records: Records) -> Records:
    manifest["level"]["duration_s"] = -1
    return records


@pytest.mark.parametrize("told", [-0.5, 1.5])
def test_a_load_of_neighbours_that_cannot_be_one_is_refused(told: float, evidence: Path, tmp_path: Path) -> None:
    def loaded(manifest: Manifest, records: Records) -> Records:
        manifest["neighbour_cpu_share"] = told
        return records

    root = planted(evidence, tmp_path / "copy", "candidate/boot-001/quiet", loaded)
    said = f"{AT}/manifest.json: neighbour_cpu_share: {told:g} is no share of the machine, from 0 to 1"
    assert refused(root) == said


def test_a_load_of_neighbours_that_is_no_number_is_refused(evidence: Path, tmp_path: Path) -> None:
    """Written as text: canonical JSON has no NaN, and a manifest from elsewhere may."""
    root = copied(evidence, tmp_path)
    path = root / "candidate" / "boot-001" / "quiet" / "manifest.json"
    content = path.read_text()
    path.unlink()
    path.write_text(re.sub(r'"neighbour_cpu_share":[^,}]+', '"neighbour_cpu_share":NaN', content))
    said = refused(root)
    assert said.startswith(f"{AT}/manifest.json")
    assert "neighbour_cpu_share: nan is no " in said


AT = "ROOT/candidate/boot-001/quiet"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (stopped, f"{AT} was stopped before its end: run it again"),
        (undated, f"{AT}/manifest.json: started_at: 'yesterday' is no time in UTC"),
        (no_level, f"{AT}/manifest.json: level.duration_s: Input should be greater than 0"),
    ],
)
def test_a_manifest_that_cannot_be_used(fault: Fault, said: str, evidence: Path, tmp_path: Path) -> None:
    assert refused(planted(evidence, tmp_path / "copy", "candidate/boot-001/quiet", fault)) == said


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("vllm:num_preemptions_total", "counters.difference.vllm:num_preemptions_total"),
        ("kv_cache_tokens", "engine.kv_cache_tokens"),
        ("neighbour_cpu_share", "neighbour_cpu_share"),
    ],
)
@pytest.mark.parametrize(("word", "number"), [("NaN", "nan"), ("Infinity", "inf"), ("-1e999", "-inf")])
def test_a_number_without_end_is_unusable_and_no_fail(
    field: str, path: str, word: str, number: str, evidence: Path, tmp_path: Path
) -> None:
    def marked(manifest: Manifest, records: Records) -> Records:
        inner: Any = manifest
        *parents, last = path.split(".")
        for one in parents:
            inner = inner[one]
        inner[last] = 123_454_321
        return records

    root = planted(evidence, tmp_path / "copy", "candidate/boot-001/quiet", marked)
    place = root / "candidate" / "boot-001" / "quiet" / "manifest.json"
    text = place.read_text()
    assert text.count(f'"{field}":123454321') == 1
    place.unlink()
    place.write_text(text.replace("123454321", word))
    assert refused(root) == f"{AT}/manifest.json is no manifest of a trial: {path}: {number} is no finite number"


def test_what_nobody_thought_of_is_unusable_and_no_fail(evidence: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overflows(*_: object, **__: object) -> None:
        raise OverflowError("int too large to convert to float")

    with monkeypatch.context() as patch:
        patch.setattr(directories, "trial_evidence", overflows)
        assert refused(evidence) == (
            "ROOT/control-of/boot-001/busy can't be read as evidence: OverflowError: int too large to convert to float"
        )
    monkeypatch.setattr(command, "verdict_content", overflows)
    assert refused(evidence) == (
        "nothing was judged, because of an error of this program: OverflowError: int too large to convert to float"
    )


def test_a_plan_that_is_none(evidence: Path, tmp_path: Path) -> None:
    def no_plan(manifest: Manifest, records: Records) -> Records:
        manifest["digests"]["plan"] = digest(b"{}")
        return records

    root = planted(evidence, tmp_path / "copy", "candidate/boot-001/quiet", no_plan)
    plan = root / "candidate" / "boot-001" / "quiet" / "plan.json"
    plan.unlink()
    plan.write_bytes(b"{}")
    assert refused(root) == f"{AT}/plan.json is no plan of a trial: it lists no requests"


def changed_brief(evidence: Path, tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(json.loads((evidence / "brief.json").read_bytes()) | changes))
    return str(path)


def test_other_traffic_and_other_loads(evidence: Path, tmp_path: Path) -> None:
    traffic = json.loads((evidence / "brief.json").read_bytes())["traffic"]
    other = changed_brief(evidence, tmp_path, traffic=traffic | {"held_out": "9" * 64})
    assert refused(evidence, "--brief", other) == (
        f"ROOT/baseline/boot-001/busy was run on traffic {traffic['held_out']}; the brief's held-out part is {'9' * 64}"
    )
    heavier = changed_brief(evidence, tmp_path, levels=[QUIET, BUSY | {"duration_s": 90}])
    assert refused(evidence, "--brief", heavier) == (
        "ROOT/control-of/boot-001/busy ran level busy, under another load than the brief's level of that name: "
        "duration_s 60, in the brief 90"
    )


def test_a_level_is_known_by_its_load_where_it_has_another_name(evidence: Path, tmp_path: Path) -> None:
    """``draftproof replay`` calls a level by its arrival process."""

    root = copied(evidence, tmp_path)
    for place in root.glob("*/boot-*/*"):
        renamed(place, "poisson")
    assert judged(root)["verdict"] == "PASS"


def renamed(place: Path, level: str) -> None:
    """As if the trial's level had another name: in its plan, its records and its manifest."""
    manifest = json.loads((place / "manifest.json").read_bytes())
    plan = canonical(json.loads((place / "plan.json").read_bytes()) | {"level": level})
    records = records_of(read_records(place / "records.parquet"))
    content = records_content([replace(one, level=level) for one in records])
    manifest["level"]["name"] = level
    manifest["digests"] |= {"plan": digest(plan), "records": digest(content)}
    written = {"plan.json": plan, "records.parquet": content, "manifest.json": canonical(manifest)}
    for name, one in written.items():
        (place / name).unlink()
        (place / name).write_bytes(one)


def test_no_brief_and_no_such_nominee(evidence: Path, tmp_path: Path) -> None:
    broken = tmp_path / "brief.yaml"
    broken.write_text("title: [")
    said = refused(evidence, "--brief", str(broken)).replace(str(tmp_path), "TMP")
    assert said.startswith("TMP/brief.yaml is no brief: not YAML in line 1: ")
    assert refused(evidence, "--nominee", "eagle-k9") == (
        "--nominee eagle-k9 is no candidate of the brief; there are: eagle-k4, eagle-k8"
    )
    # The trials ran the other one: which was meant is said, and the check on fingerprints says what ran.
    assert "fingerprint" in failed_checks(judged(evidence, "--nominee", "eagle-k8"))


def test_a_server_without_identity_cannot_be_shown_to_be_fresh(evidence: Path, tmp_path: Path) -> None:
    def unidentified(manifest: Manifest, records: Records) -> Records:
        del manifest["engine"]["server_id"]
        return records

    document = judged(planted(evidence, tmp_path / "copy", "candidate/boot-002/*", unidentified))
    assert document["verdict"] == "INCONCLUSIVE"
    assert document["settles"] == [
        "The missing figures: Whether each arm had a fresh server is not known: 1 server told no identity."
    ]


def served_by(name: str | None) -> Fault:
    def told(manifest: Manifest, records: Records) -> Records:
        manifest["engine"]["server_id"] = name
        return records

    return told


def fresh(document: dict[str, Any]) -> tuple[str, bool | None, str]:
    found = next(one for one in document["validity"] if one["id"] == "fresh-server")
    return document["verdict"], found["ok"], found["sentence"]


def test_servers_are_told_apart_trial_by_trial(evidence: Path, tmp_path: Path) -> None:
    root = planted(evidence, tmp_path / "silent", "candidate/boot-002/busy", served_by(None))
    said = "Whether each arm had a fresh server is not known: 1 server told no identity."
    assert fresh(judged(root)) == ("INCONCLUSIVE", None, said)
    root = planted(evidence, tmp_path / "two", "candidate/boot-002/busy", served_by("another"))
    said = "More than one boot served the candidate of held-out pair 2."
    assert fresh(judged(root)) == ("INVALID", False, said)


def test_a_server_that_two_boots_share_in_one_trial_each_is_found(evidence: Path, tmp_path: Path) -> None:
    """Whatever their other trials tell, or don't."""
    root = planted(evidence, tmp_path / "copy", "candidate/boot-002/busy", served_by("reused"))
    planted(root, root, "control/boot-003/quiet", served_by("reused"))
    planted(root, root, "candidate/boot-002/quiet", served_by(None))
    planted(root, root, "control/boot-003/busy", served_by(None))
    said = "One server was used for the candidate of held-out pair 2 and for the control of noise-floor pair 3."
    verdict, ok, sentence = fresh(judged(root))
    assert (verdict, ok) == ("INVALID", False)
    assert sentence == said


def test_measured_boots_are_judged_by_their_own_times(evidence: Path, tmp_path: Path) -> None:
    """All of them begin with the epoch here, so they overlap."""

    def dated(manifest: Manifest, records: Records) -> Records:
        manifest["base_url"] = "http://127.0.0.1:8000"
        return records

    document = judged(planted(evidence, tmp_path / "copy", "*/boot-*/*", dated))
    assert "fresh-server" in failed_checks(document)


def test_what_a_replay_does_not_tell_stays_open(evidence: Path, tmp_path: Path) -> None:
    """It knows its client and what came back, and of the engine nothing."""
    orders = {"baseline": arm_orders(4, 5), "control-of": arm_orders(4, 5, arms=A_A_ARMS)}
    of = {"baseline": ("baseline", "baseline"), "candidate": ("baseline", "candidate")}
    of |= {"control-of": ("control-of", "baseline"), "control": ("control-of", "control")}
    root = Path(shutil.copytree(evidence, tmp_path / "copy"))
    for arm, (pairs, name) in of.items():
        for boot in range(4):
            hour = 2 * boot + orders[pairs][boot].index(name) + (0 if pairs == "baseline" else 10)

            def replayed(manifest: Manifest, records: Records, hour: int = hour) -> Records:
                manifest |= {"evidence_class": "imported", "counters": None, "engine": {}, "neighbour_cpu_share": None}
                manifest |= {
                    "base_url": "http://127.0.0.1:8000",
                    "started_at": f"2026-11-30T{hour:02d}:00:00.123456789Z",
                }
                manifest["digests"]["configuration"] = None
                return records

            planted(root, root, f"{arm}/boot-00{boot + 1}/*", replayed)
    document = judged(root, "--nominee", "eagle-k4")
    assert (document["verdict"], document["evidence_class"]) == ("INCONCLUSIVE", "imported")
    unknown = [one["id"] for one in document["validity"] if one["ok"] is None]
    assert unknown == ["engine-tokens", "neighbours", "fresh-server", "prefix-cache"]
    assert refused(root) == (
        "the candidate's trials don't tell which configuration they ran: say which is meant with --nominee "
        "(eagle-k4, eagle-k8)"
    )


def sent_too_early(manifest: Manifest, records: Records) -> Records:
    moments = ("sent_ns", "first_token_ns", "last_token_ns", "ended_ns")
    early = {name: getattr(records[-1], name) - 3_000_000_000 for name in moments}
    return [*records[:-1], replace(records[-1], **early)]


def test_records_that_cannot_be_are_refused_with_file_request_and_field(evidence: Path, tmp_path: Path) -> None:
    said = refused(planted(evidence, tmp_path / "copy", "candidate/boot-001/quiet", sent_too_early))
    assert re.fullmatch(rf"{AT}/records.parquet: request \S+: sent_ns \d+ lies before planned_ns \d+", said), said


def test_a_manifest_that_denies_its_counters_is_refused(evidence: Path, tmp_path: Path) -> None:
    """Negative preemptions were an error of arithmetic without a place."""

    def risen(manifest: Manifest, records: Records) -> Records:
        manifest["counters"]["difference"]["vllm:num_preemptions_total"] = -7
        return records

    assert refused(planted(evidence, tmp_path / "copy", "candidate/boot-001/quiet", risen)) == (
        f"{AT}/manifest.json: counters.difference.vllm:num_preemptions_total is -7, and after − before is 0 (0 − 0)"
    )


def test_pairs_of_two_seeds_over_one_file_are_invalid(evidence: Path, tmp_path: Path) -> None:
    """Both seeds begin with the file's first rows: pairs 1 and 3 have nearly the same requests."""
    root = copied(evidence, tmp_path)
    for arm, more in (("baseline", ()), ("candidate", ("--speculative", json.dumps(EAGLE)))):
        simulated(root, f"{arm}-again", "held-out", *more, seed=9)
        for number in (3, 4):
            shutil.rmtree(root / arm / f"boot-00{number}")
            shutil.copytree(root / f"{arm}-again" / f"boot-00{number - 2}", root / arm / f"boot-00{number}")
    document = judged(root)
    assert "pairs" in failed_checks(document)
    found = next(one for one in document["validity"] if one["id"] == "pairs")
    assert re.fullmatch(
        r"\d+\.\d % of the requests of held-out pair \d came in another pair too \(limit 10\.0 %\), most of them in "
        r"pair \d: each pair has its own\.",
        found["sentence"],
    ), found["sentence"]
    assert found["number"] > found["limit"] == 0.1


def test_pairs_of_the_noise_floor_may_share_requests_and_it_is_said(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    whole = (root / "tuning.jsonl").read_bytes().splitlines(keepends=True)
    (root / "tuning.jsonl").write_bytes(b"".join(whole[:400]))
    for arm, more in (("control-of", ("--wrap",)), ("control", ("--wrap", "--control"))):
        shutil.rmtree(root / arm)
        simulated(root, arm, "tuning", *more, seed=4)
    (root / "brief.json").unlink()
    (root / "brief.json").write_bytes(parse_brief(a_brief(root)).content)
    document = judged(root)
    found = next(one for one in document["validity"] if one["id"] == "control")
    assert found["ok"] is True
    assert re.search(
        r" \d+\.\d % of the requests of pair \d came in another one too: such pairs may differ by less than held-out "
        r"ones\.$",
        found["sentence"],
    ), found["sentence"]


def test_evidence_that_would_be_left_out_is_named(evidence: Path, tmp_path: Path) -> None:
    layout = "a trial's directory holds manifest.json, plan.json and records.parquet, a boot's the directories of its"
    root = copied(evidence, tmp_path)
    place = root / "candidate" / "boot-002" / "busy"
    (place / "manifest.json").rename(tmp_path / "manifest.json")
    assert refused(root) == f"ROOT/candidate/boot-002/busy/manifest.json is missing: {layout} trials"
    for name in ("plan.json", "records.parquet"):
        (place / name).unlink()
    assert refused(root) == f"ROOT/candidate/boot-002/busy is empty: {layout} trials"
    shutil.rmtree(place)
    (root / "candidate" / "boot-003").rename(root / "candidate" / "boot-002" / "boot-003")
    assert refused(root) == (
        f"ROOT/candidate/boot-002/boot-003/busy is a trial within another trial or boot, where none is read: {layout} "
        "trials"
    )


def test_other_files_beside_the_evidence_are_nobodys_business(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    (root / "candidate" / "pictures").mkdir()
    (root / "candidate" / "pictures" / "boots.svg").write_text("<svg/>")
    (root / "candidate" / ".cache").mkdir()
    assert judged(root) == judged(evidence)


def test_a_pair_that_is_not_complete_is_named(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    shutil.rmtree(root / "candidate" / "boot-002" / "busy")
    for arm in ARMS[:2]:
        shutil.rmtree(root / arm / "boot-004")
    document = judged(root)
    assert document["verdict"] == "INCONCLUSIVE"
    assert document["settles"][0] == (
        "The rest of the planned pairs: 2 of 4 planned pairs are complete, at every level "
        "(missing: the candidate at busy of pair 2, pair 4)."
    )


def test_arms_the_other_way_are_called_that(evidence: Path) -> None:
    words = ("--baseline", str(evidence / "candidate"), "--candidate", str(evidence / "baseline"))
    assert refused(evidence, *words, arms=()) == (
        "the candidate's trials ran the brief's baseline: name --baseline and --candidate the other way"
    )


def test_two_levels_of_one_load_need_their_names(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    renamed(root / "candidate" / "boot-001" / "quiet", "poisson")
    twice = changed_brief(root, tmp_path, levels=[QUIET, BUSY, QUIET | {"name": "night"}])
    assert refused(root, "--brief", twice) == (
        f"{AT} ran level poisson, and the brief has 2 levels with this load, none of that name: quiet, night"
    )


def planned_anew(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another plan of a trial, with records of its rows and ids, and a manifest that names both."""
    plan = json.loads((place / "plan.json").read_bytes())
    change(plan)
    manifest = json.loads((place / "manifest.json").read_bytes())
    records = records_of(read_records(place / "records.parquet"))
    told = zip(records, plan["requests"], strict=True)
    content = records_content([replace(one, request_id=request[0], row=request[1]) for one, request in told])
    manifest["digests"] |= {"plan": digest(canonical(plan)), "records": digest(content)}
    written = {"plan.json": canonical(plan), "records.parquet": content, "manifest.json": canonical(manifest)}
    for name, one in written.items():
        (place / name).unlink()
        (place / name).write_bytes(one)


def renumbered(plan: dict[str, Any]) -> None:
    for request in plan["requests"]:
        request[1] += 10_000


def test_a_pair_that_is_another_ones_rows_under_new_numbers_is_refused(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    for arm in ("baseline", "candidate"):
        for number, level in ((number, level) for number in (1, 2) for level in ("quiet", "busy")):
            if number == 2:
                shutil.rmtree(root / arm / "boot-002" / level)
                shutil.copytree(root / arm / "boot-001" / level, root / arm / "boot-002" / level)
                planned_anew(root / arm / "boot-002" / level, renumbered)
    assert refused(root) == (
        "ROOT/baseline/boot-002/busy/plan.json: 100.0 % of its requests are those of other rows under another number: "
        "a part has each of its rows once"
    )


def test_a_row_has_one_text_in_every_plan(evidence: Path, tmp_path: Path) -> None:
    def other_text(plan: dict[str, Any]) -> None:
        plan["requests"][3][2] = "e" * 64

    root = copied(evidence, tmp_path)
    planned_anew(root / "candidate" / "boot-002" / "busy", other_text)
    said = refused(root)
    assert re.fullmatch(
        r"ROOT/\S+/boot-002/busy/plan.json: row \d+ has another SHA-256 than in ROOT/\S+/boot-002/busy/plan.json: both "
        "are of one part of the traffic",
        said,
    ), said


def drafting(manifest: Manifest, records: Records) -> Records:
    return [replace(records[0], rounds=3, draft_tokens=12, accepted_tokens=4), *records[1:]]


def counting_drafts(manifest: Manifest, records: Records) -> Records:
    for part in ("after", "difference"):
        manifest["counters"][part]["vllm:spec_decode_num_drafts_total"] = 7.0
    manifest["counters"]["before"]["vllm:spec_decode_num_drafts_total"] = 0.0
    return records


def started_with(*words: str) -> Fault:
    def command(manifest: Manifest, records: Records) -> Records:
        manifest["engine"]["command"] = ["python", "-m", "vllm.entrypoints.openai.api_server", *words]
        return records

    return command


WITHOUT = "a baseline is a server that was started without speculation"


@pytest.mark.parametrize(
    ("arm", "fault", "said"),
    [
        (
            "baseline",
            drafting,
            rf"records.parquet: request \S+: draft_tokens is 12, and the trial is of the baseline: {WITHOUT}",
        ),
        (
            "baseline",
            counting_drafts,
            "manifest.json: counters: vllm:spec_decode_num_drafts_total is 7, and the trial is of the baseline: "
            f"{WITHOUT}",
        ),
        (
            "control",
            started_with("--speculative-config", "{}"),
            f"manifest.json: engine.command starts speculation, and the trial is of the control: {WITHOUT}",
        ),
        (
            "candidate",
            started_with(),
            "manifest.json: engine.command starts no speculation, and the trial is a candidate's",
        ),
    ],
)
def test_each_arm_is_what_it_is_called(arm: str, fault: Fault, said: str, evidence: Path, tmp_path: Path) -> None:
    root = planted(evidence, tmp_path / "copy", f"{arm}/boot-002/busy", fault)
    found = refused(root)
    assert re.fullmatch(f"ROOT/{arm}/boot-002/busy/{said}", found), found


@pytest.mark.parametrize(
    ("arm", "words"), [("candidate", ["start.sh"]), ("baseline", ["start.sh", "--speculative=off"])]
)
def test_what_a_hook_starts_a_remote_engine_with_nobody_knows(
    arm: str, words: list[str], evidence: Path, tmp_path: Path
) -> None:
    def hooked(manifest: Manifest, records: Records) -> Records:
        manifest["engine"] |= {"command": words, "details": {"base_url": "http://gpu.example:8000"}}
        return records

    assert judged(planted(evidence, tmp_path / "copy", f"{arm}/boot-*/*", hooked))["verdict"] == "PASS"


def test_boots_that_nothing_disturbs_may_be_as_fast_as_each_other(evidence: Path, tmp_path: Path) -> None:
    """Of a model without nuisances, baseline and control are alike to the nanosecond."""
    root = copied(evidence, tmp_path)
    model = json.loads((root / "model.json").read_bytes())
    model["nuisances"] |= {"boot_sd": 0, "drift_sd_per_hour": 0, "pauses_per_hour": 0}
    (root / "model.json").unlink()
    (root / "model.json").write_bytes(canonical(model))
    for arm in ARMS:
        shutil.rmtree(root / arm)
    simulated(root, "baseline", "held-out")
    simulated(root, "candidate", "held-out", "--speculative", json.dumps(EAGLE))
    simulated(root, "control-of", "tuning", seed=4)
    simulated(root, "control", "tuning", "--control", seed=4)
    first, second = (digest((root / arm / "boot-001/busy/records.parquet").read_bytes()) for arm in ARMS[2:])
    assert first == second
    (root / "brief.json").unlink()
    (root / "brief.json").write_bytes(parse_brief(a_brief(root)).content)
    document = judged(root)
    assert [one["values"] for one in document["noise_floor"]["cells"]] == [[0, 0, 0, 0]]
    assert document["verdict"] == "PASS"


def measured_elsewhere(manifest: Manifest, records: Records) -> Records:
    manifest |= {"evidence_class": "measured", "base_url": "http://127.0.0.1:8000", "engine": {"server_id": "s"}}
    return records


def test_nobody_measures_an_engine_that_the_brief_calls_simulated(evidence: Path, tmp_path: Path) -> None:
    root = planted(evidence, tmp_path / "copy", "candidate/boot-002/busy", measured_elsewhere)
    assert refused(root) == (
        "ROOT/candidate/boot-002/busy/manifest.json: evidence_class is measured, and the brief's configuration runs a "
        "simulated engine"
    )


def test_two_measurements_never_take_the_same_nanoseconds(evidence: Path, tmp_path: Path) -> None:
    """A copy, under another server's name."""

    def replayed(manifest: Manifest, records: Records) -> Records:
        manifest |= {"base_url": "http://127.0.0.1:8000", "evidence_class": "imported", "engine": {}}
        return [replace(one, server_queue_ms=None) for one in records]

    def copy(manifest: Manifest, records: Records) -> Records:
        return [replace(one, output_sha256="a" * 64) for one in replayed(manifest, records)]

    root = copied(evidence, tmp_path)
    shutil.rmtree(root / "control" / "boot-001" / "quiet")
    shutil.copytree(root / "control-of" / "boot-001" / "quiet", root / "control" / "boot-001" / "quiet")
    planted(root, root, "control-of/boot-001/quiet", replayed)
    planted(root, root, "control/boot-001/quiet", copy)
    assert refused(root) == (
        "ROOT/control/boot-001/quiet/records.parquet: every answer took the same nanoseconds as in "
        "ROOT/control-of/boot-001/quiet/records.parquet: one is a copy of the other"
    )


def other_memory(manifest: Manifest, records: Records) -> Records:
    manifest["engine"]["kv_cache_tokens"] += 16
    return records


def test_one_server_tells_one_start(evidence: Path, tmp_path: Path) -> None:
    assert refused(planted(evidence, tmp_path / "copy", "candidate/boot-002/busy", other_memory)) == (
        "ROOT/candidate/boot-002/quiet/manifest.json: engine.kv_cache_tokens is another than in "
        "ROOT/candidate/boot-002/busy/manifest.json, and the server is the same"
    )


def told_dead(manifest: Manifest, records: Records) -> Records:
    manifest |= {"died": "the engine died during level busy (exit 137)", "counters": None}
    manifest |= {"neighbour_cpu_share": None, "warm_up": {"planned": 4, "completed": 3, "errors": ["failed: why"]}}
    return records


def one_failed(manifest: Manifest, records: Records) -> Records:
    """Long before the last answer came."""
    return [replace(failed(records[0]), output_tokens=None), *records[1:]]


@pytest.mark.parametrize("shows", [lambda manifest, records: records, one_failed])
def test_a_death_that_no_request_shows_excuses_nothing(shows: Fault, evidence: Path, tmp_path: Path) -> None:
    def dead(manifest: Manifest, records: Records) -> Records:
        return shows(manifest, told_dead(manifest, records))

    document = judged(planted(evidence, tmp_path / "copy", "candidate/boot-002/busy", dead))
    answers = {one["id"]: one["ok"] for one in document["validity"]}
    assert (answers["warm-up"], answers["engine-tokens"], answers["neighbours"]) == (False, None, None)
    assert document["verdict"] == "INVALID"


def test_a_death_excuses_no_counter_below_the_answers(evidence: Path, tmp_path: Path) -> None:
    def dead(manifest: Manifest, records: Records) -> Records:
        counted = manifest["counters"]
        records = dead_halfway(manifest, records)
        manifest["counters"] = counted
        engine_counts(manifest, "vllm:generation_tokens_total", 5)
        return records

    document = judged(planted(evidence, tmp_path / "copy", "candidate/boot-002/busy", dead))
    assert "engine-tokens" in failed_checks(document)


def test_what_is_missing_before_a_death_stays_missing(evidence: Path, tmp_path: Path) -> None:
    def silent(manifest: Manifest, records: Records) -> Records:
        manifest |= {"neighbour_cpu_share": None}
        return records

    root = planted(evidence, tmp_path / "copy", "candidate/boot-002/busy", dead_halfway)
    document = judged(planted(root, root, "candidate/boot-002/quiet", silent))
    assert [one["ok"] for one in document["validity"] if one["id"] == "neighbours"] == [None]


def test_a_candidate_that_never_drafted_passes_nothing(evidence: Path, tmp_path: Path) -> None:
    def undrafted(manifest: Manifest, records: Records) -> Records:
        for name in [name for name in manifest["counters"]["difference"] if name.startswith("vllm:spec_decode")]:
            engine_counts(manifest, name, 0)
        nothing: dict[str, Any] = {"rounds": 0, "draft_tokens": 0, "accepted_tokens": 0, "accepted_histogram": None}
        return [replace(one, **nothing) for one in records]

    assert refused(planted(evidence, tmp_path / "copy", "candidate/boot-*/*", undrafted)) == (
        "the candidate drafted no token in any held-out trial, so what was measured is no speculation: look in its "
        "engine's log for why none was proposed, and measure again"
    )


def test_two_boots_of_one_number_are_refused(evidence: Path, tmp_path: Path) -> None:
    root = copied(evidence, tmp_path)
    (root / "candidate" / "boot-002").rename(root / "candidate" / "boot-1")
    assert refused(root) == "ROOT/candidate: boot-001 and boot-1 have one number: name them so that their order is told"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"rule": {"seed": 5, "confidence": 0.500001}},
            "rule.confidence: 0.500001 is below 0.8: more than one in five would be decided by chance",
        ),
        (
            {"deadlines": {"all": {"first_token_s": 2, "completion_s": 6}}},
            "deadlines.all: 'all' stands for all classes",
        ),
        ({"levels": [QUIET, BUSY | {"warm_up_s": True}]}, "levels.1.warm_up_s: Input should be a valid number"),
        ({"peak": ""}, "level '' is used but not among the levels"),
    ],
)
def test_numbers_and_names_of_a_brief_have_bounds(
    change: dict[str, Any], said: str, evidence: Path, tmp_path: Path
) -> None:
    path = changed_brief(evidence, tmp_path, **change)
    found = refused(evidence, "--brief", path)
    assert found.startswith(f"{path} is no brief: ")
    assert said in found
