"""How long a verdict on 1,000,000 records takes, and how much memory, in a fresh process: ``make bench``. Exits 1 if it
takes more than it may."""

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from decisions.commands.boots import Place
from decisions.commands.compare import arms_in, brief_in
from decisions.commands.directories import evidence_in
from decisions.rules.brief import Brief, parse_brief
from decisions.rules.verdict import verdict_content
from loadtests.canonical import canonical, digest
from loadtests.evidence.manifest import (
    Digests,
    Manifest,
    counters_around,
    manifest_content,
    this_client,
    this_host,
    timestamp,
)
from loadtests.evidence.records import RequestRecord, records_content
from loadtests.evidence.summary import summarise
from loadtests.statistics.order import A_A_ARMS, ARMS, arm_orders
from loadtests.traffic.arrivals import derived_seed
from loadtests.traffic.plan import level_times_ns
from loadtests.traffic.planned import plan_document

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
PAIRS, LEVELS = 4, ("quiet", "peak")
# Held-out and noise floor, two arms each.
TRIALS = PAIRS * len(LEVELS) * 4
RECORDS = 1_000_000
# A trial draws how many: enough that together they are a million.
A_TRIAL = round(1.002 * RECORDS / TRIALS)
WINDOW_S = 300.0
MOST_S, MOST_MB = 3.0, 1_000.0
REPEATS = 5
NANOSECONDS = 1_000_000_000
CLASSES = ("chat", "code", "rewrite")


def a_brief() -> Brief:
    levels = [
        {"name": name, "arrival": {"process": "poisson", "rate": A_TRIAL / WINDOW_S}, "duration_s": WINDOW_S}
        for name in LEVELS
    ]
    cell = {"level": "peak"}
    rails = [
        {"id": "failed", "metric": "failed_share", "kind": "absolute", "cell": cell, "limit": 0.01},
        {"id": "p99", "metric": "completion_quantile", "kind": "absolute", "cell": cell, "limit": 9, "quantile": 0.99},
        {
            "id": "first",
            "metric": "first_token_quantile",
            "kind": "relative",
            "cell": cell,
            "limit": 0.2,
            "quantile": 0.9,
        },
        {"id": "late", "metric": "late_share", "kind": "relative", "cell": {"level": "quiet"}, "limit": 0.02},
    ]
    outcome = {
        "metric": "attainment",
        "improve_in": [cell],
        "minimum_improvement": 0.01,
        "non_inferiority_margin": 0.01,
    }
    return parse_brief(
        {
            "schema": "draftproof.brief/1",
            "title": "A million requests",
            "service": "benchmark",
            "route": "chat",
            "question": "How long does a verdict on a million records take?",
            "population": "Records made up for a benchmark",
            "decision_owner": "owner",
            "baseline": {
                "runtime": {"engine": "vllm", "version": "0.32.0"},
                "target": {"name": "target", "weights_sha256": "a" * 64, "tokenizer_sha256": "b" * 64},
                "hardware": {"pool": "cpu", "accelerator": "cpu"},
            },
            "candidates": [{"name": "ngram-4", "speculative": {"method": "ngram", "num_speculative_tokens": 4}}],
            "traffic": {"name": "demo", "set": "1" * 64, "tuning": "2" * 64, "held_out": "3" * 64},
            "levels": levels,
            "peak": "peak",
            "deadlines": {"default": {"first_token_s": 2, "completion_s": 6}},
            "outcome": outcome,
            "guardrails": rails,
            "rule": {"seed": 1},
            "budget_engine_minutes": 600,
            "fallback_plan": "Requests queue at peak; admission is reduced.",
        }
    )


def luck(*of: int) -> float:
    """A share of 1 that looks drawn, and is the same in every run."""
    mixed = 0
    for one in of:
        mixed = (mixed * 1_000_003 + one + 12_345) * 2_654_435_761 % 2**32
    return mixed / 2**32


def record(place: Place, level: str, number: int, planned: int, speed: float, fingerprint: str) -> RequestRecord:
    """Every column that can have one has a value, and the digests don't compress."""
    pair = place.pair
    alone = 0.5 + 6.5 * luck(pair, LEVELS.index(level), number) ** 2
    last = planned + round(speed * alone * NANOSECONDS)
    row = (pair * len(LEVELS) + LEVELS.index(level)) * 2 * A_TRIAL + number
    told = acceptance(number) if place.arm == "candidate" else None
    return RequestRecord(
        request_id=f"{level}-{row:07d}",
        row=row,
        class_=CLASSES[row % 3],
        level=level,
        prompt_sha256=digest(str(row).encode()),
        prompt_tokens=200 + number % 300,
        planned_ns=planned,
        sent_ns=planned + 5_000 + number % 977,
        first_token_ns=planned + round(0.1 * alone * NANOSECONDS),
        last_token_ns=last,
        ended_ns=last + 1_000,
        server_queue_ms=1.5 + number % 7,
        server_prefill_ms=20.25 + number % 11,
        server_decode_ms=30.0 + number % 13,
        status="completed",
        finish_reason="stop",
        output_tokens=64 + number % 100,
        chunks=60 + number % 4,
        rounds=sum(told) if told else None,
        draft_tokens=4 * sum(told) if told else None,
        accepted_tokens=sum(kept * rounds for kept, rounds in enumerate(told)) if told else None,
        accepted_histogram=told,
        output_sha256=digest(f"{row} {speed}".encode()),
        error=None,
        fingerprint=fingerprint,
        due_ns=planned,
    )


def acceptance(number: int) -> list[int]:
    return [10, 5, 5, number % 10]


def write(brief: Brief, place: Place, level: str, number: int, directory: Path) -> None:
    """One trial, in the layout of ``draftproof replay`` and ``draftproof simulate``."""
    configuration = brief.configuration(place.candidate or "baseline").digest
    speed = (0.8 if place.arm == "candidate" else 1.0) * (1 + 0.01 * luck(number))
    seed = derived_seed(place.purpose, place.pair, level)
    times = level_times_ns(brief.level(level), seed=seed, recorded_ns=())
    records = [record(place, level, one, at, speed, configuration) for one, at in enumerate(times)]
    tokens = sum(one.output_tokens or 0 for one in records)
    difference = {
        "vllm:generation_tokens_total": float(tokens),
        "vllm:prefix_cache_queries_total": 1e6,
        "vllm:prefix_cache_hits_total": 2e5,
        "vllm:num_preemptions_total": 0.0,
    }
    if place.arm == "candidate":
        drafted = [("num_drafts", "rounds"), ("num_draft_tokens", "draft_tokens")]
        drafted += [("num_accepted_tokens", "accepted_tokens")]
        counted = {name: float(sum(getattr(one, told) or 0 for one in records)) for name, told in drafted}
        difference |= {f"vllm:spec_decode_{name}_total": one for name, one in counted.items()}
    requests = [[one.request_id, one.row, one.prompt_sha256, one.planned_ns] for one in records]
    plan = canonical(plan_document(brief.level(level)) | {"requests": requests})
    content = records_content(records)
    summary = summarise(records, window_s=WINDOW_S)
    manifest = Manifest(
        evidence_class="measured",
        level=brief.level(level).model_dump(mode="json"),
        base_url="http://127.0.0.1:8000/v1",
        model="target",
        started_at=timestamp((1_800_000_000 + 3_600 * number) * NANOSECONDS),
        window_s=WINDOW_S,
        drain_s=30,
        stopped=False,
        digests=Digests(plan=digest(plan), records=digest(content), configuration=configuration),
        planned=summary["planned"],
        statuses=summary["statuses"],
        lag_ms=summary["lag_ms"],
        fingerprints={configuration: len(records)},
        seeds={"segment": seed},
        engine={"server_id": f"{place.name}", "kv_cache_tokens": 90_000},
        counters=counters_around(dict.fromkeys(difference, 0.0), difference),
        client=this_client(["benchmark"]),
        neighbour_cpu_share=0.01,
    )
    directory.mkdir(parents=True)
    for name, written in (("plan.json", plan), ("records.parquet", content)):
        (directory / name).write_bytes(written)
    (directory / "manifest.json").write_bytes(manifest_content(manifest))


def write_all(brief: Brief, root: Path) -> None:
    """Boots in the order that the brief drew, an hour apart."""
    number = 0
    for purpose, arms in (("noise-floor", A_A_ARMS), ("held-out", ARMS)):
        for pair, order in enumerate(arm_orders(PAIRS, brief.rule.seed, arms=arms)):
            for arm in order:
                place = Place(purpose, pair, arm, "ngram-4" if arm == "candidate" else None)  # type: ignore[arg-type]
                for level in LEVELS:
                    write(brief, place, level, number, directory(root, purpose, arm) / f"boot-{pair + 1}" / level)
                number += 1
    (root / "brief.json").write_bytes(brief.content)


def directory(root: Path, purpose: str, arm: str) -> Path:
    return root / f"{purpose}-{arm}"


def judge(root: Path) -> dict[str, Any]:
    """What ``draftproof compare`` does, from the files to the verdict's bytes."""
    begun = time.perf_counter()
    brief, content = brief_in(root / "brief.json")
    before, after = ([directory(root, "held-out", arm)] for arm in ARMS)
    control_of, control = ([directory(root, "noise-floor", arm)] for arm in A_A_ARMS)
    name, boots = arms_in(brief, before, after, control_of, control, None)
    trials = evidence_in(brief, boots)
    read = time.perf_counter()
    evidence = [one.manifest_sha256 for boot in boots for one in boot.trials]
    document = json.loads(verdict_content(content, name, trials, evidence))
    ended = time.perf_counter()
    return {
        "records": sum(len(one.columns["row"]) for one in trials),
        "trials": len(trials),
        "verdict": document["verdict"],
        "sentence": document["sentence"],
        "seconds": round(ended - begun, 2),
        "reading_s": round(read - begun, 2),
        "judging_s": round(ended - read, 2),
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000),
    }


def measure() -> dict[str, Any]:
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="draftproof-bench-") as at:
        write_all(a_brief(), Path(at))
        judging = [sys.executable, __file__, "--judge", at]
        runs = [subprocess.run(judging, check=True, capture_output=True, text=True) for _ in range(REPEATS)]
    host = this_host()
    machine = {"processor": host.processor, "cores": host.logical_cpus, "python": platform.python_version()}
    found: list[dict[str, Any]] = sorted((json.loads(one.stdout) for one in runs), key=lambda one: one["seconds"])
    apart = {"fastest_s": found[0]["seconds"], "slowest_s": found[-1]["seconds"]}
    return {"machine": machine, "load_before": load} | found[REPEATS // 2] | apart


def page(found: dict[str, Any]) -> str:
    machine = found["machine"]
    return f"""# Verdict

Written by `make bench` (`tests/benchmarks/verdict.py`): the verdict of a brief with four guardrails and three
classes, on {found["trials"]} trials in directories, four held-out pairs and four of the noise floor, as
`draftproof compare` computes it, in a fresh process. Reading holds each file against the digest that its manifest
names. Shown is the middle of {REPEATS} runs, which took {found["fastest_s"]:g} to {found["slowest_s"]:g} s.

Machine: {machine["processor"]}, {machine["cores"]} cores, Python {machine["python"]}; load before the run
{found["load_before"]}.

| records | reading | judging | together | at most | memory | at most |
|---:|---:|---:|---:|---:|---:|---:|
| {found["records"]:,} | {found["reading_s"]} s | {found["judging_s"]} s | {found["seconds"]} s | {MOST_S:g} s | \
{found["memory_mb"]:,} MB | {MOST_MB:,.0f} MB |
"""


def main() -> int:
    if sys.argv[1:2] == ["--judge"]:
        print(json.dumps(judge(Path(sys.argv[2]))))
        return 0
    found = measure()
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "verdict.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / "verdict.md").write_text(page(found), encoding="utf-8")
    print(page(found))
    return 0 if found["seconds"] <= MOST_S and found["memory_mb"] <= MOST_MB else 1


if __name__ == "__main__":
    sys.exit(main())
