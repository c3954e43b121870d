"""How long imports take and how much memory, each in a fresh process: ``make bench``. Exits 1 beyond a limit.

Not collected by pytest: a figure of time is no test on a busy machine.
"""

import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.evidence.manifest import this_host

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
PANDAS = ROOT / ".venv-bench" / "bin" / "python"
SEED = 1
TRACE_ROWS, TEXT_ROWS = 1_000_000, 100_000
TEXT_CHARACTERS = 650
NEAR_DUPLICATES = 0.02
READ_CSV = """
import json, sys, time
import pandas
begun = time.perf_counter()
assert len(pandas.read_csv(sys.argv[1])) == int(sys.argv[2])
seconds = time.perf_counter() - begun
(peak_kb,) = (int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
peak_mb = round(peak_kb * 1.024e-3, 1)
print(json.dumps({"version": pandas.__version__, "seconds": round(seconds, 2), "peak_mb": peak_mb}))
"""
NAMES = {
    "trace": "Azure CSV: imported, sorted, split, digested",
    "text": "real text of about 650 characters, with the search for near-duplicates",
}


@dataclass(frozen=True)
class Limit:
    seconds: float
    peak_mb: float


LIMITS = {"trace": Limit(20, 600), "text": Limit(60, 1000)}


def write_trace(path: Path, rows: int, seed: int) -> None:
    """An Azure-format CSV: a week of arrivals, whose rate changes with every 500 requests, and lengths spread wide."""
    rng = np.random.default_rng(seed)
    lulls = rng.gamma(0.5, 2.0, rows // 500 + 1).repeat(500)[:rows]
    gaps = rng.exponential(0.1, rows) / np.maximum(lulls, 0.05)
    times = np.datetime64("2024-05-10T00:00:00", "ns") + (np.cumsum(gaps) * 1e9).astype("timedelta64[ns]")
    prompts = np.clip(rng.lognormal(6.5, 1.2, rows), 1, 100_000).astype(int)
    outputs = np.clip(rng.lognormal(4.5, 1.0, rows), 1, 4_000).astype(int)
    written = np.char.replace(np.datetime_as_string(times.astype("datetime64[us]")), "T", " ")
    with path.open("w", encoding="ascii") as out:
        out.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for at, prompt, output in zip(written.tolist(), prompts.tolist(), outputs.tolist(), strict=True):
            out.write(f"{at}+00:00,{prompt},{output}\n")


def write_text(path: Path, rows: int, seed: int) -> None:
    """Our own JSONL: sentences of the demo's traffic, recombined; some prompts are an earlier one, a word changed."""
    rng = random.Random(seed)
    said, arrival = list[str](), 0.0
    sentences = demo_sentences()
    with path.open("w", encoding="utf-8") as out:
        for number in range(rows):
            arrival += rng.expovariate(5)
            near = said and rng.random() < NEAR_DUPLICATES
            prompt = changed(rng.choice(said), number, rng) if near else recombined(sentences, rng)
            said.append(prompt)
            row = {"id": f"q{number}", "arrival_s": round(arrival, 6), "prompt": prompt, "max_tokens": 64}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def demo_sentences() -> list[str]:
    lines = (ROOT / "loadtests" / "demo" / "support_assistant.jsonl").read_text(encoding="utf-8").splitlines()
    contents = {message["content"] for line in lines for message in json.loads(line)["messages"]}
    return sorted(
        {sentence for one in contents for sentence in one.replace("\n", " ").split(". ") if len(sentence) > 20}
    )


def recombined(sentences: list[str], rng: random.Random) -> str:
    said = list[str]()
    while sum(map(len, said)) < TEXT_CHARACTERS:
        said.append(rng.choice(sentences))
    return ". ".join(said)


def changed(prompt: str, number: int, rng: random.Random) -> str:
    words = prompt.split(" ")
    words[rng.randrange(len(words))] = f"word{number}"
    return " ".join(words)


def measure_import(path: Path, var: Path) -> dict[str, Any]:
    """In this process, which must be fresh: the peak is the process's own."""
    os.environ["DRAFTPROOF_VAR"] = str(var)
    os.environ["DATABASE_URL"] = ""
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    sys.path.insert(0, str(ROOT))
    import django

    django.setup()
    from django.core.management import call_command

    from loadtests.services.import_traffic import import_traffic

    call_command("migrate", verbosity=0)
    begun = time.perf_counter()
    created = import_traffic(path=path, name=path.name, by="benchmark")
    return measured(time.perf_counter() - begun) | {
        "rows": created.rows,
        "parts": {part.kind: part.rows for part in created.parts.order_by("kind")},
        "conversations_joined": created.split["near_duplicates"]["conversations_joined"],
    }


def measured(seconds: float) -> dict[str, Any]:
    """The processor's seconds tell how much of the time others took; they include the start of the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Not ru_maxrss, which a process takes over from the one that started it.
    status = Path("/proc/self/status").read_text().splitlines()
    (peak_kb,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(peak_kb * 1.024e-3, 1),
    }


def in_fresh_process(code: list[str]) -> dict[str, Any]:
    told = subprocess.run(code, check=True, capture_output=True, text=True).stdout
    figures: dict[str, Any] = json.loads(told.splitlines()[-1])
    return figures


def measure_pandas(path: Path, rows: int) -> dict[str, Any] | None:
    if not PANDAS.exists():
        return None
    return in_fresh_process([str(PANDAS), "-c", READ_CSV, str(path), str(rows)])


def run(directory: Path) -> dict[str, Any]:
    trace, text = directory / "trace.csv", directory / "text.jsonl"
    write_trace(trace, TRACE_ROWS, SEED)
    write_text(text, TEXT_ROWS, SEED)
    found = {}
    for name, path in {"trace": trace, "text": text}.items():
        figures = in_fresh_process([sys.executable, __file__, "--import", str(path), str(directory / f"var-{name}")])
        figures["rows_per_s"] = round(figures["rows"] / figures["seconds"])
        figures["file_mb"] = round(path.stat().st_size / 1e6, 1)
        limit = LIMITS[name]
        within = figures["seconds"] <= limit.seconds and figures["peak_mb"] <= limit.peak_mb
        found[name] = {**figures, "limit": asdict(limit), "within": within}
    pandas = measure_pandas(trace, TRACE_ROWS)
    if pandas:
        pandas["ratio"] = round(found["trace"]["seconds"] / pandas["seconds"], 1)
    return {"machine": machine(), "imports": found, "pandas_read_csv": pandas}


def machine() -> dict[str, Any]:
    host = this_host()
    return {
        "processor": host.processor,
        "cores": host.logical_cpus,
        "memory_gb": round(host.memory_bytes / 1e9, 1),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def page(found: dict[str, Any]) -> str:
    one, pandas = found["machine"], found["pandas_read_csv"]
    lines = [
        "# Imports",
        "",
        "Written by `make bench`: each import in a fresh process, with an embedded database and an evidence store of",
        "its own; time from the file to the set in the database, the process's peak memory. The files are made by a",
        "seed (`tests/benchmarks/traffic.py`).",
        "",
        f"Machine: {one['processor']}, {one['cores']} cores, {one['memory_gb']:g} GB memory, Python {one['python']}; "
        f"load before the run {one['load_before']:g}.",
        "",
        "| | rows | file | time | limit | of the processor | peak memory | limit | rows per second |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(table_row(name, found["imports"][key]) for key, name in NAMES.items()),
    ]
    if pandas:
        lines += [
            f"| `pandas.read_csv` of the Azure CSV | {TRACE_ROWS:,} | | {pandas['seconds']:.1f} s | "
            f"| | {pandas['peak_mb']:.0f} MB | | {TRACE_ROWS / pandas['seconds']:,.0f} |",
            "",
            f"pandas {pandas['version']} only parses the file into columns: times stay texts, and nothing is checked,",
            f"sorted, split, digested or stored. The import takes {pandas['ratio']:g} times as long.",
        ]
    return "\n".join(lines) + "\n"


def table_row(name: str, figures: dict[str, Any]) -> str:
    limit = figures["limit"]
    return (
        f"| {name} | {figures['rows']:,} | {figures['file_mb']:.0f} MB | {figures['seconds']:.1f} s | "
        f"{limit['seconds']:g} s | {figures['processor_seconds']:.1f} s | "
        f"{figures['peak_mb']:.0f} MB | {limit['peak_mb']:g} MB | {figures['rows_per_s']:,} |"
    )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="draftproof-bench-") as directory:
        found = run(Path(directory))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "traffic.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / "traffic.md").write_text(page(found), encoding="utf-8")
    print(page(found))
    broken = [name for name, figures in found["imports"].items() if not figures["within"]]
    if broken:
        print(f"beyond its limit: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--import"]:
        print(json.dumps(measure_import(Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        sys.exit(main())
